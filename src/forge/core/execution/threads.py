"""Runs plain functions on daemon threads: hung ones starve no others and never keep the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from forge.core.errors import ErrorKind, ToolError

MOST = 2_000  # threads at once; hung ones count until they return
IDLE = 10.0  # seconds a thread waits for work before it ends
QUICK = 50e-6  # seconds: the loop waits for a function that took no longer the last time
PATIENCE = 200e-6  # seconds that the loop waits at most
MOST_IN_A_ROW = 50  # functions that the loop waits for; then its other tasks have their turn

_work: queue.SimpleQueue[_ThreadCall | None] = queue.SimpleQueue()
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


class RecentDuration:
    """Measures how long a function takes. For a quick one, a turn of the loop costs three times the function itself.

    `quick`: seconds. The loop waits for a function that took no longer the last time.
    """

    __slots__ = ("in_a_row", "is_quick", "quick")

    def __init__(self, quick: float | None = None) -> None:
        self.quick = QUICK if quick is None else quick
        self.is_quick = False  # the last time
        self.in_a_row = 0  # times that the loop waited

    def is_worth_waiting(self) -> bool:
        if not self.is_quick or self.in_a_row >= MOST_IN_A_ROW:
            self.in_a_row = 0
            return False
        self.in_a_row += 1
        return True


async def in_thread(function: Callable[[], Any], pace: RecentDuration | None = None) -> Any:
    """Runs a plain function beside the event loop and returns its value; raises whatever it raised.

    `pace` is the same for every call of a function. With it the loop waits for a quick function, for a moment at most.
    """
    _reserve_thread()
    value, error = await _ThreadCall(function, pace)
    if error is not None:
        raise error
    return value


class _ThreadCall:
    """A call to a thread and back: a task awaits it in place of a future, with half the work.

    The thread gets the function once the task has registered how to wake it. So no outcome comes too early, and the
    thread and the task do not compete for the interpreter. The task is woken without another turn of the loop. A quick
    function is handed over at once, and the task is not suspended at all unless the function is slow this time.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "done",
        "finished",
        "function",
        "inside",
        "loop",
        "outcome",
        "pace",
        "stopped",
        "task_context",
        "wake",
    )

    def __init__(self, function: Callable[[], Any], pace: RecentDuration | None) -> None:
        self._asyncio_future_blocking = False
        self.function: Callable[[], Any] | None = function
        self.pace = pace
        self.done: threading.Lock | None = None  # released at the end of a function that the loop waits for
        self.finished = False
        self.inside = contextvars.copy_context()  # of the function
        self.task_context: contextvars.Context | None = None  # of the task
        self.loop = asyncio.get_running_loop()
        self.wake: Callable[[_ThreadCall], object] | None = None
        self.outcome: tuple[Any, BaseException | None] = (None, None)
        self.stopped: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Any, None, tuple[Any, BaseException | None]]:
        if self.pace is not None and self.pace.is_worth_waiting():
            self.done = threading.Lock()
            self.done.acquire()
            _work.put(self)
            if self.done.acquire(timeout=PATIENCE):
                return self.outcome
            self.pace.is_quick = False
        self._asyncio_future_blocking = True  # the mark by which a task knows what it can wait for
        try:
            yield self
        finally:
            if self.task_context is None and self.done is None:  # closed before a task waited for it
                _work.put(None)
        return self.outcome

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(self, wake: Callable[[_ThreadCall], object], *, context: contextvars.Context) -> None:
        """Registers the task that waits from now on."""
        if self.done is None:
            self.wake, self.task_context = wake, context
            unfinished.add(self)
            _work.put(self)
            return
        with _lock:
            self.wake, self.task_context = wake, context
            if not self.finished:
                unfinished.add(self)
                return
        self.loop.call_soon(self._wake_up, context=context)

    def cancel(self, msg: Any = None) -> bool:
        """Releases the task; the function continues in its thread."""
        if self.wake is None or self.stopped is not None:
            return False
        self.stopped = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self.loop.call_soon(self._wake_up, context=self.task_context)
        return True

    def result(self) -> object:
        """Returns nothing to the task that is woken; the outcome itself goes to the awaiting code."""
        if self.stopped is not None:
            raise self.stopped
        return None

    def run(self) -> None:
        """Runs in the thread. It counts as idle before the task is woken, since the task may need it next."""
        global _idle
        function, self.function = self.function, None
        assert function is not None
        _thread_state.loop = self.loop
        started = time.perf_counter()
        try:
            self.outcome = (self.inside.run(function), None)
        except BaseException as error:  # SystemExit and friends end the call, not the program
            self.outcome = (None, error)
        if self.pace is not None:
            self.pace.is_quick = time.perf_counter() - started <= self.pace.quick
        with _lock:
            _idle += 1
            self.finished = True
            is_waited_for = self.wake is not None or self.stopped is not None
        if is_waited_for:
            try:
                self.loop.call_soon_threadsafe(self._settle, context=self.task_context)
            except RuntimeError:  # the loop is closed: no task waits any more
                pass
            unfinished.discard(self)
        elif self.done is not None:
            self.done.release()

    def _settle(self) -> None:
        if self.stopped is None:
            self._wake_up()

    def _wake_up(self) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake(self)


def _reserve_thread() -> None:
    """Reserves a thread for the next item of `_work`. Raises `ToolError` where there are too many."""
    global _idle, _alive
    with _lock:
        if _idle:
            _idle -= 1
            return
        if _alive >= MOST:
            raise ToolError(
                f"{MOST} plain functions are already running or hung",
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
        if call is not None:
            call.run()
        else:
            with _lock:
                _idle += 1
        call = None  # what it returned may be large
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
