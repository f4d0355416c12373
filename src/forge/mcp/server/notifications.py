"""Notifications to a client, beside answers: the progress and the log of a call, and changes of lists and resources."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from mcp.server.connection import allowed_log_levels
from mcp_types import LoggingMessageNotification, LoggingMessageNotificationParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from forge.core.client import LOG_LEVELS, LogLevel
from forge.core.events import ToolOutput, ToolProgress
from forge.core.plain_values import text_of
from forge.core.untrusted import clean

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext


INTERVAL = 0.1  # seconds between two batches of messages
MOST_STEPS = 20  # steps of a batch; of more, the last ones are sent
LONGEST_MESSAGE = 2_000  # characters of a message; of output the end is sent
PATIENCE = 1.0  # seconds that the last message may take

Send = Callable[[float, float | None, str], Awaitable[None]]


class Reporter:
    """Reports one call. Only the latest steps and the end of the output are queued."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._steps: deque[tuple[str, Any, Any]] = deque(maxlen=MOST_STEPS)
        self._output = ""
        self._last = 0.0
        self._counts = False  # True if the tool itself reports its progress
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def receive(self, event: ToolOutput | ToolProgress) -> None:
        if self._over.is_set():
            return
        if isinstance(event, ToolOutput):
            self._output = (self._output + event.text)[-LONGEST_MESSAGE:]
        else:
            self._steps.append((event.title, event.data.get("done"), event.data.get("total")))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_queued())

    async def close(self) -> None:
        """Sends the last events; nothing is sent afterwards."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PATIENCE)
            self._task.cancel()

    async def _send_queued(self) -> None:
        while self._steps or self._output:
            output, self._output = self._output, ""
            steps = list(self._steps)
            self._steps.clear()
            for title, done, total in steps:
                await self._send(self._next(done), _number(total), clean(title, LONGEST_MESSAGE))
            if text := clean(output, LONGEST_MESSAGE):
                await self._send(self._next(None), None, text)
            try:
                await asyncio.wait_for(self._over.wait(), INTERVAL)
            except TimeoutError:
                continue

    def _next(self, done: Any) -> float:
        """Returns the next progress value; it always increases, as the protocol requires, whatever the tool reports."""
        count = _number(done)
        self._counts = self._counts or count is not None
        if not self._counts:
            count = self._last + 1
        more = count is not None and count > self._last
        self._last = count if more and count is not None else math.nextafter(self._last, math.inf)
        return self._last


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# --- Sends the lines of a call's log to its client: in order, bounded, and not after the answer.


log = logging.getLogger(__name__)

LONGEST_LINE = 10_000  # characters of a line
MOST_LINES = 1_000  # lines that wait to be sent
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
            self._loop.call_soon_threadsafe(self._add, level, clean(text, LONGEST_LINE))

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
        if len(self._lines) >= MOST_LINES:
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


# --- Notifies clients when a list that they know is out of date, or a resource that they watch has changed.


Kind = Literal["tools", "resources", "prompts"]
KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")


class Follower:
    """A client that is notified. It is told of a change only if it has read the list."""

    def __init__(self, notify: Callable[[Kind], Awaitable[None]], updated: Callable[[str], Awaitable[None]]) -> None:
        self._notify = notify
        self._updated = updated
        self.listed: dict[Kind, object] = {}  # the versions that the client knows
        self.watched: dict[str, object] = {}  # URIs of resources, with the revisions that it knows
        self.is_being_notified = False

    def take_changes(self, versions: dict[Kind, object]) -> list[Kind]:
        """Returns the lists that changed since the client read them. It then counts as notified."""
        changed = [kind for kind, version in versions.items() if self.listed.get(kind, version) != version]
        for kind in changed:
            self.listed[kind] = versions[kind]
        return changed

    def take_updates(self, revision: Callable[[str], object]) -> list[str]:
        """Returns the watched resources that changed."""
        updated = []
        for uri, known in self.watched.items():
            now = revision(uri)
            if now != known:
                self.watched[uri] = now
                updated.append(uri)
        return updated

    async def send(self, kinds: list[Kind], uris: list[str]) -> None:
        try:
            for kind in kinds:
                await self._notify(kind)
            for uri in uris:
                await self._updated(uri)
        except Exception as error:  # the client is gone
            log.debug("a client could not be notified of a change: %s", text_of(error))
        finally:
            self.is_being_notified = False
