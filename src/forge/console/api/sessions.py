"""The sessions page: messages from the session store, events from the log."""

from __future__ import annotations

from typing import Any

from forge.agent.session import SessionInfo
from forge.console import demo
from forge.console.api.requests import ApiRequest, Events
from forge.console.console_state import ConsoleState
from forge.console.event_entries import build_entry, join_pieces
from forge.console.response_shapes import message_shape, run_shape
from forge.core.errors import ToolError
from forge.project.runs.sessions import session_store

MOST = 500  # sessions of a list
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
    if all(one["name"] != demo.NAME for one in found):
        found.append(_demo())
    wanted = [one for one in found if text in one["name"].lower() or text in one["title"].lower()]
    return {"sessions": wanted[:MOST]}


def show_session(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    name = request.path["name"]
    if _is_demo(console, name):
        return {**_demo(), "runs": []}
    runs = console.runs.list(session=name, parent="", limit=100)
    with session_store(console.workspace) as sessions:
        info = next((one for one in sessions.list() if one.name == name), None)
        if info is None and not runs:
            sessions.show(name)  # says that there is none, and which are near
    base = _info(info) if info is not None else _of_runs(name, runs)
    return {**base, "runs": [run_shape(run) for run in runs]}


def show_session_events(console: ConsoleState, request: ApiRequest) -> Events:
    name = request.path["name"]
    after, limit = request.number("after", 0, 0, 2**53), request.number("limit", 1_000, 1, MOST_EVENTS)
    if _is_demo(console, name):
        events = list(enumerate(demo.events(), 1))
        page, following = events[after : after + limit], after + limit if len(events) > after + limit else None
    else:
        log = console.open_log()
        page, following = log.page(name, after, limit)
        console.say(log.notes)
    return Events(join_pieces([build_entry(number, f"session:{name}", event) for number, event in page]), following)


def show_session_messages(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    name = request.path["name"]
    if _is_demo(console, name):
        return {"messages": demo.messages(), "left_out": 0}
    with session_store(console.workspace) as sessions:
        messages = sessions.show(name).messages
    shown_messages = [message_shape(console, one) for one in messages[-MOST_MESSAGES:]]
    return {"messages": shown_messages, "left_out": max(0, len(messages) - MOST_MESSAGES)}


def _is_demo(console: ConsoleState, name: str) -> bool:
    """Returns whether the demo is meant, unless a person's own session has its name."""
    return name == demo.NAME and all(one.name != name for one in session_infos(console))


def _demo() -> dict[str, Any]:
    return {**demo.info(), "is_demo": True}


def _info(one: SessionInfo) -> dict[str, Any]:
    names = "name title created updated messages turns".split()
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
