"""One way to a server, whatever carries it: whether it still stands, what was said last, and what it may still say."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from forge.core.errors import ToolError
from forge.sources.mcp.bounds import LINE, WORDS, Calm
from forge.sources.mcp.listener import Listener
from forge.sources.untrusted import one_line

log = logging.getLogger("forge.sources.mcp")


class Wire:
    """Lost once, with a reason. `failures` are errors of the way itself, which come back to us through the protocol."""

    def __init__(self, name: str, listener: Listener) -> None:
        self.name = name
        self.listener = listener
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.expired = False  # the other side forgot us: a new session will do
        self.unstartable: ToolError | None = None
        self.failures: dict[int, ToolError] = {}
        self.calm = Calm()
        self._words: deque[str] = deque(maxlen=20)

    def lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def fail(self, error: ToolError) -> int:
        """Keep an error of ours while the SDK carries its number through; those that nobody asks for are forgotten."""
        number = max(self.failures, default=0) + 1
        self.failures[number] = error
        self.failures.pop(number - 100, None)
        return number

    def hear(self, level: str, logger: str, text: str) -> None:
        """A line that it wrote beside the protocol."""
        line = one_line(text, LINE)
        if line and logger == "stderr":
            self._words.append(line)
        if line and self.calm.admits():
            quietly(self.listener.log, level, logger, line)

    def ending(self, how: str) -> str:
        """How it ended, with its last words."""
        words = one_line("\n".join(self._words)[-WORDS:], WORDS)
        return f"{how}; its last words: {words[-500:]}" if words else how


def quietly(tell: Callable[..., object], *arguments: Any) -> None:
    """A listener that fails harms nobody."""
    try:
        tell(*arguments)
    except Exception:
        log.exception("a listener of an MCP server failed")
