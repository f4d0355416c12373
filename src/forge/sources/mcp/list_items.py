"""Reads a list of a server, such as its tools, within bounds: the list may be endless, huge or broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from forge.core.errors import ErrorKind, ToolError
from forge.sources.mcp.bounds import LISTING, MIB, MOST_LISTED, MOST_PAGES, MOST_TOOLS

log = logging.getLogger("forge.sources.mcp")

_WORDS = {"resourceTemplates": "resource templates"}
ReadPage = Callable[[str | None], Awaitable[dict[str, Any]]]


async def list_all(name: str, read_page: ReadPage, key: str = "tools") -> list[dict[str, Any]]:
    """Returns the raw items and logs those left out. Raises `ToolError` if nothing came in time."""
    listing = _Listing(name, key)
    try:
        async with asyncio.timeout(LISTING):
            await listing.read(read_page)
    except TimeoutError:
        if not listing.pages:
            raise ToolError(
                f"the server {name} did not list its {listing.what} within {LISTING:g} s",
                ErrorKind.TIMEOUT,
                "Continue without it; a person must check the server.",
            ) from None
        log.warning("%s: not all of its %s were listed within %g s", name, listing.what, LISTING)
    return listing.items


class _Listing:
    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.what = _WORDS.get(key, key)
        self.items: list[dict[str, Any]] = []
        self.pages = 0
        self._size = 0
        self._seen: set[str] = set()

    async def read(self, read_page: ReadPage) -> None:
        cursor: str | None = None
        while True:
            page = await read_page(cursor)
            self.pages += 1
            if not self._add_page(page.get(self.key)):
                return
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                return
            if cursor in self._seen or self.pages >= MOST_PAGES:
                why = "a page links back to an earlier one" if cursor in self._seen else f"more than {MOST_PAGES} pages"
                log.warning("%s: the list of its %s was cut: %s", self.name, self.what, why)
                return
            self._seen.add(cursor)

    def _add_page(self, items: Any) -> bool:
        """Adds the items of a page. Returns True if more pages may follow."""
        from pydantic_core import to_json  # heavy, but the SDK loads it anyway

        for item in items if isinstance(items, list) else []:
            if not isinstance(item, dict):
                log.warning("%s: one of its %s that is not an object was left out", self.name, self.what)
                continue
            if len(self.items) >= MOST_TOOLS:
                log.warning("%s: more than %s %s; the rest was left out", self.name, f"{MOST_TOOLS:,}", self.what)
                return False
            size = len(to_json(item))
            if self._size + size > MOST_LISTED:
                most = MOST_LISTED // MIB
                words = "%s: one of its %s, of %s bytes, was left out: the maximum is %d MiB"
                log.warning(words, self.name, self.what, f"{size:,}", most)
                continue
            self._size += size
            self.items.append(item)
        return True
