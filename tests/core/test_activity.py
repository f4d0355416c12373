"""Whoever listens hears everything in order, and can harm nobody."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from forge.core.activity import ActivityStream
from forge.core.context import ToolContext
from forge.core.events import (
    Event,
    TextDelta,
    ToolCompleted,
    ToolFailed,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from tests.core.calling import SCOPE, Heard, at_most, execute, executor
from tests.process.planting import until


class Escape(BaseException):
    pass


async def works(text: str = "") -> str:
    """Work."""
    await asyncio.sleep(0)
    return text


def fails() -> str:
    """Fail."""
    raise ValueError("odd")


def texts(heard: list[Any]) -> list[str]:
    return [event.text for event in heard]


def test_classes_wire_names_and_a_star_choose_what_is_heard():
    stream = ActivityStream()
    chosen: dict[tuple[Any, ...], int] = {
        (): 2,
        ("*",): 2,
        (Event,): 2,
        (TextDelta,): 1,
        ("text_delta",): 1,
        (TurnFinished, "text_delta"): 2,
        (ToolCompleted,): 0,
        ("*", TextDelta): 2,
    }
    heard = {}
    for types in chosen:
        heard[types] = Heard()
        stream.subscribe(heard[types], *types)
    stream.emit(TextDelta("a"))
    stream.emit(TurnFinished(1))
    assert {types: len(events) for types, events in heard.items()} == chosen


def test_a_wire_name_that_nobody_has_is_refused():
    with pytest.raises(ValueError, match=r"known names: .*tool_call_start"):
        ActivityStream().subscribe(print, "tool_call_strat")


def test_what_is_no_event_cannot_be_subscribed_to():
    for wrong in (5, int, None):
        with pytest.raises(TypeError, match="event classes, wire names"):
            ActivityStream().subscribe(print, wrong)  # type: ignore[arg-type]


def test_events_are_numbered_in_their_order():
    stream = ActivityStream()
    heard = Heard()
    stream.subscribe(heard)
    for _ in range(5):
        stream.emit(TextDelta("a"))
    assert [event.seq for event in heard] == [1, 2, 3, 4, 5]


async def test_an_async_listener_hears_everything_in_order():
    stream = ActivityStream()
    heard = []

    async def listens(event: Any) -> None:
        await asyncio.sleep(0)
        heard.append(event)

    stream.subscribe(listens)
    for number in range(20):
        stream.emit(TextDelta(str(number)))
    assert await stream.drain()
    assert texts(heard) == [str(number) for number in range(20)]


async def test_an_object_with_an_async_call_is_an_async_listener():
    class Listens:
        def __init__(self) -> None:
            self.heard: list[Any] = []

        async def __call__(self, event: Any) -> None:
            self.heard.append(event)

    listener = Listens()
    stream = ActivityStream()
    stream.subscribe(listener)
    stream.emit(TextDelta("a"))
    assert await stream.drain()
    assert texts(listener.heard) == ["a"]


async def test_a_bound_async_method_and_a_partial_are_async_listeners():
    heard: list[Any] = []

    class Listens:
        async def hear(self, event: Any) -> None:
            heard.append(event)

    async def also(where: list[Any], event: Any) -> None:
        where.append(event)

    stream = ActivityStream()
    stream.subscribe(Listens().hear)
    stream.subscribe(partial(also, heard))
    stream.emit(TextDelta("a"))
    assert await stream.drain()
    assert texts(heard) == ["a", "a"]


async def test_what_a_plain_listener_returns_is_awaited_if_it_can_be():
    heard: list[Any] = []

    async def hear(event: Any) -> None:
        heard.append(event)

    stream = ActivityStream()
    stream.subscribe(lambda event: hear(event))
    stream.emit(TextDelta("a"))
    assert await stream.drain()
    await asyncio.sleep(0)
    assert texts(heard) == ["a"]


def test_after_unsubscribing_nothing_is_heard():
    stream = ActivityStream()
    heard, other = Heard(), Heard()
    unsubscribe = stream.subscribe(heard)
    stream.subscribe(other)
    stream.emit(TextDelta("a"))
    unsubscribe()
    unsubscribe()
    stream.emit(TextDelta("b"))
    assert texts(heard) == ["a"]
    assert texts(other) == ["a", "b"]


def test_a_listener_may_unsubscribe_itself_and_others_while_it_hears():
    stream = ActivityStream()
    heard: list[str] = []
    leave: list[Any] = []

    def once(event: Any) -> None:
        heard.append("once")
        for one in leave:
            one()

    leave.append(stream.subscribe(once))
    leave.append(stream.subscribe(lambda event: heard.append("second")))
    stream.subscribe(lambda event: heard.append("stays"))
    stream.emit(TextDelta("a"))
    stream.emit(TextDelta("b"))
    assert heard.count("once") == 1
    assert heard.count("second") == 0
    assert heard.count("stays") == 2


async def test_an_async_listener_may_unsubscribe_while_it_hears():
    stream = ActivityStream()
    heard = []

    async def once(event: Any) -> None:
        heard.append(event)
        leave()

    leave = stream.subscribe(once)
    for _ in range(3):
        stream.emit(TextDelta("a"))
    assert await stream.drain()
    assert len(heard) == 1


def test_a_listener_may_subscribe_another():
    stream = ActivityStream()
    late = Heard()

    def invites(event: Any) -> None:
        if not late:
            stream.subscribe(late)

    stream.subscribe(invites, TurnFinished)
    stream.emit(TurnFinished(1))
    stream.emit(TextDelta("a"))
    assert texts(late.of(TextDelta)) == ["a"]


def test_a_listener_may_emit():
    stream = ActivityStream()
    heard = Heard()

    def echoes(event: Any) -> None:
        if event.text != "echo":
            stream.emit(TextDelta("echo"))

    stream.subscribe(echoes)
    stream.subscribe(heard)
    stream.emit(TextDelta("a"))
    assert sorted(texts(heard)) == ["a", "echo"]


ERRORS = [ValueError("x"), SystemExit(), KeyboardInterrupt(), Escape(), GeneratorExit(), asyncio.CancelledError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_throwing_listener_harms_nobody(error):
    def throws(event: Any) -> None:
        raise error

    heard = Heard()
    runs = executor(works)
    runs.activity.subscribe(throws)
    runs.activity.subscribe(heard)
    for _ in range(3):
        assert (await runs.execute(ToolCall("works", {"text": "fine"}), SCOPE)).for_llm == "fine"
    assert heard.balanced
    assert len(heard) == 6


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_throwing_async_listener_harms_nobody_and_hears_the_rest(error):
    got = []

    async def throws(event: Any) -> None:
        got.append(event)
        await asyncio.sleep(0)
        raise error

    heard = Heard()
    runs = executor(works)
    runs.activity.subscribe(throws)
    runs.activity.subscribe(heard)
    for _ in range(3):
        assert (await runs.execute(ToolCall("works", {"text": "fine"}), SCOPE)).for_llm == "fine"
    assert await runs.activity.drain(1.0)
    assert heard.balanced
    assert len(got) == 6


async def test_a_slow_plain_listener_holds_up_at_most_one_event(monkeypatch):
    monkeypatch.setattr("forge.core.activity.SLOW", 0.05)
    seen, held_up = [], []

    def slow(event: Any) -> None:
        time.sleep(0.08)
        seen.append(event)
        held_up.append(threading.current_thread() is threading.main_thread())

    heard = Heard()
    runs = executor(works)
    runs.activity.subscribe(slow)
    runs.activity.subscribe(heard)
    for _ in range(5):
        await runs.execute(ToolCall("works"), SCOPE)
    assert await runs.activity.drain(60)
    assert held_up == [True] + [False] * 9
    assert len(heard) == 10
    assert heard.balanced
    assert [event.seq for event in seen] == list(range(1, 11)), "the slow one hears everything, in order"


async def test_a_listener_that_hangs_later_holds_up_nobody(monkeypatch):
    monkeypatch.setattr("forge.core.activity.SLOW", 0.05)
    release = threading.Event()
    count = 0

    def hangs(event: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            time.sleep(0.1)
        else:
            release.wait(30)

    heard = Heard()
    runs = executor(works)
    runs.activity.subscribe(hangs)
    runs.activity.subscribe(heard)
    try:
        with at_most(1.0):
            for _ in range(10):
                await runs.execute(ToolCall("works"), SCOPE)
        # a busy machine makes this listener slow, too: it then hears the rest in a thread
        assert await asyncio.to_thread(until, lambda: len(heard) == 20)
        assert await runs.activity.drain(0.05) is False
    finally:
        release.set()


async def test_an_async_listener_that_never_returns_holds_up_nobody():
    async def never(event: Any) -> None:
        await asyncio.Event().wait()

    heard = Heard()
    runs = executor(works)
    leave = runs.activity.subscribe(never)
    runs.activity.subscribe(heard)
    with at_most(1.0):
        for _ in range(10):
            await runs.execute(ToolCall("works"), SCOPE)
    assert heard.balanced
    assert await runs.activity.drain(0.05) is False
    leave()
    assert await runs.activity.drain(0.05) is True


async def test_what_a_hung_listener_does_not_hear_does_not_fill_the_memory():
    stream = ActivityStream()

    async def never(event: Any) -> None:
        await asyncio.Event().wait()

    stream.subscribe(never)
    with at_most(5.0):
        for _ in range(30_000):
            stream.emit(TextDelta("x"))
    waiting = [listener for listener in stream._listeners if listener.waiting]
    assert sum(len(listener.backlog) for listener in waiting) <= 10_000


async def test_every_start_has_one_end_whatever_happens():
    async def hangs() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    def exits() -> str:
        """Exit."""
        raise SystemExit

    async def takes(x: int) -> str:
        """Take."""
        return str(x)

    heard = Heard()
    runs = executor(works, fails, exits, takes, hangs, heard=heard)
    for call in (
        ToolCall("works"),
        ToolCall("fails"),
        ToolCall("exits"),
        ToolCall("no_such_tool"),
        ToolCall("takes", "{broken"),
        ToolCall("takes", {"x": "no"}),
        ToolCall("takes", {"x": "5"}),
    ):
        await runs.execute(call, SCOPE)
    task = asyncio.create_task(runs.execute(ToolCall("hangs"), SCOPE))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard.balanced
    ends = heard.of(ToolFinished)
    assert [(event.call.name, event.success) for event in ends] == [
        ("works", True),
        ("fails", False),
        ("exits", False),
        ("no_such_tool", False),
        ("takes", False),
        ("takes", False),
        ("takes", True),
        ("hangs", False),
    ]
    for event in ends:
        position = heard.index(event)
        before = heard[position - 1]
        assert isinstance(before, ToolFailed) is not event.success
        if isinstance(before, ToolFailed):
            assert before.call.id == event.call.id


async def test_a_refused_call_has_a_start_an_error_and_an_end():
    heard = Heard()
    await execute(works, "{broken", heard=heard)
    assert heard.names == ["tool_call_start", "error", "tool_call_end"]
    assert heard[1].to_dict()["error_type"] == "validation_error"
    assert heard[2].to_dict()["success"] is False
    assert heard[0].to_dict()["call"]["arguments"] == "{broken"


async def test_what_a_thread_says_comes_before_its_end():
    def talks(ctx: ToolContext) -> str:
        """Talk."""
        for number in range(500):
            ctx.output(str(number))
        return "done"

    heard = Heard()
    await execute(talks, heard=heard)
    assert heard.names == ["tool_call_start", *["tool_output_chunk"] * 500, "tool_call_end"]
    assert [event.text for event in heard.of(ToolOutput)] == [str(number) for number in range(500)]
    assert [event.seq for event in heard] == list(range(1, 503))


async def test_what_many_threads_say_keeps_the_order_of_each():
    def talks(number: int, ctx: ToolContext) -> str:
        """Talk."""
        for piece in range(50):
            ctx.output(f"{number} {piece}")
        return "done"

    heard = Heard()
    runs = executor(talks, heard=heard)
    calls = [ToolCall("talks", {"number": n}, str(n)) for n in range(20)]
    await runs.execute_all(calls, SCOPE)
    assert heard.balanced
    for call in calls:
        mine = [event for event in heard if getattr(event, "call", None) is not None and event.call.id == call.id]  # type: ignore[attr-defined]
        assert isinstance(mine[0], ToolStarted)
        assert isinstance(mine[-1], ToolFinished)
        assert [event.text for event in mine[1:-1]] == [f"{call.id} {piece}" for piece in range(50)]  # type: ignore[attr-defined]


async def test_listeners_run_on_the_loops_thread_even_for_events_of_others():
    places = set()

    def talks(ctx: ToolContext) -> str:
        """Talk."""
        ctx.output("piece")
        return "done"

    runs = executor(talks)
    runs.activity.subscribe(lambda event: places.add(threading.current_thread()))
    await runs.execute(ToolCall("talks"), SCOPE)
    assert places == {threading.current_thread()}


async def test_an_async_listener_hears_threads_too():
    heard: list[str] = []

    async def listens(event: Event) -> None:
        heard.append(event.type)

    def talks(ctx: ToolContext) -> str:
        """Talk."""
        ctx.output("piece")
        return "done"

    runs = executor(talks)
    runs.activity.subscribe(listens)
    await runs.execute(ToolCall("talks"), SCOPE)
    assert await runs.activity.drain()
    assert heard == ["tool_call_start", "tool_output_chunk", "tool_call_end"]


async def test_a_thread_left_behind_may_talk_on_without_harm():
    release, finished = threading.Event(), threading.Event()

    def talks(ctx: ToolContext) -> str:
        """Talk."""
        release.wait(20)
        for _ in range(10):
            ctx.output("late")
        finished.set()
        return "done"

    heard = Heard()
    runs = executor(talks, heard=heard)
    task = asyncio.create_task(runs.execute(ToolCall("talks"), SCOPE))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    release.set()
    assert await asyncio.to_thread(finished.wait, 5)
    await asyncio.sleep(0)
    assert heard.balanced


def test_a_thread_that_outlives_its_loop_does_no_harm():
    release, finished = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def talks(ctx: ToolContext) -> str:
        """Talk."""
        release.wait(20)
        try:
            ctx.output("late")
        except BaseException as error:
            failures.append(error)
        finished.set()
        return "done"

    async def main() -> None:
        task = asyncio.create_task(runs.execute(ToolCall("talks"), SCOPE))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    runs = executor(talks, heard=Heard())
    asyncio.run(main())
    release.set()
    assert finished.wait(60)
    assert failures == []


async def test_events_carry_the_session_and_the_agent():
    heard = Heard()
    await execute(works, {"text": "a"}, heard=heard)
    for event in heard:
        wire = event.to_dict()
        assert (wire["session"], wire["agent"]) == ("test", "main")
        assert wire["call"]["name"] == "works"
        json.dumps(wire)
    assert heard[-1].to_dict()["result"]["for_llm"] == "a"


async def test_secrets_and_what_looks_like_one_are_masked_in_events_but_not_in_results():
    secret = "correct-horse-battery"
    heard = Heard()
    secrets = Secrets([secret])
    stream = ActivityStream(secrets)
    stream.subscribe(heard)
    runs = ToolExecutor(ToolRegistry([works]), [], stream, secrets)
    key = "sk-abcdefghijklmnopqrstuvwx"
    result = await runs.execute(ToolCall("works", {"text": f"{secret} {key}"}), SCOPE)
    assert key in result.for_llm
    wire = json.dumps([event.to_dict() for event in heard])
    assert secret not in wire
    assert key not in wire


async def test_two_streams_do_not_hear_each_other():
    one, other = Heard(), Heard()
    await asyncio.gather(execute(works, heard=one), execute(fails, heard=other))
    assert one.names == ["tool_call_start", "tool_call_end"]
    assert other.names == ["tool_call_start", "error", "tool_call_end"]


def test_emitting_without_a_loop_or_a_listener_is_fine():
    stream = ActivityStream()
    stream.emit(TextDelta("nobody"))

    async def listens(event: Any) -> None:
        heard.append(event)

    heard: list[Any] = []
    stream.subscribe(listens)
    stream.emit(TextDelta("a"))

    async def main() -> None:
        stream.emit(TextDelta("b"))
        assert await stream.drain()

    asyncio.run(main())
    assert texts(heard) == ["a", "b"]


def in_pieces(text: str, cuts: list[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


def note_text(seen: list[str], event: ToolOutput | TextDelta) -> None:
    seen.append(event.text)


SECRETS = ("hunter2hunter2", "line one\nline two\n", 'with "quotes" in it')


@pytest.mark.parametrize(
    "text",
    [
        "it is hunter2hunter2, I think\n",
        "hunter2hunter2hunter2hunter2",
        "before line one\nline two\n after",
        'JSON: "with \\"quotes\\" in it" after',
        "password=Tr0ub4dor&3xyz\nnext line",
        '{"api_key": "abc def 123 XYZ"} after',
        "docker login -u me -p hunter9hunter9x registry\n",
        "hunter2hun",  # cut by the end
    ],
)
@pytest.mark.parametrize("make", [lambda text: ToolOutput(ToolCall("bash", {}, "one"), text), TextDelta])
def test_a_secret_in_two_pieces_is_masked_wherever_it_is_cut(text, make):
    """The halves of a registered secret, in any of its spellings, and of values that look like one."""
    whole = Secrets(SECRETS).mask_all(f"{text}…")[:-1]
    for cuts in [*([cut] for cut in range(1, len(text))), list(range(1, len(text)))]:
        stream, seen = ActivityStream(Secrets(SECRETS)), list[str]()
        stream.subscribe(partial(note_text, seen), TextDelta, ToolOutput)
        for piece in in_pieces(text, cuts):
            stream.emit(make(piece))
        stream.emit(ToolFinished(ToolCall("bash", {}, "one"), True, ToolResult(for_llm="done")))
        stream.emit(TurnFinished(1, {}))
        assert "".join(seen) == whole, cuts


@pytest.mark.parametrize(
    "token",
    ["ghp_abcdefghijklmnopqrstuvwxyz0123456789", "AKIAIOSFODNN7EXAMPLE", "sk-abcdefghijklmnopqrstuvwxyz012345"],
)
def test_of_a_token_in_pieces_no_more_than_its_public_prefix_is_shown(token):
    for cut in range(1, len(token)):
        stream, seen = ActivityStream(), list[str]()
        stream.subscribe(partial(note_text, seen), ToolOutput)
        for piece in (f"it is {token[:cut]}", f"{token[cut:]} indeed\n"):
            stream.emit(ToolOutput(ToolCall("bash", {}, "one"), piece))
        assert re.fullmatch(r"it is (ghp?|AKI?|A|s|g|sk)?\[secret\] indeed\n", "".join(seen)), (cut, seen)


def test_text_that_cannot_begin_a_secret_is_shown_at_once():
    stream, seen = ActivityStream(Secrets(SECRETS)), list[str]()
    stream.subscribe(lambda event: seen.append(event.text), ToolOutput)
    pieces = ["tests ....", "..F..", "\nName: ", "your choice? [y/n] ", "my_value=5", " 100%|####", "password: "]
    for piece in pieces:
        stream.emit(ToolOutput(ToolCall("bash", {}, "one"), piece))
    assert seen == pieces


def test_two_calls_at_the_same_time_do_not_complete_each_other():
    stream, seen = ActivityStream(Secrets(SECRETS)), list[tuple[str, str]]()
    stream.subscribe(lambda event: seen.append((event.call.id, event.text)), ToolOutput)
    for id, piece in (("one", "a hunter2"), ("two", "hunter2 b\n"), ("one", "hunter2 c\n")):
        stream.emit(ToolOutput(ToolCall("bash", {}, id), piece))
    assert seen == [("one", "a "), ("two", "hunter2 b\n"), ("one", "[secret] c\n")]


def test_a_text_of_another_run_does_not_end_this_one():
    stream, seen = ActivityStream(Secrets(SECRETS)), list[str]()
    stream.subscribe(lambda event: seen.append(event.text), TextDelta)
    stream.emit(TextDelta("a hunter2", session="one"))
    stream.emit(TurnFinished(1, {}, session="two"))
    assert seen == ["a "]
    stream.emit(TurnFinished(1, {}, session="one"))
    assert seen == ["a ", "hunter2"]  # too short to be told from a word
