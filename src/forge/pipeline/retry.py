"""Step: retries a failure that is marked as passing, a few times, with growing pauses."""

from __future__ import annotations

import asyncio

from forge.core.context import ToolContext
from forge.core.executor import Next
from forge.core.result import ToolResult


class Retry:
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
