"""The conversation, and the calls it still owes a result."""

from __future__ import annotations

from forge.core.messages import Message, ToolCall, unanswered_calls


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
