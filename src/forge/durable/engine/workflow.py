"""The one workflow of the engine: a segment of a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from typing import Any

from dbos import DBOS

from forge.core.plain_values import text_of
from forge.durable.engine.engine import running_engine
from forge.durable.engine.segment import END, perform
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
    # without our context: inside a workflow every query to the engine would be a step
    asked = asyncio.get_running_loop().create_task(_find_recorded_end(workflow), context=Context())
    try:
        recorded, replays = await asked
        return await perform(running_engine(), run_id, number, recorded, replays)
    except Exception as error:
        if not is_away(error):
            raise
        log.warning(
            "run %s, segment %d: postponed, because the database is unreachable: %s", run_id, number, text_of(error)
        )
        # an error would end the workflow: it stays begun, and Engine.requeue_forgotten requeues it
        raise asyncio.CancelledError from error


async def _find_recorded_end(workflow: str) -> tuple[Mapping[str, Any] | None, int]:
    """Returns the recorded end of the segment, or None, and the number of recorded steps."""
    steps = await DBOS.list_workflow_steps_async(workflow)
    found = next((step["output"] for step in reversed(steps) if step["function_name"] == END), None)
    return (found if isinstance(found, Mapping) else None), max((step["function_id"] for step in steps), default=0)
