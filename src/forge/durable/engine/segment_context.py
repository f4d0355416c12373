"""What a segment needs of the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo

Models = Callable[[str], Provider]
"""The model of a name, for runs that ask for one. Raises `ToolError` where it cannot be had here."""

WatchActivity = Callable[[ActivityStream], Callable[[], None]]
"""Subscribes to what a run does on this worker; returns how that ends."""


class OfferedRegistry(Protocol):
    """The tools that stored runs of an agent are offered."""

    def of(self, agent: Agent) -> ToolRegistry: ...


class WorkerContext(Protocol):
    """A worker, seen from its runs."""

    @property
    def store(self) -> RunStore: ...
    @property
    def worker(self) -> str: ...  # its id
    @property
    def offers(self) -> Collection[str]: ...  # places that tools may want to run on
    @property
    def agents(self) -> Mapping[str, Agent]: ...  # those it can run, by name
    @property
    def models(self) -> Models | None: ...  # None: what model a run asks for does not matter
    @property
    def offered(self) -> OfferedRegistry: ...
    @property
    def watch(self) -> WatchActivity | None: ...

    async def start_segment(self, run: RunInfo) -> None:
        """See to it that the run's current segment is worked on, here or elsewhere. Asking twice changes nothing."""
