"""Events as data: one class per event, one wire name per class."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from forge.core.messages import ToolCall
from forge.core.plain_values import plain, sendable, short_name
from forge.core.result import ToolResult

LARGEST_ATTACHED = 128 * 1024  # bytes of a result's attachments in an event; what is larger is named


@dataclass(slots=True, eq=False, kw_only=True)
class Event:
    """Base of all events. `type` is the name on the wire; the stream fills in `seq`, the scope the rest.

    (Not frozen: a dozen frozen classes would cost every start of the program five milliseconds.)
    """

    type: ClassVar[str] = "event"
    at: float = field(default_factory=time.time)
    seq: int = 0
    session: str = ""
    agent: str = ""

    def masked(self, mask: Callable[[Any], Any]) -> Self:
        """Returns the event with every text in it passed through `mask`."""
        hidden = {f.name: _mask_part(getattr(self, f.name), mask) for f in fields(self) if f.name not in _COMMON}
        return replace(self, **hidden)

    def to_dict(self) -> dict[str, Any]:
        """Returns the wire form: `{event, ts, seq, session, agent, call?, …}`, safe to dump as JSON."""
        wire: dict[str, Any] = {
            "event": self.type,
            "ts": self.at,
            "seq": self.seq,
            "session": self.session,
            "agent": self.agent,
        }
        for name in (f.name for f in fields(self) if f.name not in _COMMON):
            wire[name] = _to_wire(getattr(self, name), getattr(self, "call", None))
        return wire


@dataclass(slots=True, eq=False)
class ToolStarted(Event):
    """A call begins: it has a name and arguments, and nothing is decided yet."""

    type: ClassVar[str] = "tool_call_start"
    call: ToolCall


@dataclass(slots=True, eq=False)
class ToolOutput(Event):
    """A piece of output while the tool still runs."""

    type: ClassVar[str] = "tool_output_chunk"
    call: ToolCall
    text: str


@dataclass(slots=True, eq=False)
class ToolProgress(Event):
    """A tool reports its progress while it runs."""

    type: ClassVar[str] = "tool_progress"
    call: ToolCall
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ToolFailed(Event):
    """The call failed; its `ToolFinished` follows at once."""

    type: ClassVar[str] = "error"
    call: ToolCall
    error: str
    error_type: str


@dataclass(slots=True, eq=False)
class ToolFinished(Event):
    """The call has its result, good or bad. Each `ToolStarted` has exactly one."""

    type: ClassVar[str] = "tool_call_end"
    call: ToolCall
    success: bool
    result: ToolResult
    seconds: float = 0.0


@dataclass(slots=True, eq=False)
class ToolCompleted(Event):
    """Background work of an earlier call is over."""

    type: ClassVar[str] = "tool_completed"
    call: ToolCall
    result: ToolResult


@dataclass(slots=True, eq=False)
class PermissionAsked(Event):
    """A person, or an approver in their place, is asked whether a call may run."""

    type: ClassVar[str] = "permission_asked"
    call: ToolCall
    permission: str
    target: str
    rule: str = ""
    others: tuple[tuple[str, str], ...] = ()  # further permissions and targets of the same question


@dataclass(slots=True, eq=False)
class PermissionAnswered(Event):
    """The answer, and who gave it."""

    type: ClassVar[str] = "permission_answered"
    call: ToolCall
    answer: str
    by: str = ""


@dataclass(slots=True, eq=False)
class TextDelta(Event):
    """A piece of the model's text."""

    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(slots=True, eq=False)
class TurnFinished(Event):
    """The model answered and its calls have results."""

    type: ClassVar[str] = "turn_finished"
    turn: int
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class RunStarted(Event):
    """An agent begins to work on a prompt."""

    type: ClassVar[str] = "run_started"
    prompt: str = ""


@dataclass(slots=True, eq=False)
class RunFinished(Event):
    """The last event of a run, however it ended."""

    type: ClassVar[str] = "run_finished"
    text: str
    reason: str
    turns: int
    usage: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 0
    cost: float | None = None
    error: str = ""


_COMMON = frozenset(f.name for f in fields(Event))


def _mask_part(value: Any, mask: Callable[[Any], Any]) -> Any:
    if isinstance(value, ToolCall):
        name, id = mask(short_name(value.name)), short_name(value.id)
        return replace(value, name=name, id=id, arguments=mask(value.arguments))
    if isinstance(value, ToolResult):
        return value.with_attachments_within(LARGEST_ATTACHED).masked(mask)
    return mask(value)


def _to_wire(value: Any, call: ToolCall | None) -> Any:
    if isinstance(value, ToolCall):
        name, id = short_name(sendable(value.name)), short_name(sendable(value.id))
        return {"id": id, "name": name, "arguments": plain(value.arguments)}
    if isinstance(value, ToolResult):
        return value.to_dict(id=call.id, name=call.name) if call is not None else value.to_dict()
    return sendable(value) if isinstance(value, str) else plain(value)
