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
UNSAID: Any = object()  # another than None, which is refused as arguments


def _new_id() -> str:
    return f"{_prefix}{next(_numbers)}"


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """A model's request to run a tool.

    Args:
        name: the tool's name.
        arguments: an object, or JSON text that is still to be parsed and checked.
        id: the id of the call; by default a new one.
        server: the server whose tool it is; "local" for the agent's own.

    Example:
        >>> ToolCall("add", {"a": 1, "b": 2}).arguments["b"]
        2
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = field(default_factory=_new_id)
    server: str = "local"

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Any] | str = UNSAID,
        id: str = UNSAID,
        server: str = "local",
    ) -> None:  # by hand: a dataclass that is frozen fills its fields at twice the price
        _fill_name(self, name)
        _fill_arguments(self, {} if arguments is UNSAID else arguments)
        _fill_id(self, f"{_prefix}{next(_numbers)}" if id is UNSAID else id)
        _fill_server(self, server)


@dataclass(frozen=True, slots=True, init=False)
class InnerCall(ToolCall):
    """A call that a tool makes while it runs, such as a line of a script in `run_code`.

    Args:
        parent: the id of the call that makes it.

    Example:
        >>> InnerCall("add", {"a": 1, "b": 2}, id="call_1.1", parent="call_1").parent
        'call_1'
    """

    parent: str = ""

    def __init__(
        self, name: str, arguments: Mapping[str, Any] | str, id: str, server: str = "local", parent: str = ""
    ) -> None:
        ToolCall.__init__(self, name, arguments, id, server)
        object.__setattr__(self, "parent", parent)


def make_setters(kind: type) -> Iterator[Callable[[object, object], None]]:
    """Returns functions that fill the fields of a frozen class, in their order: only while an object is made."""
    return (getattr(kind, one.name).__set__ for one in fields(kind))


_fill_name, _fill_arguments, _fill_id, _fill_server = make_setters(ToolCall)


class Usage(NamedTuple):
    """Tokens that were paid for.

    Args:
        input: tokens of the prompts, those from and for the cache included.
        output: tokens of the answers, reasoning included.
        cached: input tokens that were read from the provider's cache.
        cache_writes: input tokens that were written to the provider's cache.
        reasoning: output tokens of reasoning, where the provider counts them.

    Example:
        >>> Usage(input=100, output=20).plus(Usage(input=10)).total
        130
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def plus(self, other: Usage) -> Usage:
        if other is _NOTHING_PAID:
            return self
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_writes + other.cache_writes,
            self.reasoning + other.reasoning,
        )

    def minus(self, other: Usage) -> Usage:
        """Returns the tokens without those of an earlier count."""
        if other == _NOTHING_PAID:
            return self
        return Usage(*(now - before for now, before in zip(self, other, strict=True)))

    @property
    def total(self) -> int:
        return self.input + self.output


_NOTHING_PAID = Usage()

Finish = Literal["", "stop", "calls", "length", "refused"]


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One entry of the history.

    Args:
        role: "system", "user", "assistant" or "tool".
        text: the text.
        tool_calls: the calls of an assistant's message.
        call_id: of a tool's message: the call that it answers.
        attachments: images and files.
        finish: why the model stopped; "length": it was cut, and its last call may be incomplete.
        usage: the tokens of an assistant's message.
        extra: data that the provider wants to see again, such as reasoning items, signatures and encrypted content;
            one key for each API. It is stored with the session and sent back to the model that wrote it.
        is_error: of a tool's message: the call failed.

    Example:
        >>> Message("user", "Hello").text
        'Hello'
    """

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
        extra: Mapping[str, Any] = UNSAID,
        is_error: bool = False,
    ) -> None:
        _fill_role(self, role)
        _fill_text(self, text)
        _fill_tool_calls(self, tool_calls)
        _fill_call_id(self, call_id)
        _fill_attachments(self, attachments)
        _fill_finish(self, finish)
        _fill_usage(self, usage)
        _fill_extra(self, {} if extra is UNSAID else extra)
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
) = make_setters(Message)


def unanswered_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Returns the calls without a result, so that a stopped run can simply be run again.

    Args:
        messages: a history.

    Example:
        >>> [call.name for call in unanswered_calls([Message("assistant", tool_calls=(ToolCall("add"),))])]
        ['add']
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.call_id)
        elif message.role == "assistant":
            return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()
