"""Time that passes only when a test says so: for schedules, memory, and all that waits on an event loop."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from forge.core.execution import threads

T = TypeVar("T")

START = "2026-01-01 12:00"
ROUNDS = 30  # of the event loop, in which everything that can go on without time does
PATIENCE = 1.0  # real seconds for a plain function, which works in a thread, before time passes for it too
STUCK = 10.0  # real seconds in which nothing happened although somebody waits for time to pass


class Clock:
    """What takes a clock takes one of its methods: `ScheduleStore(path, clock.time, clock.steady)`,
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
        """What time it is, in seconds since 1970; `set` changes it."""
        return self._wall

    def steady(self) -> float:
        """Seconds that only ever go on."""
        return self._steady

    def now(self) -> datetime:
        """What time it is, in the clock's zone."""
        return datetime.fromtimestamp(self._wall, self.zone)

    def advance(self, seconds: float | timedelta) -> None:
        """So much time passes, all at once. Those who wait are woken by `let_pass` only."""
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if length < 0:
            raise ValueError(f"advance({length:g}): time does not go back; somebody may `set` the clock back")
        self._wall += length
        self._steady += length

    def set(self, moment: str | datetime) -> None:
        """As somebody sets a clock, such as `clock.set("2026-03-29 01:59")`: no time passes."""
        self._wall = self._moment(moment)

    async def wait(self, seconds: float) -> None:
        """Until so much time has passed; to be given to whoever else would sleep."""
        if isinstance(asyncio.get_running_loop(), _StillLoop):
            await asyncio.sleep(seconds)
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((self._steady + seconds, future))
        await future

    async def let_pass(self, seconds: float | timedelta) -> None:
        """Time passes, step by step: whoever waits goes on at their moment, before it passes further."""
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
        """Like `asyncio.run`, with time that stands still unless `let_pass` is awaited.

        Raises `RuntimeError` where everything waits for time to pass and nobody lets it.
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
    """Its time is the clock's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__(_StillSelector(clock))

    def time(self) -> float:
        return self._clock.steady()


class _StillSelector(selectors.DefaultSelector):
    """Asked to wait for time, it lets it pass as far as the test allows, or waits for something to happen."""

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
            raise RuntimeError("everything waits for time to pass: `await clock.let_pass(seconds)` beside it")
        is_busy = bool(threads.unfinished)
        if happened := super().select(PATIENCE if is_busy else 0):
            return happened
        clock.advance(max(min(timeout, clock._until - clock.steady()), 0.0))
        return []


async def _flow(clock: Clock, loop: asyncio.AbstractEventLoop, end: float) -> None:
    if clock._until is not None:
        raise RuntimeError("let_pass(…) is under way already: time passes once, for everybody")
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
