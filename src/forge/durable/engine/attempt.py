"""Runs one process's attempt at a segment: its steps are recorded, so that another attempt does not repeat them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from dbos import DBOS

from forge.durable.engine.serializer import RecordedError
from forge.durable.store.intents import Detail, StoredIntent
from forge.durable.store.rows import RunInfo

if TYPE_CHECKING:
    from forge.durable.engine.segment_context import WorkerContext

MOST_STEPS = 200  # of a segment, which bounds the replay of another attempt
MOST_CHARACTERS = (
    16 * 1024 * 1024
)  # recorded by a segment's steps: its end stores all messages once more, in one transaction

INTENT = "intent"  # a step of older versions: the attempt that was about to run the next calls

Step = Callable[[], Awaitable[Mapping[str, Any]]]
T = TypeVar("T")


class Attempt:
    """An attempt at a segment by this process. `token` distinguishes it from other attempts."""

    def __init__(
        self,
        run: RunInfo,
        context: WorkerContext,
        token: str = "",
        steps: Mapping[int, str] | None = None,
        intents: Mapping[str, StoredIntent] | None = None,
        is_first: bool = True,
    ) -> None:
        """`steps`: names of the steps that earlier attempts recorded, by number. `intents`: calls that earlier attempts
        were about to run.
        """
        self.run = run
        self.context = context
        self.store = context.store
        self.token = token
        self.intents = dict(intents or {})
        self.is_first = is_first  # there was no earlier attempt
        self.steps = 0  # replayed ones included, so that every attempt ends the segment at the same turn
        self.broken: Exception | None = None  # a step could not be recorded, so the loop's result does not count
        self._recorded = dict(steps or {})
        self._replays = max(self._recorded, default=0)
        self._characters = 0  # of recorded values; counted like the steps
        self._news: list[Callable[[], None]] = []  # callbacks for the end of the replay
        self._stopped = run.cancelling
        self._draining = False
        self._task: asyncio.Task[Any] | None = None

    async def step(self, name: str, function: Step) -> Mapping[str, Any]:
        """Returns the result of `function`; a later attempt returns the recorded one. Only the segment's owner can
        record it.
        """

        async def checked() -> Mapping[str, Any]:
            if self._stopped:
                raise Stopped
            return await function()

        while True:
            self.steps += 1
            try:
                recorded = await DBOS.run_step_async({"name": name}, checked)
            except RecordedError:
                continue  # an earlier attempt recorded only an error: the next step replaces it
            except Exception as error:
                self.broken = error
                raise
            self._characters += _length(recorded)
            self._tell_news()
            return recorded

    def when_replayed(self, tell: Callable[[], None]) -> None:
        """Calls `tell` once all recorded steps are replayed, so that new messages come after them."""
        self._news.append(tell)
        self._tell_news()

    def _tell_news(self) -> None:
        while self._news and self.steps >= self._replays:
            self._news.pop(0)()

    async def record_intent(self, call: str, detail: Detail = None, earlier: str = "") -> bool:
        """Records that this attempt is about to run a call that must not be repeated; False: another one was, unless
        it is the `earlier` one. Raises if another attempt runs the segment now, or the database is unreachable.
        """
        run = self.run
        key = (run.id, run.segment, self.token, call)
        try:
            found = await asyncio.to_thread(self.store.record_intent, *key, detail, earlier)
        except Exception as error:
            self.broken = error
            raise
        if found == "lost":
            self.broken = LostSegment(f"segment {run.segment} of run {run.id} is run by another attempt")
            raise self.broken
        return found == "recorded"

    async def replay_intent(self) -> str:
        """Returns the attempt of the next step, if an earlier Forge recorded it as an intent; else this attempt."""
        if self._recorded.get(self.steps + 1) != INTENT:
            return self.token
        recorded = await self.step(INTENT, _record_nothing)
        return str(recorded.get("attempt", ""))

    async def work(self, loop: Coroutine[Any, Any, T]) -> T:
        """Runs the loop so that `stop` can end it. Raises `Stopped` then."""
        self._task = task = asyncio.get_running_loop().create_task(loop)
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped and not is_cancelled_itself():
                raise Stopped from None
            task.cancel()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    def stop(self) -> None:
        """Stops the attempt: the run was cancelled."""
        self._stopped = True
        if self._task is not None and self.steps >= self._replays:  # else it stops after the replay
            self._task.cancel()

    def abandon(self) -> None:
        """Stops without recording: another worker owns the segment now."""
        if self._task is not None:
            self._task.cancel()

    def drain(self) -> None:
        """Ends the segment before the next turn, so that another worker resumes it."""
        self._draining = True

    def pause(self) -> bool:
        if self._draining or self.steps >= MOST_STEPS or self._characters >= MOST_CHARACTERS:
            return True
        return self.has_messages()

    def has_messages(self) -> bool:
        """Says whether a person has sent messages: the next segment begins with them. Recorded steps come first."""
        return self.steps >= self._replays and self.store.has_messages(self.run.id)


async def _record_nothing() -> Mapping[str, Any]:
    return {}


class LostSegment(Exception):
    """Another attempt runs the segment now: this one stores nothing more."""


class Stopped(BaseException):
    """The run was cancelled. It is not an error of the model or a tool, and is not recorded."""


def _length(recorded: Any) -> int:
    """Counts the characters of all its texts."""
    if isinstance(recorded, str):
        return len(recorded)
    if isinstance(recorded, Mapping):
        return sum(map(_length, recorded.values()))
    return sum(map(_length, recorded)) if isinstance(recorded, list) else 0


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Waits for tasks that were cancelled. Their errors count no more: reading them keeps asyncio from reporting them
    as never retrieved.
    """
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def is_cancelled_itself() -> bool:
    """Returns True if the current task is cancelled, not only a task it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


current: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
"""The current attempt."""

ATTEMPTS: dict[str, Attempt] = {}
"""The attempts of this process, by run."""
