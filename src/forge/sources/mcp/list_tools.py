"""Reads the list of a server's tools within bounds: the list may be endless, huge or broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.bounds import LISTING, MIB, MOST_LISTED, MOST_PAGES, MOST_TOOLS

log = logging.getLogger("forge.sources.mcp")

ReadPage = Callable[[str | None], Awaitable[dict[str, Any]]]


async def list_all_tools(name: str, read_page: ReadPage) -> list[dict[str, Any]]:
    """Returns the raw definitions and logs those left out. Raises `ToolError` if nothing came in time."""
    listing = _ToolListing(name)
    try:
        async with asyncio.timeout(LISTING):
            await listing.read(read_page)
    except TimeoutError:
        if not listing.pages:
            raise ToolError(
                f"the server {name} did not list its tools within {LISTING:g} s",
                ErrorKind.TIMEOUT,
                "Do without it, or let a person look at the server.",
            ) from None
        log.warning("%s: not all of its tools were listed within %g s", name, LISTING)
    return listing.tools


class _ToolListing:
    def __init__(self, name: str) -> None:
        self.name = name
        self.tools: list[dict[str, Any]] = []
        self.pages = 0
        self._size = 0
        self._seen: set[str] = set()

    async def read(self, read_page: ReadPage) -> None:
        cursor: str | None = None
        while True:
            page = await read_page(cursor)
            self.pages += 1
            if not self._add_page(page.get("tools")):
                return
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return
            if cursor in self._seen or self.pages >= MOST_PAGES:
                why = "a page leads back to an earlier one" if cursor in self._seen else f"more than {MOST_PAGES} pages"
                log.warning("%s: the list of its tools was cut: %s", self.name, why)
                return
            self._seen.add(cursor)

    def _add_page(self, tools: Any) -> bool:
        """Adds the tools of a page. Returns True if more pages may follow."""
        from pydantic_core import to_json  # heavy, but the SDK loads it anyway

        for tool in tools if isinstance(tools, list) else []:
            if not isinstance(tool, dict):
                log.warning("%s: a tool that is no object was left out", self.name)
                continue
            if len(self.tools) >= MOST_TOOLS:
                log.warning("%s: more than %s tools; the rest was left out", self.name, f"{MOST_TOOLS:,}")
                return False
            size = len(to_json(tool))
            if self._size + size > MOST_LISTED:
                most = MOST_LISTED // MIB
                log.warning("%s: a tool of %s bytes was left out: %d MiB is the most", self.name, f"{size:,}", most)
                continue
            self._size += size
            self.tools.append(tool)
        return True
