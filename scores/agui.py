"""A front end of AG-UI and an agent of Forge, over real HTTP: the SDK judges each event, and we its order."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ag_ui.core import EventType
from pydantic import ValidationError

from forge import Agent, AgentType, Scripted, SessionStore, ToolCall, rules, tool
from forge.core.context import Scope, ToolContext
from forge.core.events import ReasoningDelta
from forge.core.messages import Message
from forge.doors import agui_app
from forge.tools.file_write import FileWrite
from forge.tools.todo import TodoWrite
from tests.doors.agui_client import TOKEN, Page, question_of, served

LEFT_OUT = {
    "_CHUNK": "start, content and end are sent instead",
    "ACTIVITY_DELTA": "a snapshot has the whole progress",
    "RAW": "events of a provider do not leave Forge",
    "REASONING_ENCRYPTED_VALUE": "the history is Forge's, with what providers encrypted",
}


class Judged(NamedTuple):
    events: int
    wrong: list[str]
    kinds: int  # of events in the protocol
    unsent: list[str]


class _Thinks:
    """A model that reasons before it answers, then follows a script."""

    def __init__(self, *replies: Any) -> None:
        self._script = Scripted(*replies)

    async def stream(self, request: Any) -> Any:
        yield ReasoningDelta("First I look.")
        async for part in self._script.stream(request):
            yield part


@tool
async def index(ctx: ToolContext) -> str:
    """Index the files."""
    ctx.progress("half", done=1)
    return "indexed"


def judge() -> Judged:
    """Runs a session: text, reasoning, calls, a list, two sub-agents, a question with a no and a yes, loading."""
    seen: list[str] = []
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(_hold_session(Path(folder), seen))
        except (AssertionError, ValidationError, KeyError) as error:
            wrong.append(f"after {len(seen)} events: {str(error)[:200]}")
    unsent = [f"{kind.value}: {_explain(kind.value)}" for kind in EventType if kind.value not in seen]
    return Judged(len(seen) + len(wrong), wrong, len(EventType), unsent)


def _explain(kind: str) -> str:
    return next((why for end, why in LEFT_OUT.items() if kind.endswith(end)), "not sent")


async def _hold_session(folder: Path, seen: list[str]) -> None:
    def write(name: str) -> ToolCall:
        return ToolCall("file_write", {"path": name, "content": "x"})

    plan = [ToolCall("todo_write", {"items": [{"content": "Read", "status": one}]}) for one in ("pending", "completed")]

    def task(kind: str) -> ToolCall:
        return ToolCall("task", {"description": "look", "prompt": "Look.", "agent_type": kind})

    model = _Thinks(
        Message("assistant", "I begin.", tool_calls=(ToolCall("index"), plan[0], task("looker"))),
        task("failing"),
        plan[1],
        "Planned.",
        write("a.txt"),
        write("b.txt"),
        "Done.",
    )
    agent = Agent(
        model,
        tools=[FileWrite(), TodoWrite(), index],
        agents={
            "looker": AgentType(model=Scripted("I looked.")),
            "failing": AgentType(model=Scripted(ToolCall("no_such_tool"))),
        },
        policy=rules("allow execute", "ask write"),
        scope=Scope(workspace=folder),
    )
    front = agui_app(agent, token=TOKEN, store=SessionStore(folder / "sessions.db"))
    async with served(front) as url:
        page = Page(url)
        try:
            await page.run("Plan")
            question = question_of(await page.run("Write"))
            question = question_of(await page.answer(question, {"decision": "no", "feedback": "Not that one."}))
            await Page(url).load()
            again = Page(url)
            await again.load()
            await page.answer(question, {"decision": "once"})
            await page.run("More")  # the script is over: an error
            page.events += again.events
        finally:
            seen += [event.type.value for event in page.events]
