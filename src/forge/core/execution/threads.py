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


def current_loop() -> asyncio.AbstractEventLoop:
    """Returns the running loop, or the one that a tool's thread works for."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        thread = threading.current_thread()
        if not isinstance(thread, _ToolThread) or thread.loop is None:
            raise
        return thread.loop


async def in_thread(function: Callable[[], T]) -> T:
    """Runs a plain function beside the event loop and returns its value; raises whatever it raised."""
    _threads.reserve()
    call = _ThreadCall(function, _threads)
    _threads.unfinished.add(call)
    _threads.work.put(call)
    value, error = await call.outcome
    if error is not None:
        raise error
    returned: T = value
    return returned


def has_unfinished() -> bool:
    """Returns whether the thread of some function has not returned to its loop yet, hung ones included."""
    return bool(_threads.unfinished)


class _Threads:
    """The threads of this process for plain functions, and the calls that wait for one."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[_ThreadCall] = queue.SimpleQueue()
        self.unfinished: set[_ThreadCall] = set()
        self.idle = 0  # threads that wait for work and are not reserved
        self.alive = 0
        self.lock = threading.Lock()

    def reserve(self) -> None:
        """Reserves a thread for the next item of `work`. Raises `ToolError` where there are too many."""
        with self.lock:
            if self.idle:
                self.idle -= 1
                return
            if self.alive >= MOST_THREADS:
                raise ToolError(
                    f"{MOST_THREADS} plain functions are already running or hung",
                    ErrorKind.SYSTEM,
                    "Wait for some to end; give slow tools their own timeout and isolate=True.",
                    passing=True,
                )
            self.alive += 1
        try:
            _ToolThread(self).start()
        except BaseException:
            with self.lock:
                self.alive -= 1
            raise


class _ToolThread(threading.Thread):
    """A thread that runs one call after the other, until it has waited `IDLE` seconds for the next."""

    loop: asyncio.AbstractEventLoop | None = None  # of the call that it runs

    def __init__(self, threads: _Threads) -> None:
        super().__init__(name="forge-tool", daemon=True)
        self._threads = threads

    def run(self) -> None:
        threads = self._threads
        call = threads.work.get()
        while True:
            self.loop = call.loop
            call.run()
            del call  # what it returned may be large
            try:
                call = threads.work.get(timeout=IDLE)
            except queue.Empty:
                with threads.lock:
                    if threads.idle:
                        threads.idle -= 1
                        threads.alive -= 1
                        return
                call = threads.work.get()  # this thread was reserved in the very moment it gave up


class _ThreadCall:
    """A function for a thread, and the future that its outcome goes to."""

    def __init__(self, function: Callable[[], Any], threads: _Threads) -> None:
        self.threads = threads
        self.function: Callable[[], Any] | None = function
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[Any, BaseException | None]] = self.loop.create_future()

    def run(self) -> None:
        """Runs in the thread. The thread counts as idle before the task is woken, since the task may need it next."""
        function, self.function = self.function, None
        assert function is not None
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (self.context.run(function), None)
        except BaseException as error:  # SystemExit and friends end the call, not the program
            outcome = (None, error)
        with self.threads.lock:
            self.threads.idle += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            self.loop.call_soon_threadsafe(self._settle, outcome)
        self.threads.unfinished.discard(self)
        del outcome  # the traceback of an error refers to this frame

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.outcome.done():  # cancelled: the function continued in its thread
            self.outcome.set_result(outcome)


_threads = _Threads()


def _reset_after_fork() -> None:
    """Forgets the threads of the parent process: work that waits for them would wait for ever."""
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_reset_after_fork)
