"""Declares what a segment needs from the process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.durable.monitor.counters import Counters
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo

Models = Callable[[str], Provider]
"""Returns the model of a name, for runs that ask for one. Raises `ToolError` if it is not available here."""

WatchActivity = Callable[[ActivityStream], Callable[[], None]]
"""Subscribes to a run's activity on this worker; returns a function that unsubscribes."""


class OfferedRegistry(Protocol):
    """The tools that stored runs of an agent are offered."""

    def of(self, agent: Agent) -> ToolRegistry: ...


class WorkerContext(Protocol):
    """The worker, as its segments see it."""

    @property
    def store(self) -> RunStore: ...
    @property
    def worker(self) -> str: ...  # its id
    @property
    def offers(self) -> Collection[str]: ...  # its offers for tools with `runs_on`
    @property
    def agents(self) -> Mapping[str, Agent]: ...  # agents it can run, by name
    @property
    def models(self) -> Models | None: ...  # None: a run's requested model is ignored
    @property
    def offered(self) -> OfferedRegistry: ...
    @property
    def watch(self) -> WatchActivity | None: ...
    @property
    def counters(self) -> Counters: ...

    async def start_segment(self, run: RunInfo) -> None:
        """Starts the run's current segment, here or elsewhere; idempotent."""
