"""Notifies clients when a list that they know is out of date, or a resource that they watch has changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from forge.core.plain_values import text_of

log = logging.getLogger(__name__)

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
