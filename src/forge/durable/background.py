"""Background work of a run that waits for it: one process has the work, the run is a row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sqlalchemy as sa

from forge.agent.loop import completed
from forge.core.background import BackgroundWork
from forge.core.messages import Message
from forge.core.threads import in_thread
from forge.durable import _runs
from forge.durable._found import found
from forge.durable.beats import workers
from forge.durable.rows import RunInfo
from forge.durable.tables import background

if TYPE_CHECKING:
    from forge.durable.home import Home

LOOK, RARELY = 0.5, 10.0  # seconds between looks at a run that is busy with something else: it may be for days
MOST = 100  # runs that are told in one round
LOST = """[This is not from the person: the machine that did this run's background work has gone.]
The state of that work is unknown. Check what is there before you repeat it."""

_watching: dict[str, set[asyncio.Task[None]]] = {}  # by run


def hold(home: Home, run: RunInfo, work: BackgroundWork, session: str) -> None:
    """Keep the work; what it completes is told to the run, which goes on then."""
    task = asyncio.get_running_loop().create_task(_watch(home, run, work, session))
    tasks = _watching.setdefault(run.id, set())
    tasks.add(task)

    def forget(_: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not tasks and _watching.get(run.id) is tasks:
            del _watching[run.id]

    task.add_done_callback(forget)


def held() -> list[str]:
    """The runs that this process has work of."""
    return list(_watching)


def let_go(run_id: str) -> None:
    """Stop the work: its run was cancelled, or this worker leaves."""
    for task in tuple(_watching.get(run_id, ())):
        task.cancel()


async def give_up_lost(home: Home) -> None:
    """Tell runs whose work went with its worker. One that is busy, or has calls open, hears of it in a later round."""
    database = home.store.database
    for run_id in await in_thread(lambda: database.read(_lost)):
        queued = await in_thread(lambda: database.write(lambda connection: _given_up(connection, run_id)))  # noqa: B023
        if queued is not None:
            await home.start_segment(queued)


async def _watch(home: Home, run: RunInfo, work: BackgroundWork, session: str) -> None:
    try:
        while await work.next_completed(session):
            said = [completed(call, result) for call, result in work.take_completed(session)]
            if not await _told(home, run.id, said):
                return
    except asyncio.CancelledError:
        work.cancel(session)
        raise
    await in_thread(lambda: home.store.database.write(lambda connection: _forget(connection, run)))


async def _told(home: Home, run_id: str, said: list[Message]) -> bool:
    pause = LOOK
    while True:
        run = await asyncio.to_thread(home.store.get, run_id)
        if run.status == "cancelled":
            return False
        if run.is_over or _can_be_told(run):
            queued = await asyncio.to_thread(home.store.advance, run_id, say=said, from_segment=run.segment)
            if queued is not None:
                await home.start_segment(queued)
                return True
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)


def _can_be_told(run: RunInfo) -> bool:
    """Between two segments, and not while calls are open: a history has nothing between a call and its result."""
    return run.status == "waiting" and all(wait.kind in ("background", "question") for wait in run.waits)


_living = sa.select(workers.c.id).where(workers.c.id == background.c.worker, workers.c.gone.is_(None))
_is_lost = sa.not_(_living.exists())


def _lost(connection: sa.Connection) -> list[str]:
    some = sa.select(background.c.run).where(_is_lost).order_by(sa.func.random()).limit(MOST)
    return list(dict.fromkeys(connection.execute(some).scalars()))


def _given_up(connection: sa.Connection, run_id: str) -> RunInfo | None:
    """The run, queued to hear of it; None where it hears of it later, or never, since it is over."""
    run = found(connection, run_id, lock=True)
    if not (run.is_over or _can_be_told(run)):
        return None
    gone = connection.execute(sa.delete(background).where(background.c.run == run.id, _is_lost)).rowcount
    if run.is_over or not gone:
        return None
    return _runs.advanced(connection, run.id, [Message("user", LOST)], run.segment, False)


def _forget(connection: sa.Connection, run: RunInfo) -> None:
    mine = (background.c.run == run.id, background.c.segment == run.segment)
    connection.execute(sa.delete(background).where(*mine))
