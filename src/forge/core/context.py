"""The context of a tool call: the call, its scope and its services."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, runtime_checkable

from forge.core.client import CallClient, LogLevel
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import HeldDirectory, hold
from forge.core.result import ToolResult
from forge.core.spec import Permission, PermissionName, ToolSpec

if TYPE_CHECKING:  # every tool imports this module, and listing tools needs neither calls nor events
    from forge.core.activity import ActivityStream
    from forge.core.events import Event
    from forge.core.messages import InnerCall, ToolCall

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", covariant=True, default=Any)  # `ToolContext` alone stays a valid annotation
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT", covariant=True)

LOCAL = "local"
"""The session of a scope that names none: one for the whole executor. A run of an agent never shares it."""


entered: ContextVar[tuple[Hashable, ...]] = ContextVar("entered", default=())
"""What the current task is inside of: an approver, a run of a session, an app that starts. Who would wait for itself
finds that here, and refuses.
"""


def new_session() -> str:
    """Returns a name that no other session has."""
    return f"session-{os.urandom(8).hex()}"


_HERE = Path()  # the directory that is current when it is used: not one, so it is not held


class CurrentDirectory(PosixPath):
    """The workspace of a scope that was given none: the current directory. No `.forge/` is made there."""


class LayerMount(NamedTuple):
    """A copy-on-write layer over a folder, for the programs of a trial run."""

    folder: str
    upper: str  # holds the changes
    work: str  # the overlay's own directory
    how: str  # "overlay", "overlay of root" or "copy"


class Root(NamedTuple):
    """A directory outside the workspace that tools may reach too.

    Args:
        path: the directory.
        writable: whether tools may change files in it.

    Example:
        >>> Scope(workspace=Path("/"), roots=(Root(Path("/tmp"), writable=True),)).roots[0].writable
        True
    """

    path: Path
    writable: bool = False


class _HeldDirectories:
    """Holds directories outside the fields: another process receives names and holds the directories itself."""

    __slots__ = ("_held",)
    _held: tuple[HeldDirectory | None, ...]


class ProgramLimits(NamedTuple):
    """The limits of programs in a sandbox; 0: no limit.

    Args:
        memory: MiB that each process may write to.
        processes: processes and threads of one program, with all that it starts.
        open_files: files that each process may have open.
        temporary: MiB of temporary files.

    Example:
        >>> Scope(programs=ProgramLimits(memory=8192)).programs.processes
        1024
    """

    memory: int = 2_048
    processes: int = 1_024
    open_files: int = 4_096
    temporary: int = 1_024


@dataclass(slots=True, eq=False, repr=False)
class CallBudget:
    """Counts the calls that the tools of a turn make themselves, up to a limit."""

    left: int | None  # None: any number
    made: int = 0
    offered: frozenset[str] | None = None  # the tools that were chosen for the turn, which scripts may call; None: all
    outer: CallBudget | None = None  # of the call that an agent works for: its calls count there, too

    def take(self) -> bool:
        """Counts a call; returns False where none is left."""
        if self.is_spent or (self.outer is not None and not self.outer.take()):
            return False
        self.made += 1
        return True

    @property
    def is_spent(self) -> bool:
        return (self.left is not None and self.made >= self.left) or (self.outer is not None and self.outer.is_spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(_HeldDirectories):
    """The session, agent, user and directories of a call. It is equal for every call of a turn.

    The workspace and the roots are held open from here on: a later replacement is not reached. Without a workspace,
    tools work in the current directory, and what Forge stores is in a private temporary directory.

    Args:
        session_id: whose answers, jobs and files these are. A run sets it: `agent.run(prompt, session="alice")`. Who
            calls tools without an agent names one for each user that is served.
        message_id: the turn; calls of one model message share it.
        agent: the agent's name.
        task: for a sub-agent: the call that it works for, as in `Event.task`.
        channel: where the conversation takes place.
        chat_id: the conversation in that channel.
        workspace: the directory that tools work in.
        user: the user's name.
        roots: directories beside the workspace.
        writes: False: no file may be changed.
        skills: folders of skills, which are protected; relative ones belong to the workspace.
        protected: files and folders of the workspace that are written only where a rule names them.
        hidden: files with secrets that stay outside of programs: none in bubblewrap can read them, and tools read them
            only where a rule names them.
        programs: what programs in a sandbox may use.
        deps: the run's dependencies, `ctx.deps` in tools.
        client: who made the call from outside, `ctx.client` in tools. A server sets it.
        budget: counts the calls that tools make themselves. A run sets it, for each turn.
        unsaved: files whose text an editor has not saved, by their real paths: tools read this instead. An editor's
            session sets it, for a call.

    Example:
        >>> Scope(session_id="alice", user="Alice").names_session
        True
    """

    session_id: str = LOCAL
    message_id: str = ""
    agent: str = "main"
    channel: str = ""
    chat_id: str = ""
    workspace: Path = field(default_factory=CurrentDirectory.cwd)
    user: str = ""
    roots: tuple[Root, ...] = ()
    writes: bool = True
    skills: tuple[str, ...] = ("skills",)
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    programs: ProgramLimits = ProgramLimits()  # noqa: RUF009 - it cannot be changed
    deps: Any = field(default=None, compare=False, repr=False)
    client: CallClient | None = field(default=None, compare=False, repr=False)
    budget: CallBudget | None = field(default=None, compare=False, repr=False)
    task: str = ""
    unsaved: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        directories = () if self.workspace == _HERE else (self.workspace, *(root.path for root in self.roots))
        object.__setattr__(self, "_held", tuple(hold(path) for path in directories))

    @property
    def names_session(self) -> bool:
        """Returns whether the caller named this session."""
        return self.session_id not in ("", LOCAL)

    def in_turn(self, message_id: str, budget: CallBudget | None = None) -> Scope:
        """Returns a copy for the calls of another turn, which holds the same directories and looks up none again."""
        if not hasattr(self, "_held"):  # it came from another process, as names
            return replace(self, message_id=message_id, budget=budget)
        made, set_field = object.__new__(Scope), object.__setattr__
        for name, value in zip(_OF_ALL_TURNS, _read_all_turns(self), strict=True):
            set_field(made, name, value)
        set_field(made, "message_id", message_id)
        set_field(made, "budget", budget)
        return made


_OF_ALL_TURNS = ("_held", *(name for name in Scope.__slots__ if name not in ("message_id", "budget")))
_read_all_turns = attrgetter(*_OF_ALL_TURNS)


class TrialNeeds(NamedTuple):
    """The settings of a tool that a trial run of its call needs.

    Args:
        sandbox: the sandbox that the tool wants for its program.
        network: True: the program may use the network, so what it sends cannot be discarded.

    Example:
        >>> TrialNeeds("auto").network
        False
    """

    sandbox: str | bool = "auto"
    network: bool = False


class Gate(Protocol):
    """Decides whether a call may do something to a target. Raises `ToolError` if not."""

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None: ...


@runtime_checkable
class FormGate(Gate, Protocol):
    """A gate that can also put a form to a person."""

    async def fill_form(self, ctx: ToolContext, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None: ...


class ClosedGate:
    """Refuses everything: the default, so that nothing is permitted by accident."""

    async def require(self, ctx: ToolContext, permission: Permission, target: str) -> None:
        raise ToolError(
            f"{permission} {target}".rstrip() + " is not permitted: nothing guards this call",
            ErrorKind.PERMISSION,
            "Run it through an executor whose steps include authorize(gate).",
        )


class Runnable(Protocol):
    """The part of a tool that the steps and the gate need. `Tool` explains each."""

    spec: ToolSpec
    needs_person: bool
    keeps_deadline: bool

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]: ...
    def targets(self, arguments: Mapping[str, Any]) -> list[str] | None: ...
    def is_irreversible(self, arguments: Mapping[str, Any]) -> bool: ...
    def introduce(self) -> str: ...
    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None: ...
    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str: ...
    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult: ...
    def _argument_key(self, name: str) -> str: ...
    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None: ...
    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: Any
    ) -> list[tuple[Permission | None, str]] | None: ...


Work = Awaitable[object] | Callable[[], Awaitable[object]]


class Background(Protocol):
    """Runs work after its call returned. The executor provides it."""

    def start(self, ctx: ToolContext, work: Work) -> None: ...
    def completion(self, ctx: ToolContext) -> Callable[[object], None]: ...


class InnerExecutor(Protocol):
    """Runs the calls that a tool makes while it runs. The executor provides it."""

    cleared_turns: int
    gate: Gate | None  # asks the person for tools that need no permission; None: there is no one to ask

    async def before_inner(self, ctx: ToolContext) -> list[str]: ...
    async def execute_inner(self, call: InnerCall, scope: Scope) -> ToolResult: ...


@cache
def _silent_stream() -> ActivityStream:
    """Returns the stream of a context without one: it has no listeners."""
    from forge.core.activity import ActivityStream

    return ActivityStream()


_ANSWER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
_NO_ARGUMENTS: Mapping[str, Any] = {}
_CLOSED = ClosedGate()
_NOWHERE = Scope(workspace=Path())


class RunContext(Generic[DepsT]):
    """The context of a run: a function of `Agent(instructions=…)` receives one. A `ToolContext` is one, too.

    Args:
        scope: the session, user and directories of the run. `deps` is the object that `run(deps=…)` was given.

    Example:
        >>> def greet(ctx: RunContext[str]) -> str:
        ...     return f"You help {ctx.deps}."
        >>> Agent(Scripted("Hi!"), instructions=greet).run_sync("Hello", deps="Ada").messages[0].text
        'You help Ada.'
    """

    __slots__ = ("scope",)

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @property
    def deps(self) -> DepsT:
        """The dependencies of the run, such as a database connection; None where the run has none."""
        deps: DepsT = self.scope.deps
        return deps

    def __repr__(self) -> str:
        deps = type(self.deps).__name__ if self.deps is not None else "no deps"
        return f"<RunContext of {self.scope.session_id}: {deps}>"


class ToolContext(RunContext[DepsT]):
    """The context of one call: a parameter annotated `ToolContext` receives it, and the model does not see it.

    Each call has its own context, so nothing in it is shared. A tool that declares `ctx: ToolContext[Db]` runs only
    where `ctx.deps` is a `Db`.

    Args:
        call: the call as the model sent it.
        tool: the tool.
        arguments: the validated arguments.
        scope: the session, user and directories.
        activity: receives the events of the call.
        background: runs work after the call returned.
        executor: runs calls that the tool makes with `run_tool`.

    Example:
        >>> @tool
        ... def greet(ctx: ToolContext[str]) -> str:
        ...     "Greet the user."
        ...     ctx.progress("Greeting")
        ...     return f"Hello, {ctx.deps}!"
        >>> asyncio.run(Agent(None, tools=[greet]).call("greet", {}, deps="Ada")).for_llm
        'Hello, Ada!'
    """

    __slots__ = (
        "_asking",
        "_asks",
        "_background",
        "_executor",
        "_inner_calls",
        "_waited_seconds",
        "activity",
        "arguments",
        "call",
        "cancelled",
        "completes",
        "gate",
        "noted",
        "spec",
        "tool",
    )
    arguments: Mapping[str, Any]
    cancelled: bool  # set when time is up or the run was stopped: for tools that look now and then
    noted: Mapping[str, Any]  # in `reconcile`: what `note_intent` returned before the call
    completes: bool  # True while steps look at the result of background work

    def __init__(
        self,
        call: ToolCall,
        tool: Runnable,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
        scope: Scope = _NOWHERE,
        activity: ActivityStream | None = None,
        background: Background | None = None,
        executor: InnerExecutor | None = None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.spec = tool.spec
        self.arguments = arguments
        self.scope = scope
        self.activity = activity if activity is not None else _silent_stream()
        self.gate: Gate = _CLOSED
        self.cancelled = False
        self.noted = _NO_ARGUMENTS
        self.completes = False
        self._asking = 0.0  # since when the tool's clock stands still
        self._asks = 0  # how many wait for something that is not the tool's time
        self._waited_seconds = 0.0
        self._background = background
        self._executor = executor
        self._inner_calls = 0

    def replace(self, **fields: Any) -> ToolContext:
        """Returns a changed copy, for a step to pass on."""
        copy = ToolContext(
            self.call, self.tool, self.arguments, self.scope, self.activity, self._background, self._executor
        )
        for name, value in {"gate": self.gate, **fields}.items():
            setattr(copy, name, value)
        return copy

    @property
    def cleared_turns(self) -> int:
        """The number of times the executor was told that a turn begins."""
        return self._executor.cleared_turns if self._executor is not None else 0

    @property
    def key(self) -> str:
        """The stable idempotency key of this call: the same when the call is run again after a crash."""
        return f"{self.scope.session_id}/{self.scope.message_id}/{self.call.id}"

    @property
    def subtask(self) -> str:
        """The `task` of a sub-agent that works for this call."""
        return f"{self.scope.task}/{self.call.id}" if self.scope.task else self.call.id

    def emit(self, event: Event) -> None:
        scope = self.scope
        event.session, event.agent, event.task = scope.session_id, scope.agent, scope.task
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

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Writes a line to the log of the call's client. Without a client the line is output."""
        if self.client is not None:
            self.client.log(level, text)
        self.output(f"{text}\n")

    @property
    def client(self) -> CallClient | None:
        """The client that made this call from outside, such as an MCP client; None in a run of an agent."""
        return self.scope.client

    async def ask(self, message: str, form: Mapping[str, Any] | None = None, *, key: str = "") -> dict[str, Any] | None:
        """Asks the person while the tool runs. Returns the filled-in form; None if the person declined.

        Args:
            message: the question.
            form: the JSON Schema of a flat object: texts, numbers, booleans and choices. By default one text, `answer`.
            key: a name for the question, which an MCP client sees.
        """
        asked = form if form is not None else _ANSWER
        with self.pause_clock():
            if self.client is not None:
                filled = await self.client.ask(message, asked, key=key)
            else:
                filled = await self._form_gate().fill_form(self, message, asked)
        return None if filled is None else dict(filled)

    def _form_gate(self) -> FormGate:
        for gate in (self.gate, self._executor.gate if self._executor is not None else None):
            if isinstance(gate, FormGate):
                return gate
        raise ToolError(
            "the person cannot be asked: nothing guards this call",
            ErrorKind.PERMISSION,
            "Run it through an executor whose steps include authorize(gate).",
        )

    async def require(self, permission: Permission | PermissionName, target: str = "") -> None:
        """Asks for a permission that the arguments did not reveal. Raises `ToolError` if refused."""
        with self.pause_clock():
            await self.gate.require(self, Permission(permission), target)

    async def run_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, number: int | None = None
    ) -> ToolResult:
        """Calls another tool of the same agent. The call passes all steps: checks, rules, approvals, limits, events.

        A refused or failed call is a result with a `failure`; nothing is raised. The time of the inner call does not
        count as the time of this one. `number`: where the call has one of its own in the tool, which stays the same
        when the tool runs again; by default the calls are counted.
        """
        if self._executor is None:
            raise RuntimeError("a tool can call other tools only where an executor runs it; this context has none")
        from forge.core.messages import InnerCall

        self._inner_calls = number if number is not None else self._inner_calls + 1
        call = InnerCall(name, arguments or {}, f"{self.call.id}.{self._inner_calls}", parent=self.call.id)
        with self.pause_clock():
            return await self._executor.execute_inner(call, self.scope)

    def pause_clock(self) -> AbstractContextManager[None]:
        """Stops the tool's clock while a person is asked, or another tool runs."""
        return _Asking(self)

    @property
    def waited_seconds(self) -> float:
        """Seconds that this call waited for a person: they are not the tool's time."""
        return self._waited_seconds + (time.monotonic() - self._asking if self._asking else 0.0)

    def background(self, work: Work, note: str) -> ToolResult:
        """Runs `work` after the tool returned; its result arrives once, as `ToolCompleted`."""
        if self.client is not None:
            self.client.detach()
        self._owner().start(self, work)
        return ToolResult(for_llm=note, pending=True)

    def completion(self) -> Callable[[object], None]:
        """Returns a callback for work that ends somewhere else: its first value is the result of that work."""
        return self._owner().completion(self)

    @property
    def executor(self) -> InnerExecutor | None:
        """The executor that runs this call. That of a stored run offers more than others."""
        return self._executor

    @property
    def owner(self) -> Background | None:
        """The owner of this call's background work: a sub-agent's work has the same owner."""
        return self._background

    def _owner(self) -> Background:
        if self._background is None:
            raise RuntimeError("background work needs an executor; this context has none")
        return self._background

    def __repr__(self) -> str:
        return f"<ToolContext of {self.call.name} in {self.scope.session_id}>"


class _Asking:
    """The clock of a call stands still inside. A class: a generator costs three times as much for each inner call."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx = ctx

    def __enter__(self) -> None:
        if not self._ctx._asks:
            self._ctx._asking = time.monotonic()
        self._ctx._asks += 1

    def __exit__(self, *_: object) -> None:
        ctx = self._ctx
        ctx._asks -= 1
        if not ctx._asks:
            ctx._waited_seconds += time.monotonic() - ctx._asking
            ctx._asking = 0.0
