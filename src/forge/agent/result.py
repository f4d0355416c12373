"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from forge.core.messages import Message, Usage
from forge.core.result import Failure

Reason = Literal[
    "answer",
    "task_completion",
    "question",
    "converse",
    "max_turns",
    "max_calls",
    "max_tokens",
    "max_cost",
    "max_time",
    "loop",
    "cancelled",
    "waiting",
    "error",
]

ENDINGS: dict[str, Reason] = {"task_completion": "task_completion", "ask_question": "question", "converse": "converse"}


@dataclass(slots=True, kw_only=True)
class RunResult:
    """`messages` is all that is needed to go on: run again with it."""

    text: str
    reason: Reason
    turns: int
    messages: list[Message] = field(repr=False)
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    cost: float | None = None  # None: nobody said what tokens cost
    output: Any = None  # the structured answer, where one was asked for
    error: Failure | None = None

    @property
    def is_error(self) -> bool:
        return self.error is not None

    @property
    def content(self) -> str:
        return self.text

    @property
    def iterations(self) -> int:
        return self.turns
