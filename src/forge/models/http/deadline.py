"""Ends the reading of a stream at its deadline, with one timer for the whole stream."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class StreamDeadline:
    """Cancels the wait for the next piece when time is up.

    `asyncio.timeout` cannot be held over a `yield`, and one for every piece costs as much as reading it. Use: `begin()`
    right before the wait, `end()` right after it. The wait then raises `TimeoutError`, as `check` does.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Task[object] | None = None
        self._is_over = False
        self._timer = self._loop.call_later(seconds, self._end_time)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def begin(self) -> None:
        if self._is_over:
            raise TimeoutError
        self._waiting = asyncio.current_task()

    def end(self) -> None:
        self._waiting = None

    def explain(self, error: asyncio.CancelledError) -> BaseException:
        """Returns the error to raise for a cancelled wait: a `TimeoutError` if this deadline cancelled it."""
        task, self._waiting = self._waiting, None
        if self._is_over and task is not None and task.uncancel() == 0:
            return TimeoutError()
        return error

    def _end_time(self) -> None:
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()
