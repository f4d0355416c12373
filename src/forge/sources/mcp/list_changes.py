"""Reports changes of a server's list of tools: a notification, or a subscription at newer servers."""

from __future__ import annotations

import asyncio

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError

from forge.sources.mcp.server_link import Wire, call_listener, log

OFTEN = 1.0  # seconds between two reports
FIRST, LONGEST = 1.0, 60.0  # seconds before a lost subscription is opened again: doubled each time
_FINAL = (types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.INVALID_REQUEST)  # no later attempt can succeed


class ListChanges:
    """Reports changes of one session: at once, then once a second at most; the last change is always reported."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._reported_at = float("-inf")
        self._pending: asyncio.TimerHandle | None = None
        self._following: asyncio.Task[None] | None = None
        self.was_read = False  # set when the list was read

    def schedule(self) -> None:
        if self._pending is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._reported_at + OFTEN - loop.time()
        if wait > 0:
            self._pending = loop.call_later(wait, self._report)
        else:
            self._report()

    def follow(self, client: ClientSession) -> None:
        """Subscribes if the server needs that: before 2026-07-28, servers report changes without being asked."""
        offered = client.server_capabilities
        if client.discover_result is not None and offered is not None and offered.tools and offered.tools.list_changed:
            self._following = asyncio.create_task(self._keep_subscribed(client))

    def stop(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        if self._following is not None:
            self._following.cancel()

    async def _keep_subscribed(self, client: ClientSession) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST
        while not self._wire.lost.done():
            began = loop.time()
            try:
                async with listen(client, tools_list_changed=True) as subscription:
                    if self.was_read:
                        self.schedule()  # a change may have come before the subscription
                    async for _ in subscription:
                        pass  # the session's handler of notifications reports it
            except MCPError as error:
                if error.code in _FINAL:
                    log.debug("%s: it takes no subscription: %s", self._wire.name, error.message)
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            pause = FIRST if loop.time() - began >= LONGEST else min(LONGEST, pause * 2)
            await asyncio.sleep(pause)

    def _report(self) -> None:
        self._pending = None
        self._reported_at = asyncio.get_running_loop().time()
        if not self._wire.lost.done():
            call_listener(self._wire.listener.tools_changed)
