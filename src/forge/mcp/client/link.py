"""The state that the parts of a connection share: target, transport, and who listens to the server."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import one_line
from forge.mcp.bounds import LINE, WORDS, ProgramSettings, RateLimit
from forge.mcp.oauth.login import Login
from forge.network.egress import Egress

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
        self.rate_limit = RateLimit()
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


def call_listener(notify: Callable[..., object], *arguments: Any) -> None:
    """Calls a listener; logs its errors."""
    try:
        notify(*arguments)
    except Exception:
        log.exception("a listener of an MCP server failed")


# --- The target of a connection: a program to start, or a URL.


_UNCONFINED = ProgramSettings(sandbox="off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A `command` or a `url`. Its `repr` omits possible secrets."""

    command: tuple[str, ...] = ()  # program and arguments
    environment: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # added to the minimal environment of programs
    directory: Path | None = None
    settings: ProgramSettings = _UNCONFINED  # of the program: its sandbox and its limits
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # sent to that origin only
    login: Login | None = None  # OAuth, unless a header says otherwise
    egress: Egress | None = None  # None: the configured origin only, private or not, since a person named it


# --- The listener of a server: receives its notifications and answers its questions.


current_call_key: ContextVar[object | None] = ContextVar("forge_mcp_current_call", default=None)
"""Inside `elicit`, `sample` and `log`: the key of the call that the server works on, if it is known."""


class ServerListener(Protocol):
    """Receives events on the event loop's thread. Texts are clean and bounded; schemas and requests are raw."""

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
