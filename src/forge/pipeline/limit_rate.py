"""Step: a tool that declares a rate is called no more often than that; a call too many waits, or is told."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Next, Step
from forge.core.result import ToolResult
from forge.core.spec import Rate, ToolSpec
from forge.pipeline._step import having


def limit_rate() -> Step:
    """Waits until the call's deadline at most, then it is `rate_limited`. Periods are a tool's, runs a session's."""
    recent: dict[str, deque[float]] = {}  # tool -> when its latest calls were let through
    made: dict[tuple[str, str], int] = {}  # (session, tool) -> calls of this run

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        rate = ctx.spec.rate
        assert rate is not None
        _count_run(ctx, rate, made)
        if rate.calls:
            await _wait_for_turn(ctx, rate, recent.setdefault(ctx.spec.name, deque()))
        return await proceed(ctx)

    def clear_state(session_id: str) -> None:
        for key in [key for key in made if not session_id or key[0] == session_id]:
            del made[key]

    return having(step, applies=_has_rate, clear_state=clear_state)


def _has_rate(spec: ToolSpec) -> bool:
    return spec.rate is not None


def _count_run(ctx: ToolContext, rate: Rate, made: dict[tuple[str, str], int]) -> None:
    key = (ctx.scope.session_id, ctx.spec.name)
    made[key] = made.get(key, 0) + 1
    if rate.max_calls and made[key] > rate.max_calls:
        raise ToolError(
            f"it may be called {rate.max_calls} times in a run, and was",
            ErrorKind.RATE_LIMITED,
            "Go on with the results you have.",
        )


async def _wait_for_turn(ctx: ToolContext, rate: Rate, times: deque[float]) -> None:
    now = time.monotonic()
    while times and times[0] <= now - rate.seconds:
        times.popleft()
    free_at = now if len(times) < rate.calls else times[-rate.calls] + rate.seconds
    wait = free_at - now
    if ctx.spec.timeout is not None and wait > ctx.spec.timeout:
        raise ToolError(
            f"{rate.calls} calls in {rate.seconds:g} s are allowed; the next one is free in {wait:.0f} s",
            ErrorKind.RATE_LIMITED,
            "Do something else first, then try again.",
        )
    times.append(max(now, free_at))  # the place is taken before waiting, so that waiting calls queue up
    if wait > 0:
        ctx.progress(f"Waiting {wait:.1f} s for the rate limit")
        await asyncio.sleep(wait)
