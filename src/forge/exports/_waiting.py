"""Runs coroutines for callers that cannot await, on a loop that outlives the call."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

LAST_SECONDS = 2.0  # for what still runs when the program ends

T = TypeVar("T")

_lock = threading.Lock()
_own: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], home: asyncio.AbstractEventLoop | None) -> T:
    """The value of the coroutine, run on the loop `home` if it can be waited for, else on one in a thread.

    What was opened on a loop, such as a server's connection, is used there; and what a call leaves running goes on.
    """
    here = running_loop()
    loop = home if home is not None and home is not here and home.is_running() else _own_loop()
    if loop is here:
        raise RuntimeError("a tool on the event loop cannot wait for another tool without blocking it; await ainvoke")
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C ends the wait: the call must not go on unseen
        raise


def _own_loop() -> asyncio.AbstractEventLoop:
    global _own
    with _lock:
        if _own is None or not _own[1].is_alive():  # a forked child has no thread of its parent's
            ready: Future[asyncio.AbstractEventLoop] = Future()
            thread = threading.Thread(
                target=lambda: asyncio.run(_until_the_end(ready)), name="forge-export", daemon=True
            )
            thread.start()
            _own = (ready.result(), thread)
        return _own[0]


async def _until_the_end(ready: Future[asyncio.AbstractEventLoop]) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.current_thread()

    def end() -> None:
        loop.call_soon_threadsafe(over.set)
        thread.join(LAST_SECONDS)

    atexit.register(end)
    ready.set_result(loop)
    await over.wait()
