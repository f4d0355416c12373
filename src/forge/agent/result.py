"""The result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from forge.core.errors import ErrorKind, ToolError
from forge.core.events import RunFinished
from forge.core.messages import Message, Usage
from forge.core.plain_values import visible
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

ANSWER = "final_answer"  # the tool of a structured answer
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
        output_or_none: the structured answer of `Agent(output=…)`; None where the run ended without one.
        has_output: whether the run ended with a structured answer.
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
    output_or_none: OutputT | None = None
    has_output: bool = False  # an answer may be None, too
    error: Failure | None = None
    estimated: Usage = field(default_factory=Usage)
    given: int = 0

    @property
    def output(self) -> OutputT:
        """The structured answer of `Agent(output=…)`. Raises `ToolError` where the run ended without one."""
        if self.has_output:
            return cast(OutputT, self.output_or_none)
        message = f"reading the output of a run: the run ended without one ({self.reason})"
        if self.error is None:
            hint = "An agent needs Agent(output=…) for it. RunResult.text has what the model said last."
            raise ToolError(message, ErrorKind.USER, hint)
        raise ToolError(f"{message}: {self.error.message}", self.error.kind, self.error.suggestion)

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
        output = f", output={type(self.output_or_none).__name__}" if self.has_output else ""
        error = "" if self.error is None else f", error={self.error.message[:60]!r}"
        name = type(self).__name__
        return f"{name}({text!r}, reason={self.reason!r}, turns={self.turns}, calls={self.calls}{output}{error})"

    def _repr_html_(self) -> str:
        """Returns what a notebook shows. Everything is escaped: the words of a model are neither HTML nor Markdown,
        whose images would send data away, nor formulas, which `pre` keeps as they are.
        """
        from html import escape

        shown = _as_json(self.output_or_none) if self.has_output else self.text
        cost = "" if self.cost is None else f", {self.cost:.4f} USD"
        error = "" if self.error is None else f"\n{self.error.text()}"
        facts = f"{self.reason}: {self.turns} turns, {self.calls} calls, {self.usage.total:,} tokens{cost}{error}"
        blocks = (
            f'<pre style="white-space: pre-wrap{style}">{escape(visible(text))}</pre>'
            for text, style in ((shown, ""), (facts, "; opacity: 0.6"))
            if text
        )
        return "".join(blocks)


REFUSED = "refused_answer"  # in the data of a structured answer that validators refuse, and in its message
UNUSABLE = "unusable"  # its value where the model is not asked again


def _as_json(value: Any) -> str:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(Any).dump_json(value, indent=2).decode()
    except ValueError:  # something that is no JSON, such as a class of the program
        return repr(value)


class AnswerRefused(ToolError):
    """The model's answer cannot be used, and the model is not asked again: the run ends."""


def make_finished_event(result: RunResult[Any], run: str = "") -> RunFinished:
    """Returns the last event of a run with this result. `run`: the id of a durable run."""
    return RunFinished(
        text=result.text,
        reason=result.reason,
        turns=result.turns,
        usage=result.usage._asdict(),
        calls=result.calls,
        cost=result.cost,
        error=result.error.text() if result.error is not None else "",
        run=run,
        estimated=result.estimated.total,
    )
