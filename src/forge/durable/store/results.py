"""Encodes and decodes the stored results of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forge.agent.result import RunResult
from forge.core.messages import Message, Usage
from forge.core.plain_values import plain
from forge.durable.store.rows import RunInfo
from forge.durable.store.step_json import failure_from_json, failure_to_json


def result_of(result: RunResult) -> dict[str, Any]:
    """Encodes a run's result; its messages are stored elsewhere."""
    output = result.output
    return {
        "text": result.text,
        "reason": result.reason,
        "turns": result.turns,
        "calls": result.calls,
        "usage": result.usage._asdict(),
        "estimated": result.estimated._asdict(),
        "cost": result.cost,
        "output": output.model_dump(mode="json") if hasattr(output, "model_dump") else plain(output),
        "error": failure_to_json(result.error) if result.error is not None else None,
    }


def run_result(run: RunInfo, messages: Sequence[Message] = ()) -> RunResult:
    """Returns the result of a run that is over, or its progress."""
    stored: Mapping[str, Any] = run.result or {}
    spent: Mapping[str, Any] = stored or run.spent
    error = stored.get("error")
    return RunResult(
        text=stored.get("text", ""),
        reason=stored.get("reason", "waiting"),
        turns=spent.get("turns", 0),
        calls=spent.get("calls", 0),
        messages=list(messages),
        usage=Usage(**spent.get("usage", {})),
        estimated=Usage(**stored.get("estimated", {})),
        cost=stored.get("cost"),
        output=stored.get("output"),
        error=failure_from_json(error) if error is not None else None,
    )
