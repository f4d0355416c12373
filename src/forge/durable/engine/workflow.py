"""The one workflow of the engine: a segment of a run."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context

from dbos import DBOS

from forge.core.plain_values import text_of
from forge.durable.engine.engine import running_engine
from forge.durable.engine.segment import perform
from forge.durable.engine.start_segments import SEGMENT
from forge.durable.store.errors import is_away

MOST_TRIES = 20  # of a segment: one that kills all its workers must end some day
# (handing over in good order does not count)

log = logging.getLogger("forge.durable")


@DBOS.workflow(name=SEGMENT, max_recovery_attempts=MOST_TRIES - 1)  # DBOS does not count the first
async def segment(run_id: str, number: int) -> str:
    """Runs a segment: begun once, and again by a worker that takes it over."""
    # without DBOS's context: a tool that uses DBOS itself would record steps of this workflow
    work = asyncio.get_running_loop().create_task(perform(running_engine(), run_id, number), context=Context())
    try:
        return await work
    except Exception as error:
        if not is_away(error):
            raise
        log.warning(
            "run %s, segment %d: postponed, because the database is unreachable: %s",
            run_id,
            number,
            text_of(error),
            extra={"run": run_id},
        )
        # an error would end the workflow: it stays begun, and Engine.requeue_forgotten requeues it
        raise asyncio.CancelledError from error
