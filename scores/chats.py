"""A conversation in Slack and one in Telegram, on loopback: our own shapes of their APIs judge each request."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from forge.channels.slack import Slack
from forge.channels.telegram import Telegram
from forge.doors.chats import Chat, listen
from forge.project.project import RunOptions
from tests.channels.chat_services import (
    SLACK_METHODS,
    TELEGRAM_METHODS,
    FakeModel,
    FakeSlack,
    FakeTelegram,
    served,
)


class Judged(NamedTuple):
    """The requests that Forge made, those with another shape, and the methods that it did not use."""

    requests: int
    wrong: list[str]
    methods: int
    unused: list[str]


def judge(kind: str) -> Judged:
    """Holds one conversation: a file from a person, a question with an answer, a file from the agent."""
    return asyncio.run(_judge(kind))


def _think(messages: list[dict[str, Any]]) -> Any:
    results = sum(one["role"] == "tool" for one in messages)
    steps = [
        ("file_write", {"path": "a.txt", "content": "one"}),
        ("file_create", {"filename": "report.csv", "content": "a,b"}),
    ]
    return steps[results] if results < len(steps) else "Here it is."


async def _judge(kind: str) -> Judged:
    fake: Any = FakeSlack() if kind == "slack" else FakeTelegram()
    with TemporaryDirectory() as folder:
        async with served(fake.app()) as url, served(FakeModel(_think).app()) as model:
            fake.url = url
            os.environ.update(GROQ_BASE_URL=f"{model}/v1", GROQ_API_KEY="gsk-of-a-score")
            rules = "permissions: {rules: [allow write .forge/files/**]}"
            Path(folder, "forge.yaml").write_text(f"agent: {{model: 'groq:m'}}\n{rules}\n")
            options = RunOptions(workspace=folder, config=str(Path(folder, "forge.yaml")))
            task = asyncio.create_task(listen(options, {"team": _chat(kind, url)}))
            try:
                await _talk(fake, kind)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            if kind == "telegram":
                hook = Telegram(FakeTelegram.TOKEN, webhook="https://bot.example.com/team", secret="s" * 20, api=url)
                waiting = asyncio.create_task(hook.listen(_ignore))
                await fake.wait_for(lambda one: one.method == "setWebhook")
                waiting.cancel()
    known = SLACK_METHODS if kind == "slack" else TELEGRAM_METHODS
    checked = sum(1 if name == "getUpdates" else times for name, times in fake.checked.items())  # it is repeated
    wrong = len({one.partition(":")[0] for one in fake.problems})
    return Judged(checked + wrong, fake.problems, len(known), sorted(set(known) - set(fake.checked)))


async def _ignore(incoming: object) -> None:
    """Takes nothing."""


def _chat(kind: str, url: str) -> Chat:
    if kind == "slack":
        return Chat(Slack("xoxb-1", app_token="xapp-1", api=f"{url}/api"), ("U1",), ("U1",))
    return Chat(Telegram(FakeTelegram.TOKEN, api=url), ("42",), ("42",))


async def _talk(fake: Any, kind: str) -> None:
    fake.files |= {"a.txt": b"hello", "photos/f1.jpg": b"hello"}
    if kind == "slack":
        file = {"id": "F1", "name": "a.txt", "mimetype": "text/plain", "url_private": f"{fake.url}/files/a.txt"}
        await fake.say("read this", subtype="file_share", files=[file])
    else:
        await fake.say("", document={"file_id": "f1", "file_name": "a.txt"}, caption="read this")
    sent = "sendDocument" if kind == "telegram" else "files.completeUploadExternal"
    done = asyncio.create_task(fake.wait_for(lambda one: one.method == sent))
    number = 1
    while not done.done():
        asked = asyncio.create_task(fake.wait_for_question(number=number))
        await asyncio.wait({asked, done}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            await fake.press(asked.result(), "Yes")
            number += 1
        asked.cancel()
    await fake.wait_for_text("→ yes, by")
