"""The front door: a model, its tools, and the rules they live by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Self

from forge.agent.conversation import Conversation
from forge.agent.limits import Limits
from forge.agent.loop import run_loop
from forge.agent.output import Structured
from forge.agent.result import OutputT, RunResult
from forge.agent.subagent import AgentType, Task
from forge.agent.window import Shortening
from forge.core.activity import ActivityStream
from forge.core.background import BackgroundWork
from forge.core.context import Scope, new_session
from forge.core.defining import check_listed
from forge.core.errors import DuplicateToolError
from forge.core.events import Event, RunStarted
from forge.core.executor import Step, ToolExecutor
from forge.core.messages import Message
from forge.core.mounting import mounted
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry, ToolSource
from forge.core.secrets import Secrets, secrets_of
from forge.core.session_end import end_started
from forge.core.tool import Tool
from forge.permissions.gate import Approver, PolicyGate, nobody
from forge.permissions.policy import Policy
from forge.pipeline import standard_steps
from forge.providers.names import provider_for
from forge.tools.conversation import ask_question, converse, task_completion

if TYPE_CHECKING:
    from typing_extensions import TypeForm
else:
    TypeForm = type

Prompt = str | list[Message] | Conversation
"""A question, or a history to go on from."""


class Agent(Generic[OutputT]):
    """A model, its tools and its rules. Every run has a state of its own; one agent may serve many users at once.

    What a session holds is its own: remembered answers, files read, todo list, jobs, background results. A run that
    names no session has a fresh one, which ends with the run. `run(prompt, session="alice")` continues Alice's;
    `end_session("alice")` or the end of the agent ends it.

    `tools` takes functions, tools and sources alike; an agent with sources is used inside `async with`, which opens
    them. `model` is a name such as `anthropic:claude-opus-4-6`, or a provider. `output` is the type of the answer, for
    `RunResult.output`: `Agent(model, output=Weather)` is an `Agent[Weather]`.
    """

    def __init__(
        self,
        model: str | Provider,
        *,
        tools: ToolRegistry | Iterable[Tool | Callable[..., Any] | ToolSource] = (),
        instructions: str = "",
        policy: Policy | None = None,
        approve: Approver = nobody,
        limits: Limits | None = None,
        options: Mapping[str, Any] | None = None,
        output: TypeForm[OutputT] | UnionType | None = None,
        secrets: Secrets | Iterable[str] = (),
        steps: Callable[[PolicyGate, Secrets], list[Step]] = standard_steps,
        window: int = 0,
        wait_for_background: bool = False,
        agents: Mapping[str, AgentType] | None = None,
        name: str = "main",
    ) -> None:
        self.provider = provider_for(model) if isinstance(model, str) else model
        self.instructions = instructions
        self.limits = limits if limits is not None else Limits()
        self.options = dict(options or {})
        self.output: Any = output
        self.name = name
        self.secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self.gate = PolicyGate(policy, approve)
        self.steps = steps(self.gate, self.secrets)
        self.window = window  # tokens the model can see; 0: unknown, and nothing is ever shortened
        self.wait_for_background = wait_for_background
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry()
        check_listed(tools)
        self._sources: list[ToolSource] = []
        self._open = AsyncExitStack()
        self._background: BackgroundWork | None = None
        self._is_open = False
        self._sessions: set[str] = set()  # those that were named: their programs end with this agent
        for item in () if isinstance(tools, ToolRegistry) else tools:
            self.secrets.learn(secrets_of(item))
            if isinstance(item, AbstractAsyncContextManager):
                self._sources.append(item)
            else:
                self.registry.add(item)
        if agents is not None:
            self.registry.add(Task(self.provider, self.registry, tuple(self.steps), agents))
        for one in (task_completion, ask_question, converse):
            found = self.registry.get(one.spec.name)
            if found is None:
                self.registry.add(one)
            elif found is not one:
                words = f"an agent was given a tool named {one.spec.name!r}, which is the name of a built-in tool"
                raise DuplicateToolError(f"{words} that hands over to the person. Give yours another name.")

    async def __aenter__(self) -> Self:
        try:
            for source in self._sources:
                await self._open.enter_async_context(mounted(self.registry, source))
        except BaseException:
            await self.__aexit__()
            raise
        self._is_open = True
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._is_open = False
        while self._sessions:
            end_started(self._sessions.pop())
        await self._open.aclose()

    async def run(
        self,
        prompt: Prompt,
        *,
        session: str = "",
        scope: Scope | None = None,
        activity: ActivityStream | None = None,
        **more: Any,
    ) -> RunResult[OutputT]:
        """Run to the end and return the result. `more` are fields of `forge.agent.loop.Run`.

        `session` names whose run this is, and continues what that session holds; `Scope(session_id=…)` does the same.
        Without a name the run has a session of its own, whose programs and memory end with it.
        """
        if self._sources and not self._is_open:
            raise RuntimeError("this agent mounts tool sources: use it inside `async with agent:`")
        conversation = self._conversation(prompt)
        scope = replace(_in_session(scope if scope is not None else Scope(), session), agent=self.name)
        is_named = bool(session) or scope.names_session
        if is_named:
            self._sessions.add(scope.session_id)
        else:
            scope = replace(scope, session_id=new_session())
        stream = activity if activity is not None else ActivityStream(self.secrets)
        registry, structured = self.registry, None
        if self.output is not None:
            structured = Structured(self.output)
            registry = registry.select(lambda spec: spec.name not in ("task_completion", "converse"))
            registry.add(structured.tool)
            more["accept"] = structured.accept
        await registry.ready()
        executor = ToolExecutor(registry, self.steps, stream, self.secrets, self._background)
        self._background = executor.background  # what ends after a run is heard of in the next of its session
        if stream.listening:
            started = RunStarted(prompt if isinstance(prompt, str) else "")
            started.session, started.agent = scope.session_id, scope.agent
            stream.emit(started)
        settings = {
            "options": self.options,
            "prepare": Shortening(self.provider, self.window) if self.window else None,
            "wait_for_background": self.wait_for_background,
        }
        try:
            result = await run_loop(self.provider, executor, conversation, scope, self.limits, **{**settings, **more})
        except asyncio.CancelledError:
            executor.end_work(scope.session_id)
            raise
        finally:
            if not is_named:
                executor.end_session(scope.session_id)
        if structured is not None and result.error is None:
            result.output = structured.found
        return result

    def run_sync(self, prompt: Prompt, **more: Any) -> RunResult[OutputT]:
        """`run` for programs without an event loop. Raises `RuntimeError` inside one."""
        _check_no_loop()

        async def main() -> RunResult[OutputT]:
            async with self:
                return await self.run(prompt, **more)

        return asyncio.run(main())

    def end_session(self, session: str) -> None:
        """A named session is over: its programs end, and nothing of it is remembered."""
        if not session:
            raise ValueError("Agent.end_session needs the name of a session")
        self._sessions.discard(session)
        ToolExecutor(self.registry, self.steps, None, self.secrets, self._background).end_session(session)

    async def stream(self, prompt: Prompt, **more: Any) -> AsyncGenerator[Event | RunResult[OutputT], None]:
        """Run and yield every event; the `RunResult` comes last. Leaving the loop early stops the work."""
        activity, queue = ActivityStream(self.secrets), asyncio.Queue[Event | None]()
        activity.subscribe(queue.put_nowait)
        running = asyncio.create_task(self.run(prompt, activity=activity, **more))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])

    def _conversation(self, prompt: Prompt) -> Conversation:
        if isinstance(prompt, Conversation):
            conversation = prompt
        elif isinstance(prompt, list):
            conversation = Conversation(prompt)
        else:
            conversation = Conversation([])
        if self.instructions and not any(message.role == "system" for message in conversation.messages[:1]):
            first = Message("system", self.instructions)
            if conversation.messages:
                conversation.show([first, *conversation.shown])
            else:
                conversation.say(first)
        if isinstance(prompt, str):
            conversation.say(Message("user", prompt))
        return conversation


def _in_session(scope: Scope, session: str) -> Scope:
    if not isinstance(session, str):
        raise TypeError(f'Agent.run(session={session!r:.80}): a session is a name, such as session="alice"')
    if session and scope.names_session and scope.session_id != session:
        raise ValueError(
            f"Agent.run was given session={session!r:.80} and a scope of the session {scope.session_id!r:.80}. "
            "Leave one of them out."
        )
    return replace(scope, session_id=session) if session else scope


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "Agent.run_sync was called where an event loop runs already, as in a notebook or an async function. "
        "Write `await agent.run(prompt)` there."
    )
