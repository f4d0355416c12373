"""Runs an agent durably: after a crash its runs resume where they were, here or on another machine."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar, Unpack

from pydantic import TypeAdapter

from forge.agent.agent import Agent, find_override
from forge.agent.conversation import Content, read_prompt
from forge.agent.instructions import DepsT, evaluate_instructions, is_evaluated_per_run
from forge.agent.result import RunResult
from forge.agent.run_control import StartedRun
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import Event, EventsMissed, RunFinished, RunStarted
from forge.core.execution.threads import in_thread
from forge.core.messages import Message
from forge.core.plain_values import brief
from forge.durable.client import Runs, new_run_id
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.queues import DEFAULT
from forge.durable.engine.tasks import run_until_first
from forge.durable.store.check_input import check_messages
from forge.durable.store.encoding import run_result
from forge.durable.store.rows import INITIAL_MESSAGES, RunInfo
from forge.durable.store.waits import Wait
from forge.durable.worker import GRACE, Worker, WorkerSettings
from forge.permissions.questions import Answer
from forge.workspace.state import state_directory

log = logging.getLogger("forge.durable")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class DurableResult(RunResult):
    """The result of a stored run. Where `reason` is "waiting", `waits` says for what, and an answer resumes the run.

    Args:
        run_id: the id of the run.
        waits: what the run waits for: approvals, questions, times, other runs.

    Example:
        >>> DurableResult(text="", reason="waiting", turns=1, messages=[], run_id="r1").waits
        ()
    """

    run_id: str
    waits: tuple[Wait, ...] = ()


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
    agent: str


class DurableAgent:
    """An agent whose runs are stored. `async with` starts a worker in this process; other workers of the database help.

    A stored run survives a crash: it continues where it was, here or on another machine.

    Args:
        agent: the agent.
        database: `sqlite:///file.db` (by default in `.forge` of the workspace) or `postgresql://…`.
        scope: the directories and the user of its runs.
        deps: makes the dependencies of a run, because a stored run cannot keep an object: a function, plain or async,
            of the run's scope. It is called for each part of a run, on the worker that runs the part. The scope has
            `session_id`, and `user`, `channel` and `chat_id` as given to `submit`.
        others: further agents whose runs this process works on; `submit(…, agent="name")` begins a run of one.
        drain: the seconds that runs have to end their turn at the end of `async with`. What is not over by then is
            handed to other workers.
        worker: the settings of the worker, such as its queues and its version.

    Example:
        >>> async def main():
        ...     async with DurableAgent(Agent(Scripted("Hello!")), "sqlite:///runs.db") as durable:
        ...         return (await durable.run("Hi")).text
        >>> asyncio.run(main())
        'Hello!'
    """

    def __init__(
        self,
        agent: Agent[Any, DepsT],
        database: str = "",
        *,
        scope: Scope | None = None,
        deps: Callable[[Scope], DepsT | Awaitable[DepsT]] | None = None,
        others: Sequence[Agent[Any, Any]] = (),
        drain: float = GRACE,
        worker: WorkerSettings | None = None,
    ) -> None:
        _check_agents([agent, *others])
        if deps is not None and not callable(deps):
            message = f"a DurableAgent was given deps={brief(deps)}, and a stored run cannot keep an object"
            raise ToolError(
                message, ErrorKind.CONFIG, "Give a function that makes it: deps=lambda scope: Db(scope.user)."
            )
        self._given = (agent, *others)
        self._make_deps = deps
        self._take_agents()
        self.scope = scope if scope is not None else agent.scope
        self.database = database or local_database(self.scope.workspace)
        self.runs = Runs(self.database)
        self._settings = worker or WorkerSettings()
        self._drain = drain
        self._worker: Worker | None = None
        self._open = AsyncExitStack()
        self._is_open = False

    def _take_agents(self) -> None:
        """Takes the agents as they are here: a test may override them."""
        self._taken = [find_override(agent) for agent in self._given]
        self.agent, *others = self._taken
        if self._make_deps is not None:
            self.agent = self.agent.replace()
            self.agent.make_deps = self._make_deps
        self.agents = {one.name: one for one in (self.agent, *others)}

    @classmethod
    async def serve(
        cls,
        agents: Sequence[Agent[Any, Any]],
        database: str = "",
        *,
        drain: float = GRACE,
        worker: WorkerSettings | None = None,
    ) -> None:
        """Works on the stored runs of these agents until SIGTERM or Ctrl-C, then drains: it takes no more runs, and
        each run ends its turn, for at most `drain` seconds. A second signal ends it at once.
        """
        _check_agents(agents)
        first, *others = agents
        async with cls(first, database, others=others, drain=drain, worker=worker) as durable:
            await durable._work_until_signal()

    async def __aenter__(self) -> Self:
        self._take_agents()
        try:
            for agent in self.agents.values():
                await self._open.enter_async_context(agent)
            stored = [prepare_for_worker(agent, self.scope) for agent in self.agents.values()]
            self._worker = await self._open.enter_async_context(Worker(self.database, stored, self._settings))
        except BaseException:
            await self._open.aclose()
            raise
        self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drains first, unless an exception ends the block: a call under way would be in an unknown state."""
        self._is_open = False
        try:
            if kind is None and self._worker is not None and not await self._worker.drain(self._drain):
                log.warning("runs did not end their turn within %g s: other workers resume them", self._drain)
        finally:
            await self._open.aclose()
            await in_thread(self.runs.close)

    async def _work_until_signal(self) -> None:
        assert self._worker is not None
        leave, hurry = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: (hurry if leave.is_set() else leave).set())
        try:
            await run_until_first(leave.wait(), self._worker.broken())
            await run_until_first(hurry.wait(), self._worker.drain(self._drain))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            if hurry.is_set():
                self._drain = 0.0

    async def run(self, prompt: Content, **parameters: Unpack[SubmitParameters]) -> DurableResult:
        """Begins a run and follows it until it is over or waits for an answer. Takes the parameters of `submit`."""
        return await self.start(prompt, **parameters)

    def start(self, prompt: Content, **parameters: Unpack[SubmitParameters]) -> StartedRun[DurableResult]:
        """Begins a run and returns it at once, as `Agent.start` does. Takes the parameters of `submit`.

        `run.id` is the id of the run: `started(id)` finds the same run later, also from another process.
        """
        self._check_open()
        given: SubmitParameters = {**parameters, "run_id": parameters.get("run_id") or new_run_id()}
        return DurableRun(self, given["run_id"], given.get("session", ""), self.submit(prompt, **given))

    def started(self, run_id: str) -> StartedRun[DurableResult]:
        """Returns a run that was begun earlier, here or elsewhere, such as before a restart."""
        self._check_open()
        return DurableRun(self, run_id, "", in_thread(lambda: self.runs.get(run_id)))

    async def submit(
        self,
        prompt: Content,
        *,
        run_id: str = "",
        messages: Sequence[Message] = (),
        session: str = "",
        tenant: str = "",
        queue: str = DEFAULT,
        priority: int = 0,
        version: str = "",
        scope: Mapping[str, Any] | None = None,
        agent: str = "",
    ) -> RunInfo:
        """Begins a run and leaves it to any worker. The same `run_id` begins only one run.

        `messages` is a conversation that the prompt continues. `scope` names the user, channel and chat. `agent` is the
        name of one of `others`; by default it is the first agent's run.
        """
        self._check_open()
        self._check_override()
        check_messages(messages)
        chosen = self._find_agent(agent)
        asked = read_prompt(prompt, self.scope)
        if not isinstance(asked, str | Message):
            message = f"a stored run was submitted with the prompt {brief(prompt)}, which is a history"
            raise ToolError(message, ErrorKind.VALIDATION, "Give the history as messages=…, and the prompt beside it.")
        said = await self._begin(chosen, asked, messages, session, scope or {})
        given = len(messages) and len(messages) + (messages[0].role != "system" and said[0].role == "system")
        return await in_thread(
            lambda: self.runs.submit(
                asked if isinstance(asked, str) else asked.text,
                agent=chosen.name,
                run_id=run_id,
                messages=said,
                session=session,
                tenant=tenant,
                queue=queue,
                priority=priority,
                version=version or self._settings.version,
                scope={**(scope or {}), INITIAL_MESSAGES: given} if given else scope,
            )
        )

    def _find_agent(self, name: str) -> Agent[Any, Any]:
        if not name:
            return self.agent
        if name not in self.agents:
            message = f"a run of the agent {brief(name)} was submitted, and this DurableAgent has none of that name"
            raise ToolError(message, ErrorKind.NOT_FOUND, f"It has {', '.join(self.agents)}.")
        return self.agents[name]

    async def _begin(
        self,
        agent: Agent[Any, Any],
        prompt: str | Message,
        messages: Sequence[Message],
        session: str,
        given: Mapping[str, Any],
    ) -> list[Message]:
        """Returns the messages that a run begins with. Instructions of the run's context are evaluated here, once."""
        if not is_evaluated_per_run(agent.instructions):
            return agent.begin(prompt, list(messages), session).messages
        names: dict[str, Any] = {name: str(given[name]) for name in ("channel", "chat_id", "user") if name in given}
        scope = replace(self.scope, agent=agent.name, session_id=session or self.scope.session_id, **names)
        text = await evaluate_instructions(agent.instructions, await agent.with_deps(scope))
        return agent.begin(prompt, list(messages), session, text).shown

    async def answer(
        self, run_id: str, answer: Answer | str, question: str | None = None, by: str = ""
    ) -> DurableResult:
        """Answers an approval or a question of a run, and follows the run from there."""
        self._check_open()
        await in_thread(lambda: self.runs.answer(run_id, answer, question, by))
        return await self.result(run_id)

    async def send(self, run_id: str, text: str) -> None:
        """Sends a message to a run that is not over: the model sees it before its next turn, exactly once."""
        self._check_open()
        await in_thread(lambda: self.runs.send(run_id, text))

    async def cancel(self, run_id: str) -> DurableResult:
        self._check_open()
        await in_thread(lambda: self.runs.cancel(run_id))
        return await self.result(run_id)

    async def result(self, run_id: str) -> DurableResult:
        """Waits until the run is over or waits for an answer."""
        self._check_open()
        run = await self.runs.settled(run_id)
        return await in_thread(lambda: self._result(run))

    def _check_open(self) -> None:
        if not self._is_open:
            message = "a DurableAgent is used outside `async with`: it has no worker, so no run would start"
            hint = "Write `async with DurableAgent(agent) as durable:` around it; to submit only, use `Runs(database)`."
            raise ToolError(message, ErrorKind.USER, hint)

    def _check_override(self) -> None:
        """Raises `ToolError` in an override that began after the worker: the worker would run the agent without it."""
        for agent, taken in zip(self._given, self._taken, strict=True):
            if find_override(agent) not in (agent, taken):
                message = f"a run of {agent.name!r} was submitted inside `override`, which its worker began without"
                hint = "Open the DurableAgent inside it: with agent.override(…), then async with DurableAgent(agent)."
                raise ToolError(message, ErrorKind.USER, hint)

    def _result(self, run: RunInfo) -> DurableResult:
        messages = self.runs.store.messages(run.id)
        found = run_result(run, messages)
        fields = {name: getattr(found, name) for name in RunResult.__dataclass_fields__}
        output = self.agents[run.agent].output if run.agent in self.agents else None
        if found.has_output and output is not None and not isinstance(output, Mapping):
            fields["output_or_none"] = TypeAdapter(output).validate_python(found.output_or_none)
        return DurableResult(**fields, run_id=run.id, waits=run.waits)

    def __repr__(self) -> str:
        return f"<DurableAgent {self.agent.name}, {'open' if self._is_open else 'closed'}>"


class DurableRun(StartedRun[DurableResult]):
    """A stored run. What is asked of it is done in order, behind its submission."""

    def __init__(self, durable: DurableAgent, run_id: str, session: str, find: Coroutine[Any, Any, RunInfo]) -> None:
        """`find` submits the run, or looks it up."""
        self.id, self.session = run_id, session or run_id
        self._durable = durable
        self._is_over = False
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()  # kept until they are over
        self._found = self._begin(find)
        self._cancelling: asyncio.Task[None] | None = None

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def events(self) -> AsyncGenerator[Event, None]:
        await self._find()
        is_first = True
        async for event in self._durable.runs.follow(self.id):
            was_begun = not isinstance(event, RunFinished) or event.turns > 0
            if is_first and was_begun and not isinstance(event, RunStarted):
                yield EventsMissed(0)
            is_first = False
            yield event
        result = await self._durable.result(self.id)
        if is_first and result.turns:
            yield EventsMissed(0)

    def send(self, text: str) -> Awaitable[None]:
        return self._begin(self._do(self._durable.runs.send, self.id, text))

    def cancel(self) -> Self:
        if self._cancelling is None or self._cancelling.done():
            self._cancelling = self._begin(self._do(self._durable.runs.cancel, self.id))
        return self

    async def _find(self) -> None:
        await asyncio.wait([self._found])
        self.session = self._found.result().session or self.id

    async def _do(self, function: Callable[..., Any], *values: Any) -> None:
        await self._find()
        async with self._order:
            await in_thread(lambda: function(*values))

    def __await__(self) -> Generator[Any, None, DurableResult]:
        return self._wait().__await__()

    async def _wait(self) -> DurableResult:
        await self._find()
        if self._cancelling is not None:
            await asyncio.wait([self._cancelling])
            self._cancelling.result()
        result = await self._durable.result(self.id)
        self._is_over = result.reason != "waiting"
        return result


def _check_agents(agents: Sequence[Agent[Any, Any]]) -> None:
    names = [agent.name for agent in agents]
    if not names:
        raise ToolError("DurableAgent was given no agent", ErrorKind.CONFIG, "Give at least one: serve([agent]).")
    if repeated := {name for name in names if names.count(name) > 1}:
        message = f"DurableAgent was given several agents named {', '.join(sorted(repeated))}"
        raise ToolError(message, ErrorKind.CONFIG, 'Give each its own name: Agent(…, name="billing").')


def local_database(workspace: Path) -> str:
    """Returns the database URL of a workspace, in its `.forge` directory: enough for one machine."""
    given = Path(workspace)  # runs that survive need a place that stays, also in the current directory
    return f"sqlite:///{state_directory(given) / 'durable.db'}"
