"""Daemon threads for plain functions: hung ones starve nobody and never keep the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from forge.core.errors import ErrorKind, ToolError

MOST = 2_000  # threads at once; hung ones count until they return
IDLE = 10.0  # seconds a thread waits for work before it ends

_work: queue.SimpleQueue[_Hop | None] = queue.SimpleQueue()
_lock = threading.Lock()
_idle = 0
_alive = 0
away: set[_Hop] = set()
"""Functions whose threads have not told their loops yet, hung ones included."""


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
    _reserve_thread()
    value, error = await _Hop(function)
    if error is not None:
        raise error
    return value


class _Hop:
    """To a thread and back: what a task awaits in place of a future, with half the work.

    The thread gets the function when the task has said how to wake it. So no outcome comes too early, and thread and
    task do not compete for the interpreter. The task is woken without another turn of the loop.
    """

    __slots__ = ("_asyncio_future_blocking", "function", "home", "inside", "loop", "outcome", "stopped", "wake")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._asyncio_future_blocking = False
        self.function: Callable[[], Any] | None = function
        self.inside = contextvars.copy_context()  # of the function
        self.home: contextvars.Context | None = None  # of the task
        self.loop = asyncio.get_running_loop()
        self.wake: Callable[[_Hop], object] | None = None
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        self.stopped: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Any, None, tuple[Any, BaseException | None]]:
        self._asyncio_future_blocking = True  # the mark by which a task knows what it can wait for
        try:
            yield self
        finally:
            if self.home is None:  # closed before a task waited for it
                _work.put(None)
        return self.outcome

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(self, wake: Callable[[_Hop], object], *, context: contextvars.Context) -> None:
        """The task waits from now on."""
        self.wake, self.home = wake, context
        away.add(self)
        _work.put(self)

    def cancel(self, msg: Any = None) -> bool:
        """The task does not wait any more; the function goes on in its thread."""
        if self.wake is None or self.stopped is not None:
            return False
        self.stopped = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self.loop.call_soon(self._wake_up, context=self.home)
        return True

    def result(self) -> object:
        """What the task asks when it is woken; the outcome itself goes to who awaits."""
        if self.stopped is not None:
            raise self.stopped
        return None

    def run(self) -> None:
        """In the thread. It counts as idle before the task is woken, since the task may need it next."""
        global _idle
        function, self.function = self.function, None
        assert function is not None
        _here.loop = self.loop
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (self.inside.run(function), None)
        except BaseException as error:  # SystemExit and friends end the call, not the program
            outcome = (None, error)
        with _lock:
            _idle += 1
        try:
            self.loop.call_soon_threadsafe(self._settle, outcome, context=self.home)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass
        away.discard(self)

    def _settle(self, outcome: tuple[Any, BaseException | None]) -> None:
        if self.stopped is None:
            self.outcome = outcome
            self._wake_up()

    def _wake_up(self) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake(self)


def _reserve_thread() -> None:
    """From now on a thread is kept for what is put into `_work` next. Raises `ToolError` where there are too many."""
    global _idle, _alive
    with _lock:
        if _idle:
            _idle -= 1
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
        threading.Thread(target=_serve, name="forge-tool", daemon=True).start()
    except BaseException:
        with _lock:
            _alive -= 1
        raise


def _serve() -> None:
    global _idle, _alive
    hop = _work.get()
    while True:
        if hop is not None:
            hop.run()
        else:
            with _lock:
                _idle += 1
        hop = None  # what it returned may be large
        try:
            hop = _work.get(timeout=IDLE)
        except queue.Empty:
            with _lock:
                if _idle:
                    _idle -= 1
                    _alive -= 1
                    return
            hop = _work.get()  # this thread was reserved in the very moment it gave up


def _forked() -> None:
    """The threads are those of the process this one was forked from: work that waits for them would wait for ever."""
    global _work, _lock, _idle, _alive
    _work, _lock, _idle, _alive = queue.SimpleQueue(), threading.Lock(), 0, 0
    away.clear()


os.register_at_fork(after_in_child=_forked)
