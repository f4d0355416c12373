"""Runs background work of a stored run: one process does the work, while the run waits as a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from forge.agent.loop import make_completion_message
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolCompleted
from forge.core.execution.background import BackgroundWork
from forge.core.execution.session_programs import end_started, sessions_with_programs
from forge.core.execution.threads import in_thread
from forge.core.executor import render_call
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import text_of
from forge.core.result import ToolResult
from forge.durable.engine.attempt import ATTEMPTS, WorkerContext
from forge.durable.engine.recorder import key_of
from forge.durable.store import RunStore
from forge.durable.store import run_lifecycle as run_rows
from forge.durable.store.database import is_away
from forge.durable.store.find import find_run
from forge.durable.store.heartbeats import workers
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import background

LOOK, RARELY = 0.5, 10.0  # seconds between queries of a busy run, which may be busy for days
MOST = 100  # runs notified in one round
LOST_WORK_MESSAGE = """[This is not from the person: the machine that ran this run's background work was lost.]
The state of that work is unknown. Check its effects before you repeat it."""

log = logging.getLogger("forge.durable")

_watch_tasks: dict[str, set[asyncio.Task[None]]] = {}  # by run


def hold(context: WorkerContext, run: RunInfo, work: BackgroundWork, session: str) -> None:
    """Holds the work; each completion is appended to the run, which then resumes."""
    task = asyncio.get_running_loop().create_task(_watch(context, run, work, session))
    tasks = _watch_tasks.setdefault(run.id, set())
    tasks.add(task)

    def forget(_: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not tasks and _watch_tasks.get(run.id) is tasks:
            del _watch_tasks[run.id]

    task.add_done_callback(forget)


def list_held() -> list[str]:
    """Lists the runs whose work this process holds."""
    return list(_watch_tasks)


def cancel_work(run_id: str) -> None:
    """Cancels the work: its run was cancelled, or this worker leaves."""
    for task in tuple(_watch_tasks.get(run_id, ())):
        task.cancel()


async def report_lost(context: WorkerContext) -> None:
    """Notifies runs whose work was lost with its worker. A busy run, or one with open calls, is notified in a later
    round.
    """
    database = context.store.database
    for run_id in await in_thread(lambda: database.read(_find_lost)):
        queued = await in_thread(partial(database.write, partial(_queue_lost, run_id=run_id)))
        if queued is not None:
            await context.start_segment(queued)


def find_completed(store: RunStore, run_id: str, segment: int, call: ToolCall) -> ToolResult:
    """Returns the result of background work of an earlier attempt, if recorded in time; else an unknown result."""
    key = key_of(segment, ToolCompleted.type, call.id)
    event = store.find_event(run_id, segment, key)
    if event is not None:
        return ToolResult.from_dict(event["result"])
    return unknown_result(call, "did")


def unknown_result(call: ToolCall, verb: str) -> ToolResult:
    """Builds the result of a call whose worker was lost."""
    message = (
        f"its state is unknown: the worker that {verb} it was lost while it was running, and it may have taken effect"
    )
    error = ToolError(message, ErrorKind.SYSTEM, "Check its effects before you repeat it.")
    return ToolResult.failed(error, during=render_call(call)).with_data(state="unknown")


async def _watch(context: WorkerContext, run: RunInfo, work: BackgroundWork, session: str) -> None:
    try:
        while await work.next_completed(session):
            said = [make_completion_message(call, result) for call, result in work.take_completed(session)]
            if not await _deliver(context, run.id, said):
                return
        database = context.store.database
        await _retry_while_away(run.id, lambda: database.write(lambda connection: _forget(connection, run)))
    except asyncio.CancelledError:
        work.cancel(session)
        raise
    except Exception as error:  # the run may be deleted
        work.cancel(session)
        log.error(
            "run %s could not be notified of its background work: %s",
            run.id,
            text_of(error),
            exc_info=_trace_of(error),
            extra={"run": run.id},
        )


async def _deliver(context: WorkerContext, run_id: str, said: list[Message]) -> bool:
    pause, store = LOOK, context.store
    while True:
        run: RunInfo = await _retry_while_away(run_id, lambda: store.get(run_id))
        if run.status == "cancelled":
            return False
        if run.is_over or _accepts_messages(run):
            queued = await _retry_while_away(run_id, partial(_append_messages, store, run, said))
            if isinstance(queued, RunInfo):
                await _start_segment(context, queued)
            if queued is not None:
                return True
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)


def _append_messages(store: RunStore, run: RunInfo, said: list[Message]) -> RunInfo | Literal["before"] | None:
    """Returns the queued run; None: it is busy."""
    queued = store.advance(run.id, say=said, from_segment=run.segment)
    if queued is None and said[-1].text in {message.text for message in store.messages(run.id)}:
        return "before"  # the database stored it, but the connection was lost before the reply
    return queued


async def _start_segment(context: WorkerContext, run: RunInfo) -> None:
    try:
        await context.start_segment(run)
    except Exception as error:  # it is stored; housekeeping finds and starts it
        log.warning("run %s starts later: %s", run.id, text_of(error), extra={"run": run.id})


async def _retry_while_away(run_id: str, work: Callable[[], Any]) -> Any:
    """Retries while the database is unreachable: only this process knows the result of the work."""
    pause = LOOK
    while True:
        try:
            return await in_thread(work)
        except Exception as error:
            if not is_away(error):
                raise
            message = "run %s is notified of its background work later: %s"
            log.warning(message, run_id, text_of(error), extra={"run": run_id})
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)


def _trace_of(error: Exception) -> Exception | None:
    return None if isinstance(error, ToolError) else error


def _accepts_messages(run: RunInfo) -> bool:
    """Returns whether it is between two segments without open calls: nothing may stand between call and result."""
    return run.status == "waiting" and all(wait.kind in ("background", "question") for wait in run.waits)


_living = sa.select(workers.c.id).where(workers.c.id == background.c.worker, workers.c.gone.is_(None))
_is_lost = sa.not_(_living.exists())


def _find_lost(connection: sa.Connection) -> list[str]:
    some = sa.select(background.c.run).where(_is_lost).order_by(sa.func.random()).limit(MOST)
    return list(dict.fromkeys(connection.execute(some).scalars()))


def _queue_lost(connection: sa.Connection, run_id: str) -> RunInfo | None:
    """Returns the queued run; None if it is notified later, or is over."""
    run = find_run(connection, run_id, lock=True)
    if not (run.is_over or _accepts_messages(run)):
        return None
    gone = connection.execute(sa.delete(background).where(background.c.run == run.id, _is_lost)).rowcount
    if run.is_over or not gone:
        return None
    return run_rows.advance_run(connection, run.id, [Message("user", LOST_WORK_MESSAGE)], run.segment, False)


def _forget(connection: sa.Connection, run: RunInfo) -> None:
    mine = (background.c.run == run.id, background.c.segment == run.segment)
    connection.execute(sa.delete(background).where(*mine))


# Ends programs that calls of stored runs left running in this process, when their run is over.


class _SessionRuns(NamedTuple):
    runs: set[str]
    talks: set[bool]  # True: a person may continue the session with another run


_sessions: dict[str, _SessionRuns] = {}


def note_run(run: RunInfo, session: str) -> None:
    """Notes a run that this process works on, so that its programs end when it is over."""
    noted = _sessions.setdefault(session, _SessionRuns(set(), set()))
    noted.runs.add(run.id)
    noted.talks.add(bool(run.session) and not _is_scheduled(run))


async def end_finished(store: RunStore, *, keep_conversations: bool = False) -> None:
    """Ends the programs of runs that are over, here or on another worker. A sub-agent's programs end with its parent
    run.
    """
    for session, noted in list(_sessions.items()):
        if _is_busy(noted) or _sessions.get(session) is not noted:
            continue
        if session not in sessions_with_programs():  # as it is now: the check of another session took its time
            del _sessions[session]
        elif not (keep_conversations and True in noted.talks):
            is_over = await in_thread(lambda: all(_is_over(store, run) for run in noted.runs))  # noqa: B023
            if is_over and not _is_busy(noted) and _sessions.get(session) is noted:
                del _sessions[session]
                end_started(session)


def end_all() -> None:
    """Ends all programs when the worker leaves."""
    for session in sessions_with_programs() & _sessions.keys():
        end_started(session)
    _sessions.clear()


def _is_busy(noted: _SessionRuns) -> bool:
    return not noted.runs.isdisjoint((*ATTEMPTS, *list_held()))


def _is_over(store: RunStore, run_id: str) -> bool:
    try:
        run = store.get(run_id)
        while run.parent:
            run = store.get(run.parent)
        return run.is_over
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:  # the run was deleted
            return True
        raise


def _is_scheduled(run: RunInfo) -> bool:
    return bool(run.scope.get("schedule")) or run.scope.get("channel") == "schedule"
