"""Runs an agent durably: after a crash its runs resume where they were, here or on another machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from pydantic import TypeAdapter

from forge.agent.agent import Agent
from forge.agent.result import RunResult
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.durable.client import Runs
from forge.durable.engine.agents import for_stored_runs
from forge.durable.engine.queues import DEFAULT
from forge.durable.engine.queues import Limits as QueueLimits
from forge.durable.store.check_input import check_messages
from forge.durable.store.results import run_result
from forge.durable.store.rows import RunInfo, Wait
from forge.durable.worker import Chore, Worker
from forge.permissions.answers import Answer
from forge.workspace.state import state_directory


@dataclass(slots=True, kw_only=True)
class DurableResult(RunResult):
    """The result of a run, or what it waits for: then `reason` is "waiting", and an answer resumes the run."""

    run_id: str
    waits: tuple[Wait, ...] = ()


class WorkerSettings(TypedDict, total=False):
    """The settings of a `DurableAgent`'s worker; see `Worker`."""

    name: str
    version: str
    queues: Sequence[str]
    offers: Sequence[str]
    concurrency: int
    limits: Mapping[str, QueueLimits] | None
    every: float
    silent: float
    chores: Sequence[Chore]
    keep_conversations: bool


class SubmitParameters(TypedDict, total=False):
    """The parameters of `DurableAgent.submit` beside the prompt."""

    run_id: str
    messages: Sequence[Message]
    session: str
    tenant: str
    queue: str
    priority: int
    version: str
    scope: Mapping[str, Any] | None


class DurableAgent:
    """An agent whose runs are stored. `async with` starts a worker in this process; other workers of the database help.

    `database` is `sqlite:///file.db` (by default in `.forge` of the workspace) or `postgresql://…`.
    """

    def __init__(
        self,
        agent: Agent,
        database: str = "",
        *,
        scope: Scope | None = None,
        **worker: Unpack[WorkerSettings],
    ) -> None:
        _check_settings(worker)
        self.agent = agent
        self.scope = scope if scope is not None else agent.scope
        self.database = database or local_database(self.scope.workspace)
        self.runs = Runs(self.database)
        self._settings = worker
        self._open = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Self:
        try:
            await self._open.enter_async_context(self.agent)
            agent = for_stored_runs(self.agent, self.scope)
            await self._open.enter_async_context(Worker(self.database, [agent], **self._settings))
        except BaseException:
            await self._open.aclose()
            raise
        self._is_open = True
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._is_open = False
        await self._open.aclose()
        await asyncio.to_thread(self.runs.close)

    async def run(self, prompt: str, **parameters: Unpack[SubmitParameters]) -> DurableResult:
        """Begins a run and follows it until it is over or waits for an answer. Takes the parameters of `submit`."""
        run = await self.submit(prompt, **parameters)
        return await self.result(run.id)

    async def submit(
        self,
        prompt: str,
        *,
        run_id: str = "",
        messages: Sequence[Message] = (),
        session: str = "",
        tenant: str = "",
        queue: str = DEFAULT,
        priority: int = 0,
        version: str = "",
        scope: Mapping[str, Any] | None = None,
    ) -> RunInfo:
        """Begins a run and leaves it to any worker. The same `run_id` begins only one run.

        `messages` is a conversation that the prompt continues. `scope` names the user, channel and chat.
        """
        self._check_open()
        check_messages(messages)
        said = self.agent.begin(prompt, list(messages), session).messages
        return await asyncio.to_thread(
            lambda: self.runs.submit(
                prompt,
                agent=self.agent.name,
                run_id=run_id,
                messages=said,
                session=session,
                tenant=tenant,
                queue=queue,
                priority=priority,
                version=version or self._settings.get("version", ""),
                scope=scope,
            )
        )

    async def answer(
        self, run_id: str, answer: Answer | str, question: str | None = None, by: str = ""
    ) -> DurableResult:
        """Answers an approval or a question of a run, and follows the run from there."""
        self._check_open()
        await asyncio.to_thread(lambda: self.runs.answer(run_id, answer, question, by))
        return await self.result(run_id)

    async def cancel(self, run_id: str) -> DurableResult:
        self._check_open()
        await asyncio.to_thread(self.runs.cancel, run_id)
        return await self.result(run_id)

    async def result(self, run_id: str) -> DurableResult:
        """Waits until the run is over or waits for an answer."""
        self._check_open()
        run = await self.runs.settled(run_id)
        return await asyncio.to_thread(self._result, run)

    def _check_open(self) -> None:
        if not self._is_open:
            words = "a DurableAgent is used outside `async with`: no worker of it is up, so nothing would ever happen"
            way = "Write `async with DurableAgent(agent) as durable:` around it; to submit only, use `Runs(database)`."
            raise ToolError(words, ErrorKind.USER, way)

    def _result(self, run: RunInfo) -> DurableResult:
        messages = self.runs.store.messages(run.id)
        found = run_result(run, messages)
        fields = {name: getattr(found, name) for name in RunResult.__dataclass_fields__}
        if self.agent.output is not None and found.output is not None:
            fields["output"] = TypeAdapter(self.agent.output).validate_python(found.output)
        return DurableResult(**fields, run_id=run.id, waits=run.waits)


def _check_settings(worker: Mapping[str, Any]) -> None:
    for name in ("queues", "offers"):
        names = worker.get(name, ())
        if isinstance(names, str) or not isinstance(names, Sequence) or not all(_is_name(one) for one in names):
            words = f"a DurableAgent was given {name}={brief(names)}, which is no list of names"
            raise ToolError(words, ErrorKind.VALIDATION, f'Write {name}=["default"].')
    concurrency = worker.get("concurrency", 1)
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        words = f"a DurableAgent was given concurrency={brief(concurrency)}: it would never work on anything"
        raise ToolError(words, ErrorKind.VALIDATION, "Use a whole number from 1 on: how many runs at a time.")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())


def local_database(workspace: Path) -> str:
    """Returns the database URL of a workspace, in its `.forge` directory: enough for one machine."""
    return f"sqlite:///{state_directory(workspace) / 'durable.db'}"
