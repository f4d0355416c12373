"""The state that the parts of a connection share: the transport, its state, and who listens to the server."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from forge.core.context import Root
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.secrets.live_text import LiveText
from forge.core.untrusted import one_line
from forge.mcp.bounds import LINE, WORDS, RateLimit
from forge.mcp.oauth.login import OAuth
from forge.network.address import read_url
from forge.network.egress import Egress

if TYPE_CHECKING:  # a server without rules needs none
    from forge.permissions.policy import Rules
    from forge.permissions.questions import PermissionRequest

OURS = -32_099  # the code of a JSON-RPC error that refers to one in `Wire.failures`

log = logging.getLogger("forge.mcp")


class Wire:
    """A transport to a server; it is lost once, with a reason. `failures` has its errors by number."""

    def __init__(self, name: str, listener: ServerListener) -> None:
        self.name = name
        self.listener = listener
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.expired = False  # the server forgot the session: a new one can retry
        self.unstartable: ToolError | None = None
        self.hint = "Run its command by hand to see the error."  # what to do if it ends too early
        self.failures: dict[int, ToolError] = {}
        self.attributes: dict[str, Any] = {}  # of the spans of its requests
        self.spans: dict[str, Any] = {}  # of the requests that wait for an answer, by their id
        self.error_texts: dict[str, str] = {}  # by the words that stand for them in a span
        self.rate_limit = RateLimit()
        self.reached = ReachedHosts(lambda: ())  # of a program whose hosts rules limit
        self._words: deque[str] = deque(maxlen=20)

    def lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def store_failure(self, error: ToolError) -> int:
        """Stores an error and returns its number, which the SDK carries; the latest 100 are stored."""
        number = max(self.failures, default=0) + 1
        self.failures[number] = error
        self.failures.pop(number - 100, None)
        return number

    def take_failure(self, error: Any) -> ToolError | None:
        """Returns the stored error that an error of the SDK stands for, once."""
        number = error.data.get("forge") if error.code == OURS and isinstance(error.data, dict) else None
        return self.failures.pop(number, None) if isinstance(number, int) else None

    def receive_line(self, level: str, logger: str, text: str) -> None:
        """Receives a line outside the protocol."""
        line = one_line(text, LINE)
        if line and logger == "stderr":
            self._words.append(line)
        if line and self.rate_limit.admits():
            call_listener(self.listener.log, level, logger, line)

    @property
    def last_output(self) -> str:
        """The latest lines of its error output."""
        return "\n".join(self._words)

    def describe_end(self, how: str) -> str:
        """Describes how the server ended, with its last output."""
        output = one_line(self.last_output[-WORDS:], WORDS)
        return f"{how}; its last output: {output[-500:]}" if output else how


HostReport = Sequence[Mapping[str, Any]]


class ReachedHosts:
    """Divides the hosts that a server's program tried among its calls: each result names those of its call's time.

    Results of several calls at once name the same hosts, because the program does not say for which call it connects.
    Hosts that were tried between two calls, or in a call that failed without a result, are named in the next result.
    """

    def __init__(self, report: Callable[[], HostReport]) -> None:
        """`report` returns all hosts so far; its numbers only grow."""
        self._report = report
        self._running = 0
        self._told: HostReport = ()
        self._owed: HostReport | None = None

    def begin(self) -> HostReport:
        """Begins a call; returns what it is compared with at its end."""
        self._running += 1
        return self._told if self._running == 1 else self._report()

    def end(self, before: HostReport, *, has_result: bool) -> list[dict[str, Any]]:
        """Ends a call; returns the hosts that were tried meanwhile, each with the numbers of that time."""
        self._running -= 1
        earliest = before if self._owed is None or _count(before) < _count(self._owed) else self._owed
        self._owed = None if has_result else earliest
        if not has_result:
            return []
        self._told = now = self._report()
        return _subtract(now, earliest)


_NUMBERS = ("connections", "bytes_sent", "bytes_received")


def _count(report: HostReport) -> tuple[int, int]:
    return len(report), sum(one.get(name, 0) for one in report for name in _NUMBERS)


def _subtract(now: HostReport, before: HostReport) -> list[dict[str, Any]]:
    known = {(one["host"], one["port"]): one for one in before}
    found = []
    for one in now:
        earlier = known.get((one["host"], one["port"]))
        if one != earlier:
            less = (
                {} if earlier is None else {name: one[name] - earlier.get(name, 0) for name in _NUMBERS if name in one}
            )
            found.append({**one, **less})
    return found


def call_listener(notify: Callable[..., object], *arguments: Any) -> None:
    """Calls a listener; logs its errors."""
    try:
        notify(*arguments)
    except Exception:
        log.exception("a listener of an MCP server failed")


# --- The transports: a program to start, or a URL.


MEMORY = 2048  # MiB that each process of a server may write to
LEAST_MEMORY = 64
CONNECT_TIMEOUT = 30.0  # seconds

Sandbox = Literal["auto", "required", "bubblewrap", "landlock", "off"]
Access = Literal["write", "read", "none"]


@dataclass(frozen=True, slots=True)
class Stdio:
    """An MCP server that is a program: it is started, and speaks over its standard input and output.

    Raises `DefinitionError` for a setting that is wrong. Its `repr` omits the variables.

    Args:
        command: the program.
        args: its arguments.
        env: variables of the program, added to a minimal environment.
        cwd: its working directory; by default the current one.
        sandbox: confines the program: `auto` where the system can, `required` or fail, or `off`.
        network: whether the confined program has a network.
        hosts: rules about hosts that hold for the program, such as those of the project.
        egress: the addresses that it may reach by them, and its secrets; by default the public ones.
        placeholders: of secret values in `args` and `env`: the program gets them in place of the values, unless it has
            the whole network.
        workspace: the program's access to its working directory: `write`, `read` or `none`.
        roots: further directories of the program, read-only unless given as a writable `Root`.
        hidden: files that the program cannot read in bubblewrap, wherever they are.
        memory: MiB of memory that each process of the program may write to.
        integrity: the digest of an installation that `forge mcp add` pinned.
        connect_timeout: the seconds that starting it and the handshake may take.
        ask_unconfined: with `required`: if there is no sandbox on this machine, ask the agent's approver, a person,
            whether to start the program without one.

    Example:
        >>> Stdio("uvx", ["mcp-server-git"], cwd="checkout", sandbox="required").command_line
        ('uvx', 'mcp-server-git')
    """

    command: str
    args: Sequence[str] = ()
    _: KW_ONLY
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | str | None = None
    sandbox: Sandbox = "auto"
    network: bool = False
    hosts: Rules | None = field(default=None, repr=False)
    egress: Egress | None = field(default=None, repr=False)
    placeholders: Mapping[str, str] = field(default_factory=dict, repr=False)
    workspace: Access = "write"
    roots: Collection[Root | Path | str] = ()
    hidden: Sequence[Path | str] = ()
    memory: int = MEMORY
    integrity: str = ""
    connect_timeout: float = CONNECT_TIMEOUT
    ask_unconfined: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.command, str) or not self.command.strip():
            raise DefinitionError(
                f"Stdio(command={self.command!r:.100}): expected the name of a program; write its arguments as `args`"
            )
        if isinstance(self.args, str):
            raise DefinitionError(f"Stdio(args={self.args!r:.100}): expected a list of words")
        for option, given, known in (
            ("sandbox", self.sandbox, get_args(Sandbox)),
            ("workspace", self.workspace, get_args(Access)),
        ):
            if given not in known:
                raise DefinitionError(f"Stdio({option}={given!r}): expected one of {', '.join(known)}")
        if self.memory < LEAST_MEMORY:
            raise DefinitionError(f"Stdio(memory={self.memory!r}): expected at least {LEAST_MEMORY} MiB")

    @property
    def command_line(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return (self.command, *map(str, self.args))

    @property
    def directory(self) -> Path:
        """The working directory as an absolute path."""
        return Path(self.cwd if self.cwd is not None else ".").absolute()

    @property
    def mounted(self) -> tuple[Root, ...]:
        return tuple(one if isinstance(one, Root) else Root(Path(one)) for one in self.roots)

    @property
    def is_confined(self) -> bool:
        return self.sandbox != "off"


@dataclass(frozen=True, slots=True)
class Http:
    """An MCP server at a URL, reached over streamable HTTP.

    Raises `ToolError` for a URL that cannot be used. Its `repr` omits what may be secret.

    Args:
        url: the address, often with the path /mcp.
        headers: sent with every request, to this origin only.
        auth: the OAuth login, used if the server asks for one; None: never. A header `Authorization` replaces it.
        egress: which addresses may be reached; by default only this origin, private or not.
        connect_timeout: the seconds that connecting and the handshake may take.

    Example:
        >>> Http("https://docs.example.com/mcp", headers={"Authorization": "Bearer …"})
        Http(connect_timeout=30.0)
    """

    url: str = field(repr=False)
    _: KW_ONLY
    headers: Mapping[str, str | LiveText] = field(default_factory=dict, repr=False)
    auth: OAuth | None = field(default_factory=OAuth, repr=False)
    egress: Egress | None = field(default=None, repr=False)
    connect_timeout: float = CONNECT_TIMEOUT

    def __post_init__(self) -> None:
        read_url(self.url)
        if self.auth not in (None, OAuth()) and self.is_authorized:
            raise DefinitionError("Http(auth=…, headers=…): use `auth`, or a header Authorization, not both")

    @property
    def is_authorized(self) -> bool:
        """True if a header authorizes the requests."""
        return any(name.lower() == "authorization" for name in self.headers)


Transport = Stdio | Http


# --- The listener of a server: receives its notifications and answers its questions.


current_call_key: ContextVar[object | None] = ContextVar("forge_mcp_current_call", default=None)
"""Inside `elicit`, `sample` and `log`: the key of the call that the server works on, if it is known."""


class ServerListener(Protocol):
    """Receives events on the event loop's thread. Texts are clean and bounded; schemas and requests are raw."""

    async def allow_start(self, request: PermissionRequest) -> bool:
        """Returns whether a person allows the program to start, or to start again, without a sandbox."""

    def tools_changed(self) -> None:
        """The list of tools may have changed: the server said so, or was restarted. At most about once a second."""

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        """Reports progress; `call` is the key that was given to `call_tool`."""

    def log(self, level: str, logger: str, text: str) -> None:
        """Receives a log message; the logger `stderr` means error output, `stdout` a line that is not a message."""

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        """Returns the answer; None: declined; False: dismissed. With a `url` (never opened here) {} is consent."""

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the raw answer to a raw `sampling/createMessage`. Raises `ToolError` if it is refused."""

    def went_down(self, reason: str, seconds: float) -> None:
        """The server failed and is restarted in `seconds`."""

    def came_back(self) -> None:
        """The server was down and runs again."""


class SilentListener:
    """A listener that ignores events and declines questions. A server sees only the abilities that a subclass adds."""

    async def allow_start(self, request: PermissionRequest) -> bool:
        return False

    def tools_changed(self) -> None:
        return

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        return

    def log(self, level: str, logger: str, text: str) -> None:
        return

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        return None

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ToolError("servers cannot ask a model here", ErrorKind.PERMISSION)

    def went_down(self, reason: str, seconds: float) -> None:
        return

    def came_back(self) -> None:
        return


def can_answer(listener: ServerListener, what: Literal["elicit", "sample"]) -> bool:
    """Returns whether the listener overrides a method of `SilentListener`, and `can_elicit` or `can_sample` lets it."""
    return getattr(type(listener), what) is not getattr(SilentListener, what) and bool(
        getattr(listener, f"can_{what}", True)
    )
