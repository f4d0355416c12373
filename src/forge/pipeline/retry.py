"""Step: retries a failure that is marked as passing, a few times, with growing pauses."""

from __future__ import annotations

import asyncio

from forge.core.context import ToolContext
from forge.core.executor import Look, Next, Step
from forge.core.result import ToolResult
from forge.pipeline._step import add_attributes


def retry(attempts: int = 3, first_pause: float = 0.2, longest_pause: float = 5.0) -> Step:
    def look_after(proceed: Next) -> Look:
        async def try_again(ctx: ToolContext, result: ToolResult) -> ToolResult:
            for attempt in range(1, attempts):
                if result.failure is None or not result.failure.passing:
                    return result
                from random import uniform  # only for calls that are retried

                pause = min(longest_pause, first_pause * 2 ** (attempt - 1)) * uniform(0.5, 1.5)  # noqa: S311
                ctx.progress(f"Trying again in {pause:.1f} s: {result.failure.message}", attempt=attempt + 1)
                await asyncio.sleep(pause)
                result = await proceed(ctx)
            if result.failure is not None and result.failure.passing:
                return result.with_data(attempts=attempts)
            return result

        return lambda ctx, result: result if result.failure is None else try_again(ctx, result)

    async def step(ctx: ToolContext, proceed: Next) -> ToolResult:
        result = await proceed(ctx)
        looked = look_after(proceed)(ctx, result)
        return looked if isinstance(looked, ToolResult) else await looked

    return add_attributes(step, look_after=look_after)
