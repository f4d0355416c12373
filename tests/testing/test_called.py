"""Assertions on calls, and what they say when they fail."""

from __future__ import annotations

import re

import pytest

from forge import Agent, Message, Scripted, ToolCall
from forge.testing import (
    assert_called,
    assert_called_in_order,
    assert_not_called,
    bench,
    calls,
    calls_of,
    says,
)


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


def run():
    model = Scripted(
        says("Let me see.", calls("add", a=1, b=2), calls("greet", name="Ada")),
        calls("add", '{"a": 3}'),
        calls("add", "{broken"),
        says("Done."),
    )
    return Agent(model, tools=[add, greet]).run_sync("go")


def words_of(failing, *arguments, **named) -> str:
    with pytest.raises(AssertionError) as caught:
        failing(*arguments, **named)
    return str(caught.value)


def test_the_calls_of_a_run_are_in_order_with_arguments_and_answers():
    found = calls_of(run())
    assert found.names == ["add", "greet", "add", "add"]
    assert [dict(one.arguments) for one in found] == [{"a": 1, "b": 2}, {"name": "Ada"}, {"a": 3}, {"_raw": "{broken"}]
    assert [one.text for one in found][:3] == ["3", "Hello, Ada!", "3"]
    assert "not valid JSON" in (found.last.text or "")
    assert str(found[0]) == "add(a=1, b=2)"


def test_the_calls_of_a_history_include_one_without_an_answer():
    history = [Message("user", "go"), Message("assistant", tool_calls=(ToolCall("add", {"a": 1}),))]
    assert [one.text for one in calls_of(history)] == [None]
    assert len(calls_of([])) == 0


async def test_the_calls_of_events_have_their_results():
    agent = Agent(Scripted(calls("add", a=1), "Done."), tools=[add])
    events = [event async for event in agent.stream("go")]
    [called] = calls_of(events)
    assert called.result is not None
    assert called.result.success


def test_what_holds_no_calls_is_refused():
    with pytest.raises(TypeError, match="pass a RunResult"):
        calls_of("text")
    with pytest.raises(TypeError, match="pass a RunResult"):
        calls_of([1])


def test_a_call_is_found_by_some_of_its_arguments_and_returned():
    result = run()
    assert len(assert_called(result, "add")) == 3
    assert assert_called(result, "add", b=2)[0].text == "3"
    assert_called(result, "gr*", name=re.compile("^A"))
    assert_called(result, "greet", name=str.istitle)
    assert_called(result, "greet", name=...)


def test_a_call_that_was_not_made_is_shown_beside_those_that_were():
    text = words_of(assert_called, run(), "add", a=9, b=2)
    assert text.startswith(
        "add(a=9, b=2) was not called; add was called 3 times with other arguments:\n  1. add(a=1, b=2)\n     a:"
        " expected 9, got 1"
    )
    assert "b: not given" in text


def test_a_near_name_is_suggested():
    text = words_of(assert_called, run(), "gret")
    assert 'gret was not called; did you mean "greet"?' in text
    assert '2. greet(name="Ada")' in text
    assert 'nam: not given; did you mean "name"?' in words_of(assert_called, run(), "greet", nam="Ada")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (re.compile("^B"), "expected a match for /^B/"),
        (str.isdigit, "isdigit(value) is not true"),
        ("Bob", 'expected "Bob"'),
    ],
)
def test_each_kind_of_value_is_explained(wanted, words):
    assert f'name: {words}, got "Ada"' in words_of(assert_called, run(), "greet", name=wanted)


def test_nothing_called_at_all_is_said():
    result = Agent(Scripted("Hi.")).run_sync("go")
    assert words_of(assert_called, result, "add") == "add was not called: there were no calls"
    assert_not_called(result, "*")


def test_what_must_not_be_called_is_listed_when_it_was():
    result = run()
    assert_not_called(result, "deploy_*")
    assert_not_called(result, "add", a=7)
    text = words_of(assert_not_called, result, "greet")
    assert text == 'greet was called once:\n  1. greet(name="Ada")'


def test_calls_in_order_may_have_others_between_them():
    matched = assert_called_in_order(run(), calls("add", b=2), calls("add", a=3))
    assert [dict(one.arguments) for one in matched] == [{"a": 1, "b": 2}, {"a": 3}]


def test_calls_out_of_order_are_explained():
    text = words_of(assert_called_in_order, run(), "greet", calls("add", b=2))
    assert text.startswith('add(b=2) was not called after greet(name="Ada") (but before it).')
    assert "1. add(a=1, b=2)\n  2. greet" in text
    assert "3 times" in words_of(assert_called_in_order, run(), calls("add", a=9))


def test_true_is_not_one():
    made = bench(add)
    made.call("add", a=1)
    assert_called(made, "add", a=1)
    assert_not_called(made, "add", a=True)


def test_a_long_list_is_cut():
    made = bench(add)
    for number in range(25):
        made.call("add", a=number)
    assert "… and 5 more" in words_of(assert_called, made, "add", a=-1)
