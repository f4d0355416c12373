"""Runs a quarantined task: gets the text, asks the model without tools, returns the checked value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from forge.agent.limits import Limits
from forge.agent.quarantine import SECONDS, Quarantine, Shape
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.provider import Provider
from forge.core.registry import CONVERSATION
from forge.core.result import UNTRUSTED, Label, ToolResult
from forge.permissions.labels.provenance import Provenance
from forge.permissions.labels.settings import current_provenance

QUARANTINED = Label(UNTRUSTED, "task in quarantine")
NOT_READABLE = frozenset({"task", "run_code", *CONVERSATION})


class QuarantinedTask(NamedTuple):
    """A question about a text: the text itself, or the call that gets it."""

    description: str
    question: str
    content: str
    read: Mapping[str, Any] | None
    shape: Shape


class Reader(Protocol):
    """The part of a sub-agent that reads."""

    provider: Provider | None
    options: dict[str, Any]
    limits: Limits


async def quarantine_task(ctx: ToolContext, task: QuarantinedTask, agent: Reader | None, prompt: str) -> ToolResult:
    """Returns the checked answer as JSON. A refused answer is a failure that repeats nothing of it."""
    if agent is None or agent.provider is None:
        raise ToolError("no model is configured to read in quarantine", ErrorKind.CONFIG, "Configure agent.model.")
    content, labels = await _get_content(ctx, task)
    seconds = agent.limits.seconds or SECONDS
    quarantine = Quarantine(agent.provider, task.shape, prompt, agent.options, min(seconds, SECONDS))
    ctx.progress(f"Quarantine: {task.description}")
    try:
        value = await quarantine.ask(content, task.question)
    except ToolError as error:
        result = ToolResult.failed(error, during="task in quarantine")
        result.data = _count(quarantine, agent)
        return result
    data = {"value": value, "closed": task.shape.is_closed, **_count(quarantine, agent)}
    text = json.dumps(value, ensure_ascii=False)
    kept = () if task.shape.is_closed else labels  # a value from a closed set carries no words of what was read
    return ToolResult(for_llm=text, title=task.description, data=data, labels=kept)


async def _get_content(ctx: ToolContext, task: QuarantinedTask) -> tuple[str, tuple[Label, ...]]:
    """Returns the text, and the labels of what may be copied from it."""
    if bool(task.content) == bool(task.read):
        words = "a quarantined task needs either content or read" + (", not both" if task.content else "")
        raise ToolError(
            words, ErrorKind.VALIDATION, 'Write, for example, read: {"tool": "web_fetch", "arguments": {…}}.'
        )
    if task.read is None:
        return task.content, (QUARANTINED,)
    name, arguments = task.read.get("tool"), task.read.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping) or task.read.keys() - {"tool", "arguments"}:
        words = "read of a quarantined task must have tool, a name, and arguments, an object, and nothing else"
        raise ToolError(words, ErrorKind.VALIDATION, 'Write {"tool": "web_fetch", "arguments": {"url": …}}.')
    if name in NOT_READABLE:
        raise ToolError(f"a quarantined task cannot read with {name}", ErrorKind.VALIDATION, "Use a tool that reads.")
    with _kept_apart():
        result = await ctx.run_tool(name, arguments)
    if result.failure is None:
        return result.for_llm, result.labels or (QUARANTINED,)
    if isinstance(result.failure.cause, Waiting):
        raise result.failure.cause
    raise ToolError(
        f"the call that reads for a quarantined task failed: {name} ended with {result.failure.kind}",
        result.failure.kind,
        "Its words stay in quarantine, since others may have written them. Check its arguments and the rules.",
    )


@contextmanager
def _kept_apart() -> Iterator[None]:
    """Keeps what a call returns out of the run's context: the model that gave the task does not see it."""
    outer = current_provenance.get()
    before = current_provenance.set(Provenance(outer) if outer is not None else None)
    try:
        yield
    finally:
        current_provenance.reset(before)


def _count(quarantine: Quarantine, agent: Reader) -> dict[str, Any]:
    """Returns what the run counts as its own."""
    price = agent.limits.price
    cost = price.of(quarantine.usage) if price is not None else None
    return {"usage": quarantine.usage._asdict(), "cost": cost}
