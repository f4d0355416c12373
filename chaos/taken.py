"""How long what a worker had stays without one: from the moment it was killed or paused."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa

from forge.durable.store.database import Database
from forge.durable.store.tables import segments


@dataclass(slots=True)
class Takeovers:
    """Looked at again and again. `queued` are the seconds until a segment was back in its queue, `seconds` those until
    another worker went on with it: how busy the others are counts only there."""

    database: Database
    seconds: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    open: dict[str, tuple[str, float]] = field(default_factory=dict)  # segment: who had it, and until when
    _seen: set[str] = field(default_factory=set)

    def lost(self, worker: str) -> int:
        """That worker works no more; how many segments it had."""
        had = self._read(segments.c.worker == worker, segments.c.state == "begun")
        self._seen -= had.keys()
        self.open.update({segment: (worker, time.monotonic()) for segment in had})
        return len(had)

    def look(self) -> None:
        if not self.open:
            return
        now = time.monotonic()
        runs = {segment.rpartition(".")[0] for segment in self.open}
        for segment, (owner, state) in self._read(segments.c.run.in_(runs)).items():
            if segment not in self.open:
                continue
            worker, since = self.open[segment]
            taken = state == "begun" and owner != worker
            if (taken or state == "queued") and segment not in self._seen:
                self._seen.add(segment)
                self.queued.append(now - since)
            if taken:
                self.seconds.append(now - since)
            if taken or state not in ("begun", "queued"):  # or it ended in the same moment
                self._seen.discard(segment)
                del self.open[segment]

    def _read(self, *conditions: sa.ColumnElement[bool]) -> dict[str, tuple[str, str]]:
        query = sa.select(segments).where(*conditions)
        rows = self.database.read(lambda connection: connection.execute(query).all())
        return {f"{row.run}.{row.segment}": (row.worker, row.state) for row in rows}
