"""Runs plain functions on daemon threads: hung ones starve no others and never keep the program from ending."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from forge.core.errors import ErrorKind, ToolError

T = TypeVar("T")

MOST_THREADS = 2_000  # threads at once; hung ones count until they return
IDLE = 10.0  # seconds a thread waits for work before it ends

_work: queue.SimpleQueue[_ThreadCall] = queue.SimpleQueue()
_lock = threading.Lock()
_idle = 0
_alive = 0
unfinished: set[_ThreadCall] = set()
"""Functions whose threads have not returned to their loops yet, hung ones included."""

_thread_state = threading.local()


def current_loop() -> asyncio.AbstractEventLoop:
    """Returns the running loop, or the one that a tool's thread works for."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        loop: asyncio.AbstractEventLoop | None = getattr(_thread_state, "loop", None)
        if loop is None:
            raise
        return loop


async def in_thread(function: Callable[[], T]) -> T:
    """Runs a plain function beside the event loop and returns its value; raises whatever it raised."""
    _reserve_thread()
    call = _ThreadCall(function)
    unfinished.add(call)
    _work.put(call)
    value, error = await call.outcome
    if error is not None:
        raise error
    returned: T = value
    return returned


class _ThreadCall:
    """A function for a thread, and the future that its outcome goes to."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function: Callable[[], Any] | None = function
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[Any, BaseException | None]] = self.loop.create_future()

    def run(self) -> None:
        """Runs in the thread. It counts as idle before the task is woken, since the task may need it next."""
        global _idle
        function, self.function = self.function, None
        assert function is not None
        _thread_state.loop = self.loop
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (self.context.run(function), None)
        except BaseException as error:  # SystemExit and friends end the call, not the program
            outcome = (None, error)
        with _lock:
            _idle += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            self.loop.call_soon_threadsafe(self._settle, outcome)
        unfinished.discard(self)
        del outcome  # the traceback of an error refers to this frame

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.outcome.done():  # cancelled: the function continued in its thread
            self.outcome.set_result(outcome)


def _reserve_thread() -> None:
    """Reserves a thread for the next item of `_work`. Raises `ToolError` where there are too many."""
    global _idle, _alive
    with _lock:
        if _idle:
            _idle -= 1
            return
        if _alive >= MOST_THREADS:
            raise ToolError(
                f"{MOST_THREADS} plain functions are already running or hung",
                ErrorKind.SYSTEM,
                "Wait for some to end; give slow tools their own timeout and isolate=True.",
                passing=True,
            )
        _alive += 1
    try:
        threading.Thread(target=_serve, name="forge-tool", daemon=True).start()
    except BaseException:
        with _lock:
            _alive -= 1
        raise


def _serve() -> None:
    global _idle, _alive
    call = _work.get()
    while True:
        call.run()
        del call  # what it returned may be large
        try:
            call = _work.get(timeout=IDLE)
        except queue.Empty:
            with _lock:
                if _idle:
                    _idle -= 1
                    _alive -= 1
                    return
            call = _work.get()  # this thread was reserved in the very moment it gave up


def _reset_after_fork() -> None:
    """Forgets the threads of the parent process: work that waits for them would wait for ever."""
    global _work, _lock, _idle, _alive
    _work, _lock, _idle, _alive = queue.SimpleQueue(), threading.Lock(), 0, 0
    unfinished.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
