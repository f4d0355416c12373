"""Sends the lines of a call's log to its client: in order, bounded, and not after the answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from mcp.server.connection import allowed_log_levels
from mcp_types import LoggingMessageNotification, LoggingMessageNotificationParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forge.core.client import LOG_LEVELS, LogLevel
from forge.core.plain_values import text_of
from forge.sources.untrusted import clean

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

log = logging.getLogger(__name__)

LONGEST = 10_000  # characters of a line
MOST = 1_000  # lines that wait to be sent
PATIENCE = 1.0  # seconds for the last lines
DEFAULT: LogLevel = "info"  # for a client that set no level


def levels_for(ctx: ServerRequestContext[Any, Any], chosen: LogLevel) -> frozenset[str]:
    """Returns the levels that a request's client wants. Since 2026-07-28 each request says so itself."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return frozenset(allowed_log_levels(ctx.protocol_version, ctx.meta))
    return frozenset(LOG_LEVELS[LOG_LEVELS.index(chosen) :])


class LogSender:
    """Sends one request's lines. A client that does not read loses the oldest ones, and hears how many."""

    def __init__(
        self,
        ctx: ServerRequestContext[Any, Any],
        logger: str,
        levels: frozenset[str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._ctx = ctx
        self._logger = logger
        self._levels = levels
        self._loop = loop
        self._lines: deque[tuple[LogLevel, str]] = deque()
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def write(self, level: LogLevel, text: str) -> None:
        """Queues a line; from any thread."""
        if level in self._levels and not self._closed:
            self._loop.call_soon_threadsafe(self._add, level, clean(text, LONGEST))

    async def close(self) -> None:
        """Sends the last lines; nothing is sent afterwards."""
        if not self._levels or self._closed:
            return
        await asyncio.sleep(0)  # lets queued lines arrive
        self._closed = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PATIENCE)
            self._task.cancel()

    def drop(self) -> None:
        """Sends nothing more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    def _add(self, level: LogLevel, text: str) -> None:
        if self._closed:
            return
        if len(self._lines) >= MOST:
            self._lines.popleft()
            self._left_out += 1
        self._lines.append((level, text))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_lines())

    async def _send_lines(self) -> None:
        try:
            while self._lines:
                if self._left_out:
                    count, self._left_out = self._left_out, 0
                    await self._send("warning", f"{count:,} lines were left out")
                await self._send(*self._lines.popleft())
        except Exception as error:  # the client is gone
            log.debug("a client did not get its log: %s", text_of(error))
            self._lines.clear()

    async def _send(self, level: LogLevel, text: str) -> None:
        params = LoggingMessageNotificationParams(level=level, logger=self._logger, data=text)
        await self._ctx.session.send_notification(LoggingMessageNotification(params=params), self._ctx.request_id)
