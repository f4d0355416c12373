"""Chats survive kill -9: each message is answered once, what was interrupted is said, and people go on from there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from forge.agent.session import SessionStore
from forge.channels.channel import Incoming
from forge.core.messages import Message, ToolCall
from forge.core.result import Attachment
from forge.doors.inbox import Inbox
from tests.channels.chat_services import FakeModel, FakeSlack, FakeTelegram, served
from tests.doors.test_chats import echo, last_words

CONFIG = """
agent: {{model: "groq:m"}}
channels:
  team: {{type: slack, token_env: BOT, app_token_env: APP, api: "{slack}/api", people: [U1], approvers: [U1]}}
  phone: {{type: telegram, token_env: PHONE, api: "{telegram}", people: [42], approvers: [42]}}
"""


class Listener:
    """`forge listen` as a process of its own, which a test kills."""

    def __init__(self, folder: Path, model_url: str, fakes: dict[str, str]) -> None:
        (folder / "forge.yaml").write_text(CONFIG.format(**fakes))
        self.folder = folder
        keys = {"BOT": "xoxb-1", "APP": "xapp-1", "PHONE": FakeTelegram.TOKEN}
        self.environment = {**os.environ, **keys, "GROQ_BASE_URL": f"{model_url}/v1", "GROQ_API_KEY": "gsk-test-1"}
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *names: str) -> None:
        words = ["-m", "forge", "listen", *names, "--config", "forge.yaml", "--json"]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.events: list[str] = []

    async def wait_for(self, event: str, number: int) -> None:
        """Waits until it has said so often that this happened."""
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            while self.events.count(event) < number:
                self.events.append(json.loads(await self.process.stdout.readline())["event"])

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return await self.process.wait()


@asynccontextmanager
async def setting(folder: Path, think: Any) -> AsyncIterator[tuple[Listener, FakeSlack, FakeTelegram, FakeModel]]:
    slack, telegram, model = FakeSlack(), FakeTelegram(), FakeModel(think)
    async with served(slack.app()) as a, served(telegram.app()) as b, served(model.app()) as c:
        listener = Listener(folder, c, {"slack": a, "telegram": b})
        try:
            yield listener, slack, telegram, model
        finally:
            if listener.process is not None and listener.process.returncode is None:
                await listener.kill()
    assert slack.problems == telegram.problems == []


def results_since(messages: list[dict[str, Any]]) -> list[str]:
    said = max(at for at, one in enumerate(messages) if one["role"] == "user")
    return [str(one["content"]) for one in messages[said:] if one["role"] == "tool"]


@pytest.mark.slow
async def test_a_message_that_waits_is_answered_after_kill_9(tmp_path):
    hang = asyncio.Event()

    async def think(messages: list[dict[str, Any]]) -> str:
        if "wait" in last_words(messages) and not hang.is_set():
            await hang.wait()
        return echo(messages)

    async with setting(tmp_path, think) as (listener, _, telegram, model):
        await listener.start("phone")
        await telegram.say("wait a moment")
        await model.wait_until_asked(1)
        await telegram.say("and then this")  # for the run in progress, which never reads it
        await listener.kill()
        hang.set()
        await listener.start("phone")
        await telegram.wait_for_text("Forge was stopped while it worked on “wait a moment”")
        await telegram.wait_for_text("Heard: and then this")
        await telegram.say("last")
        await telegram.wait_for_text("Heard: last")
        assert sum("Heard: and then this" in one for one in telegram.texts) == 1


def test_a_process_that_is_killed_at_any_step_leaves_what_the_next_one_needs(tmp_path):
    """The states in which a kill leaves a message and an answer, one after the other."""
    folder = tmp_path / ".forge"
    folder.mkdir()
    inbox = Inbox(folder, "team")
    message = Incoming(id="1", chat="C1", person="U1", text="hello")
    assert inbox.add(message)
    assert not inbox.add(message)  # the service sends it again: it was not acknowledged
    inbox.close()
    inbox = Inbox(folder, "team")
    (row,) = inbox.list_open("C1")
    assert (row.incoming, row.state) == (message, "new")
    inbox.set_state([row.id], "running", before=3)
    assert [(one.state, one.before) for one in Inbox(folder, "team").list_open()] == [("running", 3)]
    inbox.finish([row.id], "C1", "answer", [Attachment("text/plain", b"x", "a.txt")])
    assert inbox.list_open() == []
    assert not inbox.add(message)
    reply = Inbox(folder, "team").next_reply("C1")
    assert reply is not None
    assert (reply.text, reply.files[0].data, reply.is_repeated) == ("answer", b"x", False)
    again = inbox.next_reply("C1")
    assert again is not None
    assert again.is_repeated  # killed while it was sent
    inbox.end_reply(again.id, "sent")
    assert inbox.next_reply("C1") is None
    assert inbox.list_chats() == []


def test_what_something_else_stored_does_not_count(tmp_path):
    import sqlite3

    folder = tmp_path / ".forge"
    folder.mkdir()
    inbox = Inbox(folder, "team")
    assert inbox.add(Incoming(id="1", chat="C1", person="U1", text="hello"))
    inbox.begin_session("C1", "mine")
    with sqlite3.connect(inbox.path) as other:
        other.execute("UPDATE chat_messages SET body = replace(body, 'hello', 'delete everything')")
        other.execute("UPDATE chat_conversations SET session = 'yours'")
    other.close()
    assert inbox.list_open() == []
    assert inbox.find_session("C1") is None
    assert inbox.add(Incoming(id="2", chat="C1", person="U1", text="hello"))  # the twin
    inbox.begin_session("C1", "mine")
    assert [one.incoming.text for one in inbox.list_open()] == ["hello"]
    assert inbox.find_session("C1") == "mine"
    inbox.close()


def test_a_question_is_used_once_and_strangers_are_answered_once(tmp_path):
    folder = tmp_path / ".forge"
    folder.mkdir()
    inbox = Inbox(folder, "team")
    inbox.open_question("q1", "C1")
    inbox.note_posted("q1", "5.5")
    assert inbox.use_question("q1")
    assert not inbox.use_question("q1")
    assert not inbox.use_question("q2")
    inbox.open_question("q3", "C1")
    inbox.note_posted("q3", "5.6")
    assert inbox.take_stale_questions() == [("C1", "5.6")]
    assert inbox.take_stale_questions() == []
    assert inbox.may_refuse("U9")
    assert not inbox.may_refuse("U9")
    assert inbox.may_refuse("U8")
    inbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["answered", "answered twice", "open call", "not begun"])
async def test_a_run_that_was_killed_is_answered_told_or_begun(end, tmp_path):
    """What the session holds decides: its answer is sent, an interruption is said, a run that had not begun begins."""
    async with setting(tmp_path, echo) as (listener, _, telegram, model):
        await listener.start("phone")
        await telegram.say("first")
        await telegram.wait_for_text("Heard: first")
        await listener.kill()
        inbox = Inbox(tmp_path / ".forge", "phone")
        name = inbox.find_session("42")
        assert name is not None
        with SessionStore.of(tmp_path) as store:
            session = store.open(name)
            before = len(session.messages)
            if end != "not begun":
                session.append(Message("user", "second"))
            if end == "answered twice":
                session.append(Message("assistant", "The first answer."))
                session.append(Message("user", "and more"))
            if end.startswith("answered"):
                session.append(Message("assistant", "The answer of the killed run."))
            if end == "open call":
                session.append(Message("assistant", tool_calls=(ToolCall("bash", {"command": "rm -rf x"}, "c1"),)))
        inbox.add(Incoming(id=f"42:{time.time_ns()}", chat="42", person="42", text="second"))
        (row,) = inbox.list_open("42")
        inbox.set_state([row.id], "running", before=before)
        inbox.close()
        asked = len(model.asked)
        await listener.start("phone")
        expected = {
            "answered": "The answer of the killed run.",
            "answered twice": "The first answer.\n\nThe answer of the killed run.",
            "open call": "Forge was stopped while it worked on “second”",
            "not begun": "Heard: second",
        }
        await telegram.wait_for_text(expected[end])
        assert len(model.asked) == asked + (end == "not begun")
        await telegram.say("third")
        await telegram.wait_for_text("Heard: third")
        assert sum(expected[end] in one for one in telegram.texts) == 1


async def test_a_service_that_cannot_be_reached_is_said(tmp_path):
    async with setting(tmp_path, echo) as (listener, _, telegram, _model):
        telegram.instead.append(JSONResponse({"ok": False, "description": "try later"}, 500))
        await listener.start("phone")
        await listener.wait_for("problem", 1)
        await telegram.say("hello")
        await telegram.wait_for_text("Heard: hello")
