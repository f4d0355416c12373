"""The worker as its segments see it, with the attempts at segments that it works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.execution.threads import in_thread
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.durable.engine.held_work import HeldWork
from forge.durable.engine.record_events import EventWriter
from forge.durable.engine.session_programs import SessionPrograms
from forge.durable.engine.start_segments import Starter
from forge.durable.monitor.metrics import Counters
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo

Models = Callable[[str], Provider]
"""Returns the model of a name, for runs that ask for one. Raises `ToolError` if it is not available here."""

WatchActivity = Callable[[ActivityStream], Callable[[], None]]
"""Subscribes to a run's activity on this worker; returns a function that unsubscribes."""


class AttemptUnderWay(Protocol):
    """An attempt at a segment, as the worker that works on it controls it."""

    @property
    def run(self) -> RunInfo: ...

    def stop(self) -> None:
        """Stops it: the run was cancelled."""

    def abandon(self) -> None:
        """Stops it without recording: another worker owns the segment now."""

    def drain(self) -> None:
        """Ends the segment before the next turn, so that another worker resumes it."""

    def note_messages(self) -> None:
        """Ends the segment before the next turn: a person has sent messages. Usable from any thread."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkerContext:
    """A worker, as its segments see it. A worker that starts again has a copy with its new id."""

    worker: str  # its id
    version: str  # of the application: it takes only runs of this version
    store: RunStore
    agents: dict[str, Agent]  # those it can run, by name; the console renews them
    offers: Sequence[str] = ()  # for tools with `runs_on`
    models: Models | None = None  # None: the model that a run asks for is ignored
    watch: WatchActivity | None = None  # None: nobody watches
    tools_of: Callable[[Agent], ToolRegistry]  # the tools that stored runs of an agent are offered
    starter: Starter
    counters: Counters
    events: EventWriter  # of all its runs
    attempts: dict[str, AttemptUnderWay]  # by run
    held: HeldWork  # background work of its runs
    programs: SessionPrograms  # programs that calls of its runs left running

    async def start_segment(self, run: RunInfo) -> None:
        """Puts the run's current segment into its queue; idempotent."""
        await in_thread(lambda: self.starter.start(run))

    def list_busy(self) -> set[str]:
        """Lists the runs that this worker works on, background work included."""
        return {*self.attempts, *self.held.list_runs()}

    def note_messages(self, run_id: str) -> None:
        """Notes that messages wait for a run, if this worker works on it."""
        if (attempt := self.attempts.get(run_id)) is not None:
            attempt.note_messages()
