"""Ends asyncio tasks of a worker together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any


async def run_until_first(*work: Coroutine[Any, Any, Any]) -> None:
    """Runs all until one ends, cancels the others, and raises what that one raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await end_tasks(tasks)


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Waits for tasks that were cancelled. Their errors count no more: reading them keeps asyncio from reporting them
    as never retrieved.
    """
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
