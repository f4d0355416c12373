"""Starts and stops the durable engine, DBOS: one in a process, on the running loop."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig
from sqlalchemy.exc import DisconnectionError

from forge.agent.agent import Agent
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.durable.engine import queues as queueing
from forge.durable.engine.agents import OfferedTools, list_runnable
from forge.durable.engine.attempt import Models, WatchActivity, note_messages
from forge.durable.engine.claims import Claims
from forge.durable.engine.dbos_parts import JsonSerializer, allow_pickles, refuse_pickles
from forge.durable.engine.queues import QueueLimits, claim_key, offer_queue
from forge.durable.engine.start_segments import Starter, on_start
from forge.durable.monitor.metrics import Counters
from forge.durable.store import RunStore
from forge.durable.store.database import HOLDS, set_up_connection
from forge.durable.store.inbox import Notices
from forge.durable.store.rows import RunInfo
from forge.durable.store.steps import APPLICATION

LOOK = 0.002  # seconds between two polls of DBOS, besides our own pauses
POLL = 0.1  # seconds between two polls of a queue while there is work
IDLE_POLL = 1.0  # … and when idle, to save queries
QUEUE_READ = 5.0  # seconds after which the row of a queue is read again: its limits change rarely
HEARING = 5  # workers that poll at once when something is queued
CONNECTIONS = 2  # of DBOS, with Postgres
BUSY_FOR = 10.0  # seconds after the last work during which a worker polls often


def new_worker_id(name: str = "") -> str:
    """Returns an id that is unique for every start of a worker, so that leftovers of an earlier start are distinct."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Engine:
    """DBOS on the running loop; `async with` launches and ends it. Register the workflows before."""

    def __init__(
        self,
        url: str,
        *,
        worker: str = "",
        version: str = "",
        queues: Sequence[str] = (queueing.DEFAULT,),
        offers: Sequence[str] = (),
        concurrency: int = 10,
        listen: bool = True,
        limits: Mapping[str, QueueLimits] | None = None,
        store: RunStore | None = None,
    ) -> None:
        self.url = url
        self.store = store or RunStore(url)
        self.worker = worker or new_worker_id()
        self.version = version or "0"
        self.offers = tuple(dict.fromkeys(offers))
        self.takes = tuple(dict.fromkeys([*queues, *(offer_queue(offer) for offer in offers)]))  # its queues
        self.concurrency = concurrency
        self.listen = listen
        self.limits = dict(limits or {})
        self.agents: dict[str, Agent] = {}  # those it can run, by name
        self.models: Models | None = None
        self.watch: WatchActivity | None = None
        self.counters = Counters()
        self.offered = OfferedTools()
        self.starter = Starter(self.store)
        self.taking = True  # False: leave queued runs to others
        self._idle: set[str] = set()  # claimed but not running at the last check
        self._busy = time.monotonic()
        self.sharing = 1  # workers of the database: with many of them, each ignores some notices
        self._news = threading.Condition()  # something was queued
        self._notices = 0  # how often something was queued
        self._heard: dict[str, int] = {}  # … at the last poll, by queue
        self._listener: Notices | None = None
        self._dbos: DBOS | None = None
        self._connections: sa.Engine | None = None
        self._ended = threading.Event()

    async def __aenter__(self) -> Self:
        global _running
        if _running is not None:
            message = "a worker for stored runs cannot start: this process has one already, and DBOS supports only one"
            hint = "Give all agents to one worker: DurableAgent(first, others=[second]), or DurableAgent.serve([…])."
            raise ToolError(message, ErrorKind.CONFIG, hint)
        _running = self
        on_start.add(self.wake)
        try:
            await in_thread(self._prepare)
            self._launch()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def start_segment(self, run: RunInfo) -> None:
        """Puts the run's current segment into its queue; idempotent."""
        await in_thread(lambda: self.starter.start(run))

    def list_running(self) -> list[str]:
        """Lists the ids of the workflows running here."""
        # private: DBOS has no call for it, and asking the database at every heartbeat would cost a query
        return [] if self._dbos is None else self._dbos._active_workflows_set.activeList()

    def hand_back(self, worker: str, *, counts: bool = True) -> list[str]:
        """Puts the begun workflows of a worker back into their queues; returns their ids.

        Blocking and idempotent: only workflows that this worker still owns are touched. DBOS.resume_workflow would take
        a workflow from its current worker and reset its count of attempts (a run that kills its workers must end some
        day). `counts`: the loss counts as an attempt; not if the worker leaves in good order.
        """
        assert self._dbos is not None
        database = self._dbos._sys_db
        pending = DBOS.list_workflows(
            executor_id=worker, status="PENDING", load_input=False, load_output=False, application_name=APPLICATION
        )
        ids = [one.workflow_id for one in pending]
        if ids and not counts:
            self.store.database.write(lambda connection: queueing.undo_attempt_count(connection, worker, ids))
        return [one for one in ids if database.reenqueue_for_recovery(one, [worker], queueing.DEFAULT)]

    def requeue_forgotten(self) -> list[str]:
        """Requeues workflows that this worker claimed but does not run, twice in a row; returns their ids.

        Blocking. The database became unreachable just after the claim, or for so long during the work that we gave up.
        Only the owner of a segment can record its steps, so a late start does no harm.
        """
        assert self._dbos is not None
        pending = DBOS.list_workflows(
            executor_id=self.worker, status="PENDING", load_input=False, load_output=False, application_name=APPLICATION
        )
        idle = {one.workflow_id for one in pending}.difference(self.list_running())
        lying, self._idle = idle & self._idle, idle
        queue = self._dbos._sys_db.reenqueue_for_recovery
        return [one for one in sorted(lying) if queue(one, [self.worker], queueing.DEFAULT)]

    def _prepare(self) -> None:
        # the limits of other queues too, so that any worker with forge.yaml sets them all
        names = dict.fromkeys([*self.takes, *self.limits])
        queueing.register(self.starter.client, list(names), self.limits, LOOK)

    def _launch(self) -> None:
        # the steps go through the store: DBOS itself begins and ends segments, and polls
        size = min(20, self.concurrency + 5) if self.store.database.is_sqlite else CONNECTIONS
        self._connections = system_engine(self.store, size, self._ended)
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": self.store.engine.url.render_as_string(hide_password=False),
            "system_database_engine": self._connections,
            "executor_id": self.worker,
            "application_version": self.version,
            "serializer": JsonSerializer(),
            "sys_db_idle_transaction_timeout_sec": HOLDS,  # a paused worker must not lock rows
            "sys_db_pool_size": size,
            "use_listen_notify": False,  # notifications are not used, and a listener costs a connection
            "run_migrations": False,  # done already, under our lock
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        refuse_pickles()
        self._dbos = DBOS(config=config)
        DBOS.listen_queues(self.takes if self.listen else [])
        self._launch_with_claims(self._dbos)
        if self.listen:
            self._listener = Notices(self.store.database, self.takes, self._hear, note_messages)
            self._listener.start()

    def _launch_with_claims(self, dbos: DBOS) -> None:
        # private: DBOS asks for its own queue when its database is there and before its threads poll the first queue.
        # After launch() it would be too late: on a busy machine they have claimed runs by then
        registry = vars(dbos._registry)

        def get_internal_queue() -> Any:
            del registry["get_internal_queue"]
            self._install_claims(dbos)
            return dbos._registry.get_internal_queue()

        registry["get_internal_queue"] = get_internal_queue
        try:
            DBOS.launch()
        finally:
            is_late = registry.pop("get_internal_queue", None)
        if is_late:
            raise RuntimeError("this version of DBOS starts in another order: Forge cannot limit what a worker claims")

    def _install_claims(self, dbos: DBOS) -> None:
        database = dbos._sys_db
        claims = Claims(
            self.store.database,
            self.takes,
            lambda: self.concurrency if self.taking else 0,
            lambda: [claim_key(self.version, name) for name in list_runnable(self.agents)],
        )
        claims.install(dbos)
        ask = database.get_queue

        known: dict[str, tuple[float, Any]] = {}  # queues by name, and when their rows were read

        def get_queue(name: str) -> Any:
            self._wait_for_poll(name)
            read_at, queue = known.get(name, (0.0, None))
            if queue is None or time.monotonic() - read_at >= QUEUE_READ:
                queue = ask(name)
                if queue is not None:
                    queue._polling_interval_sec = LOOK
                    claims.note_queue(queue)
                    known[name] = (time.monotonic(), queue)
            return copy.copy(queue)

        # private: DBOS's threads read the queue's row before each poll of the queue, and find there when to poll
        # again, the same for all workers. Ours wait here, and an idle one polls rarely
        database.get_queue = get_queue  # type: ignore[method-assign,assignment]

    def _wait_for_poll(self, queue: str) -> None:
        """Waits until the next poll of a queue: shortly while there is work, not at all when something was queued."""
        moment = time.monotonic()
        if self.list_running():
            self._busy = moment
        pause = POLL if moment - self._busy < BUSY_FOR else IDLE_POLL
        with self._news:
            heard = self._heard.get(queue, 0)
            # at random, only so that workers drift apart
            self._news.wait_for(lambda: self._notices != heard, pause * random.uniform(0.9, 1.1))  # noqa: S311
            self._heard[queue] = self._notices

    def wake(self) -> None:
        """Polls at once, since this process queued something."""
        self._busy = time.monotonic()
        self._poll_now()

    def _hear(self) -> None:
        """Polls at once, since another process queued something. About `HEARING` idle workers do so."""
        if self.list_running():  # SQLite's file also changes with each of its steps
            return
        if self.sharing <= HEARING or random.random() < HEARING / self.sharing:  # noqa: S311
            self._poll_now()

    def _poll_now(self) -> None:
        with self._news:
            self._notices += 1
            self._news.notify_all()

    async def _end(self) -> None:
        global _running
        try:
            if self._listener is not None:
                await in_thread(self._listener.end)
            if self._dbos is not None:
                self.taking = False
                self._ended.set()
                await self.stop_workflows()
                self.wake()
                await in_thread(DBOS.destroy)
                # DBOS made its own pool the loop's, and that pool is shut down
                asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="forge"))
        finally:
            self._dbos = self._listener = None
            allow_pickles()
            on_start.discard(self.wake)
            if self._connections is not None:
                self._connections.dispose()
            self.starter.close()
            _running = None

    async def stop_workflows(self) -> None:
        """Stops running workflows. They stay PENDING in the database, for another worker to resume."""
        # private: destroy() would leave the tasks on our loop without a database
        tasks = [task for task in self._dbos._workflow_tasks if not task.done()] if self._dbos else []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)


_running: Engine | None = None


def running_engine() -> Engine:
    """Returns the engine of this process, for workflows."""
    if _running is None:
        raise RuntimeError("no Engine runs in this process")
    return _running


# Makes the engine's connections to Postgres: they wait for an unreachable server, and hold no lock for long.


CONNECTION_HOLDS = 60.0  # seconds that a client may be idle in a transaction
PATIENCE = 30.0  # seconds to retry while the server is unreachable
PING_AFTER = 5.0  # seconds without use after which a connection is tried first
_USED = "forge_used"  # in a connection's record: when it was used last

_CONNECTING = {
    "application_name": "forge-engine",
    "connect_timeout": 10,
    # a network that drops packets is noticed within seconds, and a frozen client holds no lock for long
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def system_engine(store: RunStore, size: int, ended: threading.Event) -> sa.Engine | None:
    """Makes the engine's connections; None for SQLite. DBOS does not make them itself, because it retries only for some
    of psycopg's messages about an unreachable server and would fail the run otherwise, and because it doubles its
    waits, so that it would reconnect long after the server is back.
    """
    if store.database.is_sqlite:
        return None
    engine = sa.create_engine(
        store.engine.url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=120,  # longer than a database is likely to be unreachable
        hide_parameters=True,
        connect_args=_CONNECTING,
    )
    sa.event.listen(engine, "connect", partial(set_up_connection, idle=CONNECTION_HOLDS))
    sa.event.listen(engine, "handle_error", _mark_disconnect)
    sa.event.listen(engine, "checkin", _note_use)
    sa.event.listen(engine, "checkout", partial(_ping_idle, engine.dialect))

    def connect(dialect: sa.Dialect, _record: object, args: Any, kwargs: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return dialect.connect(*args, **kwargs)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() > until or ended.wait(0.3):
                    raise

    sa.event.listen(engine, "do_connect", connect)
    return engine


def _note_use(_: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _ping_idle(dialect: sa.Dialect, connection: Any, record: Any, _: object) -> None:
    """Tries a connection that was idle for long: its server may have ended. DBOS polls every second, so this is rare: a
    ping before each use would be a fifth of an idle worker's statements.
    """
    if time.monotonic() - record.info.get(_USED, time.monotonic()) < PING_AFTER:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error  # the pool makes another one


def _mark_disconnect(context: sa.ExceptionContext) -> None:
    error = context.original_exception
    if type(error).__name__ in ("OperationalError", "ConnectionTimeout") and getattr(error, "sqlstate", None) is None:
        context.is_disconnect = True  # no reply: the server was not reached
