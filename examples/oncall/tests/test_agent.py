"""Runs of the responder with a scripted model: a real service, a real worker that is killed, a chat in this process.

They need no model, no key and no Slack: `python -m pytest`, with the extras `durable` and `chats`.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from forge import Answer, PermissionRequest, load_project
from forge.channels import Button, Incoming
from forge.doors import Chat, listen
from forge.project.project import RunOptions

PROJECT = Path(__file__).parents[1]
ALERT = "Alert: api answers slowly."
PATIENCE = 300  # seconds, on a busy machine


class Copy:
    """A copy of the project, with its service on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "oncall"
        shutil.copytree(PROJECT, self.folder, ignore=shutil.ignore_patterns("__pycache__", ".forge", ".pytest_cache"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        for name in ("forge.yaml", "model.yaml"):
            file = self.folder / name
            file.write_text(file.read_text().replace("8741", str(self.port)))
        self.config = self.folder / "forge.yaml"

    def status(self) -> str:
        """What the service says; empty while it starts."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=10) as said:
                return str(json.load(said)["state"])
        except OSError:
            return ""

    def wait_for(self, state: str) -> None:
        until = time.monotonic() + PATIENCE
        while (said := self.status()) != state:
            assert time.monotonic() < until, f"the service says {said!r}, not {state!r}"

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, *words], cwd=self.folder, stderr=subprocess.DEVNULL)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    made = Copy(tmp_path)
    service = made.start("service.py", str(made.port))
    try:
        made.wait_for("slow")
        yield made
    finally:
        service.kill()
        service.wait()


def run(copy: Copy, answer: Answer) -> tuple[list[str], list[str]]:
    """Runs the alert. Returns what was asked, and what the model learnt from each call."""
    asked: list[str] = []

    async def decide(request: PermissionRequest) -> Answer:
        asked.append(f"{request.spec.name} {json.dumps(dict(request.arguments))}")
        return answer

    agent = load_project(copy.folder, config=copy.config).agent(
        f"scripted:{copy.folder / 'model.yaml'}", approve=decide
    )
    result = agent.run_sync(ALERT)
    return asked, [message.text for message in result.messages if message.role == "tool"]


def test_it_looks_asks_once_and_restarts(copy: Copy) -> None:
    asked, learnt = run(copy, Answer.ONCE)
    assert asked == ['restart {"service": "api"}']
    assert '"state": "slow"' in learnt[0]
    assert "100 of 100" in learnt[1]
    assert "03:10,1180" in learnt[2]
    copy.wait_for("ok")
    assert "started again" in (copy.folder / "logs/api.log").read_text()


def test_a_no_restarts_nothing_and_the_model_hears_why(copy: Copy) -> None:
    asked, learnt = run(copy, Answer.no("The backup runs until four.", by="Ada"))
    assert len(asked) == 1
    assert "The backup runs until four." in learnt[3]
    assert copy.status() == "slow"


class Room:
    """A chat in this process: what was said, and the buttons of the last question."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.buttons: list[Button] = []
        self.news = asyncio.Condition()
        self.receive: Callable[[Incoming], Awaitable[None]] | None = None

    async def listen(self, receive: Callable[[Incoming], Awaitable[None]]) -> None:
        self.receive = receive
        await self._note("(listening)")
        await asyncio.Event().wait()

    async def send(self, text: str, attachments: Sequence[Any] = (), *, to: str = "") -> None:
        await self._note(text)

    async def ask(self, text: str, buttons: Sequence[Button], *, to: str) -> str:
        self.buttons = list(buttons)
        await self._note(f"? {text}")
        return "1"

    async def close_question(self, message: str, text: str, *, to: str) -> None:
        await self._note(text)

    async def fetch_file(self, file: Any, most: int) -> Any:
        raise NotImplementedError("nobody sends files here")

    async def _note(self, text: str) -> None:
        async with self.news:
            self.said.append(text)
            self.news.notify_all()

    async def wait_for(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE), self.news:
            await self.news.wait_for(lambda: any(words in one for one in self.said))

    async def write(self, text: str) -> None:
        assert self.receive is not None
        await self.receive(Incoming(id=str(len(self.said)), chat="incident", person="ada", text=text))

    async def press(self, label: str) -> None:
        assert self.receive is not None
        value = next(one.value for one in self.buttons if one.label == label)
        await self.receive(Incoming(id="press", chat="incident", person="ada", button=value))


def test_the_question_outlives_the_worker_that_asked(copy: Copy) -> None:
    """An alert in the chat; the worker is killed while a person thinks; a yes; another worker restarts and reports."""
    worker = ["-m", "forge", "worker", "--config", "forge.yaml", "--model", "scripted:model.yaml"]

    async def respond() -> Room:
        room = Room()
        options = RunOptions(workspace=str(copy.folder), config=str(copy.config))
        chats = {"team": Chat(room, people={"ada"}, approvers={"ada"})}
        model = f"scripted:{copy.folder / 'model.yaml'}"
        listening = asyncio.create_task(listen(options, chats, model=model, durable=True))
        first = copy.start(*worker)
        try:
            await room.wait_for("(listening)")
            await room.write(ALERT)
            await room.wait_for("? restart")
        finally:
            first.kill()  # -9
            first.wait()
        second = copy.start(*worker)
        try:
            assert copy.status() == "slow"
            await room.press("Yes")
            await room.wait_for("Left for people")
        finally:
            second.terminate()
            second.wait()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return room

    room = asyncio.run(respond())
    assert any("→ yes, by ada in team" in one for one in room.said)
    copy.wait_for("ok")
    assert (copy.folder / "logs/api.log").read_text().count("started again") == 1
