"""What a server may say and ask without being called: whoever mounts it listens."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from forge.core.errors import ErrorKind, ToolError

asked_during: ContextVar[object | None] = ContextVar("forge_mcp_asked_during", default=None)
"""Inside `elicit`, `sample` and `log`: the key of the call that the server does it for, where that can be told."""


class Listener(Protocol):
    """All of it is called from the event loop's thread. Texts are clean and bounded; schemas and requests are raw."""

    def tools_changed(self) -> None:
        """Its list of tools may be another one now: it said so, or it was restarted. At most about once a second."""

    def progress(self, call: object, done: float, total: float | None, message: str) -> None:
        """`call` is the key that was given to `call_tool`."""

    def log(self, level: str, logger: str, text: str) -> None:
        """A log message; with the logger `stderr` a line of error output, with `stdout` one that is no message."""

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, url: str | None
    ) -> Mapping[str, Any] | Literal[False] | None:
        """What the person answers; None: declined; False: dismissed. With a `url` (never opened here) {} is consent."""

    async def sample(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to `sampling/createMessage`, both as the protocol writes them; `ToolError`: refused."""

    def went_down(self, reason: str, seconds: float) -> None:
        """It is restarted in so many seconds."""

    def came_back(self) -> None:
        """It was down, and runs again."""


class Quiet:
    """Hears everything, does nothing, and answers no. Servers are told only of what a subclass can be asked for."""

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
        raise ToolError("no model answers questions of servers here", ErrorKind.PERMISSION)

    def went_down(self, reason: str, seconds: float) -> None:
        return

    def came_back(self) -> None:
        return


def can(listener: Listener, what: Literal["elicit", "sample"]) -> bool:
    """Whether it is worth asking: not what `Quiet` answers anyway, nor where `can_elicit` or `can_sample` is False."""
    return getattr(type(listener), what) is not getattr(Quiet, what) and bool(getattr(listener, f"can_{what}", True))
