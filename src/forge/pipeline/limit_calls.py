"""Steps that limit how a tool runs: how long, how often, how many calls at once, how many times, in which process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from functools import partial
from typing import Any, cast

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.chain import Next, StepObject
from forge.core.execution.deadline import Deadline, DeadlinePassed
from forge.core.messages import render_call
from forge.core.result import ToolResult
from forge.core.spec import Rate, ToolSpec
from forge.core.tool import Tool

LONGEST_TIMEOUT = 86_400.0  # seconds: a day, however much a model asks for
SPARE = 10.0  # seconds that a tool with a deadline of its own has beyond it for cleaning up


class LimitTime(StepObject):
    """Ends a call at its deadline. A call that never waits costs no timer."""

    name = "limit_time"

    def applies(self, spec: ToolSpec) -> bool:
        return spec.timeout is not None

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        seconds = ctx.spec.timeout
        if seconds is not None and ctx.tool.keeps_deadline:
            seconds += SPARE
        requested: Any = ctx.arguments.get("timeout")
        if requested is not None and seconds is not None and isinstance(requested, int | float):
            # such a tool keeps its own deadline; this one only catches its fall
            seconds = max(seconds, min(requested, LONGEST_TIMEOUT) + SPARE)
        try:
            return await Deadline(proceed(ctx), seconds, waited_seconds=lambda: ctx.waited_seconds)
        except DeadlinePassed:
            ctx.cancelled = True
            late = ToolError(
                f"timed out after {seconds:g} s",
                ErrorKind.TIMEOUT,
                "Try a smaller step, or ask for more time if the tool has a timeout parameter.",
            )
            return ToolResult.failed(late, during=render_call(ctx.call)).with_data(timed_out=True)


# How often: a call too many waits or is refused.


MOST_SESSIONS = 1_000  # whose calls are counted


class LimitRate(StepObject):
    """Waits until the call's deadline, then fails as `rate_limited`. Periods count per tool, runs per session."""

    name = "limit_rate"

    def __init__(self) -> None:
        self._recent: dict[str, deque[float]] = {}  # tool -> when its latest calls were let through
        self._made: OrderedDict[str, dict[str, int]] = OrderedDict()  # session -> tool -> calls of this run

    def applies(self, spec: ToolSpec) -> bool:
        return spec.rate is not None

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        rate = ctx.spec.rate
        assert rate is not None
        if rate.max_calls:
            _count_run(ctx, rate.max_calls, self._made)
        if rate.calls:
            await _wait_for_turn(ctx, rate, self._recent.setdefault(ctx.spec.name, deque()))
        return await proceed(ctx)

    def forget(self, session_id: str) -> None:
        if session_id:
            self._made.pop(session_id, None)
        else:
            self._made.clear()


def _count_run(ctx: ToolContext, most: int, made: OrderedDict[str, dict[str, int]]) -> None:
    session, name = ctx.scope.session_id, ctx.spec.name
    counts = made[session] = made.pop(session, {})  # the latest session is the last
    if len(made) > MOST_SESSIONS:
        made.popitem(last=False)
    counts[name] = counts.get(name, 0) + 1
    if counts[name] > most:
        raise ToolError(
            f"it may be called at most {most} times in a run",
            ErrorKind.RATE_LIMITED,
            "Continue with the results you have.",
        )


async def _wait_for_turn(ctx: ToolContext, rate: Rate, times: deque[float]) -> None:
    now = time.monotonic()
    while times and times[0] <= now - rate.seconds:
        times.popleft()
    free_at = now if len(times) < rate.calls else times[-rate.calls] + rate.seconds
    wait = free_at - now
    if ctx.spec.timeout is not None and wait > ctx.spec.timeout:
        raise ToolError(
            f"{rate.calls} calls in {rate.seconds:g} s are allowed; the next one is allowed in {wait:.0f} s",
            ErrorKind.RATE_LIMITED,
            "Do something else first, then try again.",
        )
    times.append(max(now, free_at))  # the place is taken before waiting, so that waiting calls queue up
    if wait > 0:
        ctx.progress(f"Waiting {wait:.1f} s for the rate limit")
        await asyncio.sleep(wait)


# Again: a failure that is marked as passing is retried a few times, with growing pauses.


PlaceKey = tuple[str, ...]  # the values of the parameters that the spec names as `concurrency_key`
Holder = tuple[str, str]  # the session and the id of a call


class LimitConcurrency(StepObject):
    """Lets calls wait for a place, in the order in which they came, for as long as their runs wait.

    Places belong to the tool, so the agents of a process share them. A call that is made by a call with a place needs
    none, since it would wait for its own parent.
    """

    name = "limit_concurrency"

    def applies(self, spec: ToolSpec) -> bool:
        return spec.max_concurrency > 0

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        key = tuple(repr(ctx.arguments.get(name)) for name in ctx.spec.concurrency_key.split())
        holder = (ctx.scope.session_id, ctx.call.id)
        places: Places = vars(ctx.tool).setdefault("places", Places())
        if places.is_held_above(key, holder):
            return await proceed(ctx)
        if (turn := places.take_or_queue(key, holder, ctx.spec.max_concurrency)) is not None:
            ctx.progress(f"Waiting for one of {ctx.spec.max_concurrency} places")
            await places.wait_for(turn, key, holder)
        try:
            return await proceed(ctx)
        finally:
            places.give_back(key, holder)


class Places:
    """The calls of a tool that run now, and those that wait, in any thread and event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[PlaceKey, list[Holder]] = {}
        self._waiting: dict[PlaceKey, deque[tuple[Holder, asyncio.Future[None]]]] = {}

    def is_held_above(self, key: PlaceKey, holder: Holder) -> bool:
        """Returns whether a call that made this one, directly or through others, holds a place."""
        session, call_id = holder
        running = self._running.get(key, ())
        return any((session, call_id[:end]) in running for end, sign in enumerate(call_id) if sign == ".")

    def take_or_queue(self, key: PlaceKey, holder: Holder, most: int) -> asyncio.Future[None] | None:
        """Takes a free place and returns None, or returns what comes true with the call's turn."""
        with self._lock:
            running = self._running.setdefault(key, [])
            if len(running) < most:
                running.append(holder)
                return None
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, deque()).append((holder, turn))
            return turn

    async def wait_for(self, turn: asyncio.Future[None], key: PlaceKey, holder: Holder) -> None:
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                waits = (holder, turn) in self._waiting.get(key, ())
                if waits:
                    self._waiting[key].remove((holder, turn))
            if not waits:  # its turn came meanwhile
                self.give_back(key, holder)
            raise

    def give_back(self, key: PlaceKey, holder: Holder) -> None:
        """Gives the place to the call that waits longest."""
        with self._lock:
            running, waiting = self._running[key], self._waiting.get(key)
            running.remove(holder)
            while waiting:
                following, turn = waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_come_true, turn)
                except RuntimeError:  # its event loop was closed while it waited
                    continue
                running.append(following)
                break
            if not waiting:
                self._waiting.pop(key, None)
            if not running:
                del self._running[key]


def _come_true(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Retry(StepObject):
    """Retries calls.

    Args:
        attempts: how often a call is tried in all.
        first_pause: seconds before the second attempt; each pause is twice the one before.
        longest_pause: seconds.
    """

    name = "retry"

    def __init__(self, attempts: int = 3, first_pause: float = 0.2, longest_pause: float = 5.0) -> None:
        self._attempts = attempts
        self._first_pause = first_pause
        self._longest_pause = longest_pause

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        for attempt in range(1, self._attempts):
            if result.failure is None or not result.failure.passing:
                return result
            from random import uniform  # only for calls that are retried

            pause = min(self._longest_pause, self._first_pause * 2 ** (attempt - 1)) * uniform(0.5, 1.5)  # noqa: S311
            ctx.progress(f"Trying again in {pause:.1f} s: {result.failure.message}", attempt=attempt + 1)
            await asyncio.sleep(pause)
            result = await proceed(ctx)
        if result.failure is not None and result.failure.passing:
            return result.with_data(attempts=self._attempts)
        return result


# Where: a tool with `isolate=True` runs in a process of its own.


class Isolate(StepObject):
    """Runs the tool in a process that a time-out really kills."""

    name = "isolate"

    def applies(self, spec: ToolSpec) -> bool:
        return spec.isolate

    async def __call__(self, ctx: ToolContext, proceed: Next) -> ToolResult:
        from forge.network.egress import Egress, use_egress  # only where it is asked for
        from forge.process.running.isolated import run_isolated

        egress = partial(use_egress, Egress.current())  # its rules hold there, too
        return await run_isolated(cast(Tool, ctx.tool), ctx.arguments, ctx, egress)
