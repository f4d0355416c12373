"""Somebody who answers in turn."""

from __future__ import annotations

import pytest

from forge import Agent, Answer, Scripted, approve_all, rules, tool
from forge.testing import Person, bench, calls


@tool(permissions={"write"}, target="path")
def save(path: str) -> str:
    """Save a file."""
    return f"saved {path}"


def asked_of(person: Person, *paths: str) -> list[bool]:
    made = bench(save, policy=rules("ask write"), approve=person)
    return [made.call("save", path=path).success for path in paths]


def test_answers_are_given_in_turn_and_questions_noted():
    person = Person("yes", "no", True, False, Answer.no("not on a Friday"))
    assert asked_of(person, "a", "b", "c", "d", "e") == [True, False, True, False, False]
    assert person.asked == [f"save: write {name}" for name in "abcde"]
    assert person.questions[0].spec.name == "save"
    person.check()


def test_always_asks_once():
    person = Person("always")
    assert asked_of(person, "a", "a") == [True, True]
    assert len(person.questions) == 1


def test_a_function_and_any_approver_may_answer():
    assert asked_of(Person(otherwise=lambda request: request.target == "a"), "a", "b") == [True, False]
    assert asked_of(Person(otherwise=approve_all), "a") == [True]


def test_a_question_too_many_is_a_no_and_a_complaint():
    person = Person("yes")
    assert asked_of(person, "a", "b") == [True, False]
    with pytest.raises(AssertionError, match="no answer to: save: write b"):
        person.check()


def test_an_answer_too_many_is_a_complaint():
    words = "1 answers were not used; the questions were: save: write a"
    with pytest.raises(AssertionError, match=words), Person("yes", "no") as person:
        asked_of(person, "a")
    with pytest.raises(ZeroDivisionError), Person("yes"):
        _ = 1 // 0


def test_a_function_that_answers_nonsense_is_a_complaint():
    person = Person(lambda request: "perhaps")
    assert asked_of(person, "a") == [False]
    with pytest.raises(AssertionError, match="perhaps"):
        person.check()


def test_no_such_answer():
    with pytest.raises(ValueError, match="always"):
        Person("perhaps")


def test_an_agent_asks_the_person():
    person = Person(Answer.edit({"path": "elsewhere"}))
    model = Scripted(calls("save", path="here"), "Done.")
    result = Agent(model, tools=[save], policy=rules("ask write"), approve=person).run_sync("go")
    assert "saved elsewhere" in result.messages[-2].text
    person.check()
