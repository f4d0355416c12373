"""Finds the rows of the store that changed since the last look, for notices to pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from forge.durable.store import RunStore
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import OVER, SCHEDULED
from forge.durable.store.tables import questions, runs

MOST_OPEN = 1_000  # runs that are watched
MOST_NAMED = 200  # runs that one notice names
EVERYTHING = ("runs", "questions", "workers", "schedules", "sessions", "policy", "memory")

_OPEN_QUESTIONS = (  # their names alone: what they are about may be long, and this is asked often
    sa.select(questions.c.id)
    .join(runs, runs.c.id == questions.c.run)
    .where(questions.c.answered.is_(None), runs.c.status.not_in(OVER))
)


@dataclass(slots=True)
class Notice:
    """The changes since a page was last notified."""

    what: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)

    def merge(self, other: Notice) -> None:
        self.what |= other.what
        self.runs |= other.runs

    def __bool__(self) -> bool:
        return bool(self.what)

    def to_dict(self, waiting: int) -> dict[str, Any]:
        named = sorted(self.runs) if len(self.runs) <= MOST_NAMED else ["*"]
        return {"what": [one for one in EVERYTHING if one in self.what], "runs": named, "waiting": waiting}


class Changes:
    """Finds changes since the last call. Calls must not overlap: it remembers what it saw."""

    def __init__(self, store: RunStore, log: Path | None) -> None:
        self.waiting = 0  # how much waits for a person
        self._store, self._log = store, log
        self._open: dict[str, tuple[Any, ...]] = {}
        self._questions: frozenset[str] = frozenset()
        self._workers: tuple[Any, ...] = ()
        self._log_was: tuple[int, int] | None = None

    def of_runs(self, heard: Collection[str]) -> Notice:
        """Returns changed runs; `heard` are runs with new events, which may be over already."""
        c = runs.c
        query = sa.select(c.id, c.status, c.segment, c.updated, c.cancelling)
        query = query.where(c.status.not_in(OVER)).order_by(c.created.desc()).limit(MOST_OPEN)
        rows = self._store.database.read(lambda connection: connection.execute(query).all())
        now = {row.id: (row.status, row.segment, row.updated, row.cancelling) for row in rows}
        changed = {one for one, state in now.items() if self._open.get(one) != state}
        changed |= {one for one in self._open if one not in now}
        changed |= {one for one in heard if one not in now and one not in self._open}
        request = self._store.database.read(lambda connection: connection.execute(_OPEN_QUESTIONS).scalars().all())
        words = self._store.count_asking()
        notice = Notice({"runs"} if changed else set(), changed)
        if any(one.startswith(SCHEDULED) for one in changed):
            notice.what.add("schedules")
        if frozenset(request) != self._questions or len(request) + words != self.waiting:
            notice.what.add("questions")
        self._open, self._questions, self.waiting = now, frozenset(request), len(request) + words
        return notice

    def of_others(self) -> Notice:
        notice = Notice()
        workers = tuple((one.id, one.state, one.running) for one in list_workers(self._store.database))
        if workers != self._workers:
            notice.what.add("workers")
        log_is = _state_of(self._log)
        if log_is != self._log_was:
            notice.what.add("sessions")
        self._workers, self._log_was = workers, log_is
        return notice


def _state_of(path: Path | None) -> tuple[int, int] | None:
    try:
        status = path.stat() if path is not None else None
    except OSError:  # there is none yet
        return None
    return (status.st_size, status.st_mtime_ns) if status is not None else None
