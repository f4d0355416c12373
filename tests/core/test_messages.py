"""The conversation, and the calls it still owes a result."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import jsonschema_rs
import pytest
from pydantic import TypeAdapter, ValidationError

from forge.core.errors import ToolError
from forge.core.messages import Message, ToolCall, Usage, messages_from_json, messages_to_json, unanswered_calls
from forge.core.result import Attachment


def test_every_call_has_an_id_of_its_own():
    assert len({ToolCall("a").id for _ in range(1_000)}) == 1_000
    assert ToolCall("a", {}, "mine").id == "mine"


def test_calls_without_result_are_owed_one():
    first, second = ToolCall("a", id="1"), ToolCall("b", id="2")
    asked = Message("assistant", tool_calls=(first, second))
    assert unanswered_calls([Message("user", "go"), asked]) == (first, second)
    assert unanswered_calls([asked, Message("tool", "done", call_id="2")]) == (first,)
    assert unanswered_calls([asked, Message("tool", call_id="2"), Message("tool", call_id="1")]) == ()


def test_nothing_is_owed_where_nothing_was_asked():
    assert unanswered_calls([]) == ()
    assert unanswered_calls([Message("user", "hello"), Message("assistant", "hi")]) == ()


def test_only_the_last_turn_counts():
    old = Message("assistant", tool_calls=(ToolCall("a", id="1"),))
    assert unanswered_calls([old, Message("assistant", "done")]) == ()


CALL = ToolCall("a", '{"x": 1}', "mine", "far")
SAID = Message("tool", "text", (CALL,), "mine", (), "stop", Usage(1, 2, 3), {"thought": "deep"}, True)


@pytest.mark.parametrize("one", [CALL, SAID, ToolCall("a"), Message("user")])
def test_calls_and_messages_are_frozen_and_can_be_copied_compared_and_sent(one):
    with pytest.raises(FrozenInstanceError):
        setattr(one, "text" if isinstance(one, Message) else "name", "other")
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), replace(one)):
        assert twin == one
        assert repr(twin) == repr(one)
        assert asdict(twin) == asdict(one)


def test_every_field_is_the_one_that_was_given():
    shown = (
        "Message(role='tool', text='text', tool_calls=(ToolCall(name='a', arguments='{\"x\": 1}', id='mine', "
        "server='far'),), call_id='mine', attachments=(), finish='stop', usage=Usage(input=1, output=2, cached=3, "
        "cache_writes=0, reasoning=0), extra={'thought': 'deep'}, is_error=True)"
    )
    assert repr(SAID) == shown
    assert replace(CALL, name="b") == ToolCall("b", '{"x": 1}', "mine", "far")


def test_what_is_not_said_is_empty_and_nobody_elses():
    first, second = ToolCall("a"), ToolCall("a")
    assert first.arguments == second.arguments == {}
    assert first.arguments is not second.arguments
    assert Message("user").extra is not Message("user").extra


def test_nothing_paid_adds_nothing_and_anything_paid_adds_up():
    assert Usage(1, 2, 3).plus(Message("assistant").usage) == Usage(1, 2, 3)
    assert Usage(1, 2, 3).plus(Usage(1, 1, 1)) == Usage(2, 3, 4)


STORED = [  # as the fixture has it. A release that changes the form adds a fixture, and still reads this one
    Message("system", "You help."),
    Message(
        "user",
        "What is this?\0 é 𝄞",
        attachments=(Attachment("image/png", b"\x89PNG\r\n\x1a\n\x00\xff", "photo.png"),),
    ),
    Message(
        "assistant",
        "I look.",
        (
            ToolCall("file_read", {"path": "a.txt", "lines": [1, 2]}, "call_1"),
            ToolCall("add", '{"a": 1', "call_2", "remote"),
        ),
        finish="calls",
        usage=Usage(100, 20, 50, 10, 5),
        extra={"anthropic": {"thinking": [{"signature": "c2ln"}]}},
    ),
    Message(
        "tool",
        "text",
        call_id="call_1",
        attachments=(Attachment("application/pdf", b"%PDF-1.7\n\xff"),),
        extra={"labels": [["untrusted", "file_read a.txt"]]},
    ),
    Message("tool", "no such server", call_id="call_2", is_error=True),
    Message("assistant", "A cat.", finish="stop", usage=Usage(200, 10)),
]


def test_messages_of_version_1_are_read():
    text = (Path(__file__).parent / "messages_version_1.json").read_bytes()
    assert messages_from_json(text) == STORED
    assert json.loads(messages_to_json(STORED)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("[]", "expected an object with version and messages"),
        ('{"version": 2, "messages": []}', "version: expected 1, got 2"),
        ('{"messages": []}', "version: expected 1, got null"),
        ('{"version": 1, "messages": {}}', "messages: expected a list"),
        ('{"version": 1, "messages": [{"role": "user"}, 3]}', "message 2: expected an object, got 3"),
        ('{"version": 1, "messages": [{"role": "root"}]}', "message 1: role: expected one of"),
        ('{"version": 1, "messages": [{"role": "user", "attachments": [{"media_type": "a"}]}]}', "data is missing"),
        (
            '{"version": 1, "messages": [{"role": "user", "attachments": [{"media_type": "a", "data": "="}]}]}',
            "message 1",
        ),
        ("[" * 100_000, "it is nested too deeply"),
        (b"\xff\xfe\xff", "decode"),
    ],
)
def test_what_is_no_conversation_is_refused_in_words(text, said):
    with pytest.raises(ToolError) as error:
        messages_from_json(text)
    assert error.value.message.startswith("reading messages from JSON: ")
    assert said in error.value.message
    assert "messages_to_json" in error.value.suggestion


def test_pydantic_reads_and_writes_messages():
    adapter = TypeAdapter(list[Message])
    assert adapter.validate_json(adapter.dump_json(STORED)) == STORED
    assert adapter.validate_python(adapter.dump_python(STORED)) == STORED
    assert adapter.validate_python(STORED) == STORED
    assert adapter.dump_python(STORED, mode="json") == json.loads(messages_to_json(STORED))["messages"]
    with pytest.raises(ValidationError, match="role: expected one of"):
        adapter.validate_python([{"role": "root"}])


def test_the_json_schema_of_a_message_fits_what_is_written():
    for mode in ("validation", "serialization"):
        schema = TypeAdapter(list[Message]).json_schema(mode=mode)
        jsonschema_rs.meta.validate(schema)
        jsonschema_rs.validate(schema, json.loads(messages_to_json(STORED))["messages"])
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, [{"role": "root"}])
