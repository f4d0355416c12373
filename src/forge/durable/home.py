"""What a segment needs of the process that it runs in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from forge.durable.rows import RunInfo
from forge.durable.store import RunStore
from forge.durable.subject import Subject


class Home(Protocol):
    """A worker, seen from its runs."""

    @property
    def store(self) -> RunStore: ...
    @property
    def worker(self) -> str: ...  # its id
    @property
    def offers(self) -> Collection[str]: ...  # places that tools may want to run on
    @property
    def subjects(self) -> Mapping[str, Subject]: ...  # the agents it can run, by name

    async def start_segment(self, run: RunInfo) -> None:
        """See to it that the run's current segment is worked on, here or elsewhere. Asking twice changes nothing."""
