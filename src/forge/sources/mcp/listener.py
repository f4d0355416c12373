"""The listener of a server: receives its notifications and answers its questions."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from forge.core.errors import ErrorKind, ToolError

current_call_key: ContextVar[object | None] = ContextVar("forge_mcp_current_call", default=None)
"""Inside `elicit`, `sample` and `log`: the key of the call that the server works on, if it is known."""


class Listener(Protocol):
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


def can_answer(listener: Listener, what: Literal["elicit", "sample"]) -> bool:
    """Tells if the listener overrides the method of `SilentListener`, and `can_elicit` or `can_sample` is not False."""
    return getattr(type(listener), what) is not getattr(SilentListener, what) and bool(
        getattr(listener, f"can_{what}", True)
    )
