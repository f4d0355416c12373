"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from forge.core.messages import Message, Usage
from forge.core.result import Failure

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)  # `RunResult` alone stays a valid annotation
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")

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
class RunResult(Generic[OutputT]):
    """The result of a run. To continue the run, run again with `messages`.

    `output` is the structured answer of `Agent(output=…)`. It is None where none was asked for, and where the run ended
    without one: look at `error` and `reason` first.
    """

    text: str
    reason: Reason
    turns: int
    messages: list[Message] = field(repr=False)
    usage: Usage = field(default_factory=Usage)
    calls: int = 0
    cost: float | None = None  # None: the price of tokens is not known
    output: OutputT = None  # type: ignore[assignment]  # typed for the runs that end with one
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
