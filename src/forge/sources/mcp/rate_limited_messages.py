"""Rate-limits a server's notifications."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from forge.sources.mcp.bounds import LINE
from forge.sources.mcp.server_link import Wire


class RateLimitedMessages:
    """The server's messages for the SDK, without excess notifications."""

    def __init__(self, incoming: Any, wire: Wire) -> None:
        self._incoming = incoming
        self._wire = wire
        self.last_context: Context | None = None

    async def receive(self) -> SessionMessage:
        while True:
            item = await self._incoming.receive()
            self.last_context = getattr(self._incoming, "last_context", None)
            if not isinstance(item, SessionMessage):
                self._wire.receive_line("warning", "transport", str(item)[:LINE])
                continue
            if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                return item
            if self._wire.rate_limit.admits():
                return item
            await self._wire.rate_limit.pause()
            if isinstance(item.message, types.JSONRPCRequest):
                return item  # the server waits for an answer

    def __aiter__(self) -> RateLimitedMessages:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._incoming.aclose()

    async def __aenter__(self) -> RateLimitedMessages:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
