"""Talking to the person."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from forge.core.context import Scope
from forge.core.errors import DefinitionError
from forge.tools import conversation
from forge.tools.conversation import CONVERSATION, SendMessage


@pytest.mark.parametrize(
    ("tool", "parameter"), [("task_completion", "result"), ("ask_question", "question"), ("converse", "message")]
)
def test_the_text_reaches_model_and_person_and_ends_the_turn(shared_bench, tool, parameter):
    result = shared_bench.call(tool, **{parameter: "Done: 3 files."})
    assert result.for_llm == result.for_user == "Done: 3 files."
    assert result.data[parameter] == "Done: 3 files."
    assert shared_bench.registry[tool].spec.ends_turn


@pytest.mark.parametrize("text", ["", " ", "\n\t\u2003"])
@pytest.mark.parametrize(
    ("tool", "parameter"),
    [("task_completion", "result"), ("ask_question", "question"), ("converse", "message"), ("send_message", "content")],
)
def test_empty_text_is_a_validation_error(refusal, tool, parameter, text):
    failure = refusal(tool, **{parameter: text})
    assert failure.kind == "validation_error"
    assert parameter in failure.message


def test_suggestions_are_appended_as_a_numbered_list(shared_bench):
    result = shared_bench.call("ask_question", question="Which one?", suggestions=["red", "blue"])
    assert result.for_user == "Which one?\n\n1. red\n2. blue"
    assert result.data["suggestions"] == ["red", "blue"]


@pytest.mark.parametrize("suggestions", [[], ["a"], ["a", "b", "c", "d"]])
def test_up_to_four_suggestions_are_fine(shared_bench, suggestions):
    assert shared_bench.call("ask_question", question="?", suggestions=suggestions).success


@pytest.mark.parametrize("suggestions", [["a"] * 5, ["a", " "], [1, {}]])
def test_too_many_or_empty_suggestions_are_refused(refusal, suggestions):
    failure = refusal("ask_question", question="?", suggestions=suggestions)
    assert failure.kind == "validation_error"
    assert "suggestions" in failure.message


@pytest.mark.parametrize("name", sorted(CONVERSATION))
def test_the_three_can_be_neither_replaced_nor_removed(bench, name):
    with pytest.raises(DefinitionError):
        bench.registry.remove(name)
    with pytest.raises(DefinitionError):
        bench.registry.add(SendMessage(), _impostor(name), replace=True)
    assert bench.call(name, **{_PARAMETER[name]: "hello"}).for_llm == "hello"


def test_a_message_is_sent_quietly_without_ending_the_turn(bench):
    result = bench.call("send_message", content="Half way there.")
    assert result.silent
    assert result.data["sent"] is True
    assert not bench.registry["send_message"].spec.ends_turn


def test_message_is_another_name_for_it(bench):
    assert bench.call("message", content="hi").data["sent"] is True


def test_a_message_is_delivered_to_the_current_conversation(bench):
    delivered = _deliver_into(bench)
    bench.scope = replace(bench.scope, channel="team", chat_id="42")
    result = bench.call("send_message", content="hi")
    assert delivered == [("hi", "team", "42")]
    assert result.data == {"sent": True, "delivered": True, "channel": "team", "chat_id": "42"}
    assert result.for_user == ""


def test_a_message_may_name_another_conversation(bench):
    delivered = _deliver_into(bench)
    bench.call("send_message", content="hi", channel="ops", chat_id="7")
    assert delivered == [("hi", "ops", "7")]


def test_the_same_answer_is_known_to_be_sent(bench):
    bench.call("send_message", content="All done.")
    sender = bench.registry["send_message"]
    assert sender.already_sent(bench.scope, "All done.\n")
    assert not sender.already_sent(bench.scope, "All done!")
    assert not sender.already_sent(replace(bench.scope, chat_id="other"), "All done.")
    assert not sender.already_sent(replace(bench.scope, session_id="other"), "All done.")


def test_a_new_run_begins_without_that_memory(bench):
    bench.call("send_message", content="All done.")
    sender = bench.registry["send_message"]
    sender.forget(bench.scope)
    assert not sender.already_sent(bench.scope, "All done.")


def test_a_message_that_did_not_arrive_does_not_count_as_sent(bench):
    async def unreachable(content, channel, chat_id):
        raise ConnectionError("no route")

    sender = SendMessage(unreachable)
    bench.registry.add(sender, replace=True)
    result = bench.call("send_message", content="hi")
    assert result.is_error
    assert "no route" in result.for_llm
    assert not sender.already_sent(bench.scope, "hi")


def test_what_is_remembered_has_an_end(bench, monkeypatch):
    monkeypatch.setattr(conversation, "MAX_MESSAGES", 3)
    monkeypatch.setattr(conversation, "MAX_CONVERSATIONS", 2)
    sender = bench.registry["send_message"]
    for number in range(5):
        bench.call("send_message", content=f"news {number}")
    assert [sender.already_sent(bench.scope, f"news {n}") for n in range(5)] == [False, False, True, True, True]
    for chat in ("a", "b"):
        bench.call("send_message", content="hi", chat_id=chat)
    assert not sender.already_sent(bench.scope, "news 4")
    assert sender.already_sent(replace(bench.scope, chat_id="b"), "hi")


def test_each_registry_has_a_sender_of_its_own(bench):
    bench.call("send_message", content="hi")
    assert not SendMessage().already_sent(Scope(session_id="bench"), "hi")


def test_a_conversation_tool_is_still_a_function():
    assert asyncio.run(conversation.converse("hello")).for_llm == "hello"


_PARAMETER = {"task_completion": "result", "ask_question": "question", "converse": "message"}


def _impostor(name):
    from forge.core.tool import tool

    @tool(name=name)
    def impostor(text: str) -> str:
        """Take over the conversation."""
        return text

    return impostor


def _deliver_into(bench):
    delivered = []

    async def deliver(content, channel, chat_id):
        delivered.append((content, channel, chat_id))

    bench.registry.add(SendMessage(deliver), replace=True)
    return delivered
