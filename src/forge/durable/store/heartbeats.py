"""Records heartbeats of workers, finds dead workers and ended processes, and runs that no living worker takes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from forge.durable.store import RunStore
from forge.durable.store.database import Database
from forge.durable.store.migrate import make_if_allowed
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import AnyText, Json, create_tables
from forge.workspace.state.store import StoreError

EVERY = 2.0  # seconds between two heartbeats
SILENT = 10.0  # seconds without one after which a worker counts as dead
STUCK = 60.0  # seconds that a worker's loop may block before its heartbeat stops
CONNECTIONS = 2  # of the heartbeat and of the housekeeping, which must not block it
LISTED_FOR = 86_400.0  # seconds that a gone worker is still listed

log = logging.getLogger("forge.durable")

_MAKING = 0x666F72676577  # advisory lock for making the table

metadata = sa.MetaData()
workers = sa.Table(
    "forge_workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", AnyText, nullable=False),
    sa.Column(
        "boot", sa.Text, nullable=False
    ),  # the machine's start and process namespace: where the pid means something
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("started", sa.Double, nullable=False),
    sa.Column("beat", sa.Double, nullable=False),
    sa.Column("queues", Json, nullable=False),
    sa.Column("offers", Json, nullable=False),
    sa.Column("version", AnyText, nullable=False),
    sa.Column("concurrency", sa.Integer, nullable=False),
    sa.Column("running", sa.Integer, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("gone", sa.Double),  # when the worker left or was declared dead
    sa.Column("claimed", sa.Text, nullable=False),  # who declared it dead; itself, if it left
    sa.Column("handed", sa.Boolean, nullable=False),  # its runs are back in the queues
    sa.Column("agents", Json, nullable=False),  # the names of agents whose runs it takes
)
_is_here, _is_open = workers.c.gone.is_(None), workers.c.handed == sa.false()
sa.Index("forge_workers_beat", workers.c.beat, sqlite_where=_is_here)
sa.Index("forge_workers_open", workers.c.gone, sqlite_where=_is_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAbilities:
    """The runs that a worker takes, and how many at once."""

    queues: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    version: str = ""
    concurrency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A stored worker. `age` is the time since its last heartbeat, by the database's clock."""

    id: str
    host: str
    pid: int
    started: float
    age: float
    queues: tuple[str, ...]
    offers: tuple[str, ...]
    agents: tuple[str, ...]
    version: str
    concurrency: int
    running: int
    draining: bool
    gone: bool

    @property
    def state(self) -> str:
        if self.gone:
            return "gone"
        if self.age > SILENT:
            return "silent"
        return "draining" if self.draining else "working"

    def takes(self, version: str, queue: str, agent: str) -> bool:
        """Returns whether it takes runs of this version and agent from this queue."""
        is_able = self.version == version and queue in self.queues and agent in self.agents
        return is_able and self.state == "working"


def prepare(database: Database) -> None:
    """Makes the table; many processes may do so at once."""

    def make(connection: sa.Connection) -> None:
        if connection.dialect.name != "sqlite":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
        create_tables(connection, metadata)

    if not database.read(_is_there):
        make_if_allowed(database, make)


def _is_there(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(workers.name)


def now(database: Database) -> sa.ColumnElement[float]:
    """Returns the database's clock, which all workers share."""
    if database.is_sqlite:
        return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Double)
    return sa.literal_column("extract(epoch from clock_timestamp())::float8", sa.Double)


def list_workers(database: Database) -> list[WorkerInfo]:
    """Lists all workers, including those gone within the last day; the youngest last."""
    c = workers.c
    query = sa.select(workers, (now(database) - c.beat).label("age")).order_by(c.started, c.id)

    def ask(connection: sa.Connection) -> Sequence[Any]:
        return connection.execute(query).mappings().all() if _is_there(connection) else []

    rows = database.read(ask)
    return [
        WorkerInfo(
            queues=tuple(row["queues"]),
            offers=tuple(row["offers"]),
            agents=tuple(row["agents"]),
            gone=row["gone"] is not None,
            **{name: row[name] for name in _PLAIN},
        )
        for row in rows
    ]


_PLAIN = ("id", "host", "pid", "started", "age", "version", "concurrency", "running", "draining")


class Heartbeat:
    """One worker's row, kept fresh by its own thread, so that a busy loop does not make it look dead.

    A loop that blocks for `STUCK` seconds does: its runs are stuck with it, and others can resume them
    safely, because the engine lets only the owner of a segment record steps.
    """

    def __init__(
        self,
        url: str,
        worker: str,
        takes: WorkerAbilities = WorkerAbilities(),  # noqa: B008 - frozen
        *,
        running: Callable[[], int] = lambda: 0,
        every: float = EVERY,
        silent: float = SILENT,
        stuck: float = STUCK,
    ) -> None:
        self.worker = worker
        self.draining = False
        self.lost = threading.Event()  # another worker declared this one dead
        # its own connections, independent of busy pools; no patience, since the next heartbeat comes soon
        self._database = Database(url, patience=0, connections=CONNECTIONS)
        self._row = {
            "host": socket.gethostname(),
            "boot": find_boot(),
            "pid": os.getpid(),
            **asdict(takes),
        }
        self._running = running
        self._every, self._silent, self._stuck = every, silent, stuck
        self._pulse = time.monotonic()
        self._steady: float | None = None  # since when every heartbeat succeeded
        self._beaten = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Makes the row and starts the heartbeat. Blocking."""
        prepare(self._database)
        clock = self._clock()
        old = sa.delete(workers).where(workers.c.handed, workers.c.gone < clock - LISTED_FOR)
        values = {"running": 0, "draining": False, "claimed": "", "handed": False, **self._row}
        entry = sa.insert(workers).values(id=self.worker, started=clock, beat=clock, **values)
        self._database.write(lambda connection: (connection.execute(old), connection.execute(entry)))
        self._steady = self._beaten = self._pulse = time.monotonic()
        self._thread = threading.Thread(target=self._beat_on, name="forge-beats", daemon=True)
        self._thread.start()

    def pulse(self) -> None:
        """Notes that the worker's loop is alive."""
        self._pulse = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last heartbeat that reached the database."""
        return time.monotonic() - self._beaten

    @property
    def is_steady(self) -> bool:
        """True if the last heartbeat reached the database, in time."""
        return self._steady is not None and self.age < self._silent

    def beat(self) -> bool:
        """Writes a heartbeat. False: another worker declared this one dead, and it must drop its runs."""
        beaten = self._write(
            sa.update(workers)
            .where(workers.c.id == self.worker, workers.c.gone.is_(None))
            .values(beat=self._clock(), running=self._running(), draining=self.draining)
        )
        moment = time.monotonic()
        if self._steady is None or moment - self._beaten > self._silent / 2:
            self._steady = moment  # it was cut off or asleep: others may have been, too
        self._beaten = moment
        return beaten

    def find_silent(self) -> list[str]:
        """Lists dead workers. A worker that was itself cut off from the database does not judge others: all look dead
        at first.

        A worker on this machine whose process has ended is dead at once.
        """
        c = workers.c
        here = sa.and_(c.host == self._row["host"], c.boot == self._row["boot"])
        quiet = c.beat < self._clock() - self._silent
        rows = self._read(
            sa.select(c.id, c.pid, here.label("here"), quiet.label("quiet")).where(
                c.gone.is_(None), c.id != self.worker, sa.or_(here, quiet)
            )
        )
        judges = self._steady is not None and time.monotonic() - self._steady >= self._silent
        return [row.id for row in rows if (row.quiet and judges) or (row.here and not is_alive(row.pid))]

    def claim(self, worker: str) -> bool:
        """Declares a worker dead, if it still is. Returns True for exactly one caller."""
        c = workers.c
        patience = 0.0 if self._has_ended_here(worker) else self._silent
        return self._write(
            sa.update(workers)
            .where(c.id == worker, c.gone.is_(None), c.beat <= self._clock() - patience)
            .values(gone=self._clock(), claimed=self.worker)
        )

    def find_unhanded(self) -> list[str]:
        """Lists gone workers whose runs are not requeued: they left, or their claimer died."""
        c = workers.c
        mine = sa.or_(c.claimed == self.worker, c.claimed == c.id, c.gone < self._clock() - self._silent)
        return [row.id for row in self._read(sa.select(c.id).where(c.handed == sa.false(), c.gone.is_not(None), mine))]

    def mark_handed(self, worker: str) -> None:
        self._write(sa.update(workers).where(workers.c.id == worker).values(handed=True))

    def look_around(self) -> tuple[float, int]:
        """Returns the database's time, and the number of workers that share the housekeeping, this one included."""
        c = workers.c
        alive = sa.select(self._clock().label("now"), sa.func.count().label("n"))
        row = self._read(alive.where(c.gone.is_(None), c.beat > self._clock() - self._silent))[0]
        return float(row.now), max(1, int(row.n))

    def leave(self, *, handed: bool) -> None:
        """Ends the heartbeat: nothing runs here any more. Blocking; if the database is unreachable, others notice the
        silence.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        gone = sa.update(workers).where(workers.c.id == self.worker, workers.c.gone.is_(None))
        with contextlib.suppress(StoreError):
            self._write(gone.values(gone=self._clock(), claimed=self.worker, handed=handed, running=0))
        self._database.close()

    def _beat_on(self) -> None:
        while not self._ended.wait(self._every):
            if time.monotonic() - self._pulse > self._stuck:
                continue
            try:
                if not self.beat():
                    self.lost.set()
                    return
            except Exception as error:  # usually an unreachable database: the next heartbeat retries
                self._steady = None
                if not isinstance(error, StoreError):
                    log.exception("a heartbeat of worker %s failed", self.worker)

    def _has_ended_here(self, worker: str) -> bool:
        c = workers.c
        here = (c.id == worker, c.host == self._row["host"], c.boot == self._row["boot"])
        return any(not is_alive(row.pid) for row in self._read(sa.select(c.pid).where(*here)))

    def _clock(self) -> sa.ColumnElement[float]:
        return now(self._database)

    def _read(self, query: sa.Select[*tuple[Any, ...]]) -> Sequence[sa.Row[Any]]:
        return self._database.read(lambda connection: connection.execute(query).all())

    def _write(self, change: sa.Update) -> bool:
        """Returns whether it changed a row. Losing a heartbeat in a power failure is harmless."""
        return self._database.write_once(lambda connection: connection.execute(change).rowcount > 0, lasting=False)


# Identifies processes across restarts of a machine, and tells whether one has certainly ended.


def find_boot() -> str:
    """Returns the same value for two processes that see each other's pids."""
    return _find_namespace() or socket.gethostname()


@cache
def mark_process() -> str:
    """Returns a mark of this process that no other process ever has; empty where the system tells too little."""
    place, began = _find_namespace(), _find_start(os.getpid())
    return f"{place}/{os.getpid()}/{began}" if place and began else ""


def has_ended(mark: str) -> bool:
    """Returns whether the marked process has certainly ended. One on another machine may still run."""
    place, _, rest = mark.rpartition("/")
    place, _, pid = place.rpartition("/")
    if not place or place != _find_namespace() or not pid.isdigit():
        return False
    return _find_start(int(pid)) != rest or _is_zombie(int(pid), alone=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


@cache
def _find_namespace() -> str:
    """Returns the machine's start and the process namespace: where a pid means something."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _find_start(pid: int) -> str:
    """Returns when the process started, in ticks since the machine did; empty: there is no such process."""
    fields = _read_status(pid)
    return fields[19] if len(fields) > 19 else ""


def _is_zombie(pid: int, *, alone: bool = False) -> bool:
    """`alone`: none of its threads runs any more."""
    if _read_status(pid)[:1] != ["Z"]:
        return False
    try:
        return not alone or len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def _read_status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


os.register_at_fork(after_in_child=mark_process.cache_clear)


# Finds runs that no living worker takes, and warns those who wait for one.


WARN_EVERY = 5.0  # seconds between two checks for workers while waiting for a run


def has_worker(store: RunStore, run: RunInfo) -> bool:
    """Returns whether a living worker takes the run."""
    return any(one.takes(run.version, run.queue, run.agent) for one in list_workers(store.database))


def find_unattended(store: RunStore, run: RunInfo) -> RunInfo | None:
    """Returns the run, or a run it waits for, that is queued where no living worker takes it."""
    if run.status == "queued":
        return None if has_worker(store, run) else run
    waited_for = (store.get(wait.run_id) for wait in run.waits if wait.run_id)
    return next((found for child in waited_for if (found := find_unattended(store, child)) is not None), None)


def describe_unattended(run: RunInfo) -> str:
    return f"run {run.id} waits for a worker {describe_needed(run.version, run.queue, run.agent)}, but none is running"


def describe_needed(version: str, queue: str, agent: str) -> str:
    """Describes what a worker must have to take a run."""
    return f"with agent {agent}, version {version} and queue {queue}"


class UnattendedWarning:
    """Warns once about each run that no worker takes. Waiting continues, since a worker may start."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._next = 0.0
        self._warned: set[str] = set()

    def look(self, run: RunInfo) -> None:
        if time.monotonic() < self._next or run.status not in ("queued", "waiting"):
            return
        self._next = time.monotonic() + WARN_EVERY
        found = find_unattended(self._store, run)
        if found is not None and found.id not in self._warned:
            self._warned.add(found.id)
            log.warning("%s: start one, or check the run's agent, queue and version", describe_unattended(found))
