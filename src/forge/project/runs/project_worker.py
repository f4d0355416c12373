"""A project's worker: its agent, on a database that others may share, until it is told to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from forge.agent.agent import Agent
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.durable.engine.engine import Engine
from forge.durable.engine.queues import DEFAULT, depths
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import WorkerInfo, listed
from forge.durable.store.results import run_result
from forge.durable.store.rows import RunInfo
from forge.durable.worker import Chore, Worker
from forge.durable.worker.deliveries import deliver_ended
from forge.durable.worker.schedules import Schedules, fire_due
from forge.pipeline.audit_log import audit_log
from forge.project.assemble.channels import ProjectChannels
from forge.project.assemble.schedule_store import open_schedule_store
from forge.project.audit.read_log import NAME as AUDIT
from forge.project.config import Configuration
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    is_own,
    keep_finished,
    make_own_file,
    models_for,
    project_database,
    queue_limits,
)
from forge.project.runs.scheduled_tasks import check_channels, scheduled_prompt
from forge.workspace.state import NAME as STATE
from forge.workspace.state import state_directory
from forge.workspace.state.store import StoreError

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What `forge worker` was told beside the common flags."""

    database: str | None = None
    queues: Sequence[str] = ()
    offers: Sequence[str] = ()
    concurrency: int = 10
    name: str = ""
    version: str
    drain_seconds: float = 60.0


class ProjectWorker:
    """Made before anything is opened, so that what cannot work is said at once. Raises `ToolError`."""

    def __init__(self, project: Project, agent: Agent, flags: WorkerOptions) -> None:
        self._project, self._agent, self._wishes = project, agent, flags
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
            models=models_for(agent),
            watch=partial(audited, workspace),
            name=flags.name,
            version=flags.version,
            queues=self.queues,
            offers=flags.offers,
            concurrency=flags.concurrency,
            limits=limits,
            chores=project_chores(project),
        )

    async def work(self, told: asyncio.Event, hurry: asyncio.Event, report: Report) -> None:
        """Until `told`: then what is under way comes to the end of its turn, unless there is a `hurry`."""
        async with self._agent, self.worker:
            report(self._introduction())
            await self._until(told)
            under_way = len(self.worker.engine.running())
            report(f"takes nothing more; {_runs(under_way)} under way" if under_way else "takes nothing more")
            if not await self._drained(hurry):
                report(f"leaves {_runs(len(self.worker.engine.running()))} to others in the middle of a turn")
        if self.is_own:
            with RunStore(self.database) as store:
                await in_thread(lambda: keep_finished(store, self._project.workspace))

    async def _until(self, told: asyncio.Event) -> None:
        """Raises `ToolError` where the worker cannot go on: whoever supervises the process must see that."""
        waits = [asyncio.ensure_future(told.wait()), asyncio.ensure_future(self.worker.broken())]
        done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()
        for one in done:
            one.result()

    async def _drained(self, hurry: asyncio.Event) -> bool:
        draining = asyncio.ensure_future(self.worker.drain(self._wishes.drain_seconds))
        hurrying = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if draining.done():
            return draining.result()
        draining.cancel()
        return False

    def _introduction(self) -> str:
        engine = self.worker.engine
        offers = f", offers {', '.join(engine.offers)}" if engine.offers else ""
        return (
            f"worker {engine.worker} of version {engine.version} on {engine.store.label}: "
            f"queues {', '.join(self.queues)}{offers}, {_runs(engine.concurrency)} at a time"
        )


def check_schedules(configuration: Configuration, workspace: Path) -> None:
    """Raises `ToolError` that names the one that cannot be: later it would only be left out."""
    if configuration.schedules is None:
        return
    check_channels(configuration, ProjectChannels(configuration))
    with suppress(StoreError):  # nothing can be written here: said in every round
        open_schedule_store(configuration, workspace).close()


def project_chores(project: Project) -> Sequence[Chore]:
    """The project's schedules: due once, however many workers look at the clock, and delivered when they are over."""
    configuration = project.configuration
    channels = ProjectChannels(configuration)
    store = cache(lambda: open_schedule_store(configuration, project.workspace))
    schedules = Schedules(lambda: store().list(), agent=project.scope.agent, prompt=scheduled_prompt)

    async def fire(engine: Engine) -> None:
        await fire_due(engine, schedules)
        if schedules.is_ready:
            await deliver_ended(engine, deliver)

    async def deliver(run: RunInfo, channel: str, target: str) -> None:
        result = run_result(run)
        why = result.text or (result.error.text() if result.error is not None else "")
        said = result.text if run.status == "finished" else f"{run.id} {run.status} ({result.reason}): {why}"
        await channels.deliver(said, channel, target)

    return (fire,)


def audited(workspace: Path, activity: ActivityStream) -> Callable[[], None]:
    """The workspace's log of events has what happens on its worker, where it can be written."""
    folder = state_directory(workspace)
    return audit_log(activity, folder / AUDIT) if folder == workspace / STATE else lambda: None


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def status_of(database: str) -> dict[str, Any]:
    """Workers, queues and runs as data. Raises `ToolError`."""
    with RunStore(database) as store:
        workers = listed(store.database)
        return {
            "database": store.label,
            "workers": [_worker(one) for one in workers],
            "queues": {name: {"queued": count} for name, count in sorted(depths(store.database).items())},
            "runs": store.counts(),
            "unattended": [
                {"version": version, "queue": queue, "queued": count}
                for (version, queue), count in store.queued().items()
                if not any(one.takes(version, queue) for one in workers)
            ],
        }


def _worker(one: WorkerInfo) -> dict[str, Any]:
    return {
        "id": one.id,
        "state": one.state,
        "host": one.host,
        "pid": one.pid,
        "version": one.version,
        "queues": list(one.queues),
        "offers": list(one.offers),
        "running": one.running,
        "concurrency": one.concurrency,
        "started": one.started,
        "beat_age": round(one.age, 1),
    }


def check_names(names: Sequence[str], what: str) -> None:
    """Raises `ToolError`: a name that cannot be one would wait for work that never comes."""
    for name in names:
        if not name.strip() or not name.isprintable() or len(name) > 100 or name.startswith("_"):
            words = f"{name!r:.60} cannot be the name of {what}"
            raise ToolError(words, ErrorKind.CONFIG, "Use up to 100 letters, digits, dots and hyphens.")
