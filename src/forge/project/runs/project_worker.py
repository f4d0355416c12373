"""Runs a project's agent as a worker on a database that others may share, until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.durable.client.pruning import Retention
from forge.durable.engine.engine import Engine
from forge.durable.engine.queues import DEFAULT, count_queued
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore, heartbeats
from forge.durable.store.encoding import run_result
from forge.durable.store.heartbeats import WorkerInfo, list_workers
from forge.durable.store.rows import RunInfo
from forge.durable.worker import Chore, Worker, WorkerSettings
from forge.durable.worker import schedules as occurrences
from forge.durable.worker.housekeeping import Pruning, deliver_ended
from forge.durable.worker.schedules import Schedules, fire_due
from forge.project.assemble.services import ProjectChannels, open_schedule_store
from forge.project.audit.log import NAME as AUDIT
from forge.project.audit.write_log import audit_log
from forge.project.config.declaration import Configuration
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    is_own,
    make_own_file,
    models_for,
    project_database,
    queue_limits,
    store_finished_runs,
)
from forge.project.runs.scheduled_runs import check_channels, scheduled_prompt
from forge.workspace.state import NAME as STATE
from forge.workspace.state import state_directory
from forge.workspace.state.store import StoreError

Report = Callable[[str], None]


NUMBER = "FORGE_WORKER_NUMBER"  # environment: which process of `forge worker --processes` this is, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The flags of `forge worker` beside the common flags."""

    database: str | None = None
    queues: Sequence[str] = ()
    offers: Sequence[str] = ()
    concurrency: int = 10
    name: str = ""
    version: str
    drain_seconds: float = 60.0
    health: str = ""


class ProjectWorker:
    """A worker of a project. It is checked before anything is opened. Raises `ToolError`."""

    def __init__(self, project: Project, agent: Agent, flags: WorkerOptions) -> None:
        self._project, self._agent, self._options = project, agent, flags
        workspace = project.workspace
        self.database = project_database(project.configuration, workspace, flags.database)
        self.is_own = is_own(self.database, workspace)
        if self.is_own:
            make_own_file(workspace)
        check_schedules(project.configuration, workspace)
        limits = queue_limits(project.configuration)
        self.queues = tuple(flags.queues) or tuple(dict.fromkeys([DEFAULT, *limits]))
        self.worker = Worker(
            self.database,
            [agent],
            WorkerSettings(
                name=flags.name,
                version=flags.version,
                queues=self.queues,
                offers=flags.offers,
                concurrency=flags.concurrency,
                limits=limits,
                chores=[*project_chores(project), *self._pruning()],
                health=_own_address(flags.health or health_address(project.configuration)),
            ),
            models=models_for(agent),
            watch=partial(log_events, workspace),
        )

    def _pruning(self) -> list[Chore]:
        """Returns the chore that prunes, if the project says how long runs are kept."""
        keep = retention_of(self._project.configuration)
        if keep == Retention():
            return []
        workspace = self._project.workspace
        copy = partial(store_finished_runs, workspace=workspace) if self.is_own else None
        return [Pruning(keep, workspace, copy)]

    async def work(self, leave: asyncio.Event, hurry: asyncio.Event, report: Report) -> None:
        """Works until `leave` is set; then runs may end their turn, unless `hurry` is set."""
        async with self._agent, self.worker:
            report(self._introduction())
            await self._wait_for(leave)
            under_way = len(self.worker.engine.list_running())
            report(f"takes no new runs; {_count_runs(under_way)} in progress" if under_way else "takes no new runs")
            if not await self._drain(hurry):
                left = _count_runs(len(self.worker.engine.list_running()))
                report(f"stops in the middle of a turn; other workers will continue {left}")
        if self.is_own:
            with RunStore(self.database) as store:
                await in_thread(lambda: store_finished_runs(store, self._project.workspace))

    async def _wait_for(self, leave: asyncio.Event) -> None:
        """Waits for `leave`. Raises `ToolError` if the worker cannot continue, so that its supervisor notices."""
        waits = [asyncio.ensure_future(leave.wait()), asyncio.ensure_future(self.worker.broken())]
        done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()
        for one in done:
            one.result()

    async def _drain(self, hurry: asyncio.Event) -> bool:
        draining = asyncio.ensure_future(self.worker.drain(self._options.drain_seconds))
        hurrying = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if draining.done():
            return draining.result()
        draining.cancel()
        return False

    def _introduction(self) -> str:
        engine = self.worker.engine
        offers = f", offers {', '.join(engine.context.offers)}" if engine.context.offers else ""
        health = f"; metrics at {self.worker.health.url}/metrics" if self.worker.health is not None else ""
        return (
            f"worker {engine.worker} of version {engine.version} on {engine.store.label}: "
            f"queues {', '.join(self.queues)}{offers}, {_count_runs(engine.concurrency)} at a time{health}"
        )


def check_schedules(configuration: Configuration, workspace: Path) -> None:
    """Raises `ToolError` for an invalid schedule, which a running worker would only skip."""
    if configuration.schedules is None:
        return
    check_channels(configuration, ProjectChannels(configuration))
    with suppress(StoreError):  # nothing can be written here: reported in every round
        open_schedule_store(configuration, workspace).close()


def _own_address(address: str) -> str:
    """Returns the address of this process: with `forge worker --processes`, each one has the next port."""
    number = os.environ.get(NUMBER, "")
    host, colon, port = address.rpartition(":")
    if not (number.isascii() and number.isdigit() and port.isascii() and port.isdigit() and int(port)):
        return address
    return f"{host}{colon}{int(port) + int(number)}"


def health_address(configuration: Configuration) -> str:
    """Returns where the project's workers serve their health; empty: nowhere."""
    return configuration.durable.health if configuration.durable is not None else ""


def retention_of(configuration: Configuration) -> Retention:
    """Returns how long the project keeps its runs."""
    return Retention(**configuration.durable.retention) if configuration.durable is not None else Retention()


def project_chores(project: Project) -> Sequence[Chore]:
    """Returns the chores for the project's schedules: each fires once for all workers, and its result is delivered."""
    configuration = project.configuration
    channels = ProjectChannels(configuration)
    store = cache(lambda: open_schedule_store(configuration, project.workspace))
    schedules = Schedules(lambda: store().list(), agent=project.scope.agent, prompt=scheduled_prompt)

    async def fire(engine: Engine) -> None:
        await fire_due(engine.context, schedules)
        if schedules.is_ready:
            await deliver_ended(engine.context, deliver)

    async def deliver(run: RunInfo, channel: str, target: str) -> None:
        result = run_result(run)
        why = result.text or (result.error.text() if result.error is not None else "the model said nothing")
        answer = result.text or f"{run.id} ended without an answer"
        said = answer if run.status == "finished" else f"{run.id} {run.status} ({result.reason}): {why}"
        await channels.deliver(said, channel, target)

    return (fire,)


def log_events(workspace: Path, activity: ActivityStream) -> Callable[[], None]:
    """Logs the worker's events in the workspace, if its log can be written."""
    folder = state_directory(workspace)
    return audit_log(activity, folder / AUDIT) if folder == workspace / STATE else lambda: None


def _count_runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def make_tables(database: str) -> str:
    """Makes or migrates all tables of a database, for users that may not; returns its name. Raises `ToolError`."""
    with RunStore(database) as store, closing(Starter(store)) as starter:
        starter.prepare_engine()
        heartbeats.prepare(store.database)
        occurrences.prepare(store.database)
        return store.label


def read_status(database: str) -> dict[str, Any]:
    """Returns workers, queues and runs as data. Raises `ToolError`."""
    with RunStore(database) as store:
        workers = list_workers(store.database)
        return {
            "database": store.label,
            "workers": [_worker_fields(one) for one in workers],
            "queues": {name: {"queued": count} for name, count in sorted(count_queued(store.database).items())},
            "runs": store.counts(),
            "unattended": [
                {"version": version, "queue": queue, "agent": agent, "queued": count}
                for (version, queue, agent), count in store.count_queued().items()
                if not any(one.takes(version, queue, agent) for one in workers)
            ],
        }


def _worker_fields(one: WorkerInfo) -> dict[str, Any]:
    return {
        "id": one.id,
        "state": one.state,
        "host": one.host,
        "pid": one.pid,
        "version": one.version,
        "queues": list(one.queues),
        "offers": list(one.offers),
        "agents": list(one.agents),
        "running": one.running,
        "concurrency": one.concurrency,
        "started": one.started,
        "beat_age": round(one.age, 1),
    }


def check_names(names: Sequence[str], what: str) -> None:
    """Raises `ToolError` for an invalid name, which would wait for work that never comes."""
    for name in names:
        if not name.strip() or not name.isprintable() or len(name) > 100 or name.startswith("_"):
            message = f"{name!r:.60} cannot be the name of {what}"
            raise ToolError(message, ErrorKind.CONFIG, "Use up to 100 letters, digits, dots and hyphens.")
