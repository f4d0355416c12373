"""Decides how a run ends: after these calls, with an error, for a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forge.agent.result import ENDINGS, Reason, RunResult
from forge.agent.run import Run
from forge.core.errors import ErrorKind
from forge.core.messages import ToolCall
from forge.core.provider import ProviderError
from forge.core.result import Failure, ToolResult


def find_ending(
    run: Run, calls: Sequence[ToolCall], results: Mapping[str, ToolResult], *, is_over: bool
) -> RunResult | None:
    """Returns the ending that these results cause, or None: a hand-over, a loop, a second cut, too many calls.

    `is_over`: no call was left for this turn and the model knew, so it was the one in which it could only answer.
    """
    for call in calls:
        result = results[call.id]
        spec = run.executor.registry.find(call.name).spec
        if spec.ends_turn and result.success:
            shown = "" if result.silent else result.for_user or result.for_llm
            return end_run(
                run, correct_reason(run, ENDINGS.get(spec.name, "answer")), shown, output=result.data.get("output")
            )
    for call in calls:
        data = results[call.id].data
        if data.get("stop") == "loop":
            return end_run(run, "loop", error=Failure(data.get("stop_reason", "it went in circles"), ErrorKind.USER))
    if run.conversation.messages[-len(calls) - 1].finish == "length":
        run.cuts += 1
        if run.cuts > 1:
            return end_run(run, "error", error=Failure("the model's answer was cut inside a call twice in a row"))
    else:
        run.cuts = 0
    return end_run(run, "max_calls") if is_over else None


def correct_reason(run: Run, reason: Reason) -> Reason:
    """Replaces the reason for an answer of a model that wanted more calls than it was allowed."""
    return "max_calls" if run.is_short_of_calls and reason in ("answer", "task_completion") else reason


def end_with_error(run: Run, error: ProviderError) -> RunResult:
    return end_run(run, "error", error=Failure(error.message, error.kind, error.suggestion, error.passing, error))


def end_run(run: Run, reason: Reason, text: str = "", *, error: Failure | None = None, output: Any = None) -> RunResult:
    """Builds the result with the model's last text: "" where it said nothing. `reason` and `error` tell the rest."""
    if not text:
        messages = run.conversation.messages[run.first :]
        text = next(
            (message.text for message in reversed(messages) if message.role == "assistant" and message.text), ""
        )
    beside = run.conversation.unbilled
    return RunResult(
        text=text,
        reason=reason,
        turns=run.spent.turns,
        messages=run.conversation.messages,
        usage=run.spent.usage.plus(beside),
        calls=run.spent.calls,
        cost=run.spent.cost(run.limits.price, beside),
        output=output,
        error=error,
        estimated=run.spent.estimated,
    )
