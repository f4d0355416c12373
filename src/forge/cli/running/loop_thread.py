"""Runs the event loop on its own thread, so that the person's thread can read and be interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

PATIENCE = 5.0  # seconds that remaining work has to end
LOOK_UP = 0.5  # seconds between two looks for signals

T = TypeVar("T")


class LoopThread:
    """Keeps the loop running between two calls of `do`, so that open connections live while the person types."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self._task: asyncio.Task[Any] | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="forge-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        if kind is not KeyboardInterrupt:  # a person who asked twice does not wait
            self._thread.join(PATIENCE)

    def do(self, work: Coroutine[Any, Any, T], interrupted: Callable[[], None] = lambda: None) -> T:
        """Runs the work. The first Ctrl-C cancels the work and waits for its cleanup; the second raises
        `KeyboardInterrupt`.
        """
        ended: Future[asyncio.Task[T]] = Future()

        def start() -> None:
            task = self._task = self._loop.create_task(work)
            task.add_done_callback(ended.set_result)

        try:
            self._loop.call_soon_threadsafe(start)
            task = _wait_for(ended)
        except KeyboardInterrupt:
            self.cancel()
            interrupted()
            task = _wait_for(ended)
        return task.result()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts work that nobody waits for yet."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def cancel(self) -> None:
        """Cancels the work that `do` waits for. Safe from any thread."""
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())

    def _serve(self) -> None:
        async def until_over() -> None:
            self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
            self._ready.set()
            await self._over.wait()

        asyncio.run(until_over())


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Runs the work as `asyncio.run` does, but its loop wakes up regularly, so that no Ctrl-C is missed."""

    async def look_up_meanwhile() -> T:
        looking_up = asyncio.create_task(_look_up())
        try:
            return await work
        finally:
            looking_up.cancel()

    return asyncio.run(look_up_meanwhile())


async def _look_up() -> None:
    while True:  # noqa: ASYNC110 - nothing is awaited here
        await asyncio.sleep(LOOK_UP)


def _wait_for(ended: Future[T]) -> T:
    """Wakes up regularly: a signal that arrives just before a thread begins to wait does not wake it."""
    while True:
        try:
            return ended.result(LOOK_UP)
        except TimeoutError:
            continue
