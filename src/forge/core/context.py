"""The context of a tool call: the call, its scope and its services."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.core.held_directories import HeldDirectory, hold
from forge.core.result import ToolResult
from forge.core.spec import Permission, PermissionName, ToolSpec

if TYPE_CHECKING:  # every tool imports this module, and listing tools needs neither calls nor events
    from forge.core.activity import ActivityStream
    from forge.core.events import Event
    from forge.core.messages import ToolCall

LOCAL = "local"
"""The session of a scope that names none: one for the whole executor. A run of an agent never shares it."""


def new_session() -> str:
    """Returns a name that no other session has."""
    from uuid import uuid4

    return f"session-{uuid4().hex[:16]}"


_HERE = Path()  # the directory that is current when it is used: not one, so it is not held


class Root(NamedTuple):
    """A directory outside the workspace that tools may reach too."""

    path: Path
    writable: bool = False


class _HeldDirectories:
    """Holds directories outside the fields: another process receives names and holds the directories itself."""

    __slots__ = ("_held",)
    _held: tuple[HeldDirectory | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(_HeldDirectories):
    """The session, agent, user and directories of a call. It is equal for every call of a turn.

    The workspace and the roots are held open from here on: a later replacement is not reached.
    """

    session_id: str = LOCAL  # whose answers, jobs and files these are: name one for each user that is served
    message_id: str = ""  # the turn: calls of one model message share it
    agent: str = "main"
    channel: str = ""
    chat_id: str = ""
    workspace: Path = field(default_factory=Path.cwd)
    user: str = ""
    roots: tuple[Root, ...] = ()  # beside the workspace
    writes: bool = True  # False: no file may be changed
    skills: tuple[str, ...] = ("skills",)  # folders of skills, which are protected; relative ones are the workspace's

    def __post_init__(self) -> None:
        directories = () if self.workspace == _HERE else (self.workspace, *(root.path for root in self.roots))
        object.__setattr__(self, "_held", tuple(hold(path) for path in directories))

    @property
    def names_session(self) -> bool:
        """Says whether the caller named this session."""
        return self.session_id not in ("", LOCAL)

    def in_turn(self, message_id: str) -> Scope:
        """Returns a copy for the calls of another turn, which holds the same directories and looks up none again."""
        if not hasattr(self, "_held"):  # it came from another process, as names
            return replace(self, message_id=message_id)
        copy = object.__new__(Scope)
        for fill, value in zip(_FILLS, _copied(self), strict=True):
            fill(copy, value)
        _fill_turn(copy, message_id)
        return copy


_COPIED = ("_held", *(one.name for one in fields(Scope) if one.name != "message_id"))
_copied = attrgetter(*_COPIED)
_FILLS = [getattr(Scope, name).__set__ for name in _COPIED]
_fill_turn = Scope.__dict__["message_id"].__set__


class Gate(Protocol):
    """Decides whether a call may do something to a target. Raises `ToolError` if not."""

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None: ...


class ClosedGate:
    """Refuses everything: the default, so that nothing is permitted by accident."""

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        raise ToolError(
            f"{permission} {target}".rstrip() + " is not permitted: nothing guards this call",
            ErrorKind.PERMISSION,
            "Run it through an executor whose steps include authorize(gate).",
        )


class Runnable(Protocol):
    """The part of a tool that the context needs."""

    spec: ToolSpec
    needs_person: bool

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]: ...


Work = Awaitable[object] | Callable[[], Awaitable[object]]


class Background(Protocol):
    """Runs work after its call returned. The executor provides it."""

    def start(self, ctx: ToolContext, work: Work) -> None: ...
    def completion(self, ctx: ToolContext) -> Callable[[object], None]: ...


@cache
def _silent_stream() -> ActivityStream:
    """Returns the stream of a context without one: it has no listeners."""
    from forge.core.activity import ActivityStream

    return ActivityStream()


_NO_ARGUMENTS: Mapping[str, Any] = {}
_CLOSED = ClosedGate()
_NOWHERE = Scope(workspace=Path())


class ToolContext:
    """One call on its way through the steps into the tool. Each call has its own, so nothing in it is shared."""

    __slots__ = (
        "_asking",
        "_background",
        "_excused",
        "activity",
        "arguments",
        "call",
        "cancelled",
        "gate",
        "outcome",
        "scope",
        "spec",
        "tool",
    )
    arguments: Mapping[str, Any]  # validated; `call.arguments` is what was sent
    cancelled: bool  # set when time is up or the run was stopped: for tools that look now and then
    outcome: ToolResult | None  # the result, where screening steps look at one that is there already

    def __init__(
        self,
        call: ToolCall,
        tool: Runnable,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
        scope: Scope = _NOWHERE,
        activity: ActivityStream | None = None,
        background: Background | None = None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.spec = tool.spec
        self.arguments = arguments
        self.scope = scope
        self.activity = activity if activity is not None else _silent_stream()
        self.gate: Gate = _CLOSED
        self.cancelled = False
        self.outcome = None
        self._asking = 0.0  # since when a person is asked
        self._excused = 0.0
        self._background = background

    def replace(self, **fields: Any) -> ToolContext:
        """Returns a changed copy, for a step to pass on."""
        copy = ToolContext(self.call, self.tool, self.arguments, self.scope, self.activity, self._background)
        for name, value in {"gate": self.gate, **fields}.items():
            setattr(copy, name, value)
        return copy

    @property
    def key(self) -> str:
        """The stable idempotency key of this call: the same when the call is run again after a crash."""
        return f"{self.scope.session_id}/{self.scope.message_id}/{self.call.id}"

    def emit(self, event: Event) -> None:
        event.session, event.agent = self.scope.session_id, self.scope.agent
        self.activity.emit(event)

    def output(self, text: str) -> None:
        """Shows a piece of output while the tool still runs."""
        if self.activity.listening:
            from forge.core.events import ToolOutput

            self.emit(ToolOutput(self.call, text))

    def progress(self, title: str, **data: Any) -> None:
        """Shows the tool's current activity."""
        if self.activity.listening:
            from forge.core.events import ToolProgress

            self.emit(ToolProgress(self.call, title, data))

    async def require(self, permission: Permission | PermissionName, target: str = "") -> None:
        """Asks for a permission that the arguments did not reveal. Raises `ToolError` if refused."""
        with self.asking():
            await self.gate.require(self, Permission(permission), target)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stops the tool's clock while a person is asked."""
        started = self._asking = time.monotonic()
        try:
            yield
        finally:
            self._asking = 0.0
            self._excused += time.monotonic() - started

    @property
    def excused(self) -> float:
        """Seconds that this call waited for a person: they are not the tool's time."""
        return self._excused + (time.monotonic() - self._asking if self._asking else 0.0)

    def background(self, work: Work, note: str) -> ToolResult:
        """Runs `work` after the tool returned; its result arrives once, as `ToolCompleted`."""
        self._owner().start(self, work)
        return ToolResult(for_llm=note, pending=True)

    def completion(self) -> Callable[[object], None]:
        """Returns a callback for work that ends somewhere else: its first value is the result of that work."""
        return self._owner().completion(self)

    @property
    def owner(self) -> Background | None:
        """The owner of this call's background work: a sub-agent's work has the same owner."""
        return self._background

    def _owner(self) -> Background:
        if self._background is None:
            raise RuntimeError("background work needs an executor; this context has none")
        return self._background
