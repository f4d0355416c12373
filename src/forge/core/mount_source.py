"""Keeps the tools of a source in a registry while the source is open, and follows its changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from forge.core.errors import DefinitionError
from forge.core.lazy import LazyLog
from forge.core.registry import ToolRegistry, ToolSource
from forge.core.tool import Tool

log = LazyLog(__name__)

Prepare = Callable[[Tool], Tool]


@runtime_checkable
class LiveSource(Protocol):
    """A source whose tools change while it is open: a server that announces changes, a watched folder."""

    def follow(self, changed: Callable[[Sequence[Tool]], None]) -> None:
        """Calls `changed` with all current tools, on the event loop, whenever they differ from before."""


@runtime_checkable
class YieldingSource(Protocol):
    """A source of independent tools, such as a folder: one taken name must not cost the others."""

    def leave_out(self, names: Collection[str]) -> None:
        """Offers no tool of these names, which belong to others."""


@asynccontextmanager
async def mount_source(
    registry: ToolRegistry, source: ToolSource, prepare: Prepare = lambda tool: tool
) -> AsyncIterator[None]:
    """Keeps the source's tools in the registry while the block runs; `prepare` may replace a tool.

    A name that is taken raises `DuplicateToolError` at the beginning, unless the source yields. Of what comes later, a
    tool that cannot be registered is left out and logged: a source must not harm what is there.
    """
    if isinstance(source, YieldingSource):
        source.leave_out(frozenset(registry.names))
    async with source as tools:
        mount = _Mount(registry, prepare)
        registry.add(*(prepare(tool) for tool in tools))
        mount.held = {tool.spec.name: tool for tool in tools}
        if isinstance(source, LiveSource):
            source.follow(mount.change)
        try:
            yield
        finally:
            mount.end()


class _Mount:
    def __init__(self, registry: ToolRegistry, prepare: Prepare) -> None:
        self.registry = registry
        self.prepare = prepare
        self.held: dict[str, Tool] = {}  # by name, as the source gave it
        self._ended = False

    def change(self, tools: Sequence[Tool]) -> None:
        """Applies a change at once, so that no one sees half of it: a model's next turn has the new tools."""
        if self._ended:
            return
        now = {tool.spec.name: tool for tool in tools}
        gone = [name for name in self.held if name not in now]
        come = [tool for name, tool in now.items() if self.held.get(name) is not tool]
        taken = self._take(come)
        self.registry.discard(gone)
        self.held = {name: tool for name, tool in now.items() if name in self.held or name in taken}

    def _take(self, tools: list[Tool]) -> set[str]:
        prepared = [(tool.spec.name, self.prepare(tool)) for tool in tools]
        try:
            self._add(*prepared)
            return {name for name, _ in prepared}
        except DefinitionError:  # find out which
            return {name for name, tool in prepared if self._add_or_log(name, tool)}

    def _add_or_log(self, name: str, tool: Tool) -> bool:
        try:
            self._add((name, tool))
        except DefinitionError as error:
            log.warning("a tool of %s is left out: %s", tool.spec.origin or "a source", error)
            return False
        return True

    def _add(self, *tools: tuple[str, Tool]) -> None:
        self.registry.add(*(tool for name, tool in tools if name not in self.held))
        self.registry.add(*(tool for name, tool in tools if name in self.held), replace=True)

    def end(self) -> None:
        self._ended = True
        self.registry.discard(self.held)
