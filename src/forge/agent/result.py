"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from forge.core.errors import ErrorKind, ToolError
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
    "length",
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
    """The result of a run. To continue the conversation, run again with `history=result.messages`.

    Args:
        text: the answer, or what the model said last; "" where it said nothing. It is never a sentence of Forge's.
        reason: how the run ended, such as "answer", "question", "max_turns" or "error". With "length", the model's own
            limit of output tokens cut the answer, such as its option `max_tokens`; "max_tokens" is `Limits(tokens=…)`.
        turns: how often the model was asked.
        messages: the whole conversation.
        usage: the tokens.
        calls: how many tools were called.
        cost: the cost; None where the price of tokens is unknown.
        output: the structured answer of `Agent(output=…)`. It is None where the run ended without one: look at `error`
            and `reason` first.
        error: why the run failed; None where it did not.
        estimated: the part of `usage` that Forge estimated, because the time was up, or the run was cancelled, before
            the provider counted.
        given: how many of the messages the run was given, as a history.

    Example:
        >>> result = Agent(Scripted("Hello!")).run_sync("Hi")
        >>> result.text, result.reason, result.turns
        ('Hello!', 'answer', 1)
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
    estimated: Usage = field(default_factory=Usage)
    given: int = 0

    @property
    def new_messages(self) -> list[Message]:
        """The messages that this run added: the instructions of a new conversation, the prompt, answers, results."""
        return self.messages[self.given :]

    @property
    def is_error(self) -> bool:
        return self.error is not None

    @property
    def content(self) -> str:
        return self.text

    @property
    def iterations(self) -> int:
        return self.turns

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else f"{self.text[:60]}…"
        output = "" if self.output is None else f", output={type(self.output).__name__}"
        error = "" if self.error is None else f", error={self.error.message[:60]!r}"
        name = type(self).__name__
        return f"{name}({text!r}, reason={self.reason!r}, turns={self.turns}, calls={self.calls}{output}{error})"


def check_output(result: RunResult[OutputT]) -> OutputT:
    """Returns the structured answer of a run. Raises `ToolError` where the run ended without one."""
    if result.output is not None or (result.error is None and result.reason == "answer"):
        return result.output
    message = f"reading the output of a run: the run ended without one ({result.reason})"
    if result.error is None:
        raise ToolError(message, ErrorKind.USER, "Look at RunResult.text: run(prompt) returns it.")
    raise ToolError(f"{message}: {result.error.message}", result.error.kind, result.error.suggestion)
