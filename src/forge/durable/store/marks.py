"""Stores what people think of the answers of runs: good or bad, with a note. Every function works inside the caller's
transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.events import Event
from forge.core.plain_values import brief
from forge.durable.store.check_input import check_name, check_text
from forge.durable.store.events import insert_events, lock_events
from forge.durable.store.find import find_run, insert_into, now
from forge.durable.store.rows import SINGLE_CALL, Mark
from forge.durable.store.tables import marks
from forge.workspace.state.store import StoreError

VERDICTS = ("good", "bad", "")
LONGEST_NOTE = 10_000  # characters


@dataclass(slots=True, eq=False, repr=False)
class RunMarked(Event):
    """A person marked the answer of a run.

    Args:
        run: the id of the run.
        verdict: "good" or "bad"; "" where the mark was withdrawn.
        note: what the person wrote.
        by: who marked it.

    Example:
        >>> RunMarked("run-1", "bad", "It left out the tests.", by="ada").to_dict()["verdict"]
        'bad'
    """

    type: ClassVar[str] = "run_marked"
    run: str
    verdict: str
    note: str = ""
    by: str = ""


def check_mark(verdict: object, note: object, by: object) -> None:
    """Checks a mark. Raises `StoreError`."""
    if not isinstance(verdict, str) or verdict not in VERDICTS:
        message = f"an answer is marked good or bad, not {brief(verdict)}"
        raise StoreError(message, ErrorKind.VALIDATION, 'Use "good" or "bad"; "" removes the mark.')
    check_text(note, "the note of a mark")
    check_name(by, "the name of the person who marks")
    if len(str(note)) > LONGEST_NOTE:
        message = f"the note of a mark has {len(str(note)):,} characters"
        raise StoreError(message, ErrorKind.VALIDATION, f"Use at most {LONGEST_NOTE:,}.")


def mark_run(connection: sa.Connection, run_id: str, verdict: str, note: str, by: str) -> RunMarked:
    """Marks a run that is over, and stores who did so as an event of the run."""
    run = find_run(connection, run_id, lock=True)
    if run.parent:
        message = f"run {run.id} was started by another run, so its answer is not marked"
        raise StoreError(message, ErrorKind.USER, "Mark the run that a person started.")
    if run.scope.get(SINGLE_CALL):
        message = f"run {run.id} is a single call of a tool, which has no answer of a model"
        raise StoreError(message, ErrorKind.USER, "Mark runs of an agent.")
    if not run.is_over:
        message = f"run {run.id} is {run.status}: it has no answer to mark yet"
        raise StoreError(message, ErrorKind.USER, "Mark it when it is over.")
    note = note if verdict else ""
    values = {"verdict": verdict, "note": note, "by": by, "at": now(connection)}
    new = insert_into(connection, marks).values(run=run.id, **values)
    connection.execute(new.on_conflict_do_update(index_elements=[marks.c.run], set_=values))
    event = RunMarked(run.id, verdict, note, by, session=run.session or run.id, agent=run.agent)
    lock_events(connection, run.id)
    insert_events(connection, {(run.id, run.segment): [(None, event.to_dict())]})
    return event


def marks_of(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Mark]:
    """Returns the marks of these runs, by run."""
    query = sa.select(marks).where(marks.c.run.in_(list(run_ids)), marks.c.verdict != "")
    return {row.run: Mark(row.verdict, row.note, row.by, row.at) for row in connection.execute(query)}
