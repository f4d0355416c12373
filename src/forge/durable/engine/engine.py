"""Starts and stops the durable engine, DBOS: one in a process, on the running loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos import error as engine_error

from forge.agent.agent import Agent
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.durable.engine import queues
from forge.durable.engine.agents import OfferedTools, list_runnable
from forge.durable.engine.claims import Claim, Claims, Ended, EndState
from forge.durable.engine.connections import make_connections
from forge.durable.engine.dbos_private import (
    APPLICATION,
    JsonSerializer,
    NoOutcome,
    renew_default_threads,
    with_old_times,
)
from forge.durable.engine.held_work import HeldWork
from forge.durable.engine.queues import DEFAULT, QueueLimits, claim_key, offer_queue
from forge.durable.engine.record_events import EventWriter
from forge.durable.engine.session_programs import SessionPrograms
from forge.durable.engine.start_segments import Starter, local_engine, set_local_engine, workflow_id
from forge.durable.engine.tasks import end_tasks
from forge.durable.engine.worker_context import Models, WatchActivity, WorkerContext
from forge.durable.monitor.metrics import Counters
from forge.durable.store import RunStore
from forge.durable.store.database import HOLDS
from forge.durable.store.inbox import Notices

POLL = 0.1  # seconds between two polls of the queues while there is work
IDLE_POLL = 1.0  # … and when idle, to save queries
WOKEN_WORKERS = 5  # workers that poll at once when something is queued
CONNECTIONS = 2  # of DBOS, with Postgres
BUSY_FOR = 10.0  # seconds after the last work during which a worker polls often
ENDING = 10.0  # seconds that workflows and a poll have to end
MOST_TRIES = 20  # of a segment: one that kills all its workers must end some day

log = logging.getLogger("forge.durable")

SegmentWorkflow = Callable[[str, int], Coroutine[Any, Any, str]]
"""The workflow of a segment: takes the run and the number of the segment, and returns the status of the run."""


def new_worker_id(name: str = "") -> str:
    """Returns an id that is unique for every start of a worker, so that leftovers of an earlier start are distinct."""
    return f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def make_context(
    store: RunStore,
    agents: Sequence[Agent] = (),
    *,
    worker: str = "",
    version: str = "",
    offers: Sequence[str] = (),
    models: Models | None = None,
    watch: WatchActivity | None = None,
) -> WorkerContext:
    """Makes the context of a worker. `worker`: its id, by default a new one."""
    starter = Starter(store)
    context = WorkerContext(
        worker=worker or new_worker_id(),
        version=version or "0",
        store=store,
        agents={agent.name: agent for agent in agents},
        offers=tuple(dict.fromkeys(offers)),
        models=models,
        watch=watch,
        tools_of=OfferedTools().of,
        starter=starter,
        counters=Counters(),
        events=EventWriter(store),
        attempts={},
        held=HeldWork(store, starter),
        programs=SessionPrograms(store, lambda: context.list_busy()),
    )
    return context


class Engine:
    """Claims segments from our queues, and runs a workflow for each on DBOS, on the running loop. `async with` launches
    and ends it.
    """

    def __init__(
        self,
        context: WorkerContext,
        workflow: SegmentWorkflow,
        *,
        queues: Sequence[str] = (DEFAULT,),
        concurrency: int = 10,
        limits: Mapping[str, QueueLimits] | None = None,
        listen: bool = True,
        takes: bool = True,
    ) -> None:
        """`listen`: polls the queues. `takes`: claims what it finds there, until `set_claiming` says something else."""
        self.context = context
        self.store, self.worker, self.version = context.store, context.worker, context.version
        self.queues = tuple(dict.fromkeys([*queues, *map(offer_queue, context.offers)]))
        self.concurrency = concurrency
        self._workflow = workflow
        self._limits = dict(limits or {})
        self._listens, self._takes = listen, takes
        self._claims = Claims(self.store.database, self.worker, self.queues, self._list_keys)
        self._running: dict[str, asyncio.Task[None]] = {}  # by the id of the workflow; from the claim on
        self._work: dict[str, asyncio.Task[str]] = {}  # … what they do, once they have begun
        self._ended: list[Ended] = []  # segments whose end is not stored yet
        self._not_running: set[Claim] = set()  # claimed but not running at the last check
        self._last_work = time.monotonic()  # when there was work to do last
        self._workers = 1  # that the database has: each ignores notices if there are many
        self._poll_now_event = asyncio.Event()  # something was queued, or a segment ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._listener: Notices | None = None
        self._dbos: DBOS | None = None
        self._connections: sa.Engine | None = None
        self._disconnected = threading.Event()

    async def __aenter__(self) -> Self:
        if local_engine() is not None:
            message = "a worker for stored runs cannot start: this process has one already, and DBOS supports only one"
            hint = "Give all agents to one worker: DurableAgent(first, others=[second]), or DurableAgent.serve([…])."
            raise ToolError(message, ErrorKind.CONFIG, hint)
        set_local_engine(self)
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

    def set_claiming(self, takes: bool) -> None:
        """Claims queued segments from now on, or leaves them to other workers."""
        self._takes = takes

    @property
    def takes(self) -> bool:
        return self._takes

    def note_worker_count(self, workers: int) -> None:
        """Notes how many workers the database has: about `WOKEN_WORKERS` of them heed a notice."""
        self._workers = workers

    def wake(self) -> None:
        """Polls at once, since this process queued something."""
        self._last_work = time.monotonic()
        self._poll_now()

    def list_running(self) -> list[str]:
        """Lists the ids of the workflows that this worker has claimed and not ended."""
        return list(self._running)

    def note_messages(self, run_id: str, store: RunStore) -> None:
        """Notes that messages wait for a run of this database, if this worker works on it."""
        if store.url == self.store.url:
            self.context.note_messages(run_id)

    async def work_on(self, workflow: str, work: Coroutine[Any, Any, str]) -> str:
        """Does the work of the workflow with this id, so that `stop_workflows` can end it. Call it in the workflow."""
        if self._is_stopping:
            work.close()
            raise NoOutcome
        # without DBOS's context: a tool that uses DBOS itself would record its steps for this workflow
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._work[workflow] = task
        try:
            return await task
        finally:
            del self._work[workflow]

    async def stop_workflows(self) -> None:
        """Stops polling and running workflows. Their segments stay begun in the database, to be handed back."""
        self._is_stopping = True
        self._poll_now_event.set()
        for work in self._work.values():
            work.cancel()
        tasks = [*self._running.values(), *([self._polling] if self._polling is not None else [])]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=ENDING)
        for task in late:  # it waits for the database
            task.cancel()
        await end_tasks(tasks)

    def hand_back(self, worker: str, *, counts: bool = True) -> list[str]:
        """Puts the begun segments of a worker back into their queues; returns their ids.

        Blocking and idempotent: only segments that this worker still has are touched. `counts`: the loss counts as a
        try; not if the worker leaves in good order.
        """
        return self._give_up(self._claims.hand_back(worker, counts=counts))

    def requeue_forgotten(self) -> list[str]:
        """Requeues segments that this worker has claimed and does not run, as this check and the last one found.
        Returns their ids. Blocking.

        It happens if the database was unreachable just after the claim, or for so long during the work that we gave up.
        Only the segment's last attempt can record steps, so a workflow that starts late does no harm.
        """
        known = {*self.list_running(), *(_id(one.claim) for one in tuple(self._ended))}
        not_running = {one for one in self._claims.list_claimed() if _id(one) not in known}
        forgotten, self._not_running = not_running & self._not_running, not_running
        return self._give_up(self._claims.hand_back(self.worker, counts=True, only=forgotten)) if forgotten else []

    def _give_up(self, claims: Sequence[Claim]) -> list[str]:
        """Cancels the workflows of segments that were handed back: their next start is another workflow."""
        if claims:
            self.context.starter.client.cancel_workflows([_id(one) for one in claims])
        return [workflow_id(one.run, one.segment) for one in claims]

    def _list_keys(self) -> list[str]:
        """Lists what this worker can run, as claims compare it."""
        return [claim_key(self.version, name) for name in list_runnable(self.context.agents)]

    def _prepare(self) -> None:
        self.context.starter.prepare_engine()
        # the limits of other queues too, so that any worker with forge.yaml sets them all
        queues.set_limits(self.store.database, self._limits)

    def _launch(self) -> None:
        # recorded steps go through the store: DBOS itself only begins and ends workflows
        size = min(20, self.concurrency + 5) if self.store.database.is_sqlite else CONNECTIONS
        self._connections = make_connections(self.store, size, self._disconnected)
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": self.store.engine.url.render_as_string(hide_password=False),
            "system_database_engine": with_old_times(self._connections),
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
        self._dbos = DBOS(config=config)
        DBOS.listen_queues([])  # the queues are ours
        DBOS.launch()
        self._loop = asyncio.get_running_loop()
        if self._listens:
            self._polling = self._loop.create_task(self._poll())
            self._listener = Notices(self.store.database, self.queues, self._hear, self.context.note_messages)
            self._listener.start()

    async def _poll(self) -> None:
        """Claims segments and starts them, until the engine stops."""
        while not self._is_stopping:
            room = self.concurrency - len(self._running) if self._takes else 0
            ended = tuple(self._ended)
            try:
                claims: list[Claim] = await in_thread(partial(self._claims.poll, room, ended))
                del self._ended[: len(ended)]  # not before: `requeue_forgotten` would take them for forgotten
            except Exception as error:  # an unreachable database, mostly
                log.warning("worker %s could not look for queued runs: %s", self.worker, text_of(error))
                claims = []
            for claim in claims:
                self._start(claim)
            await self._wait_for_poll()

    async def _wait_for_poll(self) -> None:
        """Waits until the next poll: briefly while there is work, and no longer once something is queued or ends."""
        moment = time.monotonic()
        if self._running:
            self._last_work = moment
        pause = POLL if moment - self._last_work < BUSY_FOR else IDLE_POLL
        with contextlib.suppress(TimeoutError):  # at random, only so that workers drift apart
            await asyncio.wait_for(self._poll_now_event.wait(), pause * random.uniform(0.9, 1.1))  # noqa: S311
        self._poll_now_event.clear()

    def _start(self, claim: Claim) -> None:
        if self._is_stopping:
            return  # it is handed back
        if claim.tries > MOST_TRIES:
            self._note_end(claim, "lost")
            return
        task = asyncio.get_running_loop().create_task(self._run(claim))
        self._running[_id(claim)] = task

    async def _run(self, claim: Claim) -> None:
        """Runs the workflow of a claimed segment. A cancelled one stays begun, and is handed back or requeued."""
        try:
            # an id is used once: DBOS does not run a workflow that is there already, but waits for its result
            with SetWorkflowID(_id(claim), workflow_id_reuse_policy="reject"):
                handle = await DBOS.start_workflow_async(self._workflow, claim.run, claim.segment)
            await handle.get_result()
            self._note_end(claim, "over")
        except engine_error.DBOSWorkflowIDInUseError as error:  # such as in a database that was restored from a copy
            log.warning("worker %s could not start %s: %s", self.worker, _id(claim), text_of(error))
        except Exception:  # DBOS has logged it
            self._note_end(claim, "failed")
        finally:
            del self._running[_id(claim)]
            self._poll_now_event.set()

    def _note_end(self, claim: Claim, state: EndState) -> None:
        self._ended.append(Ended(claim, state))
        self._poll_now_event.set()

    def _hear(self) -> None:
        """Polls at once, since another process queued something. About `WOKEN_WORKERS` idle workers do so."""
        if self._running:  # SQLite's file also changes with each recorded step
            return
        if self._workers <= WOKEN_WORKERS or random.random() < WOKEN_WORKERS / self._workers:  # noqa: S311
            self._poll_now()

    def _poll_now(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                self._loop.call_soon_threadsafe(self._poll_now_event.set)

    async def _end(self) -> None:
        try:
            if self._listener is not None:
                await in_thread(self._listener.end)
            self._takes = False
            self._disconnected.set()
            await self.stop_workflows()
            if self._dbos is not None:
                await in_thread(DBOS.destroy)
                renew_default_threads()
        finally:
            self._dbos = self._listener = None
            set_local_engine(None)
            if self._connections is not None:
                self._connections.dispose()
            self.context.starter.close()


def _id(claim: Claim) -> str:
    return workflow_id(claim.run, claim.segment, claim.starts)


def running_engine() -> Engine:
    """Returns the engine of this process, for workflows: DBOS gives them only what it can store."""
    engine = local_engine()
    if not isinstance(engine, Engine):
        raise RuntimeError("no Engine runs in this process")
    return engine
