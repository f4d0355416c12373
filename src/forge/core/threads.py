"""Daemon threads for plain functions: hung ones starve nobody and never keep the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from forge.core.errors import ErrorKind, ToolError

MOST = 2_000  # threads at once; hung ones count until they return
IDLE = 10.0  # seconds a thread waits for work before it ends

_Work = tuple[Callable[[], Any], contextvars.Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

_work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
_lock = threading.Lock()
_idle = 0
_alive = 0


_here = threading.local()


def home_loop() -> asyncio.AbstractEventLoop:
    """The loop that is running, or the one that a tool's thread works for."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        loop: asyncio.AbstractEventLoop | None = getattr(_here, "loop", None)
        if loop is None:
            raise
        return loop


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a plain function beside the event loop and return its value; raises whatever it raised."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    _submit((function, contextvars.copy_context(), loop, future))
    value, error = await future
    if error is not None:
        raise error
    return value


def _submit(work: _Work) -> None:
    global _idle, _alive
    with _lock:
        if _idle:
            _idle -= 1  # reserved for this work
            _work.put(work)
            return
        if _alive >= MOST:
            raise ToolError(
                f"{MOST} plain functions are running or hung already",
                ErrorKind.SYSTEM,
                "Wait for some to end; give slow tools a timeout of their own and isolate=True.",
                passing=True,
            )
        _alive += 1
    try:
        threading.Thread(target=_serve, args=(work,), name="forge-tool", daemon=True).start()
    except BaseException:
        with _lock:
            _alive -= 1
        raise


def _serve(work: _Work) -> None:
    global _idle, _alive
    while True:
        _run(*work)
        del work  # the arguments may be large
        with _lock:
            _idle += 1
        try:
            work = _work.get(timeout=IDLE)
        except queue.Empty:
            with _lock:
                if _idle and _work.empty():
                    _idle -= 1
                    _alive -= 1
                    return
            work = _work.get()  # it was put in the very moment we gave up


def _run(
    function: Callable[[], Any],
    context: contextvars.Context,
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
) -> None:
    outcome: tuple[Any, BaseException | None]
    _here.loop = loop
    try:
        outcome = (context.run(function), None)
    except BaseException as error:  # SystemExit and friends end the call, not the program
        outcome = (None, error)
    try:
        loop.call_soon_threadsafe(_settle, future, outcome)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if not future.done():
        future.set_result(outcome)


def _forked() -> None:
    """The threads are those of the process this one was forked from: work that waits for them would wait for ever."""
    global _work, _lock, _idle, _alive
    _work, _lock, _idle, _alive = queue.SimpleQueue(), threading.Lock(), 0, 0


os.register_at_fork(after_in_child=_forked)
