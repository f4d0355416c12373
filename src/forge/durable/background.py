"""Background work of a run that waits for it: this process has the work, the run is a row."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forge.agent.loop import completed
from forge.core.background import BackgroundWork
from forge.core.messages import Message

if TYPE_CHECKING:
    from forge.durable.home import Home

LOOK, RARELY = 0.5, 10.0  # seconds between looks at a run that is busy with something else: it may be for days

_watching: dict[str, set[asyncio.Task[None]]] = {}  # by run


def hold(home: Home, run_id: str, work: BackgroundWork, session: str) -> None:
    """Keep the work; what it completes is told to the run, which goes on then."""
    task = asyncio.get_running_loop().create_task(_watch(home, run_id, work, session))
    tasks = _watching.setdefault(run_id, set())
    tasks.add(task)

    def forget(_: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not tasks:
            _watching.pop(run_id, None)

    task.add_done_callback(forget)


async def _watch(home: Home, run_id: str, work: BackgroundWork, session: str) -> None:
    try:
        while await work.next_completed(session):
            said = [completed(call, result) for call, result in work.take_completed(session)]
            if not await _told(home, run_id, said):
                return
    except asyncio.CancelledError:
        work.cancel(session)
        raise


async def _told(home: Home, run_id: str, said: list[Message]) -> bool:
    """Between two segments, and not while calls are open: a history has nothing between a call and its result."""
    pause = LOOK
    while True:
        run = await asyncio.to_thread(home.store.get, run_id)
        if run.status == "cancelled":
            return False
        has_open_calls = any(wait.kind not in ("background", "question") for wait in run.waits)
        if run.is_over or (run.status == "waiting" and not has_open_calls):
            queued = await asyncio.to_thread(home.store.advance, run_id, say=said, from_segment=run.segment)
            if queued is not None:
                await home.start_segment(queued)
                return True
        await asyncio.sleep(pause)
        pause = min(RARELY, pause * 1.5)
