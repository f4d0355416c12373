"""Encodes and decodes results of calls and of runs, and waits, as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from forge.agent.result import RunResult
from forge.core.errors import ErrorKind
from forge.core.messages import Message, Usage, list_in, text_in
from forge.core.plain_values import brief, plain, sendable
from forge.core.result import Attachment, Failure, ToolResult, read_labels
from forge.durable.store.rows import FINE, INITIAL_MESSAGES, MODEL, RunInfo
from forge.durable.store.waits import Wait


def result_to_json(result: ToolResult) -> dict[str, Any]:
    """Encodes a result as plain JSON without empty fields and without the cause of a failure."""
    wire: dict[str, Any] = {"for_llm": sendable(result.for_llm)}
    if result.for_user:
        wire["for_user"] = sendable(result.for_user)
    if result.silent:
        wire["silent"] = True
    if result.title:
        wire["title"] = sendable(result.title)
    if result.data:
        wire["data"] = object_of(result.data)
    if result.attachments:
        wire["attachments"] = [_attachment_to_json(one) for one in result.attachments]
    if result.failure is not None:
        wire["failure"] = failure_to_json(result.failure)
    if result.pending:
        wire["pending"] = True
    if result.labels:
        wire["labels"] = [[label.kind, sendable(label.origin)] for label in result.labels]
    return wire


def result_from_json(wire: Any) -> ToolResult:
    """Decodes a result of `result_to_json`. Raises ValueError."""
    wire = _object(wire, "result")
    failure = wire.get("failure")
    return ToolResult(
        for_llm=text_in(wire, "for_llm"),
        for_user=text_in(wire, "for_user", ""),
        silent=_flag(wire, "silent"),
        title=text_in(wire, "title", ""),
        data=_object(wire.get("data", {}), "data"),
        attachments=tuple(_attachment_from_json(one) for one in list_in(wire, "attachments")),
        failure=None if failure is None else failure_from_json(failure),
        pending=_flag(wire, "pending"),
        labels=read_labels(wire.get("labels")),
    )


def failure_to_json(failure: Failure) -> dict[str, Any]:
    wire: dict[str, Any] = {"message": sendable(failure.message), "kind": str(failure.kind)}
    if failure.suggestion:
        wire["suggestion"] = sendable(failure.suggestion)
    if failure.passing:
        wire["passing"] = True
    return wire


def failure_from_json(wire: Any) -> Failure:
    wire = _object(wire, "failure")
    return Failure(
        text_in(wire, "message"),
        ErrorKind(text_in(wire, "kind", ErrorKind.SYSTEM)),
        text_in(wire, "suggestion", ""),
        _flag(wire, "passing"),
    )


def wait_to_json(wait: Wait) -> dict[str, Any]:
    return {"kind": wait.kind, "call": sendable(wait.call), "detail": object_of(wait.detail)}


def wait_from_json(wire: Any) -> Wait:
    wire = _object(wire, "wait")
    return Wait(
        kind=text_in(wire, "kind"), call=text_in(wire, "call", ""), detail=_object(wire.get("detail", {}), "detail")
    )


def object_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a mapping to a JSON object, whatever it holds."""
    found = plain(data)
    if not isinstance(found, dict):  # a custom mapping, described as a whole
        try:
            found = plain(dict(data))
        except Exception:
            found = {}
    return found if isinstance(found, dict) else {}


def _attachment_to_json(one: Attachment) -> dict[str, Any]:
    return {
        "media_type": sendable(one.media_type),
        "name": sendable(one.name),
        "data": b64encode(one.data).decode(),
    }


def _attachment_from_json(wire: Any) -> Attachment:
    wire = _object(wire, "attachment")
    return Attachment(
        text_in(wire, "media_type"), b64decode(text_in(wire, "data"), validate=True), text_in(wire, "name", "")
    )


def _object(wire: Any, name: str) -> dict[str, Any]:
    if not isinstance(wire, dict):
        raise ValueError(f"{name}: expected an object, got {brief(wire)}")
    return wire


def _flag(wire: Mapping[str, Any], name: str) -> bool:
    value = wire.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, got {brief(value)}")
    return value


# Encodes and decodes the stored results of runs.


def figures_of(scope: Any, spent: Any, result: Any) -> dict[str, Any]:
    """Returns the columns of a run that repeat values of these, for filters and sums."""
    scope, spent, result = (one if isinstance(one, Mapping) else {} for one in (scope, spent, result))
    error, reason, usage = result.get("error"), str(result.get("reason", "")), spent.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    failure = str(error.get("kind", reason)) if isinstance(error, Mapping) else "" if reason in FINE else reason
    cost = result.get("cost") if result.get("cost") is not None else spent.get("cost")
    return {
        "model": str(spent.get(MODEL) or scope.get(MODEL) or ""),
        "user": str(scope.get("user") or ""),
        "failure": failure,
        "cost": float(cost) if isinstance(cost, int | float) else None,
        "worked": _number(spent.get("seconds")),
        **{name: int(_number(usage.get(name))) for name in ("input", "output", "cached")},
    }


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and isfinite(value) else 0.0


def result_of(result: RunResult) -> dict[str, Any]:
    """Encodes a run's result; its messages are stored elsewhere."""
    output: Any = result.output_or_none
    return {
        "text": result.text,
        "reason": result.reason,
        "turns": result.turns,
        "calls": result.calls,
        "usage": result.usage._asdict(),
        "estimated": result.estimated._asdict(),
        "cost": result.cost,
        "has_output": result.has_output,
        "output": output.model_dump(mode="json") if hasattr(output, "model_dump") else plain(output),
        "error": failure_to_json(result.error) if result.error is not None else None,
    }


def run_result(run: RunInfo, messages: Sequence[Message] = ()) -> RunResult:
    """Returns the result of a run that is over, or its progress."""
    stored: Mapping[str, Any] = run.result or {}
    spent: Mapping[str, Any] = stored or run.spent
    error, began = stored.get("error"), run.scope.get(INITIAL_MESSAGES, 0)
    return RunResult(
        text=stored.get("text", ""),
        reason=stored.get("reason", "waiting"),
        turns=spent.get("turns", 0),
        calls=spent.get("calls", 0),
        messages=list(messages),
        usage=Usage(**spent.get("usage", {})),
        estimated=Usage(**stored.get("estimated", {})),
        cost=stored.get("cost"),
        output_or_none=stored.get("output"),
        has_output=stored.get("has_output") is True,
        error=failure_from_json(error) if error is not None else None,
        given=began if isinstance(began, int) else 0,
    )
