"""Asks a tool whether a call of a lost worker took effect, before anybody learns that its state is unknown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from typing import Any, cast

from forge.core.context import ToolContext
from forge.core.execution.deadline import DeadlinePassed, Until
from forge.core.execution.threads import in_thread
from forge.core.executor import Step
from forge.core.plain_values import plain, text_of
from forge.core.reconcile import Reconciled
from forge.core.result import ToolResult
from forge.core.tool import Tool
from forge.durable.engine.attempt import Attempt, is_cancelled_itself
from forge.durable.engine.reconcile.open_calls import is_open
from forge.durable.store.intents import Detail
from forge.durable.store.processes import has_ended, mark_process
from forge.network.egress import use_egress

SECONDS = 30.0  # that a tool has for its answer
LARGEST = 64 * 1024  # characters that a tool may note with an intent
LONGEST_REASON = 300  # characters
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
    if noted and len(json.dumps(noted)) <= LARGEST:
        detail["noted"] = noted
    return detail


def has_same_arguments(one: Detail, other: Detail) -> bool:
    return one is not None and other is not None and one.get("arguments") == other.get("arguments")


async def ask_guarded(attempt: Attempt, ctx: ToolContext, steps: Iterable[Step]) -> Reconciled:
    """Asks the tool as `ask_tool` does. The project's egress judges its requests, like those of a call."""
    egress = next(filter(None, (getattr(step, "egress", None) for step in steps)), None)
    with nullcontext() if egress is None else use_egress(egress):
        return await ask_tool(attempt, ctx)


async def ask_tool(attempt: Attempt, ctx: ToolContext) -> Reconciled:
    """Asks the tool of a call that an earlier attempt was about to run. Never raises: what is not sure is unknown."""
    tool, intent = cast(Tool, ctx.tool), attempt.intents.get(ctx.call.id)
    detail = intent.detail if intent is not None else {}
    try:
        given = detail.get("given")
        ctx.arguments = tool.parse(ctx.call.arguments if given is None else given)
        if detail and _digest(ctx.arguments) != detail.get("arguments"):
            return Reconciled.unknown("the tool reads the arguments of the call in another way now")
        ctx.noted = detail.get("noted", {})
        answer = _check_answer(await Until(tool.reconcile(ctx.key, ctx.arguments, ctx), SECONDS))
    except DeadlinePassed:
        return Reconciled.unknown(f"reconcile gave no answer within {SECONDS:g} s")
    except asyncio.CancelledError:
        if is_cancelled_itself():
            raise
        return Reconciled.unknown("reconcile cancelled itself")
    except Exception as error:
        return Reconciled.unknown(f"reconcile failed: {text_of(error)}")
    if answer.state == "not_done" and not answer.final and not _is_over(attempt, ctx, detail):
        return Reconciled.unknown("it had not taken effect, but the worker that began it may still be running it")
    return answer


def _is_over(attempt: Attempt, ctx: ToolContext, detail: Mapping[str, Any]) -> bool:
    """Returns True only if the earlier attempt can certainly not run the call any more."""
    mark = str(detail.get("process", ""))
    if ctx.spec.isolate or not mark:  # its own process may have survived the worker
        return False
    if mark == mark_process():
        return not is_open(attempt, ctx)
    return has_ended(mark)


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


def explain_unknown(result: ToolResult, reason: str) -> ToolResult:
    """Adds the tool's reason to the result of a call whose state is unknown."""
    if not reason:
        return result
    words = f"{result.for_llm}\nThe tool was asked: {reason}."
    return replace(result, for_llm=words).with_data(reconciled=reason)


def _digest(arguments: Mapping[str, Any]) -> str:
    wire = json.dumps(plain(dict(arguments)), sort_keys=True, ensure_ascii=True)
    return sha256(wire.encode()).hexdigest()[:32]
