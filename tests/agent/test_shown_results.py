"""A long result is sent once, old outputs are cleared in batches; the history keeps everything."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from forge import Agent, ContextRules, Limits, Message, Scope, Scripted, ToolCall, load_project, rules, tool
from forge.agent import Conversation
from forge.agent.context_window import Shortening, shorten
from forge.agent.shown_results import ShownResults, make_store
from forge.events import ContextShortened

PAGE = "A line of the page that everybody wants to read.\n" * 40
SMALL = ContextRules(clear_outputs=1_000, keep_turns=2)


@tool
def page(name: str) -> str:
    """Reads a page."""
    return PAGE if name == "same" else f"{name}: {PAGE}"


@tool(permissions={"execute"})
def build(name: str) -> str:
    """Builds something, which takes long."""
    return f"built {name}: {PAGE}"


def read(name: str) -> ToolCall:
    return ToolCall("page", {"name": name})


async def run(*turns: ToolCall | list[ToolCall], context: ContextRules | None = None, **settings):
    """Returns the last request of a run with these calls, and its result."""
    model = Scripted(*turns, "done")
    limits = Limits(turns=len(turns) + 1)
    agent = Agent(model, tools=[page, build], policy=rules("allow *"), limits=limits, context=context, **settings)
    result = await agent.run("go")
    assert result.text == "done"
    return [message for message in model.requests[-1].messages if message.role == "tool"], result


def history(*names: str) -> list[Message]:
    messages = [Message("user", "go")]
    for number, name in enumerate(names):
        call = ToolCall("page", {"name": name}, f"c{number}")
        messages += [Message("assistant", "", (call,)), Message("tool", f"{name}: {PAGE}", call_id=call.id)]
    return messages


def show(messages: list[Message], context: ContextRules) -> list[Message]:
    """Returns what the last request of a run shows, whose messages came one turn after another."""
    results = ShownResults(context, lambda message, name: "")
    conversation = Conversation([])
    for message in messages:
        if message.role == "assistant":
            results.apply(conversation)
        conversation.append(message)
    results.apply(conversation)
    return conversation.shown


async def test_a_result_that_the_model_still_sees_is_referred_to():
    first = read("same")
    shown, result = await run(first, read("other"), read("same"))
    assert shown[0].text == PAGE
    assert shown[1].text.startswith("other")
    assert re.fullmatch(r'\[the same 1960 characters as the result of your call "\S+" above: .*\]', shown[2].text)
    assert f'"{first.id}"' in shown[2].text
    assert 'page(name="same")' in shown[2].text
    assert [message.text for message in result.messages if message.role == "tool"][2] == PAGE


async def test_another_result_or_a_short_one_is_sent():
    shown, _ = await run(read("one"), read("two"))
    assert [message.text.split(":")[0] for message in shown] == ["one", "two"]
    assert show(history(), SMALL) == history()


async def test_repeats_are_sent_where_the_rules_say_so():
    shown, _ = await run(read("same"), read("other"), read("same"), context=ContextRules(refer_to_repeats=False))
    assert shown[2].text == PAGE


async def test_old_outputs_are_cleared_and_later_repeats_sent_again():
    shown, result = await run(*map(read, ("same", "b", "c", "d", "e", "same")), context=SMALL)
    assert [message.text.startswith("[left out: ") for message in shown] == [True, True, True, False, False, False]
    assert "call the tool again" in shown[0].text
    assert shown[-1].text == PAGE, "the first is not there to be referred to"
    assert not any("left out" in message.text for message in result.messages)


async def test_nothing_is_cleared_where_the_rules_say_so():
    shown, _ = await run(*map(read, "abcdefgh"), context=ContextRules(clear_outputs=0))
    assert not any("left out" in message.text for message in shown)


async def test_a_cleared_output_of_a_call_that_must_not_be_repeated_is_in_a_file(tmp_path: Path):
    calls = [ToolCall("build", {"name": name}) for name in "abcdef"]
    shown, _ = await run(*calls, context=SMALL, scope=Scope(workspace=tmp_path))
    file = re.search(r'the whole text is in "([^"]+)"', shown[0].text)
    assert file is not None
    assert Path(file[1]).is_relative_to(tmp_path)
    assert Path(file[1]).read_text() == f"built a: {PAGE}"


def test_a_store_writes_a_file_once_and_nothing_for_what_can_be_repeated(tmp_path: Path):
    message = Message("tool", PAGE, call_id="c1")
    store = make_store(tmp_path, lambda name: name == "page")
    assert store(message, "page") == ""
    assert store(message, "build") == store(message, "build") != ""
    assert store(Message("tool", f'{PAGE}\n[cut: the whole text is in "/a/b.txt": read it]'), "build") == ""


def test_a_result_with_a_recent_reference_is_not_cleared():
    messages = history(*"abcd")
    repeat = ToolCall("page", {"name": "a"}, "again")
    messages += [Message("assistant", "", (repeat,)), Message("tool", messages[2].text, call_id="again")]
    shown = show(messages, SMALL)
    assert shown[2].text == messages[2].text
    assert 'call "c0" above' in shown[-1].text
    later = history(*"abcd")[:] + messages[-2:] + history(*(f"later{n}" for n in range(4)))[1:]
    assert "left out" in show(later, SMALL)[2].text, "and is, once the reference is old too"


def test_outputs_are_cleared_in_batches_so_that_the_beginning_rarely_changes():
    messages = history(*(f"page{number}" for number in range(60)))
    results = ShownResults(ContextRules(clear_outputs=5_000, keep_turns=4), lambda message, name: "")
    conversation = Conversation([])
    before: list[Message] = []
    changes = 0
    for message in messages:
        if message.role == "assistant":
            results.apply(conversation)
            changes += conversation.shown[: len(before)] != before
            before = list(conversation.shown)
        conversation.append(message)
    assert changes == 4, "60 outputs of 500 tokens"
    assert sum("left out" not in one.text for one in conversation.shown if one.role == "tool") < 16


def test_nothing_is_cleared_where_more_would_have_to_be_cached_again():
    large = history(*"abcde")
    large[8] = Message("tool", PAGE * 100, call_id="c3")
    assert show(large, SMALL) == large
    assert show(history(*"abcde"), SMALL) != history(*"abcde")


@pytest.mark.parametrize("names", ["abcdef", "aabbaacc", "abcabcabcdefghabc", "aaaaaaaaaaaa"])
def test_a_conversation_that_is_loaded_again_shows_the_same(names: str):
    messages = [*history(*names), Message("user", "and now?")]
    loaded = Conversation(list(messages))
    Shortening(Scripted("-"), rules=SMALL).recall(loaded)
    live = show(messages, SMALL)
    assert [message.text for message in loaded.shown] == [message.text for message in live]
    assert loaded.messages == messages


async def test_a_summary_leaves_no_reference_without_its_result():
    messages = history("a", "b", "c")
    repeat = ToolCall("page", {"name": "a"}, "again")
    messages += [Message("assistant", "", (repeat,)), Message("tool", messages[2].text, call_id="again")]
    conversation = Conversation(messages)
    await Shortening(Scripted("-"))(conversation)
    assert "the same" in conversation.shown[-1].text
    assert await shorten(conversation, Scripted("They read pages."), 100) is not None
    assert conversation.shown[-1].text == messages[-1].text


async def test_an_event_says_what_is_not_sent():
    model = Scripted(*map(read, ("same", "same", *"bcdefg")), "done")
    agent = Agent(model, tools=[page], context=SMALL)
    events = [event async for event in agent.stream("go") if isinstance(event, ContextShortened)]
    assert [(event.repeats, event.outputs) for event in events] == [(1, 0), (0, 3)]
    assert events[0].tokens > 400


async def test_a_project_sets_the_rules(tmp_path: Path):
    file = tmp_path / "forge.yaml"
    file.write_text("context: {refer_to_repeats: false, clear_outputs: 500, keep_turns: 3}")
    agent = load_project(tmp_path, config=file).agent(Scripted("-"))
    assert agent.context == ContextRules(refer_to_repeats=False, clear_outputs=500, keep_turns=3)
    assert load_project(tmp_path, config=_empty(tmp_path)).agent(Scripted("-")).context == ContextRules()


def _empty(folder: Path) -> Path:
    file = folder / "empty.yaml"
    file.write_text("{}")
    return file


@pytest.mark.parametrize("clear_outputs", [0, 20_000])
def test_a_half_full_window_clears_old_outputs_by_the_same_rules(tmp_path: Path, clear_outputs: int):
    """The outputs that cannot be had again are in files, one with a recent reference stays, and an event says it."""
    messages = [Message("user", "Go.")]
    for number in range(10):
        call = ToolCall("deploy", {"place": number}, f"call_{number}")
        text = "always the same\n" * 100 if number in (0, 9) else f"{number} went well\n" * 100
        messages += [Message("assistant", "", (call,)), Message("tool", text, call_id=call.id)]
    conversation = Conversation(messages)
    rules = ContextRules(clear_outputs=clear_outputs, keep_turns=2)
    store = make_store(tmp_path, lambda name: False)
    asyncio.run(Shortening(Scripted(), 6_000, rules=rules, store=store)(conversation))
    texts = [message.text for message in conversation.shown if message.role == "tool"]
    assert texts[0] == messages[2].text
    assert texts[-1].startswith("[the same 1600 characters as")
    notes = [text for text in texts if text.startswith("[left out: ")]
    assert notes == texts[1 : len(notes) + 1]
    assert len(notes) > 4
    assert Path(notes[0].split('"')[1]).read_text() == messages[4].text
    repeats, outputs = (
        sum(each) for each in zip(*((one.repeats, one.outputs) for one in conversation.take_shortened()), strict=True)
    )
    assert (repeats, outputs) == (1, len(notes))


def test_rules_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="keep_turns at least 1"):
        ContextRules(keep_turns=0)
