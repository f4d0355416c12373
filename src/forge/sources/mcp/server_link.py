"""The state of a transport to a server: if it is lost, its last output, and its rate limit."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from forge.core.errors import ToolError
from forge.sources.mcp.bounds import LINE, WORDS, RateLimit
from forge.sources.mcp.listener import Listener
from forge.sources.untrusted import one_line

OURS = -32_099  # the code of a JSON-RPC error that refers to one in `Wire.failures`

log = logging.getLogger("forge.sources.mcp")


class Wire:
    """A transport to a server; it is lost once, with a reason. `failures` has its errors by number."""

    def __init__(self, name: str, listener: Listener) -> None:
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
        words = one_line(self.last_output[-WORDS:], WORDS)
        return f"{how}; its last output: {words[-500:]}" if words else how


def call_listener(notify: Callable[..., object], *arguments: Any) -> None:
    """Calls a listener; logs its errors."""
    try:
        notify(*arguments)
    except Exception:
        log.exception("a listener of an MCP server failed")
