"""The durable engine, DBOS, started and stopped: one of them in a process, on the loop that runs."""

from __future__ import annotations

import asyncio
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
from dbos import DBOS, DBOSConfig

from forge.agent.agent import Agent
from forge.core.execution.threads import in_thread
from forge.durable.engine import queues as queueing
from forge.durable.engine.agents import OfferedTools
from forge.durable.engine.claims import Claims
from forge.durable.engine.connections import system_engine
from forge.durable.engine.queues import Limits, offer_queue
from forge.durable.engine.segment_context import Models, WatchActivity
from forge.durable.engine.serializer import JsonSerializer, allow_pickles, refuse_pickles
from forge.durable.engine.starter import NAME, Starter, on_start
from forge.durable.store import RunStore
from forge.durable.store.database import HOLDS
from forge.durable.store.rows import RunInfo

LOOK = 0.02  # seconds that DBOS waits between two looks, besides our own pauses
POLL = 0.1  # seconds between two looks into a queue while there is work
IDLE_POLL = 1.0  # … and after a while without any: what idle workers cost is statements
BUSY_FOR = 10.0  # seconds after the last work during which a worker looks often


def new_worker_id(name: str = "") -> str:
    """Unique for every start of a worker, so that what an earlier one left can be told apart from its own."""
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
        self.agents: dict[str, Agent] = {}  # those it can run, by name
        self.models: Models | None = None
        self.watch: WatchActivity | None = None
        self.offered = OfferedTools()
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
        """Put the run's current segment into its queue; idempotent."""
        await in_thread(lambda: self.starter.start(run))

    def list_running(self) -> list[str]:
        """The ids of the workflows at work here."""
        # private: DBOS tells nobody what this process runs, and asking the database every beat would cost a query
        return [] if self._dbos is None else self._dbos._active_workflows_set.activeList()

    def hand_back(self, worker: str, *, counts: bool = True) -> list[str]:
        """Put what a worker had begun back into its queues, for whoever is first; the ids of those it was.

        Blocking. Asked twice, or by two, it does no harm: only what that worker still owns is touched. That is why
        it is not DBOS.resume_workflow, which takes a workflow from whoever runs it now, and forgets how often it
        was begun (a run that kills its workers must end some day). `counts`: it is one of the times that a run may
        lose its worker; not where that leaves in good order.
        """
        assert self._dbos is not None
        database = self._dbos._sys_db
        pending = DBOS.list_workflows(
            executor_id=worker, status="PENDING", load_input=False, load_output=False, application_name=NAME
        )
        ids = [one.workflow_id for one in pending]
        if ids and not counts:
            self.store.database.write(lambda connection: queueing.undo_attempt_count(connection, worker, ids))
        return [one for one in ids if database.reenqueue_for_recovery(one, [worker], queueing.DEFAULT)]

    def requeue_forgotten(self) -> list[str]:
        """Put back into its queue what this worker took and does not run, twice in a row; the ids of those it was.

        Blocking. The database went away just when it had given the work to us, so that we never heard of it; or while
        we worked, for so long that we gave up. Only the engine's owners of steps can record them: no harm is done
        if it begins after all.
        """
        assert self._dbos is not None
        pending = DBOS.list_workflows(
            executor_id=self.worker, status="PENDING", load_input=False, load_output=False, application_name=NAME
        )
        idle = {one.workflow_id for one in pending}.difference(self.list_running())
        lying, self._idle = idle & self._idle, idle
        queue = self._dbos._sys_db.reenqueue_for_recovery
        return [one for one in sorted(lying) if queue(one, [self.worker], queueing.DEFAULT)]

    def _prepare(self) -> None:
        # the limits of other queues too, so that whoever reads forge.yaml sets them all
        names = dict.fromkeys([*self.takes, *self.limits])
        queueing.register(self.starter.client, list(names), self.limits, LOOK)

    def _launch(self) -> None:
        size = min(20, self.concurrency + 5)
        self._connections = system_engine(self.store, size, self._ended)
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
        refuse_pickles()
        self._dbos = DBOS(config=config)
        DBOS.listen_queues(self.takes if self.listen else [])
        DBOS.launch()
        database = self._dbos._sys_db
        claims = Claims(self.store.database, self.takes, lambda: self.concurrency if self.taking else 0)
        claims.install(self._dbos)
        ask = database.get_queue

        def get_queue(name: str) -> Any:
            self._wait_for_poll()
            queue = ask(name)
            if queue is not None:
                queue._polling_interval_sec = LOOK
                claims.note_queue(queue)
            return queue

        # private: DBOS's threads ask for the queue's row before each look into the queue, and find there when to look
        # again, the same for all workers. Ours rest here, and one without work looks rarely
        database.get_queue = get_queue  # type: ignore[method-assign,assignment]

    def _wait_for_poll(self) -> None:
        """Until the next look into a queue: soon while there is work, at once when this process queued something."""
        moment = time.monotonic()
        if self.list_running():
            self._busy = moment
        pause = POLL if moment - self._busy < BUSY_FOR else IDLE_POLL
        with self._news:
            self._news.wait(pause * random.uniform(0.9, 1.1))  # noqa: S311 - only so that workers drift apart

    def wake(self) -> None:
        """Something was queued: look at once."""
        self._busy = time.monotonic()
        with self._news:
            self._news.notify_all()

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
            allow_pickles()
            on_start.discard(self.wake)
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
