"""The sessions page: messages from the session store, events from the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from forge.agent.rewind import Rewind
from forge.agent.session import SessionInfo
from forge.console.api.requests import ApiRequest, Events
from forge.console.console_state import ConsoleState
from forge.console.event_entries import build_entry, join_pieces
from forge.console.response_shapes import message_shape, run_shape
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import SessionRewound
from forge.core.execution.threads import in_thread
from forge.project.runs.durable_runs import check_runs_are_over
from forge.project.runs.project_worker import log_events
from forge.project.runs.sessions import session_store

log = logging.getLogger(__name__)

MOST_SESSIONS = 500  # sessions of a list
MOST_EVENTS = 5_000
MOST_MESSAGES = 1_000


def session_infos(console: ConsoleState) -> list[SessionInfo]:
    try:
        with session_store(console.workspace) as sessions:
            return sessions.list()
    except ToolError:  # the workspace keeps none
        return []


def list_sessions(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    text = request.text("text").strip().lower()
    found = [_info(one) for one in session_infos(console)]
    if all(one["name"] != DEMO for one in found):
        found.append(_demo())
    wanted = [one for one in found if text in one["name"].lower() or text in one["title"].lower()]
    return {"sessions": wanted[:MOST_SESSIONS]}


def show_session(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    name = request.path["name"]
    if _is_demo(console, name):
        return {**_demo(), "problem": None, "runs": []}
    runs = console.runs.list(session=name, parent="", limit=100)
    problem = ""
    with session_store(console.workspace) as sessions:
        info = next((one for one in sessions.list() if one.name == name), None)
        try:
            problem = sessions.show(name).problem if info is not None or not runs else ""
        except ToolError as error:
            if info is None:  # it says that there is none, and which are near
                raise
            problem = error.message
    base = _info(info) if info is not None else _of_runs(name, runs)
    return {**base, "problem": problem or None, "runs": [run_shape(run) for run in runs]}


def show_session_events(console: ConsoleState, request: ApiRequest) -> Events:
    name = request.path["name"]
    after, limit = request.number("after", 0, 0, 2**53), request.number("limit", 1_000, 1, MOST_EVENTS)
    if _is_demo(console, name):
        events = list(enumerate(demo_events(), 1))
        page, following = events[after : after + limit], after + limit if len(events) > after + limit else None
    else:
        log = console.open_log()
        page, following = log.page(name, after, limit)
        console.add_notes(log.notes)
    return Events(join_pieces([build_entry(number, f"session:{name}", event) for number, event in page]), following)


def show_session_messages(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    name = request.path["name"]
    if _is_demo(console, name):
        return {"messages": demo_messages(), "left_out": 0}
    with session_store(console.workspace) as sessions:
        messages = sessions.show(name).messages
    shown_messages = [message_shape(console, one) for one in messages[-MOST_MESSAGES:]]
    return {"messages": shown_messages, "left_out": max(0, len(messages) - MOST_MESSAGES)}


async def show_session_turns(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Lists the turns of a session, with the files that each changed, and whether a rewind can be taken back."""
    name = request.path["name"]
    if await in_thread(lambda: _is_demo(console, name)):
        return {"turns": [], "is_rewound": False}
    with session_store(console.workspace) as sessions:
        turns = await console.agent.list_turns(name, store=sessions)
        rewinds = (await in_thread(lambda: sessions.read_history(name)))[2]
    return {"turns": [one.as_json() for one in turns[-MOST_MESSAGES:]], "is_rewound": bool(rewinds)}


async def rewind_session(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Tells what a rewind would change; with `write` it is made, if it still has the digest `expect`."""
    name, turn = request.path["name"], request.body.get("turn")
    if turn is not None and (isinstance(turn, bool) or not isinstance(turn, int)):
        raise ToolError("turn must be the number of a turn, or null", ErrorKind.VALIDATION, "null takes back a rewind.")
    expect, writes = request.body_text("expect", needed=False, most=100), request.body.get("write") is True
    if writes and not expect:
        hint = "Ask without write first, and send the digest of the answer as expect."
        raise ToolError("a rewind needs its preview", ErrorKind.VALIDATION, hint)
    await in_thread(lambda: check_runs_are_over(console.configuration, console.workspace, name))
    with session_store(console.workspace) as sessions:
        found = await console.agent.rewind(name, turn, store=sessions, preview=not writes, expect=expect)
    if writes:
        await in_thread(lambda: _log_rewind(console.workspace, found))
        console.hub.tell("sessions")
    shape = found.as_json()
    return {**shape, "diff": console.secrets.mask_all(shape["diff"]), "problem": "; ".join(found.conflicts)}


def _log_rewind(workspace: Path, done: Rewind) -> None:
    """Writes a rewind to the log of events."""
    activity = ActivityStream()
    try:
        stop = log_events(workspace, activity)
    except (OSError, ValueError) as error:
        log.warning("the rewind of %s is not in the log of events: %s", done.session, error)
        return
    files = tuple(one.shown for one in done.effects.files)
    activity.emit(SessionRewound(done.turn, done.removed, done.restored, files, session=done.session))
    stop()


def _is_demo(console: ConsoleState, name: str) -> bool:
    """Returns whether the demo is meant, unless a person's own session has its name."""
    return name == DEMO and all(one.name != name for one in session_infos(console))


def _demo() -> dict[str, Any]:
    return {**demo_info(), "is_demo": True}


def _info(one: SessionInfo) -> dict[str, Any]:
    names = ["name", "title", "created", "updated", "messages", "turns"]
    return {**{name: getattr(one, name) for name in names}, "is_demo": False}


def _of_runs(name: str, runs: list[Any]) -> dict[str, Any]:
    """Describes a session whose runs are not over yet."""
    first, last = runs[-1], runs[0]
    return {
        "name": name,
        "title": first.prompt[:80],
        "created": first.created,
        "updated": last.updated,
        "messages": 0,
        "turns": 0,
        "is_demo": False,
    }


# The demo session that is always there: it shows how a run reads, before there is a model or a key.


DEMO = "demo"
_AT = 1_760_000_000.0  # when it is said to have happened
_PROMPT = "The test of the parser fails. Find out why, and fix it."
_DIFF = """--- parser.py
+++ parser.py
@@ -1,4 +1,4 @@
 def parse(line):
-    name, value = line.split("=")
+    name, value = line.split("=", 1)
     return name.strip(), value.strip()
"""
_ANSWER = "A value may hold `=`, and the line was split at each of them. It is split once now; the test passes."


def demo_info() -> dict[str, Any]:
    return {"name": DEMO, "title": _PROMPT, "created": _AT, "updated": _AT + 22.8, "messages": 8, "turns": 4}


def demo_events() -> list[dict[str, Any]]:
    """Returns the events as a log has them."""
    told = _DemoEvents()
    told.tell(0.0, "run_started", prompt=_PROMPT)
    told.add_text(0.6, "First I look for the test and the code it covers.\n")
    told.call(1.1, "demo-1", "grep_search", {"pattern": "def parse"}, "parser.py:1:def parse(line):", title="1 match")
    told.tell(1.4, "turn_finished", turn=1, usage={"input": 1840, "output": 62, "cached": 0})
    told.start(2.6, "demo-2", "bash", {"command": "python -m pytest -q test_parser.py"})
    told.ask("demo-2", "execute", "python -m pytest -q test_parser.py")
    told.output(6.9, "demo-2", "F\nValueError: too many values to unpack (expected 2)\n1 failed\n")
    told.end(7.2, "demo-2", "1 failed: ValueError: too many values to unpack (expected 2)", 1.9, title="exit code 1")
    told.tell(7.3, "turn_finished", turn=2, usage={"input": 4010, "output": 131, "cached": 1500})
    arguments = {"path": "parser.py", "old_text": 'line.split("=")', "new_text": 'line.split("=", 1)'}
    told.start(9.5, "demo-3", "file_edit", arguments)
    told.ask("demo-3", "write", "parser.py")
    told.end(13.4, "demo-3", "Edited parser.py: 1 replacement.", 0.02, title="Edited parser.py", for_user=_DIFF)
    told.tell(13.5, "turn_finished", turn=3, usage={"input": 6420, "output": 240, "cached": 3600})
    told.start(15.0, "demo-4", "bash", {"command": "python -m pytest -q test_parser.py"})
    told.output(16.6, "demo-4", ".\n1 passed\n")
    told.end(16.8, "demo-4", "1 passed", 1.8, title="exit code 0")
    told.add_text(21.9, _ANSWER)
    told.tell(22.7, "turn_finished", turn=4, usage={"input": 8910, "output": 330, "cached": 5900})
    total = {"input": 21_180, "output": 763, "cached": 11_000}
    told.tell(22.8, "run_finished", text=_ANSWER, reason="answer", turns=4, usage=total, calls=4, cost=None, error="")
    return told.events


def demo_messages() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "user", "text": _PROMPT}]
    for event in demo_events():
        if event["event"] == "tool_call_start":
            said.append({"role": "assistant", "text": "", "tool_calls": [event["call"]]})
        elif event["event"] == "tool_call_end":
            said.append({"role": "tool", "text": event["result"]["for_llm"], "call_id": event["call"]["id"]})
    return [*said, {"role": "assistant", "text": _ANSWER}]


class _DemoEvents:
    """Writes events as Forge does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._at = 0.0

    def tell(self, at: float, event: str, **more: Any) -> None:
        self._at = at
        common = {"event": event, "ts": _AT + at, "seq": len(self.events) + 1, "session": DEMO, "agent": "main"}
        self.events.append({**common, **more})

    def add_text(self, at: float, text: str) -> None:
        self.tell(at, "text_delta", text=text)

    def call(self, at: float, call: str, name: str, arguments: dict[str, Any], text: str, title: str) -> None:
        self.start(at, call, name, arguments)
        self.end(at + 0.1, call, text, 0.1, title=title)

    def start(self, at: float, call: str, name: str, arguments: dict[str, Any]) -> None:
        self._calls[call] = {"id": call, "name": name, "arguments": arguments}
        self.tell(at, "tool_call_start", call=self._calls[call])

    def ask(self, call: str, permission: str, target: str) -> None:
        which = {"call": self._calls[call]}
        self.tell(self._at, "permission_asked", **which, permission=permission, target=target, rule="", others=[])
        self.tell(self._at + 2.4, "permission_answered", **which, answer="once", by="person")

    def output(self, at: float, call: str, text: str) -> None:
        self.tell(at, "tool_output_chunk", call=self._calls[call], text=text)

    def end(self, at: float, call: str, text: str, seconds: float, *, title: str, for_user: str = "") -> None:
        result = {
            "id": call,
            "name": self._calls[call]["name"],
            "success": True,
            "is_error": False,
            "for_llm": text,
            "for_user": for_user or text,
            "silent": False,
            "async": False,
            "title": title,
            "data": {},
            "attachments": [],
            "error": "",
        }
        self.tell(at, "tool_call_end", call=self._calls[call], success=True, result=result, seconds=seconds)
