"""How long what a worker had stays without one: from the moment it was killed or paused."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa

from forge.durable.store.database import Database


@dataclass(slots=True)
class Takeovers:
    """Looked at again and again. `queued` are the seconds until a segment was back in its queue, `seconds` those until
    another worker went on with it: how busy the others are counts only there."""

    database: Database
    seconds: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    open: dict[str, tuple[str, float]] = field(default_factory=dict)  # segment: who had it, and until when
    _seen: set[str] = field(default_factory=set)
    _table: sa.TableClause = field(init=False)

    def lost(self, worker: str) -> int:
        """That worker works no more; how many segments it had."""
        had = self._read(self._table.c.executor_id == worker, self._table.c.status == "PENDING")
        self._seen -= had.keys()
        self.open.update({segment: (worker, time.monotonic()) for segment in had})
        return len(had)

    def look(self) -> None:
        if not self.open:
            return
        now = time.monotonic()
        for segment, (executor, status) in self._read(self._table.c.workflow_uuid.in_(list(self.open))).items():
            worker, since = self.open[segment]
            taken = status == "PENDING" and executor != worker
            if (taken or status == "ENQUEUED") and segment not in self._seen:
                self._seen.add(segment)
                self.queued.append(now - since)
            if taken:
                self.seconds.append(now - since)
            if taken or status not in ("PENDING", "ENQUEUED"):  # or it ended in the same moment
                self._seen.discard(segment)
                del self.open[segment]

    def __post_init__(self) -> None:
        columns = [sa.column(name, sa.Text) for name in ("workflow_uuid", "executor_id", "status")]
        schema = None if self.database.is_sqlite else "dbos"
        self._table = sa.table("workflow_status", *columns, schema=schema)

    def _read(self, *conditions: sa.ColumnElement[bool]) -> dict[str, tuple[str, str]]:
        query = sa.select(self._table).where(*conditions)
        rows = self.database.read(lambda connection: connection.execute(query).all())
        return {row[0]: (row[1], row[2]) for row in rows}
