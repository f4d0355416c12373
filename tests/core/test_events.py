"""Events as data: their names and their shape on the wire."""

from __future__ import annotations

import json

import pytest

from forge.core.events import (
    ContextShortened,
    Event,
    MessageReceived,
    PermissionAnswered,
    PermissionAsked,
    ReasoningDelta,
    Retrying,
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
from forge.core.secrets import Secrets

CALL = ToolCall("reads", {"path": "a"}, "c1")
WIRED = {"id": "c1", "name": "reads", "arguments": {"path": "a"}}
DONE = ToolResult.text("done")

EVENTS = [
    (ToolStarted(CALL), "tool_call_start", {"call": WIRED}),
    (ToolOutput(CALL, "piece"), "tool_output_chunk", {"call": WIRED, "text": "piece"}),
    (
        ToolProgress(CALL, "half", {"percent": 50}),
        "tool_progress",
        {"call": WIRED, "title": "half", "data": {"percent": 50}},
    ),
    (
        ToolFailed(CALL, "broken", "system_error"),
        "error",
        {"call": WIRED, "error": "broken", "error_type": "system_error"},
    ),
    (ToolFinished(CALL, True, DONE), "tool_call_end", {"call": WIRED, "success": True}),
    (ToolCompleted(CALL, DONE), "tool_completed", {"call": WIRED}),
    (
        ToolReconciled(CALL, "done", "the bank has it"),
        "tool_reconciled",
        {"call": WIRED, "state": "done", "reason": "the bank has it"},
    ),
    (
        PermissionAsked(CALL, "write", "a", "ask write"),
        "permission_asked",
        {"call": WIRED, "permission": "write", "target": "a", "rule": "ask write"},
    ),
    (
        PermissionAnswered(CALL, "once", "person"),
        "permission_answered",
        {"call": WIRED, "answer": "once", "by": "person"},
    ),
    (TextDelta("hello"), "text_delta", {"text": "hello"}),
    (MessageReceived("use tabs"), "message_received", {"text": "use tabs"}),
    (ReasoningDelta("hm"), "reasoning_delta", {"text": "hm"}),
    (ToolArgumentsDelta(CALL, '{"pa'), "tool_arguments_delta", {"call": WIRED, "text": '{"pa'}),
    (
        Retrying("slow down", 2, 1.5, 429),
        "retrying",
        {"reason": "slow down", "attempt": 2, "seconds": 1.5, "status": 429},
    ),
    (
        ContextShortened(2, 3, 1, 400),
        "context_shortened",
        {"repeats": 2, "outputs": 3, "summaries": 1, "tokens": 400},
    ),
    (TurnFinished(3, {"tokens": 5}), "turn_finished", {"turn": 3, "usage": {"tokens": 5}}),
]


@pytest.mark.parametrize(("event", "name", "expected"), EVENTS, ids=[row[1] for row in EVENTS])
def test_every_event_has_its_name_and_its_shape(event, name, expected):
    wire = event.to_dict()
    assert wire["event"] == name == event.type
    assert set(wire) >= {"event", "ts", "seq", "session", "agent"}
    assert {key: wire[key] for key in expected} == expected
    assert json.loads(json.dumps(wire, allow_nan=False)) == wire


def test_results_travel_in_their_own_wire_form():
    for event in (ToolFinished(CALL, True, DONE), ToolCompleted(CALL, DONE)):
        assert event.to_dict()["result"]["for_llm"] == "done"


def test_an_event_without_call_has_none():
    assert "call" not in TextDelta("a").to_dict()


def test_every_event_knows_when_it_was():
    first, second = TextDelta("a"), TextDelta("b")
    assert 0 < first.at <= second.at
    assert first.to_dict()["ts"] == first.at


def test_wire_names_are_unique():
    classes = {type(event) for event, _, _ in EVENTS}
    assert all(issubclass(cls, Event) for cls in classes)
    assert len({cls.type for cls in classes}) == len(classes)


def test_broken_arguments_and_odd_texts_can_be_sent():
    for arguments in ("{broken", {"x": float("nan")}, {"x": "\ud800"}, {"x": object()}):
        json.dumps(ToolStarted(ToolCall("a", arguments)).to_dict(), allow_nan=False).encode()
    json.dumps(TextDelta("\ud800").to_dict()).encode()
    json.dumps(ToolStarted(ToolCall("\ud800", {}, "\ud800")).to_dict(), ensure_ascii=False).encode()


def test_an_event_names_a_large_attachment_and_carries_a_small_one_as_it_is():
    picture = bytes(range(256)) * 100
    result = ToolResult(for_llm="", attachments=(Attachment("image/png", picture), Attachment("a/b", b"y" * 10**6)))
    told = ToolFinished(CALL, True, result).masked(Secrets().mask_everything)
    assert told.result.attachments[0].data == picture
    assert told.result.attachments[1].data == b""
    assert told.to_dict()["result"]["attachments"][1]["bytes"] == 10**6
    assert len(json.dumps(told.to_dict())) < 60_000


def test_the_start_and_the_end_of_a_call_with_a_long_id_are_told_alike():
    call = ToolCall("n" * 10**6, {}, "\x1b" + "i" * 10**6)
    mask = Secrets().mask_everything
    start, end = ToolStarted(call).masked(mask).to_dict(), ToolFinished(call, True, DONE).masked(mask).to_dict()
    assert start["call"]["id"] == end["call"]["id"] == end["result"]["id"]
    assert start["call"]["name"] == end["result"]["name"]
    assert len(json.dumps([start, end])) < 3_000
