"""The one workflow of the engine: a segment of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context

from dbos import DBOS

from forge.core.plain_values import text_of
from forge.durable.engine.engine import running_engine
from forge.durable.engine.segment import END, Earlier, perform
from forge.durable.engine.start_segments import SEGMENT
from forge.durable.store.errors import is_away

MOST_TRIES = 20  # of a segment: one that kills all its workers must end some day
# (handing over in good order does not count)

log = logging.getLogger("forge.durable")


@DBOS.workflow(name=SEGMENT, max_recovery_attempts=MOST_TRIES - 1)  # DBOS does not count the first
async def segment(run_id: str, number: int) -> str:
    """Runs a segment: begun once, and again by a worker that takes it over."""
    workflow = DBOS.workflow_id
    assert workflow is not None

    async def find_earlier() -> Earlier:
        # without our context: inside a workflow every query to the engine would be a step
        return await asyncio.get_running_loop().create_task(_find_earlier(workflow), context=Context())

    try:
        return await perform(running_engine(), run_id, number, find_earlier)
    except Exception as error:
        if not is_away(error):
            raise
        log.warning(
            "run %s, segment %d: postponed, because the database is unreachable: %s", run_id, number, text_of(error)
        )
        # an error would end the workflow: it stays begun, and Engine.requeue_forgotten requeues it
        raise asyncio.CancelledError from error


async def _find_earlier(workflow: str) -> Earlier:
    steps = await DBOS.list_workflow_steps_async(workflow)
    found = next((step["output"] for step in reversed(steps) if step["function_name"] == END), None)
    names = {step["function_id"]: step["function_name"] for step in steps}
    return Earlier(found if isinstance(found, Mapping) else None, names)
