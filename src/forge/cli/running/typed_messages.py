"""Sends what a person types at the terminal during a run to that run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from forge.cli.terminal.keyboard import read_typed
from forge.core.errors import ToolError


class TypedMessages:
    """Reads lines while a run is in progress. Commands, and lines that come too late, wait for the next prompt."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self.waiting: deque[str] = deque()
        self._send = send
        self._reading: asyncio.Task[None] | None = None
        self._is_wanted = False

    @asynccontextmanager
    async def during_run(self) -> AsyncIterator[None]:
        self._is_wanted = True
        self._begin()
        try:
            yield
        finally:
            self._is_wanted = False
            await self._end()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Leaves the keyboard to a question."""
        await self._end()
        try:
            yield
        finally:
            if self._is_wanted:
                self._begin()

    def _begin(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _end(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self) -> None:
        rest = b""
        while typed := await read_typed():
            *lines, rest = (rest + typed).split(b"\n")
            for line in lines:
                self._take(line.decode("utf-8", "replace").strip())

    def _take(self, line: str) -> None:
        if not line:
            return
        if line.startswith("/"):
            self.waiting.append(line)
            return
        try:
            self._send(line)
        except ToolError:  # the run has just ended
            self.waiting.append(line)
