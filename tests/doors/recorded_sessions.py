"""One session at each door, as `Must show` of its issue wants it, with what both sides said.

A file is edited with an approval, an edit is refused once, a run is steered once and cancelled once, and the session is
resumed after kill -9. The programs are real: `forge acp`, `forge listen` and `forge serve --agui`, each in a process of
its own, over its protocol. The model is one on loopback that answers by what it is told.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import forge
from forge.agent.summary import TITLE_PROMPT
from tests.channels.chat_services import Called, FakeModel, served
from tests.doors.acp_editor import FORMS, Editor, forge_process
from tests.doors.agui_client import TOKEN, Page, question_of, text_of
from tests.doors.test_chats import last_words
from tests.doors.test_chats_restart import results_since, setting

EDITED, REFUSED, STEERED, CANCELLED, RESUMED = STEPS = (
    "Edited with an approval",
    "Refused once",
    "Steered once",
    "Cancelled once",
    "Resumed after kill -9",
)
LONGEST = 900  # characters of one text of a message
MOST_LINES = 24  # of one text


@dataclass
class Record:
    """What was said, step by step: who, and what."""

    folder: Path
    steps: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def begin(self, step: str) -> None:
        self.steps[step] = []

    def note(self, who: str, what: str) -> None:
        if self.steps:
            list(self.steps.values())[-1].append((who, what.replace(str(self.folder), "/project")))

    def lines(self, step: str) -> Iterator[str]:
        """Yields the lines of a step: each message begins with who sent it."""
        for who, what in self.steps[step]:
            first, *rest = what.splitlines() or [""]
            rest = [*rest[:MOST_LINES], f"[{len(rest) - MOST_LINES} more lines]"] if len(rest) > MOST_LINES else rest
            yield f"{who:<6} {first}"
            yield from (f"{'':6} {line}".rstrip() for line in rest)


class Thinks:
    """The model: it reads and changes a.txt, looks around, or waits, as the person's last words say."""

    def __init__(self) -> None:
        self.steer = asyncio.Event()

    async def __call__(self, messages: list[dict[str, Any]]) -> Any:
        if TITLE_PROMPT in str(messages[0]["content"]):
            return "Changes of a file"
        words, results = last_words(messages), results_since(messages)
        if "wait" in words:
            await asyncio.Event().wait()
        if "look" in words and not results:
            await self.steer.wait()
            return "directory_tree", {}
        if "change" in words and not results:
            return "file_read", {"path": "a.txt"}
        if "change" in words and len(results) == 1:
            old, new = ("one", "two") if "two" in words else ("two", "three")
            return "file_edit", {"path": "a.txt", "edits": [{"old_text": old, "new_text": new}]}
        return f"Heard: {words} / {results[-1][:300] if results else ''}"


# Editors.


async def record_acp(folder: Path) -> Record:
    """`forge acp`, driven by the SDK's own client; each message is checked by its schema."""
    record, think = Record(folder), Thinks()
    file = folder / "a.txt"
    file.write_text("one\n")
    async with served((model := FakeModel(think)).app()) as url:
        environment = {"GROQ_BASE_URL": f"{url}/v1", "GROQ_API_KEY": "gsk-test-1"}
        editor = Editor("allow_once", "reject_with_feedback")
        editor.reason = "two is enough"
        start = partial(forge_process, environment=environment, capabilities=FORMS, observer=_note_acp(record))
        async with start(editor, folder, "--model", "groq:m") as (_, process):
            record.begin(EDITED)
            session = (await editor.agent.new_session(cwd=str(folder))).session_id
            await editor.say(session, "change it to two")
            assert editor.asked[0][0].content[1].new_text == "two\n"
            assert file.read_text() == "two\n"

            record.begin(REFUSED)
            await editor.say(session, "change it to 3")
            assert "two is enough" in editor.said
            assert file.read_text() == "two\n"

            record.begin(STEERED)
            before = len(model.asked)
            looking = asyncio.create_task(editor.say(session, "look around"))
            await model.wait_until_asked(before + 1)
            steering = asyncio.create_task(editor.say(session, "briefly, please"))
            await asyncio.create_task(editor.say(session, "/mode"))  # answered after the message before it was taken
            think.steer.set()
            assert (await looking).stop_reason == (await steering).stop_reason == "end_turn"
            assert "Heard: briefly, please" in editor.said

            record.begin(CANCELLED)
            before = len(model.asked)
            waiting = asyncio.create_task(editor.say(session, "wait for it"))
            await model.wait_until_asked(before + 1)
            await editor.agent.cancel(session_id=session)
            assert (await waiting).stop_reason == "cancelled"

            record.begin(RESUMED)
            editor.question.clear()
            editor.hold.clear()
            killed = asyncio.create_task(editor.say(session, "change it to 3 again"))
            await asyncio.wait_for(editor.question.wait(), 60)
            record.note("", "[kill -9 while the question is open]")
            process.send_signal(signal.SIGKILL)
            await process.wait()
            with suppress(ConnectionError):
                await killed
        assert file.read_text() == "two\n"
        after = Editor("allow_once")
        async with start(after, folder, "--model", "groq:m"):
            await after.agent.load_session(cwd=str(folder), session_id=session)
            told = [one.content.text for one in after.of("user_message_chunk")]
            assert told[-2:] == ["wait for it", "change it to 3 again"]
            assert [*after.calls().values()][-1][-1].status == "failed"  # the call that was open has no result
            await after.say(session, "change it to 3 now")
            assert file.read_text() == "three\n"
    return record


def _note_acp(record: Record) -> Callable[[str, str, dict[str, Any]], None]:
    def note(way: str, method: str, message: dict[str, Any]) -> None:
        who = "editor" if way == "out" else "forge"
        if "method" in message:
            record.note(who, f"{method} {_show_acp(message.get('params') or {})}".rstrip())
        elif "error" in message:
            record.note(who, f"error of {method}: {message['error']['message']}")
        elif method in ("session/prompt", "session/request_permission", "elicitation/create"):
            record.note(who, f"answer to {method} {_shorten(message['result'])}")

    return note


def _show_acp(params: dict[str, Any]) -> str:
    update = params.get("update")
    if not isinstance(update, dict):
        return _shorten(params)
    kind = update.pop("sessionUpdate") if "sessionUpdate" in (update := dict(update)) else ""
    if kind == "available_commands_update":
        return f"{kind}: {', '.join(one['name'] for one in update['availableCommands'])}"
    return f"{kind} {_shorten(update)}"


# Chats.


async def record_chat(folder: Path, kind: str) -> Record:
    """`forge listen`, with Slack (Socket Mode) or Telegram (long polling) on loopback."""
    record, think = Record(folder), Thinks()
    file = folder / "a.txt"
    file.write_text("one\n")
    channel = "team" if kind == "slack" else "phone"
    async with setting(folder, think) as (listener, slack, telegram, model):
        fake: Any = slack if kind == "slack" else telegram
        fake.record = lambda who, called: _note_chat(record, who, called)
        await listener.start(channel)
        record.begin(EDITED)
        thread = await fake.say("change it to two")
        more = {"thread": thread} if kind == "slack" else {}
        question = await fake.wait_for_question()
        assert "+two" in question.said["text"]
        await fake.press(question, "Yes")
        await fake.wait_for_text("Heard: change it to two")
        await fake.wait_for_text("→ yes, by")
        assert file.read_text() == "two\n"

        record.begin(REFUSED)
        await fake.say("change it to 3", **more)
        await fake.press(await fake.wait_for_question(number=2), "No, because…")
        await fake.wait_for_text("Write the reason")
        await fake.say("two is enough", **more)
        answer = await fake.wait_for_text("Heard: change it to 3")
        await fake.wait_for_text("→ no, by")
        assert "two is enough" in answer.said["text"]
        assert file.read_text() == "two\n"

        record.begin(STEERED)
        before = len(model.asked)
        await fake.say("look around", **more)
        await model.wait_until_asked(before + 1)
        await fake.say("briefly, please", **more)
        think.steer.set()
        await fake.wait_for_text("Heard: briefly, please")

        record.begin(CANCELLED)
        before = len(model.asked)
        await fake.say("wait for it", **more)
        await model.wait_until_asked(before + 1)
        await fake.say("stop", **more)
        await fake.wait_for_text("Stopped.")

        record.begin(RESUMED)
        await fake.say("change it to 3 again", **more)
        question = await fake.wait_for_question(number=3)
        await listener.wait_for("question", 3)  # it has noted which message shows it
        record.note("", "[kill -9 while the question is open]")
        await listener.kill()
        await listener.start(channel)
        told = await fake.wait_for_text("Forge was stopped while it worked on")
        assert "change it to 3 again" in told.said["text"]
        await fake.wait_for_text("This question is over: Forge was restarted.")
        await fake.press(question, "Yes")  # the button of the killed process
        await fake.wait_for_text("This question is over.")
        assert file.read_text() == "two\n"
        await fake.say("!continue" if kind == "slack" else "/continue", **more)
        await fake.wait_for_text("Heard: change it to 3 again")
        await fake.say("change it to 3 now", **more)
        await fake.press(await fake.wait_for_question(number=4), "Yes")
        await fake.wait_for_text("Heard: change it to 3 now")
        assert file.read_text() == "three\n"
        assert await listener.kill(signal.SIGTERM) == 0
    return record


def _note_chat(record: Record, who: str, said: Called | str) -> None:
    if isinstance(said, str):
        record.note(who, said)
    elif (text := said.said.get("text")) is not None and said.method != "answerCallbackQuery":
        if said.method in ("chat.update", "editMessageText"):  # the question loses its buttons, and gets its answer
            text = text.splitlines()[-1]
        record.note(who, f"{said.method}: {_cut(text)}")
        if said.buttons:
            record.note("", " ".join(f"[{label}]" for label in said.buttons))


# Front ends.


async def record_agui(folder: Path) -> Record:
    """`forge serve --agui`, with a page over HTTP; each event is checked by the SDK's models, and the order of all."""
    record, think = Record(folder), Thinks()
    file = folder / "a.txt"
    file.write_text("one\n")
    async with served((model := FakeModel(think)).app()) as url:
        environment = {"GROQ_BASE_URL": f"{url}/v1", "GROQ_API_KEY": "gsk-test-1", "FRONT_TOKEN": TOKEN}
        async with _serve_agui(folder, environment) as (address, process):
            page = _RecordedPage(address, record)
            record.begin(EDITED)
            question = question_of(await page.say_it("change it to two"))
            assert "+two" in question.message
            await page.answer_it(question, {"decision": "once"})
            assert file.read_text() == "two\n"

            record.begin(REFUSED)
            question = question_of(await page.say_it("change it to 3"))
            events = await page.answer_it(question, {"decision": "no", "feedback": "two is enough"})
            assert "two is enough" in text_of(events)
            assert file.read_text() == "two\n"

            record.begin(STEERED)
            before = len(model.asked)
            looking = asyncio.create_task(page.say_it("look around"))
            await model.wait_until_asked(before + 1)
            sent = await page.say_it("briefly, please")
            assert sent[-1].result == {"sentToRun": True}
            think.steer.set()
            assert "Heard: briefly, please" in text_of(await looking)

            record.begin(CANCELLED)
            before = len(model.asked)
            waiting = asyncio.create_task(page.say_it("wait for it"))
            await model.wait_until_asked(before + 1)
            record.note("page", "[closes the connection]")
            waiting.cancel()
            await asyncio.wait({waiting})
            await model.wait_until_left(1)
            async with asyncio.timeout(60):
                while (await Page(address).load())[-1].result == {"inProgress": True}:
                    pass  # the run is ending
            await _RecordedPage(address, record).load_it()

            record.begin(RESUMED)
            question = question_of(await page.say_it("change it to 3 again"))
            record.note("", "[kill -9 while the question is open]")
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with _serve_agui(folder, environment) as (address, _):
            again = _RecordedPage(address, record)
            loaded = await again.load_it()
            assert question_of(loaded).id == question.id
            assert file.read_text() == "two\n"
            await again.answer_it(question_of(loaded), {"decision": "once"})
            assert file.read_text() == "three\n"
    return record


@asynccontextmanager
async def _serve_agui(folder: Path, environment: dict[str, str]) -> AsyncIterator[tuple[str, Any]]:
    words = ["-m", "forge", "serve", "--agui", "--port", "0", "--token-env", "FRONT_TOKEN", "--model", "groq:m"]
    source = {"PYTHONPATH": str(Path(forge.__file__).parents[1])}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=folder, env={**os.environ, **source, **environment}, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        said = (await asyncio.wait_for(process.stderr.readline(), 120)).decode()
        found = re.search(r"http://127[.]0[.]0[.]1:[0-9]+/agui", said)
        assert found is not None, said
        yield found[0], process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


class _RecordedPage(Page):
    """A page whose requests and events are noted."""

    def __init__(self, url: str, record: Record) -> None:
        super().__init__(url)
        self._record = record

    async def say_it(self, text: str) -> list[Any]:
        return await self._run(f"message: {text}", self.run(text))

    async def answer_it(self, question: Any, payload: dict[str, Any]) -> list[Any]:
        return await self._run(f"resume: {json.dumps(payload)}", self.answer(question, payload))

    async def load_it(self) -> list[Any]:
        return await self._run("no message: load the thread", self.load())

    async def _run(self, said: str, answer: Awaitable[list[Any]]) -> list[Any]:
        self._record.note("page", said)
        events = await answer
        for line in _show_events(events):
            self._record.note("forge", line)
        return events


def _show_events(events: list[Any]) -> Iterator[str]:
    for event in events:
        kind = event.type.value
        if kind in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            yield f"{kind} {_cut(event.delta)}"
        elif kind == "TOOL_CALL_START":
            yield f"{kind} {event.tool_call_name}"
        elif kind == "TOOL_CALL_RESULT":
            yield f"{kind} {_cut(str(event.content))}"
        elif kind == "MESSAGES_SNAPSHOT":
            yield f"{kind} of {len(event.messages)} messages"
        elif kind == "RUN_FINISHED" and event.outcome is not None and event.outcome.type == "interrupt":
            yield f"{kind} interrupt: {_cut(event.outcome.interrupts[0].message)}"
        elif kind == "RUN_FINISHED":
            yield f"{kind} {event.outcome.type if event.outcome is not None else json.dumps(event.result)}"
        elif kind == "CUSTOM":
            yield f"{kind} {event.name}"
        else:
            yield kind


# Shortens what is shown, and leaves out what is another one each time.


def _cut(text: str) -> str:
    text = re.sub(r"\(until \d\d:\d\d UTC\)", "(until 12:00 UTC)", text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _shorten(value: Any) -> str:
    return json.dumps(_shorten_value(value), ensure_ascii=False)


def _shorten_value(value: Any) -> Any:
    if isinstance(value, dict):
        hidden = ("sessionId", "_meta", "toolCallId", "rawInput", "modes", "configOptions", "usage", "locations")
        return {key: _shorten_value(one) for key, one in value.items() if key not in hidden and one is not None}
    if isinstance(value, list):
        return [_shorten_value(one) for one in value]
    return _cut(value) if isinstance(value, str) else value
