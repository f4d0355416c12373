"""Step: limits how often a tool with a rate is called; a call too many waits or is refused."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Next
from forge.core.result import ToolResult
from forge.core.spec import Rate, ToolSpec

MOST_SESSIONS = 1_000  # whose calls are counted


class LimitRate:
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
