"""One process's attempt at a segment: what it does is recorded, so that another attempt does not repeat it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.deadline import is_cancelled_itself
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.durable.engine.dbos_private import JsonSerializer, RecordedStep, StepState, StepToRecord, record_step
from forge.durable.engine.start_segments import workflow_id
from forge.durable.engine.worker_context import WorkerContext
from forge.durable.store.attempts import Detail, Intent, StoredIntent
from forge.durable.store.rows import RunInfo
from forge.workspace.state.store import StoreError

MOST_RECORDED_STEPS = 200  # of a segment, which bounds the replay of another attempt
MOST_CHARACTERS = 16 * 1024 * 1024  # of its recorded steps: its end stores all messages once more, in one transaction

RETRY = 1.0  # seconds until a step that could not be recorded is recorded again, while the database is unreachable

log = logging.getLogger("forge.durable")

Work = Callable[[], Awaitable[Mapping[str, Any]]]
T = TypeVar("T")

_SERIALIZER = JsonSerializer()


class Attempt:
    """An attempt at a segment by this process. `token` distinguishes it from other attempts."""

    def __init__(
        self,
        run: RunInfo,
        context: WorkerContext,
        token: str = "",
        recorded: Mapping[int, RecordedStep] | None = None,
        intents: Mapping[str, StoredIntent] | None = None,
        is_first: bool = True,
        has_messages: bool = False,
    ) -> None:
        """`recorded`: the steps that earlier attempts recorded, by number. `intents`: calls that earlier attempts
        were about to run. `has_messages`: a person has sent messages that the run has not received.
        """
        self.run = run
        self.context = context
        self.store = context.store
        self.token = token
        self.intents = dict(intents or {})
        self.is_first = is_first  # there was no earlier attempt
        self.recorded_steps = 0  # so far, replayed ones included: every attempt ends the segment at the same turn
        self._earlier = dict(recorded or {})  # to be replayed
        self._replays = max(self._earlier, default=0)  # the number of the last one
        self._characters = 0  # of what they recorded; counted in the same way
        self._after_replay: list[Callable[[], None]] = []  # callbacks for the end of the replay
        self._stopped = run.cancelling
        self._draining = False
        self._has_messages = has_messages
        self._broken: BaseException | None = None  # the first reason why this attempt cannot go on
        self._task: asyncio.Task[Any] | None = None

    async def record(self, name: str, work: Work) -> Mapping[str, Any]:
        """Does the work as a recorded step and returns its result. A later attempt returns the recorded result and does
        nothing. Only the attempt that runs the segment can record.
        """
        self.recorded_steps += 1
        number = self.recorded_steps
        try:
            if (stored := self._earlier.get(number)) is not None:
                result = self._replay(number, name, stored)
            else:
                result = await self._do_and_record(number, name, work)
            self._run_after_replay()
            return result
        except Exception as error:
            self.note_broken(error)
            raise

    async def record_intent(self, call: str, detail: Detail = None, earlier: str = "") -> bool:
        """Records that this attempt is about to run a call that must not be repeated; False: another one was, unless
        it is the `earlier` one. Raises if another attempt runs the segment now, or the database is unreachable.
        """
        run = self.run
        key = (run.id, run.segment, self.token, call)
        try:
            found: Intent = await in_thread(lambda: self.store.record_intent(*key, detail, earlier))
            if found == "lost":
                raise LostSegment(f"segment {run.segment} of run {run.id} is run by another attempt")
        except Exception as error:
            self.note_broken(error)
            raise
        return found == "recorded"

    def note_broken(self, error: BaseException) -> None:
        """Notes that this attempt cannot go on. The error is raised, too, but what catches it on its way, such as the
        pipeline or a script, takes it for the failure of a tool.
        """
        self._broken = self._broken or error

    def raise_if_broken(self) -> None:
        """Raises why this attempt cannot go on, if there is a reason. Call it before you use what a tool, a script or
        the loop returned.
        """
        if self._broken is not None:
            raise self._broken

    def when_replayed(self, announce: Callable[[], None]) -> None:
        """Calls `announce` once all recorded steps are replayed, so that new messages come after them."""
        self._after_replay.append(announce)
        self._run_after_replay()

    async def run_until_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work of the segment so that `stop` can end it. Raises `Stopped` then."""
        self._task = task = asyncio.get_running_loop().create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped and not is_cancelled_itself():
                raise Stopped from None
            raise

    def stop(self) -> None:
        """Stops the attempt: the run was cancelled."""
        self._stopped = True
        if self._task is not None and self.recorded_steps >= self._replays:  # else it stops after the replay
            self._task.cancel()

    def abandon(self) -> None:
        """Stops without recording: another worker owns the segment now."""
        if self._task is not None:
            self._task.cancel()

    def drain(self) -> None:
        """Ends the segment before the next turn, so that another worker resumes it."""
        self._draining = True

    def should_pause(self) -> bool:
        """Returns whether the segment ends before the next turn. Recorded steps come first: they have happened."""
        if self.recorded_steps < self._replays:
            return False
        if self._draining or self.recorded_steps >= MOST_RECORDED_STEPS or self._characters >= MOST_CHARACTERS:
            return True
        return self._has_messages

    def note_messages(self) -> None:
        """Ends the segment before the next turn: a person has sent messages, and the next segment begins with them.
        Usable from any thread. Nothing is lost without it: the end of a run finds messages, too.
        """
        self._has_messages = True

    @property
    def replays_next(self) -> bool:
        """True if an earlier attempt recorded the next step: its result is taken, and nothing is done."""
        return self.recorded_steps + 1 in self._earlier

    def _replay(self, number: int, name: str, stored: RecordedStep) -> Mapping[str, Any]:
        """Returns the recorded result."""
        if stored.name != name:
            message = f"step {number} of the run was recorded as {stored.name!r}, and is now {name!r}"
            raise ToolError(message, ErrorKind.VALIDATION, "The agent has changed since the run began.")
        result = _SERIALIZER.decode(stored.output or "null", stored.serialization)
        if not isinstance(result, dict):
            message = f"the record of step {number} of the run, {name!r}, has no result"
            raise ToolError(message, ErrorKind.VALIDATION, "See who else writes to the database.")
        self._characters += len(stored.output or "")
        return result

    async def _do_and_record(self, number: int, name: str, work: Work) -> Mapping[str, Any]:
        if self._stopped:
            raise Stopped
        started = _milliseconds()
        result = await work()
        run, output = self.run, _SERIALIZER.serialize(result)
        workflow = workflow_id(run.id, run.segment)
        step = StepToRecord(run.id, run.segment, self.token, workflow, number, name, output, started, _milliseconds())
        state = await self._store(step)
        if state == "lost":
            raise LostSegment(f"segment {run.segment} of run {run.id} is run by another attempt")
        if state == "taken":
            message = f"step {number} of the run, {name!r}, has another record already"
            raise ToolError(message, ErrorKind.VALIDATION, "See who else writes to the database.")
        self._characters += len(output)
        return result

    async def _store(self, step: StepToRecord) -> StepState:
        """Stores a recorded step. Waits for an unreachable database as long as it takes: the work is done."""
        is_late = False
        while True:
            try:
                state: StepState = await in_thread(lambda: record_step(self.store.database, step))
                return state
            except StoreError as error:
                if not error.passing:
                    raise
                if not is_late:
                    is_late = True
                    message = "run %s: its step %d is recorded once the database is reachable: %s"
                    log.warning(message, step.run, step.number, text_of(error), extra={"run": step.run})
            await asyncio.sleep(RETRY)

    def _run_after_replay(self) -> None:
        while self._after_replay and self.recorded_steps >= self._replays:
            self._after_replay.pop(0)()


class LostSegment(Exception):
    """Another attempt runs the segment now: this one stores nothing more."""


class Stopped(BaseException):
    """The run was cancelled. It is not an error of the model or a tool, and is not recorded."""


current_attempt: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
"""The attempt that the current task works for."""


def _milliseconds() -> int:
    return int(time.time() * 1000)
