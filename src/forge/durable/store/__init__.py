"""Stores runs in one database that many machines share: messages, waits, questions and answers.

Every method is one transaction, safe from any thread and any process; a failed one changes nothing. Methods block
for as long as the database takes: call them in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from forge.core.messages import Message
from forge.durable.store import attempts, check_input, events, inbox, marks, questions
from forge.durable.store import find as _find
from forge.durable.store import run_lifecycle as run_rows
from forge.durable.store.database import PATIENCE, Database
from forge.durable.store.events import NewEvents, SegmentKey
from forge.durable.store.migrate import open_tables, prepare, update
from forge.durable.store.remove import remove_run
from forge.durable.store.rows import Mark, NewRun, Outcome, Question, RunInfo, Status
from forge.durable.store.tables import runs
from forge.durable.store.waits import Wait
from forge.workspace.state.store import StoreError

__all__ = ["NewRun", "Outcome", "Question", "RunInfo", "RunStore", "Status", "StoreError", "Wait"]

T = TypeVar("T")
Infos = list[RunInfo]  # named here, because a store's `list` is something else
Messages = list[Message]
Questions = list[Question]
Numbered = list[tuple[int, dict[str, Any]]]
Files = list[tuple[str, int]]
_NOBODY = inbox.CalledRuns(frozenset(), frozenset())


class RunStore:
    """All durable runs of a database. Errors are StoreError: what was tried, what went wrong, what to do next."""

    def __init__(self, url: str, patience: float = PATIENCE, connections: int | None = None) -> None:
        """Connects at the first call. `patience`: seconds to retry while a known database is unreachable.
        `connections`: the most at once, with Postgres.
        """
        self.database = Database(url, patience, first=open_tables, looks=True, connections=connections)
        self._is_up_to_date = False
        self._event_keys = events.EventKeys()

    def __repr__(self) -> str:
        return f"RunStore({self.label})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL with its password: for engines, never for people."""
        return self.database.url

    @property
    def label(self) -> str:
        """The database's name for people, without secrets."""
        return self.database.label

    @property
    def engine(self) -> sa.Engine:
        return self.database.engine

    def close(self) -> None:
        """Closes all connections; the next call connects again."""
        self.database.close()

    def prepare(self) -> None:
        """Makes or migrates our tables; many processes may do so at once. Refuses a newer database."""
        prepare(self.database)

    def update(self) -> None:
        """Migrates the tables of an older Forge before a change; makes none if there are none."""
        if not self._is_up_to_date:
            update(self.database)
            self._is_up_to_date = True

    def now(self) -> float:
        """Returns the time by the database's clock, which all machines share."""
        return self.database.read(lambda connection: connection.execute(sa.select(_find.now(connection))).scalar_one())

    def create(self, run: NewRun) -> RunInfo:
        """Stores a run, queued for its first segment. The same id again returns the existing run."""
        check_input.check_new(run)
        return self.database.write(lambda connection: run_rows.make_run(connection, run))

    def get(self, run_id: str) -> RunInfo:
        """Returns the run of exactly this id."""
        check_input.check_lookup(run_id)
        return self.database.read(lambda connection: _find.find_run(connection, run_id))

    def find(self, beginning: str) -> RunInfo:
        """Returns the run of this id, or the only one whose id begins so: for people, never for programs."""
        check_input.check_lookup(beginning)
        return self.database.read(lambda connection: _find.find_by_prefix(connection, beginning))

    def list(self, wanted: _find.RunFilter = _find.RunFilter(), *, limit: int = 100) -> Infos:  # noqa: B008
        """Lists runs, the newest first."""
        return self.database.read(lambda connection: _find.list_runs(connection, wanted, limit))

    def list_page(self, wanted: _find.RunFilter, limit: int, looked: int = 5_000) -> _find.RunPage:
        """Lists a page of the runs that no other run started; looks at so many of them, however many are stored."""
        return self.database.read(lambda connection: _find.list_page(connection, wanted, limit, looked))

    def mark(self, run_id: str, verdict: str, note: str = "", by: str = "person") -> marks.RunMarked:
        """Marks the answer of a run that is over as "good" or "bad"; "" withdraws the mark."""
        check_input.check_lookup(run_id)
        marks.check_mark(verdict, note, by)
        self.update()
        return self.database.write(lambda connection: marks.mark_run(connection, run_id, verdict, note, by))

    def marks(self, run_ids: Collection[str]) -> dict[str, Mark]:
        """Returns the marks of these runs, by run; omits runs without a mark."""
        return self.database.read(lambda connection: marks.marks_of(connection, run_ids))

    def list_asking(self, limit: int, after: tuple[float, str] | None = None) -> Infos:
        """Lists runs that wait for an answer in words, the oldest first. `after`: `updated` and the id of the last one
        before them.
        """
        return self.database.read(lambda connection: _find.list_asking(connection, limit, after))

    def count_asking(self) -> int:
        """Counts the runs that wait for an answer in words."""
        return self.database.read(_find.count_asking)

    def find_with_roots(self, ids: Collection[str], most_up: int = 50) -> dict[str, RunInfo]:
        """Returns the runs of these ids and those above them, by id: with one query for each level."""
        return self.database.read(lambda connection: _find.find_with_roots(connection, ids, most_up))

    def list_scheduled(self, schedule: str | None = None, limit: int = 100) -> Infos:
        """Lists runs of one schedule or of all, the newest first."""
        return self.database.read(lambda connection: _find.list_scheduled(connection, schedule, limit))

    def counts(self) -> dict[str, int]:
        """Counts the runs by status; omits unused ones."""
        query = sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status)
        return self.database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})

    def count_queued(self) -> dict[tuple[str, str, str], int]:
        """Counts the queued runs by version, queue and agent."""
        kind = (runs.c.version, runs.c.queue, runs.c.agent)
        query = sa.select(*kind, sa.func.count()).where(runs.c.status == "queued").group_by(*kind).order_by(*kind)
        return self.database.read(lambda connection: {tuple(row[:3]): row[3] for row in connection.execute(query)})

    def messages(self, run_id: str, upto_segment: int | None = None) -> Messages:
        """Returns the messages before that segment, which it starts from. Without a number, all messages."""
        return self.database.read(lambda connection: _find.list_messages(connection, run_id, upto_segment))

    def begin(self, run_id: str, segment: int, worker: str, attempt: str = "") -> RunInfo | None:
        """Marks the segment as running on this worker. None: the run is over, waits, or has another segment."""
        begun = self.begin_attempt(run_id, segment, worker, attempt)
        return begun.run if begun is not None else None

    def begin_attempt(self, run_id: str, segment: int, worker: str, attempt: str) -> attempts.Begun | None:
        """Does the same; also returns the calls that earlier attempts at the segment were about to run."""
        return self.database.write(
            lambda connection: attempts.begin_segment(connection, run_id, segment, worker, attempt)
        )

    def record_intent(
        self, run_id: str, segment: int, attempt: str, call: str, detail: attempts.Detail = None, earlier: str = ""
    ) -> attempts.Intent:
        """Records that an attempt is about to run a call that must not be repeated. `earlier`: the attempt that was,
        without effect.
        """
        new = attempts.NewIntent(run_id, segment, attempt, call, detail, earlier)
        write = self.database.write if earlier else self.database.write_once
        return write(lambda connection: attempts.record_intent(connection, new))

    def close_segment(self, run_id: str, segment: int, outcome: Outcome) -> RunInfo:
        """Stores the outcome of a segment; a second time, or for an old segment, changes nothing.

        The returned run shows the next state: it is queued for its next segment after "continue", and after "waiting"
        for an approval that was given meanwhile; instead of either it is cancelled, if that was requested.
        """
        closed = self.database.write(lambda connection: run_rows.close_segment(connection, run_id, segment, outcome))
        assert closed is not None
        return closed

    def close_attempt(self, run_id: str, segment: int, outcome: Outcome, attempt: str) -> RunInfo | None:
        """Does the same for an attempt. None: another attempt runs the segment now, and nothing is stored."""
        return self.database.write(
            lambda connection: run_rows.close_segment(connection, run_id, segment, outcome, attempt)
        )

    def advance(
        self,
        run_id: str,
        *,
        say: Sequence[Message] = (),
        from_segment: int | None = None,
        revive: bool = False,
    ) -> RunInfo | None:
        """Queues a waiting, finished or failed (`revive`: or cancelled) run for its next segment, with the messages
        `say`.

        None: another caller did so, it is running, or `from_segment` is not its current segment.
        """
        check_input.check_lookup(run_id)
        check_input.check_messages(say)
        return self.database.write(
            lambda connection: run_rows.advance_run(connection, run_id, say, from_segment, revive)
        )

    def send(self, run_id: str, text: str) -> RunInfo:
        """Stores a message to a run that is not over, for its next turn. Raises `StoreError`."""
        check_input.check_lookup(run_id)
        return self.database.write(lambda connection: inbox.put_message(connection, run_id, text))

    def request_cancel(self, run_id: str) -> RunInfo:
        """Cancels a queued or waiting run; marks a running one for its worker to stop.

        Does so for its sub-runs, too.
        """
        check_input.check_lookup(run_id)
        self.update()
        return self.database.write(lambda connection: run_rows.cancel_run(connection, run_id))

    def find_called(self, run_ids: Collection[str]) -> inbox.CalledRuns:
        """Finds those of the runs that somebody cancelled, and those that somebody sent a message to."""
        return self.database.read(lambda connection: inbox.find_called(connection, run_ids)) if run_ids else _NOBODY

    def set_version(self, run_id: str, version: str) -> RunInfo:
        """Gives a run to workers of another application version."""
        check_input.check_lookup(run_id)
        check_input.check_name(version, "the version")
        return self.database.write(lambda connection: run_rows.update_run(connection, run_id, version=version))

    def set_scope(self, run_id: str, scope: Mapping[str, Any]) -> RunInfo:
        """Sets the scope of its next segment."""
        return self.database.write(lambda connection: run_rows.update_run(connection, run_id, scope=dict(scope)))

    def due(self, now: float, limit: int = 100) -> Infos:
        """Lists runs whose wait has ended, and runs that were answered but not resumed."""
        return self.database.read(lambda connection: _find.find_due(connection, now, limit))

    def claim_stranded(self, older: float = 5.0, limit: int = 100) -> Infos:
        """Claims queued runs that no worker began for so many seconds: their workflow may be missing.

        Each is given to one caller, and again after `older` seconds, later ever more rarely: asking often is cheap, and
        a long queue is not scanned by every worker all the time.
        """
        if not self.database.read(lambda connection: run_rows.has_stranded(connection, older)):
            return []  # mostly: one statement, and no transaction
        return self.database.write(lambda connection: run_rows.claim_stranded(connection, older, limit), lasting=False)

    def delete(self, run_id: str) -> None:
        """Removes a run that is over, with all its data and its sub-runs."""
        check_input.check_lookup(run_id)
        self.update()
        self.database.write(lambda connection: remove_run(connection, run_id))
        self.database.checkpoint()

    def ask(self, question: Question, segment: int = 0, worker: str = "") -> Question:
        """Stores a question; the same id again returns the stored one, which may be answered.

        With `segment` and `worker`, raises `StoreError` unless that worker still works on that segment.
        """
        return self.database.write(lambda connection: questions.add_question(connection, question, segment, worker))

    def withdraw(self, question_id: str) -> None:
        """Forgets a question that nobody answered."""
        self.database.write(lambda connection: questions.withdraw_question(connection, question_id))

    def always(self, run_id: str) -> set[str]:
        """Returns the digests that a person allowed for the rest of this run."""
        return self.database.read(lambda connection: questions.always_of(connection, run_id))

    def question(self, id: str) -> Question:
        return self.database.read(lambda connection: questions.question_of(connection, id))

    def questions(
        self, run_id: str | None = None, *, open: bool = True, limit: int | None = None, after: str = ""
    ) -> Questions:
        """Lists questions, the oldest first. `open`: only unanswered ones that a run still waits for.

        There may be very many: `limit` is how many are read, and `after` the id of the last one before them.
        """
        return self.database.read(lambda connection: questions.questions_of(connection, run_id, open, limit, after))

    def count_questions(self) -> int:
        """Counts the questions that runs wait for."""
        return self.database.read(questions.count_open)

    def answer(self, id: str, answer: Mapping[str, Any], by: str) -> bool:
        """Stores the first answer; returns False if there was one. `advance` then resumes the run.

        If the answering process dies before that, the run is `due` some seconds later.
        """
        self.update()
        return self.database.write(lambda connection: questions.answer_question(connection, id, answer, by))

    def add_events(self, run_id: str, new: NewEvents, segment: int = 1) -> None:
        """Appends events in their wire form. One with a key is stored once per segment.

        (One without may be stored twice, if the connection is lost just after the commit.)
        """
        for error in self.add_events_of({(run_id, segment): new}).values() if new else ():
            raise error

    def add_events_of(self, batch: Mapping[SegmentKey, NewEvents]) -> dict[str, StoreError]:
        """Does the same for segments of several runs; returns errors for runs that do not exist."""
        remembered = self._event_keys
        added = self.database.write(lambda connection: events.add_events(connection, batch, remembered), lasting=False)
        remembered.note(added)
        return added.errors

    def events(self, run_id: str, after: int = 0, limit: int = 1000) -> Numbered:
        """Returns events numbered above `after`, ascending. No lower number appears later."""
        return self.read_events(lambda connection: events.events_of(connection, run_id, after, limit))

    def find_event(self, run_id: str, segment: int, key: str) -> dict[str, Any] | None:
        """Finds an event of a segment by its key."""
        return self.read_events(lambda connection: events.find_event(connection, (run_id, segment), key))

    def read_events(self, read: Callable[[sa.Connection], T]) -> T:
        """Reads events with a function of `store.events`; migrates the tables of an older Forge first."""
        self.update()
        return self.database.read(read)

    def put_file(self, run_id: str, name: str, data: bytes) -> None:
        """Stores a file of a run; replaces one of the same name."""
        self.database.write(lambda connection: questions.put_file(connection, run_id, name, data))

    def files(self, run_id: str) -> Files:
        """Returns names and sizes."""
        return self.database.read(lambda connection: questions.files_of(connection, run_id))

    def file(self, run_id: str, name: str) -> bytes:
        return self.database.read(lambda connection: questions.file_of(connection, run_id, name))
