"""Chats with stored runs: a question outlives kill -9 of the worker and of the listener, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from forge.durable.client import Runs
from forge.permissions.questions import Answer
from tests.channels.chat_services import FakeModel, FakeTelegram, served
from tests.doors.test_chats import echo, last_words

CONFIG = """
agent: {{model: "groq:m"}}
channels:
  phone: {{type: telegram, token_env: PHONE, api: "{api}", people: [42], approvers: [42]}}
"""
STARTED = {"listen": "listening: phone", "worker": "forge: worker "}  # what a command says when it is ready
WRITES = ("file_write", {"path": "done.txt", "content": "done"})


def write_once(messages: list[dict[str, Any]]) -> Any:
    """A model that writes a file when it is asked to, then says what the tool said."""
    said = max(at for at, one in enumerate(messages) if one["role"] == "user")
    results = [str(one["content"]) for one in messages[said:] if one["role"] == "tool"]
    if "write" not in last_words(messages):
        return echo(messages)
    return f"Result: {results[-1][:300]}" if results else WRITES


class Place:
    """A project with `forge listen --durable` and `forge worker`, each a process of its own that a test kills."""

    def __init__(self, folder: Path, chat: FakeTelegram, environment: dict[str, str]) -> None:
        self.folder, self.chat, self.environment = folder, chat, environment
        self.running: dict[str, asyncio.subprocess.Process] = {}

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / '.forge' / 'durable.db'}"

    async def start(self, *commands: str) -> None:
        for command in commands:
            words = [command, "--config", "forge.yaml", *(["--durable"] if command == "listen" else [])]
            self.running[command] = process = await self._begin(*words)
            assert process.stdout is not None
            async with asyncio.timeout(300):  # a busy machine
                while STARTED[command] not in (line := (await process.stdout.readline()).decode()):
                    assert line, f"forge {command} ended"

    async def forge(self, *words: str) -> str:
        """Runs a command to its end, and returns what it printed."""
        process = await self._begin(*words, "--config", "forge.yaml")
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        return said.decode()

    async def _begin(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "forge", *words, cwd=self.folder, env=self.environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def kill(self, *commands: str) -> None:
        for command in commands:
            process = self.running.pop(command)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.communicate()


@asynccontextmanager
async def placed(folder: Path, think: Any) -> AsyncIterator[Place]:
    chat, model = FakeTelegram(), FakeModel(think)
    async with served(chat.app()) as api, served(model.app()) as model_url:
        (folder / "forge.yaml").write_text(CONFIG.format(api=api))
        keys = {"PHONE": FakeTelegram.TOKEN, "GROQ_BASE_URL": f"{model_url}/v1", "GROQ_API_KEY": "gsk-test-1"}
        place = Place(folder, chat, {**os.environ, **keys})
        try:
            yield place
        finally:
            await place.kill(*place.running)
    assert chat.problems == []


@pytest.mark.slow
async def test_a_question_outlives_the_worker_and_the_listener(tmp_path):
    """The worker is killed while the person thinks, then the listener; the new question's button still counts."""
    async with placed(tmp_path, write_once) as place:
        await place.start("listen", "worker")
        await place.chat.say("write it")
        first = await place.chat.wait_for_question("wants to")
        await place.kill("worker", "listen")
        await place.start("listen")
        second = await place.chat.wait_for_question("wants to", number=2)
        await place.chat.press(first, "Yes")  # of the killed process
        await place.chat.wait_for_text("This question is over.")
        assert not (tmp_path / "done.txt").exists()
        await place.chat.press(second, "Yes")
        await place.chat.wait_for_text("→ yes, by")
        assert not (tmp_path / "done.txt").exists(), "no worker is there"
        await place.start("worker")
        await place.chat.wait_for_text("Result:")
        assert (tmp_path / "done.txt").read_text() == "done"
        await place.chat.say("thanks")  # the same session
        await place.chat.wait_for_text("Heard: thanks")
        with Runs(place.database) as runs:
            assert [one.status for one in runs.list()] == ["finished", "finished"]
            assert len(runs.messages(runs.list()[0].id)) > 5, "the second run has the conversation of the first"


@pytest.mark.slow
async def test_a_run_that_a_program_submits_is_asked_and_reported_in_its_chat(tmp_path):
    async with placed(tmp_path, write_once) as place:
        await place.start("worker", "listen")
        submitted = await place.forge("run", "--durable", "--detach", "--chat", "phone:42", "An alert: write it")
        question = await place.chat.wait_for_question("wants to")
        assert question.said["chat_id"] in (42, "42")
        await place.chat.press(question, "No")
        answer = await place.chat.wait_for_text("Result:")
        assert "refused" in answer.said["text"]
        assert not (tmp_path / "done.txt").exists()
        with Runs(place.database) as runs:
            assert runs.list()[0].id == submitted.split()[0]
        await place.chat.say("what was that?")
        await place.chat.wait_for_text("Heard: what was that?")
        with Runs(place.database) as runs:
            texts = [one.text for one in runs.messages(runs.list()[0].id)]
        assert "An alert: write it" in texts, "the conversation knows the run"


@pytest.mark.slow
async def test_an_answer_from_elsewhere_ends_the_question_and_stop_ends_the_run(tmp_path):
    async with placed(tmp_path, write_once) as place:
        await place.start("worker", "listen")
        await place.chat.say("write it")
        await place.chat.wait_for_question("wants to")
        with Runs(place.database) as runs:
            runs.answer(runs.list()[0].id, Answer.ONCE, by="the console")
        closed = await place.chat.wait_for_text("→ yes, by the console")
        assert not closed.buttons
        await place.chat.wait_for_text("Result:")
        assert (tmp_path / "done.txt").exists()

        await place.chat.say("write it again")
        await place.chat.wait_for_question("wants to", number=2)
        await place.chat.say("stop")
        await place.chat.wait_for_text("Stopped.")
        await place.chat.wait_for_text("→ no, by run")
        await place.chat.say("hello")
        await place.chat.wait_for_text("Heard: hello")


@pytest.mark.slow
async def test_a_question_in_words_is_answered_by_the_next_message_of_the_chat(tmp_path):
    def think(messages: list[dict[str, Any]]) -> Any:
        if "deploy" in last_words(messages):
            return "ask_question", {"question": "Which one?"}
        return echo(messages)

    async with placed(tmp_path, think) as place:
        await place.start("worker", "listen")
        await place.chat.say("deploy it")
        await place.chat.wait_for_text("Which one?")
        await place.chat.say("the red one")
        await place.chat.wait_for_text("Heard: the red one")
        with Runs(place.database) as runs:
            assert len(runs.list()) == 1


async def test_a_chat_that_no_one_listens_to_is_refused_and_one_that_is_known_is_taken(tmp_path):
    async with placed(tmp_path, echo) as place:
        refused = await place._begin(
            "run", "--durable", "--detach", "--chat", "team:C1", "Hi", "--config", "forge.yaml"
        )
        said, _ = await refused.communicate()
        assert refused.returncode == 2
        assert "Channels in which people are named: phone." in said.decode()
        assert "run-" in await place.forge("run", "--durable", "--detach", "--chat", "phone:42", "Hi")
