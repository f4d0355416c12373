"""Starts runs that other runs wait for: sub-agents, and calls that run on another worker."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from forge.agent.labels import LABELS, collect_labels, export_context
from forge.agent.subagent import Order, make_report
from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.messages import Message, ToolCall, unanswered_calls
from forge.core.result import ToolResult
from forge.durable.engine.agents import find_agent
from forge.durable.engine.attempt import Attempt
from forge.durable.engine.queues import offer_queue
from forge.durable.engine.tracing import carrier
from forge.durable.store.encoding import result_from_json, run_result
from forge.durable.store.rows import INITIAL_MESSAGES, SINGLE_CALL, TASK, NewRun, RunInfo
from forge.durable.store.waits import Wait
from forge.permissions.labels.settings import current_provenance


async def delegate(attempt: Attempt, ctx: ToolContext, order: Order) -> ToolResult:
    """Runs a sub-agent's task as its own run, which may run anywhere and outlives this process."""
    name = f"{attempt.run.agent}/{order.agent_type}"
    child = _child_id(attempt.run.id, ctx.call.id)
    run = await in_thread(lambda: _find_run(attempt, child))
    if run is None:
        earlier = await in_thread(lambda: _load_earlier(attempt, order.task_id)) if order.task_id else []
        system = [] if earlier else [Message("system", find_agent(attempt.context.agents, name).system_prompt())]
        new = _new_run(attempt, child, name, ctx.call, ctx.scope)
        new = replace(new, scope={**new.scope, TASK: ctx.subtask})
        messages = (*earlier, *system, Message("user", order.prompt, extra=_label_prompt()))
        run = await _start_run(attempt, replace(new, prompt=order.prompt, messages=messages))
    if not run.is_over:
        raise Wait.for_run(run.id).as_error(f"it waits for the sub-agent's run {run.id}")
    report = make_report(run_result(run), run.id, order.description)
    return replace(report, labels=collect_labels(await in_thread(lambda: attempt.store.messages(run.id))))


async def run_call_remotely(attempt: Attempt, call: ToolCall, scope: Scope, offer: str) -> ToolResult:
    """Runs one call on a worker with this offer, which also handles its approvals."""
    child = _child_id(attempt.run.id, call.id)
    run = await in_thread(lambda: _find_run(attempt, child))
    if run is None:
        new = _new_run(attempt, child, attempt.run.agent, call, scope)
        wanted = replace(
            new,
            queue=offer_queue(offer),
            prompt=f"{call.name} on {offer}",
            messages=(*export_context(current_provenance.get()), Message("assistant", tool_calls=(call,))),
            scope={**new.scope, SINGLE_CALL: True, "message_id": scope.message_id},
        )
        run = await _start_run(attempt, wanted)
    if not run.is_over:
        raise Wait.for_run(run.id).as_error(f"it waits for a worker that offers {offer}")
    stored = (run.result or {}).get("call")
    if stored is None:
        message = f"its run {run.id} on {offer} ended without a result: {run.status}"
        raise ToolError(message, ErrorKind.SYSTEM, "Check its effects before you repeat it.")
    return result_from_json(stored)


def _label_prompt() -> dict[str, list[list[str]]]:
    """Returns the labels of a sub-agent's task: a model wrote it, after it read what the run has read."""
    provenance = current_provenance.get()
    labels = provenance.labels if provenance is not None else ()
    return {LABELS: [list(label) for label in labels]} if labels else {}


def _child_id(parent: str, call: str) -> str:
    """Returns the same id on every attempt, so that a task is begun once."""
    return f"{parent}-{sha256(call.encode()).hexdigest()[:8]}"


def _find_run(attempt: Attempt, run_id: str) -> RunInfo | None:
    try:
        return attempt.store.get(run_id)
    except ToolError as error:
        if error.kind is ErrorKind.NOT_FOUND:
            return None
        raise


def _load_earlier(attempt: Attempt, task_id: str) -> list[Message]:
    run = attempt.store.get(task_id)
    if run.parent != attempt.run.id:
        raise ToolError(f"there is no task {task_id!r}", ErrorKind.NOT_FOUND, "Omit task_id to start a new task.")
    if not run.is_over:
        raise ToolError(f"task {run.id} is still running", ErrorKind.USER, "Omit task_id to start a new task.")
    said = attempt.store.messages(run.id)
    message = "not run: the task was stopped while this call waited."
    return [
        *said,
        *(
            Message("tool", f"{call.name}: {message}", call_id=call.id, is_error=True)
            for call in unanswered_calls(said)
        ),
    ]


def _new_run(attempt: Attempt, child: str, agent: str, call: ToolCall, scope: Scope) -> NewRun:
    run = attempt.run
    return NewRun(
        id=child,
        agent=agent,
        session=run.session or run.id,  # it belongs to the parent's session
        tenant=run.tenant,
        queue=run.queue,
        priority=run.priority,
        version=run.version,
        scope={**run.scope, INITIAL_MESSAGES: 0},
        carrier=carrier() or run.carrier,
        parent=run.id,
        parent_call=call.id,
    )


async def _start_run(attempt: Attempt, new: NewRun) -> RunInfo:
    run = await in_thread(lambda: attempt.store.create(new))
    await attempt.context.start_segment(run)
    return run
