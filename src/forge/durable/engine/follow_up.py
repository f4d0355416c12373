"""Starts what a run's new state requires: its next segment, or its parent's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forge.core.execution.threads import in_thread
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo
from forge.durable.store.waits import Wait

if TYPE_CHECKING:  # the engine, which reading runs does without
    from forge.durable.engine.worker_context import WorkerContext

log = logging.getLogger("forge.durable")


async def follow_up(context: WorkerContext, run: RunInfo) -> None:
    """Follows up a run's new state; idempotent, so housekeeping may repeat it. Logs the reason of a failed run."""
    if run.status == "failed":
        log.error("run %s of agent %s failed: %s", run.id, run.agent, _reason_of(run), extra=log_fields(run))
    if run.status == "queued":
        await context.start_segment(run)
    elif run.status == "waiting":
        if await in_thread(lambda: is_ready(context.store, run)):
            await resume_run(context, run)
    elif run.is_over and run.parent:
        parent = await in_thread(lambda: context.store.get(run.parent))
        if parent.status == "waiting":
            await resume_run(context, parent)


def log_fields(run: RunInfo) -> dict[str, str]:
    """Returns what a record of the log says about its run, as `extra`."""
    return {"run": run.id, "session": run.session or run.id}


def _reason_of(run: RunInfo) -> str:
    result = run.result or {}
    error = result.get("error")
    message = str(error.get("message", "")) if isinstance(error, Mapping) else ""
    return ": ".join(filter(None, [str(result.get("reason", "")), message])) or "no reason is stored"


async def resume_run(context: WorkerContext, run: RunInfo) -> None:
    """Queues a waiting run again; does nothing if another worker did."""
    queued = await in_thread(lambda: context.store.advance(run.id, from_segment=run.segment))
    if queued is not None:
        await context.start_segment(queued)


def is_ready(store: RunStore, run: RunInfo) -> bool:
    """Returns whether something that the run waits for has arrived."""
    return any(_has_arrived(store, wait) for wait in run.waits)


def _has_arrived(store: RunStore, wait: Wait) -> bool:
    if wait.question_id:
        question = store.question(wait.question_id)
        return question.answer is not None or not question.can_answer  # then the call asks again
    if wait.run_id:
        return store.get(wait.run_id).is_over
    return wait.until is not None and wait.until <= store.now()
