"""Awaits a coroutine in the current task until a deadline: then cancels it, then abandons it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

NEW: Any = object()
GRACE = 1.0  # seconds a cancelled coroutine has for cleaning up


class DeadlinePassed(Exception):
    """The coroutine had its time."""


class Until(Generic[T]):
    """`await Until(coroutine, 5.0)`: its value, or `DeadlinePassed`. With `waited`, it was started and waits for that.

    What the coroutine waits for is handed through to the task as it is, so nothing is paid unless it suspends, and one
    timer if it does. Unlike `asyncio.timeout` it returns even when the coroutine swallows its cancellation; that goes
    for a cancellation from outside too, which is always passed on.
    """

    __slots__ = ("abandoned", "coroutine", "ending", "grace", "ours", "seconds", "task", "timer", "waited")

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], seconds: float | None, grace: float = GRACE, *, waited: Any = NEW
    ) -> None:
        self.coroutine = coroutine
        self.waited = waited
        self.seconds = seconds
        self.grace = grace
        self.ours = 0  # how often our timer cancelled the task, to be taken back
        self.ending = False  # the coroutine was told to stop and has its grace
        self.abandoned = False  # the grace is over
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[Any] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        if self.waited is NEW:
            try:
                self.waited = self.coroutine.send(None)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
        return (yield from self._suspended(self.waited))

    def _suspended(self, waited: Any) -> Generator[Any, Any, T]:
        loop = asyncio.get_running_loop()
        task = self.task = asyncio.current_task(loop)
        assert task is not None
        before = task.cancelling()
        end = None if self.seconds is None else loop.time() + self.seconds
        if end is not None:
            self.timer = loop.call_at(end, self._expire)
        send, throw = self.coroutine.send, self.coroutine.throw
        try:
            while True:
                try:
                    sent = yield waited
                except asyncio.CancelledError as error:
                    if self.abandoned:
                        raise
                    if not self.ending:  # from outside, or a timeout inside the coroutine: after the grace we know
                        self._rearm(loop.time() + self.grace, ending=True)
                    waited = throw(error)
                    if not self.ours and task.cancelling() <= before:  # it was a timeout inside, and is dealt with
                        self._rearm(end, ending=False)
                except BaseException as error:  # GeneratorExit when we are closed ourselves
                    waited = throw(error)
                else:
                    waited = send(sent)
        except StopIteration as stop:
            if task.cancelling() - before > self.ours:
                raise asyncio.CancelledError from None  # swallowed there, but it was meant for all of us
            return stop.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if self.ours and task.cancelling() - before == self.ours:
                raise DeadlinePassed from None
            raise
        finally:
            if self.timer is not None:
                self.timer.cancel()
            for _ in range(self.ours):
                task.uncancel()
            self._close()

    def _rearm(self, at: float | None, *, ending: bool) -> None:
        self.ending = ending
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if at is None else asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        assert self.task is not None
        if self.ending:
            self.abandoned = True
        else:
            self._rearm(asyncio.get_running_loop().time() + self.grace, ending=True)
        self.ours += 1
        self.task.cancel()

    def _close(self) -> None:
        try:
            self.coroutine.close()
        except BaseException:  # noqa: S110 - it refuses even that; nothing more can be done from outside
            pass
