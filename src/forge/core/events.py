"""Events as data: one class per event, one wire name per class."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from forge.core.messages import InnerCall, ToolCall
from forge.core.plain_values import plain, sendable, short_name
from forge.core.result import ToolResult

LARGEST_ATTACHED = 128 * 1024  # bytes of a result's attachments in an event; what is larger is named


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Event:
    """Base of all events. `type` is the name on the wire, and `to_dict()` is the event as JSON.

    (Not frozen, and one `__repr__` for all: what is generated for twenty classes costs every start of the program.)

    Args:
        at: the time, in seconds since 1970.
        seq: the number of the event in its stream, which fills it in.
        session: the session of the run.
        agent: the name of the agent.
        task: for a sub-agent: the id of the call that it works for, after the task of that call and a slash, if any.

    Example:
        >>> TextDelta("Hello").to_dict()["event"]
        'text_delta'
    """

    type: ClassVar[str] = "event"
    at: float = field(default_factory=time.time)
    seq: int = 0
    session: str = ""
    agent: str = ""
    task: str = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"

    def masked(self, mask: Callable[[Any], Any]) -> Self:
        """Returns the event with every text in it passed through `mask`."""
        hidden = {f.name: _mask_part(getattr(self, f.name), mask) for f in fields(self) if f.name not in _COMMON}
        return replace(self, **hidden)

    def to_dict(self) -> dict[str, Any]:
        """Returns the wire form: `{event, ts, seq, session, agent, task?, call?, …}`, safe to dump as JSON."""
        wire: dict[str, Any] = {
            "event": self.type,
            "ts": self.at,
            "seq": self.seq,
            "session": self.session,
            "agent": self.agent,
        }
        if self.task:
            wire["task"] = sendable(self.task)
        for name in (f.name for f in fields(self) if f.name not in _COMMON):
            wire[name] = _to_wire(getattr(self, name), getattr(self, "call", None))
        return wire


@dataclass(slots=True, eq=False, repr=False)
class ToolStarted(Event):
    """A call begins: it has a name and arguments, and nothing is decided yet.

    Args:
        call: the call.

    Example:
        >>> ToolStarted(ToolCall("add", {"a": 1})).call.name
        'add'
    """

    type: ClassVar[str] = "tool_call_start"
    call: ToolCall


@dataclass(slots=True, eq=False, repr=False)
class ToolOutput(Event):
    """A piece of output while the tool still runs.

    Args:
        call: the call.
        text: the piece.

    Example:
        >>> ToolOutput(ToolCall("bash"), "3 tests passed").text
        '3 tests passed'
    """

    type: ClassVar[str] = "tool_output_chunk"
    call: ToolCall
    text: str


@dataclass(slots=True, eq=False, repr=False)
class ToolProgress(Event):
    """A tool reports its progress while it runs.

    Args:
        call: the call.
        title: one line for the person.
        data: details for programs.

    Example:
        >>> ToolProgress(ToolCall("index"), "Indexing", {"done": 3}).data["done"]
        3
    """

    type: ClassVar[str] = "tool_progress"
    call: ToolCall
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class ToolFailed(Event):
    """The call failed; its `ToolFinished` follows at once.

    Args:
        call: the call.
        error: what went wrong.
        error_type: the kind of the error, such as "timeout".

    Example:
        >>> ToolFailed(ToolCall("deploy"), "timed out after 30 s", "timeout").error_type
        'timeout'
    """

    type: ClassVar[str] = "error"
    call: ToolCall
    error: str
    error_type: str


@dataclass(slots=True, eq=False, repr=False)
class ToolFinished(Event):
    """The call has its result, good or bad. Each `ToolStarted` has exactly one.

    Args:
        call: the call.
        success: whether it succeeded.
        result: the result.
        seconds: how long it took.

    Example:
        >>> ToolFinished(ToolCall("add"), True, ToolResult.text("3")).result.for_llm
        '3'
    """

    type: ClassVar[str] = "tool_call_end"
    call: ToolCall
    success: bool
    result: ToolResult
    seconds: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class ToolCompleted(Event):
    """Background work of an earlier call is over.

    Args:
        call: the call that started it.
        result: the result of the work.

    Example:
        >>> ToolCompleted(ToolCall("index"), ToolResult.text("42 files")).result.for_llm
        '42 files'
    """

    type: ClassVar[str] = "tool_completed"
    call: ToolCall
    result: ToolResult


@dataclass(slots=True, eq=False, repr=False)
class ToolReconciled(Event):
    """A tool was asked whether a call of a lost worker took effect, before the run continues.

    Args:
        call: the call.
        state: "done": its result is used. "not_done": it runs now. "unknown": it does not run.
        reason: how this is known, or why it is not.

    Example:
        >>> ToolReconciled(ToolCall("transfer"), "done", "the bank has it").state
        'done'
    """

    type: ClassVar[str] = "tool_reconciled"
    call: ToolCall
    state: str
    reason: str = ""


@dataclass(slots=True, eq=False, repr=False)
class PermissionAsked(Event):
    """A person, or an approver in their place, is asked whether a call may run.

    Args:
        call: the call.
        permission: the permission that it needs.
        target: what it is about, such as a path or a command.
        rule: the rule that asks.
        others: further permissions and targets of the same question.
        origins: where values of the call come from, if this is why it asks.

    Example:
        >>> PermissionAsked(ToolCall("deploy"), "execute", "web").target
        'web'
    """

    type: ClassVar[str] = "permission_asked"
    call: ToolCall
    permission: str
    target: str
    rule: str = ""
    others: tuple[tuple[str, str], ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class PermissionAnswered(Event):
    """An approver answered.

    Args:
        call: the call that asked.
        answer: "once", "always" or "no".
        by: who answered.

    Example:
        >>> PermissionAnswered(ToolCall("deploy"), "once", by="Ada").answer
        'once'
    """

    type: ClassVar[str] = "permission_answered"
    call: ToolCall
    answer: str
    by: str = ""


@dataclass(slots=True, eq=False, repr=False)
class TextDelta(Event):
    """A piece of the model's text.

    Args:
        text: the piece.

    Example:
        >>> TextDelta("Hello").text
        'Hello'
    """

    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(slots=True, eq=False, repr=False)
class ReasoningDelta(Event):
    """A piece of the model's reasoning, or of its summary. It is not part of the answer.

    Args:
        text: the piece.

    Example:
        >>> ReasoningDelta("First I count the words.").to_dict()["event"]
        'reasoning_delta'
    """

    type: ClassVar[str] = "reasoning_delta"
    text: str


@dataclass(slots=True, eq=False, repr=False)
class ToolArgumentsDelta(Event):
    """A piece of the arguments of a call that the model is still writing. The `ToolStarted` of the call follows.

    Args:
        call: the call, without its arguments.
        text: the piece of JSON.

    Example:
        >>> ToolArgumentsDelta(ToolCall("file_write", id="c1"), '{"path": ').call.name
        'file_write'
    """

    type: ClassVar[str] = "tool_arguments_delta"
    call: ToolCall
    text: str


@dataclass(slots=True, eq=False, repr=False)
class Retrying(Event):
    """The model could not be asked, or its answer broke off: it is asked again after a wait.

    Args:
        reason: what went wrong.
        attempt: how often the model was asked so far.
        seconds: the wait before the next try.
        status: the HTTP status, such as 429 for a rate limit; 0 where there is none.

    Example:
        >>> Retrying("HTTP 429: slow down", attempt=1, seconds=2.5, status=429).seconds
        2.5
    """

    type: ClassVar[str] = "retrying"
    reason: str
    attempt: int = 1
    seconds: float = 0.0
    status: int = 0


@dataclass(slots=True, eq=False, repr=False)
class MessageReceived(Event):
    """A message that a person sent to the run in progress is part of the conversation now.

    Args:
        text: the message.

    Example:
        >>> MessageReceived("Use tabs, please.").to_dict()["event"]
        'message_received'
    """

    type: ClassVar[str] = "message_received"
    text: str


@dataclass(slots=True, eq=False, repr=False)
class ContextShortened(Event):
    """The model is sent less than the history holds. The history keeps everything.

    Args:
        repeats: results that became references to the same text above.
        outputs: old outputs that were replaced by notes.
        summaries: 1 where older messages became a summary.
        tokens: what references and notes save in each later request, about.
        thoughts: turns whose reasoning was left out.
        by: "provider" if the model's provider did it, as `options={"context_management": …}` asks for.

    Example:
        >>> ContextShortened(outputs=12, tokens=20_400).to_dict()["outputs"]
        12
    """

    type: ClassVar[str] = "context_shortened"
    repeats: int = 0
    outputs: int = 0
    summaries: int = 0
    tokens: int = 0
    thoughts: int = 0
    by: str = ""


@dataclass(slots=True, eq=False, repr=False)
class TurnFinished(Event):
    """The model answered and its calls have results.

    Args:
        turn: the number of the turn.
        usage: the tokens of the turn.

    Example:
        >>> TurnFinished(1, {"input": 100, "output": 10}).turn
        1
    """

    type: ClassVar[str] = "turn_finished"
    turn: int
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class RunStarted(Event):
    """An agent begins to work on a prompt.

    Args:
        prompt: the prompt.

    Example:
        >>> RunStarted("Count the words.").prompt
        'Count the words.'
    """

    type: ClassVar[str] = "run_started"
    prompt: str = ""


@dataclass(slots=True, eq=False, repr=False)
class RunFinished(Event):
    """The last event of a run, however it ended.

    Args:
        text: the answer, or what the model said last; empty where it said nothing.
        reason: how the run ended.
        turns: how often the model was asked.
        usage: the tokens.
        calls: how many tools were called.
        cost: the cost; None where the price is unknown.
        error: why the run failed; empty where it did not.
        run: the id of a durable run. Such a run may end several times: it waits, and it is resumed. Its figures are
            then those of the whole run so far.
        estimated: how many of the tokens are estimates, because the run was cut before the provider counted.

    Example:
        >>> RunFinished("Hello!", "answer", 1).reason
        'answer'
    """

    type: ClassVar[str] = "run_finished"
    text: str
    reason: str
    turns: int
    usage: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 0
    cost: float | None = None
    error: str = ""
    run: str = ""
    estimated: int = 0


@dataclass(slots=True, eq=False, repr=False)
class SessionTitled(Event):
    """The model gave a session its title.

    Args:
        title: the title.
        usage: the tokens that it cost.
        cost: the cost; None where the price is unknown.

    Example:
        >>> SessionTitled("Refund of order 7").title
        'Refund of order 7'
    """

    type: ClassVar[str] = "session_titled"
    title: str
    usage: Mapping[str, Any] = field(default_factory=dict)
    cost: float | None = None


@dataclass(slots=True, eq=False, repr=False)
class SessionRewound(Event):
    """A session was rewound: its conversation, and the files that its tools changed.

    Args:
        turn: the last turn of the conversation now.
        removed: how many messages were removed.
        restored: how many messages of an earlier rewind came back.
        files: the paths that were changed.

    Example:
        >>> SessionRewound(turn=3, removed=4, files=("parser.py",)).turn
        3
    """

    type: ClassVar[str] = "session_rewound"
    turn: int
    removed: int = 0
    restored: int = 0
    files: tuple[str, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class EventsMissed(Event):
    """A listener of `run.events()` did not get some events: it came late or was slow, and they are no longer kept.

    Args:
        count: how many are missing here; 0 where nobody knows.

    Example:
        >>> EventsMissed(12).count
        12
    """

    type: ClassVar[str] = "events_missed"
    count: int


_COMMON = frozenset(f.name for f in fields(Event))


def _mask_part(value: Any, mask: Callable[[Any], Any]) -> Any:
    if isinstance(value, ToolCall):
        name, id = mask(short_name(value.name)), short_name(value.id)
        return replace(value, name=name, id=id, arguments=mask(value.arguments))
    if isinstance(value, ToolResult):
        return value.with_attachments_within(LARGEST_ATTACHED).masked(mask)
    if isinstance(value, tuple):  # of texts, or of tuples of them
        return tuple(tuple(one) if isinstance(one, list) else one for one in mask(value))
    return mask(value)


def _to_wire(value: Any, call: ToolCall | None) -> Any:
    if isinstance(value, ToolCall):
        name, id = short_name(sendable(value.name)), short_name(sendable(value.id))
        parent = {"parent": short_name(sendable(value.parent))} if isinstance(value, InnerCall) else {}
        return {"id": id, "name": name, "arguments": plain(value.arguments), **parent}
    if isinstance(value, ToolResult):
        return value.to_dict(id=call.id, name=call.name) if call is not None else value.to_dict()
    return sendable(value) if isinstance(value, str) else plain(value)
