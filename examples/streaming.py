"""Watch a call while it runs: output as it comes, progress, and work that goes on in the background."""

import asyncio
from collections.abc import AsyncIterator

from forge import Scope, ToolCall, ToolContext, ToolResult, tool
from forge.events import ToolCompleted, ToolOutput, ToolProgress
from forge.pipeline import standard_executor


@tool
async def count_down(start: int, ctx: ToolContext) -> AsyncIterator[str]:
    """Count down to zero."""
    for number in range(start, -1, -1):
        ctx.progress(f"{number} to go")
        yield f"{number} "


@tool
async def index_project(ctx: ToolContext) -> ToolResult:
    """Build the search index; the result arrives later."""

    async def work() -> str:
        await asyncio.sleep(0.01)
        return "indexed 42 files"

    return ctx.background(work(), "Indexing has started.")


async def main() -> None:
    executor = standard_executor([count_down, index_project])
    executor.activity.subscribe(lambda event: print("output:", event.text), ToolOutput)
    executor.activity.subscribe(lambda event: print("progress:", event.title), ToolProgress)
    executor.activity.subscribe(lambda event: print("completed:", event.result.for_llm), ToolCompleted)
    print((await executor.execute(ToolCall("count_down", {"start": 2}), Scope())).for_llm)
    print((await executor.execute(ToolCall("index_project"), Scope())).for_llm)
    await executor.background.settled()


asyncio.run(main())
