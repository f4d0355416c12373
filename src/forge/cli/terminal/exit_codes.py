"""The end of a run for people and programs: a message and an exit code."""

from __future__ import annotations

from dataclasses import dataclass

from forge.agent.result import RunResult
from forge.core.result import Failure

FINE = frozenset({"answer", "task_completion", "converse"})
WAITS = frozenset({"question", "waiting"})

STOPPED = {
    "length": "the model's own limit of output tokens cut the answer; its option max_tokens sets another",
    "max_turns": "the limit of turns was reached; --max-turns sets another",
    "max_calls": "the limit of tool calls was reached",
    "max_tokens": "the limit of tokens was reached",
    "max_cost": "the limit of cost was reached",
    "max_time": "the limit of time was reached",
    "loop": "the agent went in circles",
    "cancelled": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a run; `text` is the answer, or the last text of the model."""

    reason: str
    text: str = ""
    turns: int = 0
    seconds: float = 0.0
    cost: float | None = None
    error: Failure | None = None

    @classmethod
    def of(cls, result: RunResult, seconds: float) -> Ending:
        return cls(
            reason=result.reason,
            text=result.text,
            turns=result.turns,
            seconds=seconds,
            cost=result.cost,
            error=result.error,
        )

    @property
    def exit_code(self) -> int:
        if self.reason in FINE:
            return 0
        if self.reason in WAITS:
            return 3
        if self.reason == "cancelled":
            return 130
        return 4 if self.reason == "length" or self.reason.startswith("max_") else 1

    @property
    def message(self) -> str:
        """Why there is no answer; empty if there is one."""
        if self.error is not None:
            return f"Error: {self.error.text()}"
        if self.reason == "answer" and self.turns and not self.text.strip():
            return "The model gave no answer."
        return f"Stopped: {STOPPED[self.reason]}." if self.reason in STOPPED else ""
