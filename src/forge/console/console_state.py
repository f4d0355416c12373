"""The state of the console: a project, its tools and policy, its runs, and a worker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from forge.agent.agent import Agent
from forge.console.event_hub import Hub
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.core.plain_values import text_of
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.durable.client import Runs
from forge.durable.engine.queues import DEFAULT
from forge.durable.worker import Worker, WorkerSettings
from forge.permissions.policy import Rules
from forge.permissions.questions import approve_all
from forge.project.audit.log import NAME as LOG
from forge.project.audit.log import Log
from forge.project.audit.log_events import EventFilter
from forge.project.audit.log_index import NAME as INDEX
from forge.project.audit.log_index import EventIndex
from forge.project.config.declaration import Configuration
from forge.project.project import Project, RunOptions
from forge.project.runs.durable_runs import (
    check_installed,
    is_own,
    make_approver,
    make_own_file,
    models_for,
    project_database,
    project_version,
    queue_limits,
    store_finished_runs,
)
from forge.project.runs.project_worker import log_events, project_chores
from forge.tools.undo import Undo
from forge.workspace.state import NAME as STATE
from forge.workspace.state import state_directory

logger = logging.getLogger("forge.console")

SESSION = "console"  # of calls that are made with forms
UNDOER = "undo"  # the agent that takes changes back, where the project's has no tool for it
GRACE = 3.0  # seconds that runs have to come to the end of their turn when the console ends


@dataclass(slots=True, kw_only=True)
class ConsoleState:
    """Made by `open_project`; `async with console.opened()` mounts the project's sources and starts the worker."""

    project: Project
    agent: Agent
    model_problem: str  # why there is no model; "" where there is one
    database: str
    version: str
    runs: Runs
    hub: Hub
    event_index: EventIndex
    policy: Rules
    asked_model: str | None = None
    is_version_fixed: bool = False  # somebody named it: it does not follow the project's file
    problems: list[str] = field(default_factory=list)  # what of the project could not be opened
    notes: list[str] = field(default_factory=list)  # what a person should know
    worker: Worker | None = None
    agents: list[Agent] = field(default_factory=list)  # those that runs are run with
    settings: dict[str, Any] = field(default_factory=dict)  # of the worker: queues, offers, concurrency, name
    grace: float = GRACE
    started: float = field(default_factory=time.time)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # work of the console's own, such as a schedule's run

    @property
    def has_model(self) -> bool:
        return not self.model_problem

    @property
    def configuration(self) -> Configuration:
        return self.project.configuration

    @property
    def workspace(self) -> Path:
        return self.project.workspace

    @property
    def scope(self) -> Scope:
        return self.project.scope

    @property
    def registry(self) -> ToolRegistry:
        return self.agent.registry

    @property
    def secrets(self) -> Secrets:
        return self.agent.secrets

    @property
    def is_own_database(self) -> bool:
        return is_own(self.database, self.workspace)

    def open_log(self, wanted: EventFilter | None = None) -> Log:
        """Opens the workspace's log of events for one query."""
        return Log(state_directory(self.workspace) / LOG, wanted, index=self.event_index)

    def add_notes(self, notes: Sequence[str]) -> None:
        for note in notes:
            logger.warning("%s", note)

    @asynccontextmanager
    async def opened(self, *, works: bool = True) -> AsyncIterator[ConsoleState]:
        """Opens the console. With `works`, runs are processed here, otherwise by another worker."""
        async with AsyncExitStack() as stack:
            stack.callback(self.runs.close)
            await in_thread(self.runs.store.prepare)
            await in_thread(self.keep_finished)
            await stack.enter_async_context(self.agent)
            if works:
                limits = queue_limits(self.configuration)
                settings = WorkerSettings(
                    **{"queues": tuple(dict.fromkeys([DEFAULT, *limits])), **self.settings},
                    version=self.version,
                    limits=limits,
                    chores=project_chores(self.project) if self.has_model else (),
                    keep_conversations=True,
                )
                worker = Worker(
                    self.database,
                    self.agents,
                    settings,
                    models=models_for(self.agent),
                    watch=partial(log_events, self.workspace),
                )
                self.worker = await stack.enter_async_context(worker)
                worker.store.database.on_write(self.hub.nudge)
                stack.push_async_callback(worker.drain, self.grace)
            await stack.enter_async_context(self.hub.opened())
            try:
                yield self
            finally:
                await self._end_tasks()
                await in_thread(self.keep_finished)

    def reload_policy(self) -> None:
        """Applies the current rules of the files to every further call.

        Answers that were remembered as "always" are asked again. Raises `ToolError` or `PolicyError`.
        """
        fresh = Project(self.project.options)
        steps = fresh.agent(with_model=False, approve=make_approver()).steps
        self.policy = fresh.policy
        self.project.configuration = fresh.configuration
        self.agents = [agent.replace(steps=steps) for agent in self.agents]
        if self.worker is not None:
            self.worker.agents.update({agent.name: agent for agent in self.agents})

    def make_person_agent(self) -> Agent:
        """Returns the agent for calls that the person orders: questions are approved, denials stay denials."""
        fresh = Project(self.project.options)
        return self.agent.replace(steps=fresh.agent(with_model=False, approve=approve_all).steps)

    def begin(self, work: Any) -> None:
        """Starts work that no one waits for."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._report_failure)

    def _report_failure(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("work that was started from the page failed: %s", self.secrets.mask_all(text_of(error)))

    @property
    def next_version(self) -> str:
        """The version of a console that starts now: another one, once the project's file has changed."""
        return self.version if self.is_version_fixed else project_version(self.configuration)

    def keep_finished(self) -> None:
        """Stores finished runs in their sessions."""
        if not self.is_own_database:
            return
        try:
            store_finished_runs(self.runs.store, self.workspace)
        except ToolError as error:  # the next start does it
            logger.warning("%s", error.message)

    async def _end_tasks(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=2)


def open_project(
    options: RunOptions,
    *,
    model: str | None = None,
    database: str | None = None,
    version: str = "",
    notes: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> ConsoleState:
    """Opens a project, also without a model. `settings` are the worker's.

    Raises `ToolError` or `PolicyError` for anything else that cannot be used.
    """
    check_installed()
    problems: list[str] = []
    project = Project(replace(options, session=SESSION), report=problems.append)
    agent, problem = _agent(project, model)
    url = project_database(project.configuration, project.workspace, database)
    if is_own(url, project.workspace):
        make_own_file(project.workspace)
    runs = Runs(url)
    built = options.built
    return ConsoleState(
        project=project,
        agent=agent,
        model_problem=problem,
        database=url,
        version=version or project_version(project.configuration, built.sha256 if built is not None else ""),
        runs=runs,
        hub=Hub(runs.store, project.workspace / STATE / LOG),
        event_index=EventIndex(state_directory(project.workspace) / INDEX),
        policy=project.policy,
        asked_model=model,
        is_version_fixed=bool(version) or built is not None,
        problems=problems,
        notes=list(notes),
        settings=dict(settings or {}),
        agents=[agent, _undoer(agent)],
    )


def _agent(project: Project, model: str | None) -> tuple[Agent, str]:
    """Returns the project's agent, and why it has no model. A model that was named must exist."""
    try:
        return project.agent(model, approve=make_approver()), ""
    except ToolError as error:
        if model is not None:
            raise
        problem = "\n".join(filter(None, (error.message, error.suggestion)))
    return project.agent(with_model=False, approve=make_approver()).replace(model=MissingModel(problem)), problem


class MissingModel:
    """Stands for a missing model: tools can still be called."""

    window = 0

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        raise ToolError("no model is set", ErrorKind.CONFIG, self.problem)


def _undoer(main: Agent) -> Agent:
    registry = ToolRegistry()
    registry.add(Undo())
    return main.replace(name=UNDOER, tools=registry)
