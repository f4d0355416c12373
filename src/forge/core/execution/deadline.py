"""Awaits a coroutine in the current task until a deadline: then cancels it, then abandons it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from enum import Enum, auto
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_left_behind: deque[Any] = deque(maxlen=10_000)
GRACE = 1.0  # seconds a cancelled coroutine has for cleaning up


class DeadlinePassed(Exception):
    """The deadline of the coroutine passed."""


class _Phase(Enum):
    """The phases of a deadline.

    | phase     | its timer is at                       | the timer fires                     | others cancel the task |
    |-----------|---------------------------------------|-------------------------------------|------------------------|
    | RUNNING   | the deadline                          | EXPIRED; RUNNING if time was added  | LEAVING                |
    | LEAVING   | the end of the grace, or the deadline | ABANDONED, with the two exceptions  | LEAVING                |
    | EXPIRED   | the end of the grace                  | ABANDONED                           | EXPIRED                |
    | ABANDONED |                                       |                                     |                        |

    The two exceptions: code inside took the cancellation back, such as a timeout of its own: RUNNING. Only the deadline
    is there, and not the end of the grace: LEAVING. EXPIRED and ABANDONED begin with a cancellation of the task by us.
    """

    RUNNING = auto()
    LEAVING = auto()  # others cancelled the task, and the coroutine has its grace
    EXPIRED = auto()  # we cancelled the task, and the coroutine has its grace
    ABANDONED = auto()  # the grace is over: the coroutine is no longer awaited


class Deadline(Generic[T]):
    """Awaits a coroutine: `await Deadline(coroutine, 5.0)` returns its value or raises `DeadlinePassed`.

    What the coroutine waits for is handed through to the task as it is, so nothing is paid unless it suspends, and one
    timer if it does. Unlike `asyncio.timeout` it returns even when the coroutine swallows its cancellation. A
    cancellation from outside is always passed on.
    """

    __slots__ = (
        "added_seconds",
        "coroutine",
        "end",
        "grace",
        "grace_end",
        "our_cancellations",
        "phase",
        "seconds",
        "task",
        "their_cancellations",
        "timer",
        "waited_seconds",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        seconds: float | None,
        grace: float = GRACE,
        *,
        waited_seconds: Callable[[], float] | None = None,
    ) -> None:
        self.coroutine = coroutine
        self.seconds = seconds
        self.grace = grace
        self.waited_seconds = waited_seconds  # seconds so far that do not count

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            waited = self.coroutine.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        return (yield from self._drive(waited))

    def _drive(self, waited: Any) -> Generator[Any, Any, T]:
        """Drives a coroutine that suspended. What only this needs is set here: most calls never suspend."""
        loop = asyncio.get_running_loop()
        self.added_seconds = 0.0  # of the seconds that do not count, how many were added to the deadline
        self.our_cancellations = 0  # how often we cancelled the task; taken back at the end
        self.their_cancellations = 0  # how many cancellations by others the task had when the latest of them arrived
        self.phase = _Phase.RUNNING
        self.end: float | None = None  # the deadline, in the loop's time
        self.grace_end = 0.0  # when the grace after a cancellation by others is over
        self.timer: asyncio.TimerHandle | None = None
        self.task = task = asyncio.current_task(loop)
        assert task is not None
        if self.seconds is not None:
            self.end = loop.time() + self.seconds
            self.timer = loop.call_at(self.end, self._expire)
        send, throw = self.coroutine.send, self.coroutine.throw
        fired = 0  # how many of our own cancellations were seen
        try:
            while True:
                try:
                    sent = yield waited
                except asyncio.CancelledError as error:
                    if self.phase is _Phase.ABANDONED:
                        raise
                    if fired < self.our_cancellations:
                        fired = self.our_cancellations
                        waited = throw(error)
                    else:
                        waited = self._pass_on(error, task)
                except BaseException as error:  # GeneratorExit when we are closed ourselves
                    waited = throw(error)
                else:
                    waited = send(sent)
        except StopIteration as stop:
            if self._is_cancelled(task):
                raise asyncio.CancelledError from None  # swallowed inside, but meant for the whole task
            return stop.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if self.our_cancellations and not self._is_cancelled(task):
                raise DeadlinePassed from None
            raise
        finally:
            if self.timer is not None:
                self.timer.cancel()
            for _ in range(self.our_cancellations):
                task.uncancel()
            self._close()

    def _pass_on(self, error: asyncio.CancelledError, task: asyncio.Task[Any]) -> Any:
        """Passes on a cancellation by others; that of a timeout or a group inside is taken back within the grace."""
        self.their_cancellations = task.cancelling() - self.our_cancellations
        if self.phase is _Phase.RUNNING:
            self.grace_end = asyncio.get_running_loop().time() + self.grace
            self._enter(_Phase.LEAVING, self.grace_end if self.end is None else min(self.grace_end, self.end))
        of_a_group = sys.version_info < (3, 13) and _comes_from_a_group(self.coroutine)
        waited = self.coroutine.throw(error)
        if of_a_group and self._is_cancelled(task):
            task.uncancel()  # before Python 3.13 a group that dealt with it forgets to
        return waited

    def _is_cancelled(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether other code cancelled the task, and no code inside took it back."""
        return self.their_cancellations > 0 and task.cancelling() - self.our_cancellations >= self.their_cancellations

    def _enter(self, phase: _Phase, until: float | None) -> None:
        """Begins a phase, with the timer at `until`; None: there is no timer."""
        self.phase = phase
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if until is None else asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        """Ends a phase whose timer fired."""
        assert self.task is not None
        now = asyncio.get_running_loop().time()
        if self.phase is _Phase.RUNNING:
            if self._add_waited_seconds():
                self._enter(_Phase.RUNNING, self.end)
                return
            self._enter(_Phase.EXPIRED, now + self.grace)
        elif self.phase is _Phase.LEAVING and not self._is_cancelled(self.task):
            self._enter(_Phase.RUNNING, self.end)
            return
        elif self.phase is _Phase.LEAVING and now < self.grace_end:
            self._enter(_Phase.LEAVING, self.grace_end)
            return
        else:
            self._enter(_Phase.ABANDONED, None)
        self.our_cancellations += 1
        self.task.cancel()

    def _add_waited_seconds(self) -> bool:
        """Moves the deadline by the seconds that do not count. Returns whether there were any since the last time."""
        more = 0.0 if self.waited_seconds is None else self.waited_seconds() - self.added_seconds
        if more <= 0 or self.end is None:
            return False
        self.added_seconds += more
        self.end += more
        return True

    def _close(self) -> None:
        try:
            self.coroutine.close()
        except BaseException:  # it refuses to close; kept, since its deletion would try again and print an error
            _left_behind.append(self.coroutine)


if sys.version_info < (3, 13):  # from 3.13 on a group takes its own cancellation back

    def _comes_from_a_group(coroutine: Any) -> bool:
        """Returns whether the coroutine waits for a task group that cancelled it because one of its tasks failed.

        Before Python 3.13 nothing public tells this from a cancellation by others, so two private names of
        `asyncio.TaskGroup` are read here, and nowhere else.
        """
        leaving = getattr(asyncio.TaskGroup, "_aexit", asyncio.TaskGroup.__aexit__).__code__
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None and frame.f_code is leaving:
                return bool(getattr(frame.f_locals.get("self"), "_parent_cancel_requested", False))
            coroutine = getattr(coroutine, "cr_await", None)
        return False


def is_cancelled_itself() -> bool:
    """Returns whether the current task is cancelled, not only a task that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
