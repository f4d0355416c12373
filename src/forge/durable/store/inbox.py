"""Holds messages to a run in progress until its next segment, and notifies workers of messages and queued runs."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.messages import SENT, Message, export_message
from forge.core.plain_values import text_of
from forge.durable.store.database import Database
from forge.durable.store.find import INBOX, find_run
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import messages, runs
from forge.workspace.state.store import StoreError

if TYPE_CHECKING:
    import psycopg


MOST_WAITING = 100  # messages that wait for one run
LONGEST_MESSAGE = 1024 * 1024  # characters of one message


class CalledRuns(NamedTuple):
    """Runs that somebody wants something of, by their ids."""

    cancelled: frozenset[str]  # or being cancelled
    told: frozenset[str]  # messages wait for them


def put_message(connection: sa.Connection, run_id: str, text: str) -> RunInfo:
    """Adds a message for a run that is not over. Raises `StoreError`."""
    run = find_run(connection, run_id, lock=True)
    if run.is_over:
        message = f"sending a message to run {run.id}: it is {run.status}"
        raise StoreError(message, ErrorKind.USER, f'Continue it with the message: forge runs resume {run.id} --say "…"')
    waiting, last = connection.execute(
        sa.select(sa.func.count(), sa.func.max(messages.c.position)).where(*_of(run.id))
    ).one()
    if waiting >= MOST_WAITING or len(text) > LONGEST_MESSAGE:
        may_wait = f"at most {MOST_WAITING} messages of {LONGEST_MESSAGE:,} characters may wait"
        message = f"sending a message to run {run.id}: {may_wait}"
        raise StoreError(message, ErrorKind.USER, "Wait until the run has received the earlier ones.")
    wire = export_message(Message("user", text, extra={SENT: True}))
    position = 0 if last is None else last + 1
    connection.execute(sa.insert(messages).values(run=run.id, place=INBOX, position=position, message=wire))
    notify_message(connection, run.id)
    return run


def has_messages(run_id: str) -> sa.ColumnElement[bool]:
    """Returns a condition: messages wait for the run."""
    return sa.exists().where(*_of(run_id))


def move_messages(connection: sa.Connection, run_id: str, place: int) -> bool:
    """Makes the waiting messages a part of the history, at a place that has no others yet. False: there are none."""
    return connection.execute(sa.update(messages).where(*_of(run_id)).values(place=place)).rowcount > 0


def find_called(connection: sa.Connection, run_ids: Collection[str]) -> CalledRuns:
    """Finds the cancelled runs, and those for which messages wait, in one query."""
    stopped = sa.or_(runs.c.cancelling, runs.c.status == "cancelled")
    cancelled = sa.select(runs.c.id, sa.true().label("ends")).where(runs.c.id.in_(list(run_ids)), stopped)
    told = sa.select(messages.c.run, sa.false()).where(messages.c.run.in_(list(run_ids)), messages.c.place == INBOX)
    rows = connection.execute(sa.union_all(cancelled, told)).all()
    return CalledRuns(frozenset(run for run, ends in rows if ends), frozenset(run for run, ends in rows if not ends))


def _of(run_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return messages.c.run == run_id, messages.c.place == INBOX


# Notices of queued runs and of messages, so that a worker does not wait for its next poll.


QUEUED = "forge_queued"  # a channel of Postgres's LISTEN and NOTIFY; the payload is the name of the queue
TOLD = "forge_told"  # … of messages; the payload is the id of the run
LOOK = 0.03  # seconds between two checks of a SQLite file for changes
WAITS = 0.5  # seconds that a wait for notifications takes, so that the thread can end
RETRY = 2.0  # seconds between two attempts to listen

log = logging.getLogger("forge.durable")


def notify_queued(connection: sa.Connection, queue: str) -> None:
    """Notifies workers when the transaction commits. SQLite needs nothing: its workers see that the file changed."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_notify(QUEUED, queue)))


def notify_message(connection: sa.Connection, run_id: str) -> None:
    """Notifies the worker of a run that a message waits, when the transaction commits."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(sa.func.pg_notify(TOLD, run_id)))


class Notices:
    """A thread that calls `on_queued` when a process queued something, and `on_message` when it sent a run a message.
    Polling remains, for notices that are lost.
    """

    def __init__(
        self,
        database: Database,
        queues: Collection[str],
        on_queued: Callable[[], None],
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._queues = frozenset(queues)
        self._on_queued = on_queued
        self._on_message = on_message
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forge-notices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ends the thread. Blocking."""
        self._ended.set()
        self.join(5)

    def join(self, timeout: float) -> None:
        """Waits until the thread has ended, such as behind a pooler."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if not (self._watch_file() if self._database.is_sqlite else self._listen()):
                    return
            except Exception as error:  # an unreachable database, mostly: polling continues
                log.debug("notices of queued runs are interrupted: %s", text_of(error))
            self._ended.wait(RETRY)

    def _listen(self) -> bool:
        """Listens until the thread ends. False: this connection cannot listen."""
        import psycopg  # only with Postgres

        url = self._database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        options = {"connect_timeout": 10, "application_name": "forge-notices"}
        with psycopg.connect(url, autocommit=True, **options) as connection:  # type: ignore[arg-type]
            if _is_pooled(connection):
                log.info(
                    "%s is behind a pooler, where LISTEN does not work: an idle worker polls for runs every second",
                    self._database.label,
                )
                return False
            connection.execute(f"LISTEN {QUEUED}; LISTEN {TOLD}")
            self._on_queued()  # what was queued before
            while not self._ended.is_set():
                for notice in connection.notifies(timeout=WAITS):
                    if notice.channel == TOLD:
                        self._on_message(notice.payload)
                    elif notice.payload in self._queues:
                        self._on_queued()
        return True

    def _watch_file(self) -> bool:
        """Checks the version of the file, which every change by another connection raises, until the thread ends."""
        path = str(self._database.engine.url.database)
        connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            last = None
            while not self._ended.wait(LOOK):
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version != last:
                    last = version
                    self._on_queued()
        finally:
            connection.close()
        return True


def _is_pooled(connection: psycopg.Connection) -> bool:
    """Returns whether this is a pooler such as PgBouncer, which answers with a process number of its own."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid
