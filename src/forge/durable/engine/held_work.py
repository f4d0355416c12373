"""Runs background work of a stored run: one process does the work, while the run waits as a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from forge.agent.loop import make_completion_message
from forge.core.errors import ToolError
from forge.core.execution.background import BackgroundWork
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import text_of
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store import run_lifecycle as run_rows
from forge.durable.store.database import is_away
from forge.durable.store.find import find_run
from forge.durable.store.heartbeats import workers
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import background
from forge.durable.store.waits import BACKGROUND, IN_WORDS

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between queries of a busy run, which may be busy for days
MOST_RUNS = 100  # notified in one round
LOST_WORK_MESSAGE = """[This is not from the person: the machine that ran this run's background work was lost.]
The state of that work is unknown. Check its effects before you repeat it."""

log = logging.getLogger("forge.durable")

T = TypeVar("T")


class HeldWork:
    """The background work that this worker holds, by run."""

    def __init__(self, store: RunStore, starter: Starter) -> None:
        self._store = store
        self._starter = starter
        self._watching: dict[str, set[asyncio.Task[None]]] = {}

    def hold(self, run: RunInfo, work: BackgroundWork, session: str) -> None:
        """Holds the work; each completion is appended to the run, which then resumes."""
        task = asyncio.get_running_loop().create_task(self._watch(run, work, session))
        tasks = self._watching.setdefault(run.id, set())
        tasks.add(task)

        def forget(_: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if not tasks and self._watching.get(run.id) is tasks:
                del self._watching[run.id]

        task.add_done_callback(forget)

    def list_runs(self) -> list[str]:
        """Lists the runs whose work this worker holds."""
        return list(self._watching)

    def cancel(self, run_id: str) -> None:
        """Cancels the work: its run was cancelled, or this worker leaves."""
        for task in tuple(self._watching.get(run_id, ())):
            task.cancel()

    async def _watch(self, run: RunInfo, work: BackgroundWork, session: str) -> None:
        try:
            while await work.next_completed(session):
                said = [make_completion_message(call, result) for call, result in work.take_completed(session)]
                if not await self._deliver(run.id, said):
                    return
            database = self._store.database
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
                exc_info=None if isinstance(error, ToolError) else error,
                extra={"run": run.id},
            )

    async def _deliver(self, run_id: str, said: list[Message]) -> bool:
        """Appends messages to the run once it is not busy; returns False if it was cancelled."""
        pause = SHORTEST_PAUSE
        while True:
            run = await _retry_while_away(run_id, lambda: self._store.get(run_id))
            if run.status == "cancelled":
                return False
            if run.is_over or _accepts_messages(run):
                append = partial(self._store.advance, run_id, say=said, from_segment=run.segment)
                if (queued := await _retry_while_away(run_id, append)) is not None:
                    await self._resume(queued)
                    return True
                if await _retry_while_away(run_id, partial(_is_appended, self._store, run_id, said)):
                    return True  # the database stored it, but the connection was lost before the reply
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)

    async def _resume(self, run: RunInfo) -> None:
        try:
            await in_thread(lambda: self._starter.start(run))
        except Exception as error:  # it is stored; housekeeping finds and starts it
            log.warning("run %s starts later: %s", run.id, text_of(error), extra={"run": run.id})


async def report_lost(store: RunStore, starter: Starter) -> None:
    """Notifies runs whose work was lost with its worker. A busy run, or one with open calls, is notified in a later
    round.
    """
    for run_id in await in_thread(lambda: store.database.read(_find_lost)):
        queued = await in_thread(partial(store.database.write, partial(_queue_lost, run_id=run_id)))
        if queued is not None:
            await in_thread(partial(starter.start, queued))


def _is_appended(store: RunStore, run_id: str, said: list[Message]) -> bool:
    """Returns whether the run has the messages. Their texts name the calls, so no two are the same."""
    return said[-1].text in {message.text for message in store.messages(run_id)}


async def _retry_while_away(run_id: str, work: Callable[[], T]) -> T:
    """Retries while the database is unreachable: only this process knows the result of the work."""
    pause = SHORTEST_PAUSE
    while True:
        try:
            return await in_thread(work)
        except Exception as error:
            if not is_away(error):
                raise
            message = "run %s is notified of its background work later: %s"
            log.warning(message, run_id, text_of(error), extra={"run": run_id})
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 1.5)


def _accepts_messages(run: RunInfo) -> bool:
    """Returns whether it is between two segments without open calls: nothing may stand between call and result."""
    return run.status == "waiting" and all(wait.kind in (BACKGROUND, IN_WORDS) for wait in run.waits)


_living = sa.select(workers.c.id).where(workers.c.id == background.c.worker, workers.c.gone.is_(None))
_is_lost = sa.not_(_living.exists())


def _find_lost(connection: sa.Connection) -> list[str]:
    some = sa.select(background.c.run).where(_is_lost).order_by(sa.func.random()).limit(MOST_RUNS)
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
