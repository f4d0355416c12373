"""Settles calls of lost workers: what is stored before a call, and what its tool says about it afterwards.

A call that must not be repeated has an intent. An attempt that finds the intent of another one asks the tool whether
the call took effect, before anybody learns that its state is unknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, cast

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolCompleted
from forge.core.execution.chain import Step
from forge.core.execution.deadline import Deadline, DeadlinePassed, is_cancelled_itself
from forge.core.execution.threads import in_thread
from forge.core.messages import ToolCall, render_call
from forge.core.plain_values import plain, text_of
from forge.core.result import Reconciled, ToolResult
from forge.core.tool import Tool
from forge.durable.engine.attempt import Attempt
from forge.durable.engine.record_events import key_of
from forge.durable.store import RunStore
from forge.durable.store.attempts import Detail
from forge.durable.store.heartbeats import has_ended, mark_process
from forge.network.egress import use_egress
from forge.pipeline.authorize import GuardEgress

SECONDS_TO_ANSWER = 30.0  # that a tool has
LARGEST_NOTE = 64 * 1024  # characters that a tool may note with an intent
STATES = ("done", "not_done", "unknown")

log = logging.getLogger("forge.durable")


async def describe_intent(ctx: ToolContext) -> Detail:
    """Returns what is stored with the intent of a call whose tool can reconcile; None: it cannot."""
    tool = cast(Tool, ctx.tool)
    if not tool.reconciles:
        return None
    detail: dict[str, Any] = {"process": mark_process(), "arguments": _digest(ctx.arguments)}
    if _digest(tool.parse(ctx.call.arguments)) != detail["arguments"]:  # a person changed them
        detail["given"] = plain(ctx.arguments)
    if type(tool).note_intent is Tool.note_intent:
        return detail
    try:
        noted = plain(dict(await in_thread(lambda: tool.note_intent(ctx.arguments, ctx))))
    except Exception as error:  # the call itself may still work
        log.warning("%s: nothing is noted for reconciling: %s", ctx.spec.name, text_of(error))
        return detail
    if noted and len(json.dumps(noted)) <= LARGEST_NOTE:
        detail["noted"] = noted
    return detail


def has_same_arguments(one: Detail, other: Detail) -> bool:
    return one is not None and other is not None and one.get("arguments") == other.get("arguments")


async def ask_tool(attempt: Attempt, ctx: ToolContext, steps: Iterable[Step]) -> Reconciled:
    """Asks the tool of a call that an earlier attempt was about to run. Never raises: what is not sure is unknown.

    The project's egress judges its requests, like those of a call.
    """
    egress = next((step.egress for step in steps if isinstance(step, GuardEgress)), None)
    with nullcontext() if egress is None else use_egress(egress):
        return await _ask(attempt, ctx)


def unknown_result(call: ToolCall) -> ToolResult:
    """Builds the result of a call, or of its background work, whose worker was lost."""
    message = "its state is unknown: the worker that ran it was lost while it was running, and it may have taken effect"
    error = ToolError(message, ErrorKind.SYSTEM, "Check its effects before you repeat it.")
    return ToolResult.failed(error, during=render_call(call)).with_data(state="unknown")


def explain_unknown(result: ToolResult, reason: str) -> ToolResult:
    """Adds the tool's reason to the result of a call whose state is unknown."""
    if not reason:
        return result
    message = f"{result.for_llm}\nThe tool was asked: {reason}."
    return replace(result, for_llm=message).with_data(reconciled=reason)


def find_completed(store: RunStore, run_id: str, segment: int, call: ToolCall) -> ToolResult:
    """Returns the result of background work of an earlier attempt, if recorded in time; else an unknown result."""
    key = key_of(segment, ToolCompleted.type, call.id)
    event = store.find_event(run_id, segment, key)
    if event is not None:
        return ToolResult.from_dict(event["result"])
    return unknown_result(call)


CallKey = tuple[str, int, str]
"""A run, a segment, and the id of a call."""

_open_calls: dict[CallKey, set[str]] = {}
"""Calls that may still run in this process, with the attempts that run them. One whose task was cancelled stays: its
thread cannot be stopped.
"""


@contextmanager
def note_open_call(attempt: Attempt, ctx: ToolContext) -> Iterator[OpenCall]:
    """Notes as long as a call may run in this process, also after its attempt was given up."""
    noted = OpenCall((attempt.run.id, attempt.run.segment, ctx.call.id), attempt.token)
    if not cast(Tool, ctx.tool).reconciles:
        yield noted
        return
    calls = _open_calls.setdefault(noted.key, set())
    calls.add(noted.token)  # before its intent is stored: another attempt may see the intent at once
    try:
        yield noted
    finally:
        if not noted.may_run:
            calls.discard(noted.token)
            if not calls and _open_calls.get(noted.key) is calls:
                del _open_calls[noted.key]


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call in this process. `token` is the attempt that runs it."""

    key: CallKey
    token: str
    may_run: bool = False  # it has begun, and may not have ended

    def begin(self) -> None:
        """Notes that the call begins. An exception from outside does not end it."""
        self.may_run = True

    def end(self, result: ToolResult) -> ToolResult:
        """Returns the result. A call that ran out of time, or continues in the background, has not ended with it."""
        is_late = result.failure is not None and result.failure.kind in (ErrorKind.TIMEOUT, ErrorKind.CANCELLED)
        self.may_run = is_late or result.pending
        return result


async def _ask(attempt: Attempt, ctx: ToolContext) -> Reconciled:
    tool, intent = cast(Tool, ctx.tool), attempt.intents.get(ctx.call.id)
    detail = intent.detail if intent is not None else {}
    try:
        given = detail.get("given")
        ctx.arguments = tool.parse(ctx.call.arguments if given is None else given)
        if detail and _digest(ctx.arguments) != detail.get("arguments"):
            return Reconciled.unknown("the tool reads the arguments of the call in another way now")
        ctx.noted = detail.get("noted", {})
        answer = _check_answer(await Deadline(tool.reconcile(ctx.key, ctx.arguments, ctx), SECONDS_TO_ANSWER))
    except DeadlinePassed:
        return Reconciled.unknown(f"reconcile gave no answer within {SECONDS_TO_ANSWER:g} s")
    except asyncio.CancelledError:
        if is_cancelled_itself():
            raise
        return Reconciled.unknown("reconcile cancelled itself")
    except Exception as error:
        return Reconciled.unknown(f"reconcile failed: {text_of(error)}")
    if answer.state == "not_done" and not answer.final and not _is_over(attempt, ctx, detail):
        return Reconciled.unknown("it had not taken effect, but the worker that began it may still be running it")
    return answer


def _check_answer(answer: Any) -> Reconciled:
    if not isinstance(answer, Reconciled):
        return Reconciled.unknown(f"reconcile returned {type(answer).__name__} instead of Reconciled")
    if answer.state not in STATES:
        return Reconciled.unknown(f"reconcile returned the state {answer.state!r}, which does not exist")
    if answer.state != "done":
        return answer
    result = ToolResult.of(answer.result)
    if result.pending:
        return Reconciled.unknown("reconcile returned work that is still under way")
    return answer._replace(result=result)


def _is_over(attempt: Attempt, ctx: ToolContext, detail: Mapping[str, Any]) -> bool:
    """Returns whether the earlier attempt can certainly not run the call any more."""
    mark = str(detail.get("process", ""))
    if ctx.spec.isolate or not mark:  # its own process may have survived the worker
        return False
    if mark == mark_process():
        return not _is_open(attempt, ctx)
    return has_ended(mark)


def _is_open(attempt: Attempt, ctx: ToolContext) -> bool:
    """Returns whether an attempt of this process may still run the call."""
    return (attempt.run.id, attempt.run.segment, ctx.call.id) in _open_calls


def _digest(arguments: Mapping[str, Any]) -> str:
    wire = json.dumps(plain(dict(arguments)), sort_keys=True, ensure_ascii=True)
    return sha256(wire.encode()).hexdigest()[:32]
