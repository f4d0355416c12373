"""Every event comes back from its wire form, and a run's tries and waits become one straight story."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forge.core.events import (
    ContextShortened,
    Event,
    EventsMissed,
    MessageReceived,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    Retrying,
    RunFinished,
    RunStarted,
    SessionRewound,
    SessionTitled,
    TextDelta,
    ToolArgumentsDelta,
    ToolCompleted,
    ToolFailed,
    ToolFinished,
    ToolOutput,
    ToolProgress,
    ToolReconciled,
    ToolStarted,
    TurnFinished,
)
from forge.core.messages import ToolCall
from forge.core.result import Attachment, ToolResult
from forge.durable.client.following import RepeatFilter, event_from_dict

CALL = ToolCall("bash", {"command": "ls"}, "call-1")
RESULT = ToolResult(
    for_llm="ä", for_user="x", title="t", data={"n": [1]}, attachments=(Attachment("image/png", b"\0\1", "a.png"),)
)
EVENTS = [
    ToolStarted(CALL),
    ToolStarted(ToolCall("bash", '{"broken', "call-2")),
    ToolOutput(CALL, "some\n"),
    ToolProgress(CALL, "half", {"done": 5}),
    ToolFailed(CALL, "no", "user_error"),
    ToolFinished(CALL, True, RESULT, 1.5),
    ToolFinished(CALL, False, ToolResult.error("no", "timeout", "Try again."), 0.1),
    ToolCompleted(CALL, RESULT),
    ToolReconciled(CALL, "not_done", "the bank does not know it"),
    PermissionAsked(CALL, "write", "a.txt", "ask write", (("read", "b.txt"),)),
    PermissionAnswered(CALL, "once", "terminal"),
    TextDelta("Hello"),
    MessageReceived("Use tabs."),
    SessionTitled("A title", {"input": 1}, 0.5),
    SessionRewound(3, 4, 0, ("a.txt",)),
    ReasoningDelta("Hm"),
    ToolArgumentsDelta(CALL, '{"a"'),
    Retrying("slow down", 2, 1.5, 429),
    ContextShortened(2, 3, 1, 400),
    TurnFinished(3, {"input": 1, "output": 2, "cached": 0}),
    RunStarted("go"),
    EventsMissed(12),
    RunFinished("done", "answer", 3, {"input": 1}, 2, 0.5, ""),
    EventsMissed(3),
]


def kinds(kind: type[Event] = Event) -> set[type[Event]]:
    return {one for below in kind.__subclasses__() for one in (below, *kinds(below))}


def test_all_events_are_looked_at():
    ours = {kind.__name__ for kind in kinds() if kind.__module__ == "forge.core.events"}
    assert {type(event).__name__ for event in EVENTS} == ours  # by name: a class with slots replaces one that may stay


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_comes_back_as_it_was(event):
    event.seq, event.session, event.agent = 7, "s", "main/x"
    wire = event.to_dict()
    back = event_from_dict(json.loads(json.dumps(wire)))
    assert type(back) is type(event)
    assert back.to_dict() == wire


def test_what_is_missing_has_its_default_and_what_is_unknown_is_left_out():
    event = event_from_dict({"event": "run_finished", "text": "a", "reason": "answer", "turns": 1, "new": 5})
    assert isinstance(event, RunFinished)
    assert (event.calls, event.cost, event.usage) == (0, None, {})


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"event": 5},
        {"event": "dance"},
        {"event": "text_delta"},
        {"event": "tool_call_start", "call": 5},
        {"event": "tool_call_start", "call": {"name": "a"}},
        {"event": "tool_completed", "call": CALL and {"id": "a", "name": "b", "arguments": {}}, "result": []},
        {"event": "permission_asked", "others": [1]},
    ],
)
def test_what_cannot_be_read_is_said_in_words(wire):
    with pytest.raises(ValueError, match=r"\w"):
        event_from_dict(wire)
    assert RepeatFilter().decode(wire) is None


def told(*events: Event, own: bool = True) -> list[str]:
    straight = RepeatFilter()
    found = [straight.decode(event.to_dict(), own=own) for event in events]
    return [event.type for event in found if event is not None]


def test_a_call_that_waited_begins_once_and_ends_once():
    waits = ToolFinished(CALL, False, ToolResult.error("it waits for a person's approval", "permission_error"))
    asked = PermissionAsked(CALL, "execute", "ls")
    story: list[Event] = [ToolStarted(CALL), asked, waits, ToolStarted(CALL), asked, PermissionAnswered(CALL, "once")]
    assert told(*story, ToolFinished(CALL, True, RESULT)) == [
        "tool_call_start",
        "permission_asked",
        "permission_answered",
        "tool_call_end",
    ]


def test_a_call_that_failed_ends_as_it_did():
    failed: list[Any] = [
        ToolFailed(CALL, "no", "timeout"),
        ToolFinished(CALL, False, ToolResult.error("no", "timeout")),
    ]
    assert told(ToolStarted(CALL), *failed) == ["tool_call_start", "error", "tool_call_end"]


def test_a_sub_agents_beginning_and_end_are_those_of_its_call():
    assert told(RunStarted("x"), TextDelta("a"), RunFinished("a", "answer", 1), own=False) == ["text_delta"]
    assert told(RunStarted("x"), RunFinished("a", "answer", 1)) == ["run_started", "run_finished"]
