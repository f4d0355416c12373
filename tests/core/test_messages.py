"""The conversation, and the calls it still owes a result."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from forge.core.messages import Message, ToolCall, Usage, unanswered_calls


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
