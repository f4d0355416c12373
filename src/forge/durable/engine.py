"""The durable engine, DBOS, started and stopped: one of them in a process, on the loop that runs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, Serializer, _serialization

from forge.core.threads import in_thread
from forge.durable import queues as queueing
from forge.durable.database import HOLDS
from forge.durable.queues import NOBODY, Limits, offer_queue, place
from forge.durable.rows import RunInfo
from forge.durable.store import RunStore
from forge.durable.subject import Subject

NAME = "forge"  # DBOS's name of the application: other applications may share the database
SEGMENT = "forge_segment"
LOOK = 0.02  # seconds that DBOS waits between two looks, besides our own pauses
POLL = 0.1  # seconds between two looks into a queue while there is work
IDLE_POLL = 1.0  # … and after a while without any: what idle workers cost is statements
PATIENCE = 30.0  # seconds that a connection is tried for, when the server is away
BUSY_FOR = 10.0  # seconds after the last work during which a worker looks often


def new_worker_id(name: str = "") -> str:
    """Unique for every start of a worker, so that what an earlier one left can be told apart from its own."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class RecordedError(Exception):
    """An exception that a step or a workflow raised in some process, as it was recorded."""


class JsonSerializer(Serializer):
    """What DBOS stores is JSON in plain ASCII (so that no NUL reaches Postgres), never a pickle."""

    def serialize(self, data: Any) -> str:
        if isinstance(data, BaseException):
            data = {"__error__": f"{type(data).__name__}: {data}"}
        return json.dumps(data, separators=(",", ":"))

    def deserialize(self, serialized_data: str) -> Any:
        data = json.loads(serialized_data)
        if isinstance(data, dict) and data.keys() == {"__error__"}:
            return RecordedError(data["__error__"])
        return data

    def name(self) -> str:
        return "forge_json"


def _refuse_pickle(serialized_data: str) -> Any:
    raise TypeError("a pickle in the durable database was not loaded: Forge writes none, and one could run any code")


class Starter:
    """Puts segments of runs into their queues: all that a process needs that only submits."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._client: DBOSClient | None = None
        self._lock = threading.Lock()

    def start(self, run: RunInfo) -> None:
        """Idempotent: a segment that is queued, runs or ran is left as it is."""
        client = self.client
        priority = place(
            self._store.database, queue=run.queue, tenant=run.tenant, priority=run.priority, begun=run.segment > 1
        )
        client.enqueue(
            {
                "workflow_name": SEGMENT,
                "workflow_id": workflow_id(run.id, run.segment),
                "queue_name": run.queue,
                "queue_partition_key": run.tenant or NOBODY,
                "priority": priority,
                "app_version": run.version,
            },
            run.id,
            run.segment,
        )
        if _running is not None:
            _running.wake()

    @property
    def client(self) -> DBOSClient:
        with self._lock:
            if self._client is None:
                quiet()
                self._store.prepare()
                client = DBOSClient(
                    system_database_engine=self._store.engine, serializer=JsonSerializer(), application_name=NAME
                )
                self._store.database.migrate_engine(client._sys_db)  # private: DBOS.migrate takes no engine of ours
                self._client = client
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.destroy()
            self._client = None


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
        limits: Mapping[str, Limits] | None = None,
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
        self.subjects: dict[str, Subject] = {}  # the agents it can run, by name
        self.starter = Starter(self.store)
        self.taking = True  # False: what is queued is left to others
        self._idle: set[str] = set()  # what it took and did not run when it last looked
        self._busy = time.monotonic()
        self._news = threading.Condition()  # something was queued here
        self._dbos: DBOS | None = None
        self._connections: sa.Engine | None = None
        self._ended = threading.Event()

    async def __aenter__(self) -> Self:
        global _running
        if _running is not None:
            raise RuntimeError("an Engine runs in this process already: DBOS is one for the whole process")
        _running = self
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
        """Put the run's current segment into its queue; idempotent."""
        await in_thread(lambda: self.starter.start(run))

    def running(self) -> list[str]:
        """The ids of the workflows at work here."""
        # private: DBOS tells nobody what this process runs, and asking the database every beat would cost a query
        return [] if self._dbos is None else self._dbos._active_workflows_set.activeList()

    def hand_back(self, worker: str) -> list[str]:
        """Put what another worker had begun back into its queues, for whoever is first; the ids of those it was.

        Blocking. Asked twice, or by two, it does no harm: only what that worker still owns is touched. That is why
        it is not DBOS.resume_workflow, which takes a workflow from whoever runs it now, and forgets how often it
        was begun (a run that kills its workers must end some day).
        """
        assert self._dbos is not None
        database = self._dbos._sys_db
        pending = DBOS.list_workflows(
            executor_id=worker, status="PENDING", load_input=False, load_output=False, application_name=NAME
        )
        return [
            one.workflow_id
            for one in pending
            if database.reenqueue_for_recovery(one.workflow_id, [worker], queueing.DEFAULT)
        ]

    def forgotten(self) -> list[str]:
        """Put back into its queue what this worker took and does not run, twice in a row; the ids of those it was.

        Blocking. The database went away just when it had given the work to us, so that we never heard of it; or while
        we worked, for so long that we gave up. Only the engine's owners of steps can record them: no harm is done
        if it begins after all.
        """
        assert self._dbos is not None
        pending = DBOS.list_workflows(
            executor_id=self.worker, status="PENDING", load_input=False, load_output=False, application_name=NAME
        )
        idle = {one.workflow_id for one in pending}.difference(self.running())
        lying, self._idle = idle & self._idle, idle
        queue = self._dbos._sys_db.reenqueue_for_recovery
        return [one for one in sorted(lying) if queue(one, [self.worker], queueing.DEFAULT)]

    def _prepare(self) -> None:
        # the limits of other queues too, so that whoever reads forge.yaml sets them all
        names = dict.fromkeys([*self.takes, *self.limits])
        queueing.register(self.starter.client, list(names), self.limits, LOOK)

    def _launch(self) -> None:
        size = min(20, self.concurrency + 5)
        self._connections = _system_engine(self.store, size, self._ended)
        config: DBOSConfig = {
            "name": NAME,
            "system_database_url": self.store.engine.url.render_as_string(hide_password=False),
            "system_database_engine": self._connections,
            "executor_id": self.worker,
            "application_version": self.version,
            "serializer": JsonSerializer(),
            "sys_db_idle_transaction_timeout_sec": HOLDS,  # a worker that was paused keeps no row from the others
            "sys_db_pool_size": size,
            "use_listen_notify": False,  # nothing waits for notifications, and a listener is a connection a worker
            "run_migrations": False,  # done already, under our lock
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        # private: whatever its serializer is, DBOS unpickles rows that say they are pickles, and who can write to the
        # database could so run code on every worker. DBOS is one for the whole process, and in this one it is ours
        _serialization.DBOSDefaultSerializer.deserialize = _refuse_pickle  # type: ignore[method-assign]
        self._dbos = DBOS(config=config)
        DBOS.listen_queues(self.takes if self.listen else [])
        DBOS.launch()
        database = self._dbos._sys_db
        ask = database.get_queue

        def get_queue(name: str) -> Any:
            self._rest()
            queue = ask(name)
            if queue is not None:
                queue._worker_concurrency, queue._polling_interval_sec = self._room(name), LOOK
            return queue

        # private: DBOS's threads ask for the queue's row before each look into the queue, and find there a worker's
        # concurrency and when to look again, the same for all workers. Ours differ from machine to machine, none is
        # taken while draining, and a worker without work looks rarely: so they rest here
        database.get_queue = get_queue  # type: ignore[method-assign,assignment]

    def _rest(self) -> None:
        """Until the next look into a queue: soon while there is work, at once when this process queued something."""
        moment = time.monotonic()
        if self.running():
            self._busy = moment
        pause = POLL if moment - self._busy < BUSY_FOR else IDLE_POLL
        with self._news:
            self._news.wait(pause * random.uniform(0.9, 1.1))  # noqa: S311 - only so that workers drift apart

    def wake(self) -> None:
        """Something was queued: look at once."""
        self._busy = time.monotonic()
        with self._news:
            self._news.notify_all()

    def _room(self, queue: str) -> int:
        """How many this worker may have of a queue: what its other queues leave. Two queues that are looked into at
        the same moment may both be given the same room: then there is too much for as long as that work takes."""
        if not self.taking or self._dbos is None:
            return 0
        count = self._dbos._active_workflows_set.count_for_queue
        return max(0, self.concurrency - sum(count(name) for name in self.takes if name != queue))

    async def _end(self) -> None:
        global _running
        try:
            if self._dbos is not None:
                self.taking = False
                self._ended.set()
                await self.stop_workflows()
                self.wake()
                await in_thread(DBOS.destroy)
                # DBOS made its own pool the loop's, and that one takes no work any more
                asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="forge"))
        finally:
            self._dbos = None
            vars(_serialization.DBOSDefaultSerializer).pop("deserialize", None)
            if self._connections is not None:
                self._connections.dispose()
            self.starter.close()
            _running = None

    async def stop_workflows(self) -> None:
        """What still runs stays PENDING in the database: the same worker's successor, or another, goes on with it."""
        # private: destroy() would leave the tasks on our loop, each without a database
        tasks = [task for task in self._dbos._workflow_tasks if not task.done()] if self._dbos else []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)


_running: Engine | None = None


def running_engine() -> Engine:
    """The engine of this process; workflows ask for it."""
    if _running is None:
        raise RuntimeError("no Engine runs in this process")
    return _running


def workflow_id(run: str, segment: int) -> str:
    return f"{run}.{segment}"


def start_segment(store: RunStore, run: RunInfo) -> None:
    """For processes that only submit, once; those that submit often keep a Starter."""
    starter = Starter(store)
    try:
        starter.start(run)
    finally:
        starter.close()


def quiet() -> None:
    """DBOS writes to the standard error unless its logger has a handler; whoever configures logging sees it."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.WARNING)


def _system_engine(store: RunStore, size: int, ended: threading.Event) -> sa.Engine | None:
    """Postgres: the connections of DBOS, made by us, because it takes only some of the words that psycopg has for an
    unreachable server as a reason to wait for it, and would let the run fail otherwise; and because it waits twice as
    long each time, so that it would come back long after the server."""
    if store.database.is_sqlite:
        return None
    engine = sa.create_engine(
        store.engine.url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=120,  # longer than a database is likely to be away: then all connections are waited for
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args=_CONNECTING,
    )
    sa.event.listen(engine, "handle_error", _is_lost)

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


_CONNECTING = {
    "application_name": "forge-engine",
    "connect_timeout": 10,
    # a network that swallows packets is noticed within seconds, and a frozen client holds no lock for long
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "options": "-c idle_in_transaction_session_timeout=60000",
}


def _is_lost(context: sa.ExceptionContext) -> None:
    error = context.original_exception
    if type(error).__name__ in ("OperationalError", "ConnectionTimeout") and getattr(error, "sqlstate", None) is None:
        context.is_disconnect = True  # the server said nothing: it was not reached
