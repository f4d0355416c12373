"""Two threads beside the person's: one runs the loop, one shows what happens. Neither keeps the program from ending."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

from forge.cli.running.loop_thread import LoopThread, run_interruptible
from forge.cli.terminal.event_thread import BACKLOG, Screen
from forge.cli.terminal.exit_codes import Ending
from forge.core.events import Event, TextDelta, ToolOutput
from forge.core.messages import ToolCall


class Remembers:
    """A view that keeps what it is shown; `let_go` makes it slow."""

    is_moving = False

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.let_go = threading.Event()
        self.let_go.set()

    def show(self, event: Event) -> None:
        self.let_go.wait()
        if isinstance(event, TextDelta) and event.text == "broken":
            raise BrokenPipeError
        if isinstance(event, TextDelta) and event.text == "odd":
            raise ValueError
        self.seen.append(event)

    def note(self, *lines: str) -> None:
        self.seen += lines

    def finish(self, ending: Ending) -> None:
        self.seen.append(ending.reason)

    def tick(self) -> None: ...

    def clear(self) -> None:
        self.seen.append("cleared")


@pytest.fixture
def view():
    return Remembers()


def texts(view: Remembers) -> list[Any]:
    return [one.text if isinstance(one, TextDelta) else one for one in view.seen]


def test_between_two_runs_events_wait(view):
    screen = Screen(view)
    screen.begin()
    screen.take(TextDelta("one"))
    screen.finish(Ending(reason="answer"))
    screen.take(TextDelta("late"))
    screen.note("a word")
    screen.wait_until_shown()
    assert texts(view) == ["one", "answer", "a word"]
    screen.begin()
    screen.take(TextDelta("two"))
    screen.wait_until_shown()
    assert texts(view)[3:] == ["late", "two"]


def test_a_slow_reader_loses_live_output_and_nothing_else(view):
    view.let_go.clear()
    screen = Screen(view)
    screen.begin()
    for _ in range(BACKLOG + 100):
        screen.take(ToolOutput(ToolCall("t"), "x"))
    screen.take(TextDelta("the answer"))
    view.let_go.set()
    screen.wait_until_shown()
    assert BACKLOG <= len(view.seen) < BACKLOG + 100
    assert texts(view)[-1] == "the answer"


def test_who_no_longer_reads_is_noticed_once_and_told_at_the_end(view):
    noticed: list[int] = []
    screen = Screen(view, broken=lambda: noticed.append(1))
    screen.begin()
    for text in ("broken", "broken", "odd", "after"):
        screen.take(TextDelta(text))
    with pytest.raises(BrokenPipeError):
        screen.wait_until_shown()
    assert noticed == [1]
    assert texts(view) == ["after"]


async def test_while_a_question_is_open_nothing_is_shown(view):
    screen = Screen(view)
    screen.begin()
    screen.take(TextDelta("before"))
    async with screen.hold():
        assert texts(view) == ["before", "cleared"]
        screen.take(TextDelta("meanwhile"))
    await asyncio.to_thread(screen.wait_until_shown)
    assert texts(view) == ["before", "cleared", "meanwhile"]


async def test_a_question_that_is_cancelled_holds_nothing_up(view):
    screen = Screen(view)
    view.let_go.clear()
    screen.begin()
    screen.take(TextDelta("slow"))

    async def ask() -> None:
        async with screen.hold():
            raise AssertionError

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    view.let_go.set()
    await asyncio.to_thread(screen.wait_until_shown)
    assert texts(view)[0] == "slow"


def test_work_returns_and_raises_as_it_does_elsewhere():
    async def fails() -> None:
        raise LookupError("no")

    with LoopThread() as loop:
        assert loop.do(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(LookupError):
            loop.do(fails())


def test_work_goes_on_between_two_calls():
    async def start() -> asyncio.Task[str]:
        return asyncio.create_task(asyncio.sleep(0, "went on"))

    with LoopThread() as loop:
        task = loop.do(start())
        assert loop.do(asyncio.wait_for(task, 60)) == "went on"


def press_ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.fixture
def keyboard(monkeypatch):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_cancels_and_waits_for_the_cleaning_up(keyboard):
    cleaned: list[str] = []

    async def work() -> str:
        press_ctrl_c()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            cleaned.append("up")
            raise
        return ""

    with LoopThread() as loop, pytest.raises(asyncio.CancelledError):
        loop.do(work(), lambda: cleaned.append("told"))
    assert sorted(cleaned) == ["told", "up"]


def test_ctrl_c_twice_does_not_wait(keyboard):
    async def work() -> None:
        press_ctrl_c()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                press_ctrl_c()
                await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt), LoopThread() as loop:
        loop.do(work())


def test_a_loop_that_waits_looks_up_for_signals():
    """A signal that arrives just before the loop begins to wait does not wake it."""
    limits: list[float | None] = []

    async def wait() -> str:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        selector = loop._selector  # type: ignore[attr-defined]  # private: how long it may wait
        select = selector.select

        def noted(limit: float | None = None) -> Any:
            limits.append(limit)
            return select(limit)

        selector.select = noted
        threading.Timer(0.05, loop.call_soon_threadsafe, [ended.set]).start()
        await ended.wait()
        selector.select = select
        return "over"

    assert run_interruptible(wait()) == "over"
    assert limits
    assert None not in limits
