"""The messages of a conversation, independent of any provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from os import urandom
from typing import Any, Literal, NamedTuple

from forge.core.result import Attachment

Role = Literal["system", "user", "assistant", "tool"]

_prefix = f"call_{urandom(5).hex()}_"
_numbers = count(1)
_UNSAID: Any = object()  # another than None, which is refused as arguments


def _new_id() -> str:
    return f"{_prefix}{next(_numbers)}"


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """A model's request to run a tool. `arguments` is an object, or JSON text still to be parsed and checked."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = field(default_factory=_new_id)
    server: str = "local"

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | str = _UNSAID,
        id: str = _UNSAID,
        server: str = "local",
    ) -> None:  # by hand: a dataclass that is frozen fills its fields at twice the price
        _fill_name(self, name)
        _fill_arguments(self, {} if arguments is _UNSAID else arguments)
        _fill_id(self, f"{_prefix}{next(_numbers)}" if id is _UNSAID else id)
        _fill_server(self, server)


def _setters(kind: type) -> Iterator[Callable[[object, object], None]]:
    """Returns functions that fill the fields of a frozen class, in their order: only for its `__init__`."""
    return (getattr(kind, one.name).__set__ for one in fields(kind))


_fill_name, _fill_arguments, _fill_id, _fill_server = _setters(ToolCall)


class Usage(NamedTuple):
    """Tokens that were paid for. `cached` counts input tokens that came from the provider's cache."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def plus(self, other: Usage) -> Usage:
        if other is _NOTHING_PAID:
            return self
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)

    @property
    def total(self) -> int:
        return self.input + self.output


_NOTHING_PAID = Usage()

Finish = Literal["", "stop", "calls", "length", "refused"]


@dataclass(frozen=True, slots=True, init=False)
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

    def __init__(
        self,
        role: Role,
        text: str = "",
        tool_calls: tuple[ToolCall, ...] = (),
        call_id: str = "",
        attachments: tuple[Attachment, ...] = (),
        finish: Finish = "",
        usage: Usage = _NOTHING_PAID,
        extra: Mapping[str, Any] = _UNSAID,
        is_error: bool = False,
    ) -> None:
        _fill_role(self, role)
        _fill_text(self, text)
        _fill_tool_calls(self, tool_calls)
        _fill_call_id(self, call_id)
        _fill_attachments(self, attachments)
        _fill_finish(self, finish)
        _fill_usage(self, usage)
        _fill_extra(self, {} if extra is _UNSAID else extra)
        _fill_is_error(self, is_error)


(
    _fill_role,
    _fill_text,
    _fill_tool_calls,
    _fill_call_id,
    _fill_attachments,
    _fill_finish,
    _fill_usage,
    _fill_extra,
    _fill_is_error,
) = _setters(Message)


def unanswered_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Returns the calls without a result, so that a stopped run can simply be run again."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        elif message.role == "assistant":
            return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()
