"""One process's try at a segment of a run: its steps are recorded, so that another try does not repeat them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from dbos import DBOS
from dbos import error as engine_error

from forge.durable.engine.serializer import RecordedError
from forge.durable.store.rows import RunInfo

if TYPE_CHECKING:
    from forge.durable.engine.segment_context import WorkerContext

MOST_STEPS = 200  # of a segment: another try replays no more
MOST_CHARACTERS = 16 * 1024 * 1024  # that a segment's steps recorded: its end holds all of them once more, in one row

Step = Callable[[], Awaitable[Mapping[str, Any]]]
T = TypeVar("T")


class Attempt:
    """Lives as long as the process works on the segment. `token` tells it from every other try at the same segment."""

    def __init__(self, run: RunInfo, context: WorkerContext, replays: int = 0) -> None:
        """`replays`: steps that earlier tries recorded."""
        self.run = run
        self.context = context
        self.store = context.store
        self.token = uuid4().hex
        self.steps = 0  # replayed ones included, so that every try ends the segment at the same turn
        self.broken: Exception | None = None  # a step could not be recorded: what the loop makes of that is no outcome
        self._replays = replays
        self._characters = 0  # of what was recorded; counted like the steps
        self._news: list[Callable[[], None]] = []  # what the model is told where nothing is recorded any more
        self._stopped = run.cancelling
        self._draining = False
        self._task: asyncio.Task[Any] | None = None

    async def step(self, name: str, function: Step) -> Mapping[str, Any]:
        """What `function` returns; on another try what it returned then. Only who owns the segment can record it."""

        async def checked() -> Mapping[str, Any]:
            if self._stopped:
                raise Stopped
            return await function()

        while True:
            self.steps += 1
            try:
                told = await DBOS.run_step_async({"name": name}, checked)
            except RecordedError:
                continue  # an earlier try could not record what came of it, only that: the next step is in its place
            except Exception as error:
                self.broken = error
                raise
            self._characters += _length(told)
            self._tell_news()
            return told

    def when_replayed(self, tell: Callable[[], None]) -> None:
        """Called once all that earlier tries recorded was replayed: what they never knew belongs behind it."""
        self._news.append(tell)
        self._tell_news()

    def _tell_news(self) -> None:
        while self._news and self.steps >= self._replays:
            self._news.pop(0)()

    async def record(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record a value that is known already, stopped or not; what an earlier try recorded comes first.

        A try that ended sooner than the one before it, because its time was over or its tools are others, finds steps
        in its way: it goes behind them.
        """

        async def known() -> Mapping[str, Any]:
            return value

        while True:
            try:
                return await DBOS.run_step_async({"name": name}, known)
            except engine_error.DBOSUnexpectedStepError:
                self.steps += 1

    async def work(self, loop: Coroutine[Any, Any, T]) -> T:
        """Run it so that `stop` can end it. Raises `Stopped` then."""
        self._task = task = asyncio.get_running_loop().create_task(loop)
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped and not is_cancelled_itself():
                raise Stopped from None
            task.cancel()
            raise

    def stop(self) -> None:
        """The run was cancelled: what is under way ends now."""
        self._stopped = True
        if self._task is not None and self.steps >= self._replays:  # else it stops where nothing is recorded any more
            self._task.cancel()

    def abandon(self) -> None:
        """The segment belongs to another worker by now: what is under way here ends, and nothing is written."""
        if self._task is not None:
            self._task.cancel()

    def drain(self) -> None:
        """The worker is about to leave: the segment ends before the next turn, and another goes on."""
        self._draining = True

    def pause(self) -> bool:
        return self._draining or self.steps >= MOST_STEPS or self._characters >= MOST_CHARACTERS


class Stopped(BaseException):
    """Somebody cancelled the run. No error of the model or of a tool, and nothing to be recorded of a step."""


def _length(recorded: Any) -> int:
    """Of all its texts together."""
    if isinstance(recorded, str):
        return len(recorded)
    if isinstance(recorded, Mapping):
        return sum(map(_length, recorded.values()))
    return sum(map(_length, recorded)) if isinstance(recorded, list) else 0


def is_cancelled_itself() -> bool:
    """Whether it is the task that runs now which is to end, and not only one that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


current: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
"""The try that the code running now belongs to."""

ATTEMPTS: dict[str, Attempt] = {}
"""What this process works on, by run."""
