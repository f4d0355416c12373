"""Awaits a coroutine in the current task until a deadline: then cancels it, then abandons it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_left_behind: deque[Any] = deque(maxlen=10_000)
GRACE = 1.0  # seconds a cancelled coroutine has for cleaning up


class DeadlinePassed(Exception):
    """The deadline of the coroutine passed."""


class Deadline(Generic[T]):
    """Awaits a coroutine: `await Deadline(coroutine, 5.0)` returns its value or raises `DeadlinePassed`.

    What the coroutine waits for is handed through to the task as it is, so nothing is paid unless it suspends, and one
    timer if it does. Unlike `asyncio.timeout` it returns even when the coroutine swallows its cancellation. A
    cancellation from outside is always passed on.
    """

    __slots__ = (
        "abandoned",
        "arrived",
        "coroutine",
        "end",
        "ending",
        "grace",
        "granted",
        "ours",
        "patience",
        "seconds",
        "task",
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
        self.waited_seconds = waited_seconds  # seconds so far that do not count
        self.granted = 0.0  # of those, how many were added to the deadline
        self.seconds = seconds
        self.grace = grace
        self.ours = 0  # how often our timer cancelled the task, to be taken back
        self.arrived = 0  # cancellations of others that were counted when the latest of them arrived
        self.ending = False  # the coroutine was cancelled and has its grace
        self.abandoned = False  # the grace is over
        self.end: float | None = None
        self.patience = 0.0  # when the grace after a cancellation from elsewhere is over
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[Any] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            waited = self.coroutine.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        return (yield from self._drive(waited))

    def _drive(self, waited: Any) -> Generator[Any, Any, T]:
        loop = asyncio.get_running_loop()
        task = self.task = asyncio.current_task(loop)
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
                    if self.abandoned:
                        raise
                    if fired < self.ours:
                        fired = self.ours
                        waited = throw(error)
                    else:
                        waited = self._pass_on(error, task)
                except BaseException as error:  # GeneratorExit when we are closed ourselves
                    waited = throw(error)
                else:
                    waited = send(sent)
        except StopIteration as stop:
            if self._is_cancelled(task):
                raise asyncio.CancelledError from None  # swallowed there, but it was meant for all of us
            return stop.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if self.ours and not self._is_cancelled(task):
                raise DeadlinePassed from None
            raise
        finally:
            if self.timer is not None:
                self.timer.cancel()
            for _ in range(self.ours):
                task.uncancel()
            self._close()

    def _pass_on(self, error: asyncio.CancelledError, task: asyncio.Task[Any]) -> Any:
        """Passes on a cancellation from outside or from a timeout or group inside: the grace shows which."""
        self.arrived = task.cancelling() - self.ours
        if not self.ending:
            self.patience = asyncio.get_running_loop().time() + self.grace
            self._rearm(self.patience if self.end is None else min(self.patience, self.end), ending=True)
        of_a_group = sys.version_info < (3, 13) and _comes_from_a_group(self.coroutine)
        waited = self.coroutine.throw(error)
        if of_a_group and self._is_cancelled(task):
            task.uncancel()  # before Python 3.13 a group that dealt with it forgets to
        return waited

    def _is_cancelled(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether other code cancelled the task, and no code inside took it back."""
        return self.arrived > 0 and task.cancelling() - self.ours >= self.arrived

    def _rearm(self, at: float | None, *, ending: bool) -> None:
        self.ending = ending
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if at is None else asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        assert self.task is not None
        if self.waited_seconds is not None and self.end is not None and not self.ending:
            more = self.waited_seconds() - self.granted
            if more > 0:
                self.granted += more
                self.end += more
                self._rearm(self.end, ending=False)
                return
        if self.ending and not self.ours and not self._is_cancelled(self.task):
            self._rearm(self.end, ending=False)  # it was a timeout inside, and is dealt with
            return
        if self.ending and not self.ours and asyncio.get_running_loop().time() < self.patience:
            self._rearm(self.patience, ending=True)  # the deadline is here, but it is ending already
            return
        if self.ending:
            self.abandoned = True
        else:
            self._rearm(asyncio.get_running_loop().time() + self.grace, ending=True)
        self.ours += 1
        self.task.cancel()

    def _close(self) -> None:
        try:
            self.coroutine.close()
        except BaseException:  # it refuses even that; kept, since letting go of it would try once more, aloud
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
