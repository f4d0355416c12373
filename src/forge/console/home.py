"""What the console stands on: a project, its tools and policy, and its runs, with a worker that works on them."""

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

from forge.app.agent import Assistant, assistant
from forge.app.assemble import Assembly, Wishes, assemble
from forge.app.audit import NAME as LOG
from forge.app.durable import (
    approver,
    check_installed,
    is_own,
    keep_finished,
    make_own_file,
    project_database,
    project_version,
    queue_limits,
    subject_of,
)
from forge.app.policy import project_policy
from forge.app.worker import audited, project_chores
from forge.console.hub import Hub
from forge.console.log_index import LogIndex
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain import text_of
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.durable.client import Runs
from forge.durable.queues import DEFAULT
from forge.durable.subject import Subject
from forge.durable.worker import Worker
from forge.permissions.policy import Rules
from forge.tools.undo import Undo
from forge.workspace.state import NAME as STATE
from forge.workspace.state import state_directory

logger = logging.getLogger("forge.console")

SESSION = "console"  # of calls that are made with forms
UNDOER = "undo"  # the agent that takes changes back, where the project's has no tool for it
GRACE = 3.0  # seconds that runs have to come to the end of their turn when the console ends


@dataclass(slots=True, kw_only=True)
class Home:
    """Made by `open_project`; `async with home.opened()` mounts the project's sources and begins to work."""

    wishes: Wishes
    made: Assembly
    agent: Assistant | None  # None: there is no model, and `model_problem` says why
    model_problem: str
    database: str
    version: str
    runs: Runs
    hub: Hub
    log: LogIndex
    policy: Rules
    asked_model: str | None = None
    is_version_fixed: bool = False  # somebody named it: it does not follow the project's file
    problems: list[str] = field(default_factory=list)  # what of the project could not be opened
    notes: list[str] = field(default_factory=list)  # what a person should know
    worker: Worker | None = None
    subjects: list[Subject] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # of the worker: queues, offers, concurrency, name
    grace: float = GRACE
    started: float = field(default_factory=time.time)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)  # work of the console's own, such as a schedule's run

    @property
    def workspace(self) -> Path:
        return self.made.scope.workspace

    @property
    def scope(self) -> Scope:
        return self.made.scope

    @property
    def registry(self) -> ToolRegistry:
        return self.made.registry

    @property
    def secrets(self) -> Secrets:
        return self.made.executor.secrets

    @property
    def is_own_database(self) -> bool:
        return is_own(self.database, self.workspace)

    @asynccontextmanager
    async def opened(self, *, works: bool = True) -> AsyncIterator[Home]:
        """`works`: runs are worked on here; otherwise by another worker of this process or elsewhere."""
        async with AsyncExitStack() as stack:
            stack.callback(self.runs.close)
            await asyncio.to_thread(self.runs.store.prepare)
            await asyncio.to_thread(self._keep)
            await stack.enter_async_context(self.made.opened(self.problems.append))
            if works:
                limits = queue_limits(self.made.configuration)
                settings = {"limits": limits, "queues": tuple(dict.fromkeys([DEFAULT, *limits])), **self.settings}
                chores = project_chores(self.agent) if self.agent is not None else ()
                worker = Worker(
                    self.database,
                    self.subjects,
                    version=self.version,
                    chores=chores,
                    keep_conversations=True,
                    **settings,
                )
                self.worker = await stack.enter_async_context(worker)
                self.hub.listen_to(worker.store.engine)
                stack.push_async_callback(worker.drain, self.grace)
            await stack.enter_async_context(self.hub.opened())
            try:
                yield self
            finally:
                await self._end_tasks()
                await asyncio.to_thread(self._keep)

    def reload_policy(self) -> None:
        """The rules as the files have them by now hold for every call that is made from here on.

        What was remembered as "always" is asked again. Raises `ToolError` or `PolicyError`.
        """
        fresh = assemble(self.wishes, approver())
        self.policy = project_policy(fresh.configuration, self.wishes.policy)
        self.made = replace(self.made, configuration=fresh.configuration)
        steps = tuple(fresh.executor.steps)
        self.subjects = [replace(subject, steps=steps) for subject in self.subjects]
        if self.worker is not None:
            self.worker.subjects.update({subject.name: subject for subject in self.subjects})

    def begin(self, work: Any) -> None:
        """Have something done that nobody waits for."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("what was begun from the page failed: %s", self.secrets.mask_all(text_of(error)))

    @property
    def next_version(self) -> str:
        """What a console that is started now would have: another one, once the project's file was changed."""
        return self.version if self.is_version_fixed else project_version(self.made.configuration)

    def _keep(self) -> None:
        """What ended is part of its session, whoever looked."""
        if not self.is_own_database:
            return
        try:
            keep_finished(self.runs.store, self.workspace)
        except ToolError as error:  # the next start does it
            logger.warning("%s", error.message)

    async def _end_tasks(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=2)


def open_project(
    wishes: Wishes,
    *,
    model: str | None = None,
    database: str | None = None,
    version: str = "",
    notes: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Home:
    """Without a model the rest works. `settings` are the worker's.

    Raises `ToolError` or `PolicyError` where something else cannot be used.
    """
    check_installed()
    wishes = replace(wishes, session=SESSION)
    agent, problem = _agent(wishes, model)
    made = agent.made if agent is not None else assemble(wishes, approver())
    url = project_database(made.configuration, made.scope.workspace, database)
    if is_own(url, made.scope.workspace):
        make_own_file(made.scope.workspace)
    runs = Runs(url)
    main = subject_of(agent) if agent is not None else _without_model(made, problem)
    main = replace(main, listen=partial(audited, made.scope.workspace))
    return Home(
        wishes=wishes,
        made=made,
        agent=agent,
        model_problem=problem,
        database=url,
        version=version or project_version(made.configuration, wishes.built.sha256 if wishes.built is not None else ""),
        runs=runs,
        hub=Hub(runs.store, made.scope.workspace / STATE / LOG),
        log=LogIndex(state_directory(made.scope.workspace) / LOG),
        policy=project_policy(made.configuration, wishes.policy),
        asked_model=model,
        is_version_fixed=bool(version) or wishes.built is not None,
        notes=list(notes),
        settings=dict(settings or {}),
        subjects=[main, _undoer(main)],
    )


def _agent(wishes: Wishes, model: str | None) -> tuple[Assistant | None, str]:
    """The project's agent, or why it has none. A model that was asked for by name must be there."""
    try:
        return assistant(wishes, model, approve=approver()), ""
    except ToolError as error:
        if model is not None:
            raise
        return None, "\n".join(filter(None, (error.message, error.suggestion)))


class NoModel:
    """In the place of a model, where there is none: tools can be called all the same."""

    window = 0

    def __init__(self, problem: str) -> None:
        self.problem = problem

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        raise ToolError("there is no model", ErrorKind.CONFIG, self.problem)
        yield  # it must be an iterator


def _without_model(made: Assembly, problem: str) -> Subject:
    return Subject(
        name=made.scope.agent,
        provider=NoModel(problem),
        registry=made.registry,
        steps=tuple(made.executor.steps),
        secrets=made.executor.secrets,
        scope=made.scope,
    )


def _undoer(main: Subject) -> Subject:
    registry = ToolRegistry()
    registry.add(Undo())
    return replace(main, name=UNDOER, registry=registry)
