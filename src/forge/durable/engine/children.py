"""Runs that other runs wait for: sub-agents, and calls of tools that want to run on another worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256

from forge.agent.subagent import Order, make_report
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.messages import Message, ToolCall, unanswered_calls
from forge.core.result import ToolResult
from forge.durable.engine.agents import find_agent
from forge.durable.engine.attempt import Attempt, current
from forge.durable.engine.queues import offer_queue
from forge.durable.engine.tracing import carrier
from forge.durable.store.results import run_result
from forge.durable.store.rows import NewRun, RunInfo
from forge.durable.store.wire import result_from_json

ONLY = "only_call"  # in a run's scope: it answers its one open call, and asks no model


async def delegate(ctx: ToolContext, order: Order) -> ToolResult:
    """A sub-agent's task as a run of its own: it may run anywhere, and outlives this process."""
    attempt = current.get()
    assert attempt is not None, "set only while an attempt is at work"
    name = f"{attempt.run.agent}/{order.agent_type}"
    child = _name(attempt.run.id, ctx.call.id)
    run = await asyncio.to_thread(_found, attempt, child)
    if run is None:
        earlier = await asyncio.to_thread(_earlier, attempt, order.task_id) if order.task_id else []
        system = [] if earlier else [Message("system", find_agent(attempt.home.agents, name).system_prompt())]
        new = _new(attempt, child, name, ctx.call, ctx.scope)
        messages = (*earlier, *system, Message("user", order.prompt))
        run = await _begun(attempt, replace(new, prompt=order.prompt, messages=messages))
    if not run.is_over:
        raise Waiting(f"it waits for the sub-agent's run {run.id}", kind="run", run=run.id)
    return make_report(run_result(run), run.id, order.description)


async def place_call(attempt: Attempt, call: ToolCall, scope: Scope, place: str) -> ToolResult:
    """One call on a worker that offers its place; what it needs, approvals included, is seen to there."""
    child = _name(attempt.run.id, call.id)
    run = await asyncio.to_thread(_found, attempt, child)
    if run is None:
        new = _new(attempt, child, attempt.run.agent, call, scope)
        wanted = replace(
            new,
            queue=offer_queue(place),
            prompt=f"{call.name} on {place}",
            messages=(Message("assistant", tool_calls=(call,)),),
            scope={**new.scope, ONLY: True, "message_id": scope.message_id},
        )
        run = await _begun(attempt, wanted)
    if not run.is_over:
        raise Waiting(f"it waits for a worker that offers {place}", kind="run", run=run.id)
    kept = (run.result or {}).get("call")
    if kept is None:
        words = f"its run {run.id} on {place} ended without a result: {run.status}"
        raise ToolError(words, ErrorKind.SYSTEM, "Check what is there before you repeat it.")
    return result_from_json(kept)


def _name(parent: str, call: str) -> str:
    """The same on every try, so that a task is begun once."""
    return f"{parent}-{sha256(call.encode()).hexdigest()[:8]}"


def _found(attempt: Attempt, run_id: str) -> RunInfo | None:
    try:
        return attempt.store.get(run_id)
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            return None
        raise


def _earlier(attempt: Attempt, task_id: str) -> list[Message]:
    run = attempt.store.get(task_id)
    if run.parent != attempt.run.id:
        raise ToolError(f"there is no task {task_id!r}", ErrorKind.NOT_FOUND, "Leave task_id out to begin a new one.")
    if not run.is_over:
        raise ToolError(f"task {run.id} is not over", ErrorKind.USER, "Leave task_id out to begin a new one.")
    said = attempt.store.messages(run.id)
    words = "not run: the task was stopped while this call waited."
    return [
        *said,
        *(Message("tool", f"{call.name}: {words}", call_id=call.id, is_error=True) for call in unanswered_calls(said)),
    ]


def _new(attempt: Attempt, child: str, agent: str, call: ToolCall, scope: Scope) -> NewRun:
    run = attempt.run
    return NewRun(
        id=child,
        agent=agent,
        session=run.session or run.id,  # it belongs to the session of the run that it serves
        tenant=run.tenant,
        queue=run.queue,
        priority=run.priority,
        version=run.version,
        scope=dict(run.scope),
        carrier=carrier() or run.carrier,
        parent=run.id,
        parent_call=call.id,
    )


async def _begun(attempt: Attempt, new: NewRun) -> RunInfo:
    run = await asyncio.to_thread(attempt.store.create, new)
    await attempt.home.start_segment(run)
    return run
