"""Background work of a run that waits for it: one process has the work, the run is a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from forge.agent.loop import make_completion_message
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolCompleted
from forge.core.execution.background import BackgroundWork
from forge.core.execution.threads import in_thread
from forge.core.executor import render_call
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import text_of
from forge.core.result import ToolResult
from forge.durable.engine.recorder import key_of
from forge.durable.store import RunStore
from forge.durable.store import run_rows as _runs
from forge.durable.store.errors import is_away
from forge.durable.store.find import find_run
from forge.durable.store.heartbeats import workers
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import background, events

if TYPE_CHECKING:
    from forge.durable.engine.segment_context import WorkerContext

LOOK, RARELY = 0.5, 10.0  # seconds between looks at a run that is busy with something else: it may be for days
MOST = 100  # runs that are told in one round
LOST = """[This is not from the person: the machine that did this run's background work has gone.]
The state of that work is unknown. Check what is there before you repeat it."""

log = logging.getLogger("forge.durable")

_watch_tasks: dict[str, set[asyncio.Task[None]]] = {}  # by run


def hold(context: WorkerContext, run: RunInfo, work: BackgroundWork, session: str) -> None:
    """Keep the work; what it completes is told to the run, which goes on then."""
    task = asyncio.get_running_loop().create_task(_watch(context, run, work, session))
    tasks = _watch_tasks.setdefault(run.id, set())
    tasks.add(task)

    def forget(_: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not tasks and _watch_tasks.get(run.id) is tasks:
            del _watch_tasks[run.id]

    task.add_done_callback(forget)


def list_held() -> list[str]:
    """The runs that this process has work of."""
    return list(_watch_tasks)


def cancel_work(run_id: str) -> None:
    """Stop the work: its run was cancelled, or this worker leaves."""
    for task in tuple(_watch_tasks.get(run_id, ())):
        task.cancel()


async def report_lost(context: WorkerContext) -> None:
    """Tell runs whose work went with its worker. One that is busy, or has calls open, hears of it in a later round."""
    database = context.store.database
    for run_id in await in_thread(lambda: database.read(_find_lost)):
        queued = await in_thread(lambda: database.write(lambda connection: _queue_lost(connection, run_id)))  # noqa: B023
        if queued is not None:
            await context.start_segment(queued)


def find_completed(store: RunStore, run_id: str, segment: int, call: ToolCall) -> ToolResult:
    """What came of background work that another try of the segment began: its end, if that try told of it in time."""
    key = key_of(segment, ToolCompleted.type, call.id)
    query = sa.select(events.c.event).where(events.c.run == run_id, events.c.key == key)
    told = store.database.read(lambda connection: connection.execute(query).scalar())
    if told is not None:
        return ToolResult.from_dict(told["result"])
    return unknown_result(call, "did")


def unknown_result(call: ToolCall, verb: str) -> ToolResult:
    """What the model and the person hear of a call whose worker was lost."""
    words = f"its state is unknown: the worker that {verb} it was lost while it was under way, and it may have happened"
    error = ToolError(words, ErrorKind.SYSTEM, "Check what is there before you repeat it.")
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
    except Exception as error:  # it was deleted, say
        work.cancel(session)
        log.error("run %s does not hear of its background work: %s", run.id, text_of(error), exc_info=_trace_of(error))


async def _deliver(context: WorkerContext, run_id: str, said: list[Message]) -> bool:
    pause, store = LOOK, context.store
    while True:
        run: RunInfo = await _retry_while_away(run_id, lambda: store.get(run_id))
        if run.status == "cancelled":
            return False
        if run.is_over or _accepts_messages(run):
            queued = await _retry_while_away(run_id, lambda: _append_messages(store, run, said))  # noqa: B023 - awaited at once
            if isinstance(queued, RunInfo):
                await _start_segment(context, queued)
            if queued is not None:
                return True
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)


def _append_messages(store: RunStore, run: RunInfo, said: list[Message]) -> RunInfo | Literal["before"] | None:
    """The run, queued to hear it; None: it is busy with something else."""
    queued = store.advance(run.id, say=said, from_segment=run.segment)
    if queued is None and said[-1].text in {message.text for message in store.messages(run.id)}:
        return "before"  # the database had taken it, and went away before it could say so
    return queued


async def _start_segment(context: WorkerContext, run: RunInfo) -> None:
    try:
        await context.start_segment(run)
    except Exception as error:  # it is stored, and whoever looks for what was never begun finds it
        log.warning("run %s is begun later: %s", run.id, text_of(error))


async def _retry_while_away(run_id: str, work: Callable[[], Any]) -> Any:
    """Tried again for as long as the database is away: only this process knows what came of the work."""
    pause = LOOK
    while True:
        try:
            return await in_thread(work)
        except Exception as error:
            if not is_away(error):
                raise
            log.warning("run %s hears of its background work later: %s", run_id, text_of(error))
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)


def _trace_of(error: Exception) -> Exception | None:
    return None if isinstance(error, ToolError) else error


def _accepts_messages(run: RunInfo) -> bool:
    """Between two segments, and not while calls are open: a history has nothing between a call and its result."""
    return run.status == "waiting" and all(wait.kind in ("background", "question") for wait in run.waits)


_living = sa.select(workers.c.id).where(workers.c.id == background.c.worker, workers.c.gone.is_(None))
_is_lost = sa.not_(_living.exists())


def _find_lost(connection: sa.Connection) -> list[str]:
    some = sa.select(background.c.run).where(_is_lost).order_by(sa.func.random()).limit(MOST)
    return list(dict.fromkeys(connection.execute(some).scalars()))


def _queue_lost(connection: sa.Connection, run_id: str) -> RunInfo | None:
    """The run, queued to hear of it; None where it hears of it later, or never, since it is over."""
    run = find_run(connection, run_id, lock=True)
    if not (run.is_over or _accepts_messages(run)):
        return None
    gone = connection.execute(sa.delete(background).where(background.c.run == run.id, _is_lost)).rowcount
    if run.is_over or not gone:
        return None
    return _runs.advance_run(connection, run.id, [Message("user", LOST)], run.segment, False)


def _forget(connection: sa.Connection, run: RunInfo) -> None:
    mine = (background.c.run == run.id, background.c.segment == run.segment)
    connection.execute(sa.delete(background).where(*mine))
