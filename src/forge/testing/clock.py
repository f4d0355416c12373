"""A clock that moves only when a test says so: for schedules, memory, and everything that waits on an event loop."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from forge.core.execution.threads import has_unfinished

T = TypeVar("T")

START = "2026-01-01 12:00"
ROUNDS = 30  # of the event loop, in which everything that can go on without time does
PATIENCE = 1.0  # real seconds for a plain function, which works in a thread, before time passes for it too
STUCK = 10.0  # real seconds in which nothing happened although somebody waits for time to pass


class Clock:
    """A clock for tests. Pass its methods: `ScheduleStore(path, clock.time, clock.steady)`,
    `Runner(store, run, wait=clock.wait)`, `Memory(path, clock=clock.now)`.

    `advance` and `set` move it. What waits on an event loop follows it inside `clock.run(…)`: there `asyncio.sleep`,
    time-outs, retries and rate limits end when `await clock.let_pass(seconds)` says so, and take no time.
    """

    def __init__(self, start: str | datetime = START, zone: str = "UTC") -> None:
        self.zone: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)
        self._wall = self._moment(start)
        self._steady = 1_000.0
        self._until: float | None = None  # how far time may pass now
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def time(self) -> float:
        """Returns the time in seconds since 1970; `set` changes it."""
        return self._wall

    def steady(self) -> float:
        """Returns seconds that only increase."""
        return self._steady

    def now(self) -> datetime:
        """Returns the time in the clock's zone."""
        return datetime.fromtimestamp(self._wall, self.zone)

    def advance(self, seconds: float | timedelta) -> None:
        """Lets time pass at once. Only `let_pass` wakes waiting tasks."""
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if length < 0:
            raise ValueError(f"advance({length:g}): time does not go backwards; use `set` to set the clock back")
        self._wall += length
        self._steady += length

    def set(self, moment: str | datetime) -> None:
        """Sets the clock, as in `clock.set("2026-03-29 01:59")`: no time passes."""
        self._wall = self._moment(moment)

    async def wait(self, seconds: float) -> None:
        """Waits until so much time has passed; a replacement for sleeping."""
        if isinstance(asyncio.get_running_loop(), _StillLoop):
            await asyncio.sleep(seconds)
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self._steady + seconds, future))
        await future

    async def let_pass(self, seconds: float | timedelta) -> None:
        """Lets time pass step by step: every waiting task continues at its moment."""
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        end = self._steady + length
        loop = asyncio.get_running_loop()
        if isinstance(loop, _StillLoop):
            await _flow(self, loop, end)
            return
        await _settle()
        while (due := self._next(end)) is not None:
            self.advance(max(due[0] - self._steady, 0.0))
            due[1].set_result(None)
            await _settle()
        self.advance(max(end - self._steady, 0.0))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs like `asyncio.run`; time stands still unless `let_pass` is awaited.

        Raises `RuntimeError` if everything waits for time and no one lets it pass.
        """
        with asyncio.Runner(loop_factory=lambda: _StillLoop(self)) as runner:
            return runner.run(main)

    def _moment(self, said: str | datetime) -> float:
        moment = datetime.fromisoformat(said) if isinstance(said, str) else said
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=self.zone)).timestamp()

    def _next(self, end: float) -> tuple[float, asyncio.Future[None]] | None:
        self._waiting = [one for one in self._waiting if not one[1].done()]
        due = min(self._waiting, key=lambda one: one[0], default=None)
        return due if due is not None and due[0] <= end else None

    def __repr__(self) -> str:
        return f"<Clock {self.now():%Y-%m-%d %H:%M:%S %Z}>"


class _StillLoop(asyncio.SelectorEventLoop):
    """An event loop with the clock's time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__(_StillSelector(clock))

    def time(self) -> float:
        return self._clock.steady()


class _StillSelector(selectors.DefaultSelector):
    """Lets time pass as far as the test allows instead of waiting, or waits for an event."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        clock = self._clock
        if clock._until is None:
            if happened := super().select(STUCK):
                return happened
            raise RuntimeError("all tasks wait for time to pass: run `await clock.let_pass(seconds)` at the same time")
        is_busy = has_unfinished()
        if happened := super().select(PATIENCE if is_busy else 0):
            return happened
        clock.advance(max(min(timeout, clock._until - clock.steady()), 0.0))
        return []


async def _flow(clock: Clock, loop: asyncio.AbstractEventLoop, end: float) -> None:
    if clock._until is not None:
        raise RuntimeError("let_pass(…) is already running: only one may run at a time")
    arrived = loop.create_future()
    timer = loop.call_at(end, arrived.set_result, None)
    clock._until = end
    try:
        await arrived
        await _settle()  # those whose moment is the same one
    finally:
        clock._until = None
        timer.cancel()


async def _settle() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
