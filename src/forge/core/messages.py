"""The conversation, in a form no provider owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from os import urandom
from typing import Any, Literal, NamedTuple

from forge.core.result import Attachment

Role = Literal["system", "user", "assistant", "tool"]

_process = urandom(5).hex()
_numbers = count(1)


def _new_id() -> str:
    return f"call_{_process}{next(_numbers):x}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool. `arguments` is an object, or JSON text still to be parsed and checked."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = field(default_factory=_new_id)
    server: str = "local"


class Usage(NamedTuple):
    """Tokens that were paid for. `cached` are those of the input that came from the provider's cache."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def plus(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)

    @property
    def total(self) -> int:
        return self.input + self.output


_NOTHING_PAID = Usage()

Finish = Literal["", "stop", "calls", "length", "refused"]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the history."""

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""  # for role "tool": the call this answers
    attachments: tuple[Attachment, ...] = ()
    finish: Finish = ""  # why the model stopped; "length": it was cut, and its last call may be incomplete
    usage: Usage = _NOTHING_PAID
    extra: Mapping[str, Any] = field(default_factory=dict)  # what its provider wants to see again, such as thinking
    is_error: bool = False  # for role "tool": the call failed


def unanswered_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Calls the history still owes a result, so that a stopped run can simply be run again."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        elif message.role == "assistant":
            return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()
