"""The agent: a model, its tools, and the rules they follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from copy import copy
from dataclasses import replace
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, Unpack

from forge.agent.context_window import Shortening
from forge.agent.conversation import Conversation, Prepare
from forge.agent.guarded_model import Guard, GuardedProvider, check_prompt, is_denied
from forge.agent.limits import Limits
from forge.agent.loop import run_loop
from forge.agent.output import Structured
from forge.agent.result import OutputT, RunResult
from forge.agent.run import LoopSettings
from forge.agent.subagent import AgentType, Task
from forge.core.activity import ActivityStream
from forge.core.check_definition import check_listed
from forge.core.context import Scope, new_session
from forge.core.errors import DuplicateToolError, ErrorKind, ToolError
from forge.core.events import Event, RunStarted
from forge.core.execution.background import BackgroundWork
from forge.core.execution.session_end import end_started
from forge.core.executor import Step, ToolExecutor
from forge.core.messages import Message, ToolCall, unanswered_calls
from forge.core.mount_source import mount_source
from forge.core.provider import Provider, window_of
from forge.core.registry import ToolRegistry, ToolSource
from forge.core.result import ToolResult
from forge.core.secrets import Secrets, secrets_of
from forge.core.tool import Tool
from forge.models.names import provider_for
from forge.permissions.gate import Approver, PolicyGate, nobody
from forge.permissions.policy import Policy
from forge.pipeline import standard_steps
from forge.pipeline.guard import MARK
from forge.tools.conversation import ask_question, converse, task_completion

if TYPE_CHECKING:
    from typing_extensions import TypeForm
else:
    TypeForm = type

INTERRUPTED = "{}: interrupted while it was under way. Whether it happened is unknown; check before you repeat it."
Prompt = str | list[Message] | Conversation
"""A question, or a history to resume from."""


class StreamParameters(TypedDict, total=False):
    """Parameters that `Agent.run` takes besides the prompt and the stream of events."""

    history: list[Message] | Conversation | None
    session: str
    scope: Scope | None
    limits: Limits | None
    options: Mapping[str, Any] | None
    prepare: Prepare | None
    wait_for_background: bool | None


class RunParameters(StreamParameters, total=False):
    """Parameters that `Agent.run` takes besides the prompt."""

    activity: ActivityStream | None


class Agent(Generic[OutputT]):
    """A model, its tools and its rules. Only an agent drives runs, and it may serve many users at once.

    What a session holds is its own: remembered answers, files read, todo list, jobs, background results. A run that
    names no session has a fresh one, which ends with the run. `run(prompt, session="alice")` continues Alice's;
    `end_session("alice")` or the end of the agent ends it.

    `tools` takes functions, tools and sources alike; an agent with sources is used inside `async with`, which opens
    them. `model` is a name such as `anthropic:claude-opus-4-6`, or a provider; None for an agent whose tools are called
    and that never runs by itself. `output` is the type of the answer, which the model has to fit and which
    `RunResult.output` holds: `Agent(model, output=Weather)` is an `Agent[Weather]`. `instructions` may be a function,
    which is called when a conversation begins. `scope` says where its runs work. `guard` looks at what is asked and
    answered. `load_project(path).agent()` makes the agent of a project.
    """

    def __init__(
        self,
        model: str | Provider | None,
        *,
        tools: ToolRegistry | Iterable[Tool | Callable[..., Any] | ToolSource] = (),
        instructions: str | Callable[[], str] = "",
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
        scope: Scope | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.provider: Provider | None = provider_for(model) if isinstance(model, str) else model
        self.model = model if isinstance(model, str) else ""  # its name, where it was given by name
        self.instructions = instructions
        self.limits = limits if limits is not None else Limits()
        self.options = dict(options or {})
        self.output: Any = output
        self.name = name
        self._scope = scope
        self.guard = guard
        self.secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self.gate = PolicyGate(policy, approve)
        self.steps = tuple(steps(self.gate, self.secrets))
        self.window = window  # tokens the model can see; 0: unknown, and nothing is ever shortened
        self.wait_for_background = wait_for_background
        self.activity = ActivityStream(self.secrets)  # for runs and calls without a stream of their own
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry()
        check_listed(tools)
        self._opening = _OpenAgent()
        self._last: ToolExecutor | None = None
        for item in () if isinstance(tools, ToolRegistry) else tools:
            self.secrets.learn(secrets_of(item))
            if isinstance(item, AbstractAsyncContextManager):
                self.while_open(partial(mount_source, self.registry, item))
            else:
                self.registry.add(item)
        if agents is not None:
            self.registry.add(Task(lambda: self, agents))
        for one in (task_completion, ask_question, converse):
            found = self.registry.get(one.spec.name)
            if found is None:
                self.registry.add(one)
            elif found.spec.origin != one.spec.origin:
                words = f"an agent was given a tool named {one.spec.name!r}, which is the name of a built-in tool"
                raise DuplicateToolError(f"{words} that hands over to the person. Give yours another name.")

    @property
    def scope(self) -> Scope:
        """The scope of its runs; by default the directory that is current now."""
        return self._scope if self._scope is not None else Scope()

    def while_open(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Enters a context whenever the agent is opened, such as one that mounts the tools of a server."""
        self._opening.contexts.append(make)

    def replace(
        self,
        *,
        name: str | None = None,
        model: str | Provider | None = None,
        tools: ToolRegistry | None = None,
        instructions: str | None = None,
        limits: Limits | None = None,
        steps: Iterable[Step] | None = None,
        scope: Scope | None = None,
        output: Any = ...,
    ) -> Agent[Any]:
        """Returns a copy with some fields changed. The copy shares open resources and the rules."""
        other = copy(self)
        other.name = name if name is not None else self.name
        other.registry = tools if tools is not None else self.registry
        other.instructions = instructions if instructions is not None else self.instructions
        other.limits = limits if limits is not None else self.limits
        other.steps = tuple(steps) if steps is not None else self.steps
        other._scope = scope if scope is not None else self._scope
        other.output = self.output if output is ... else output
        if model is not None:
            other.provider = provider_for(model) if isinstance(model, str) else model
            other.model = model if isinstance(model, str) else ""
            other.window = window_of(other.provider) or self.window
        return other

    def subagent(self, agent_type: str = "", task: Tool | None = None) -> Agent[Any]:
        """Returns the agent for tasks of a type: this agent with that type's prompt, model, tools and limits.

        `task` is the tool that knows the types, by default the agent's own. Raises `ToolError` where there is no such
        type.
        """
        task = task if task is not None else self.registry.get("task")
        if not isinstance(task, Task):
            words = f"agent {self.name!r} was asked for a sub-agent, and has none"
            raise ToolError(words, ErrorKind.NOT_FOUND, "Give it agents=….")
        is_default = agent_type == "general" and agent_type not in task.types  # how a task without a type is named
        chosen = task.type_of("" if is_default else agent_type)
        return self.replace(
            name=f"{self.name}/{agent_type or 'general'}",
            model=chosen.provider,
            tools=task.tools_of(chosen, self.registry),
            instructions=chosen.prompt,
            limits=chosen.limits,
            output=None,
        )

    async def __aenter__(self) -> Self:
        await self._opening.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._opening.close()

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        history: list[Message] | Conversation | None = None,
        session: str = "",
        scope: Scope | None = None,
        activity: ActivityStream | None = None,
        limits: Limits | None = None,
        options: Mapping[str, Any] | None = None,
        prepare: Prepare | None = None,
        wait_for_background: bool | None = None,
    ) -> RunResult[OutputT]:
        """Run to the end and return the result.

        `session` names whose run this is, and continues what that session holds; `Scope(session_id=…)` does the same.
        Without a name the run has a session of its own, whose programs and memory end with it.

        `history` is a conversation to continue with the prompt; without a prompt the run resumes where it stopped.
        `activity` is the stream that receives the events. `prepare` is called before each turn and may shorten what the
        model is shown. `limits`, `options` and `wait_for_background` replace the agent's own for this run.

        Raises `ToolError` for a prompt that a guardrail denies, and where the history cannot be stored.
        """
        scope, is_named = self._scope_of(scope, session)
        stream = activity if activity is not None else self.activity
        structured = Structured(self.output) if self.output is not None else None
        executor = await self._prepare_executor(stream, structured)
        if stream.listening:
            started = RunStarted(prompt if isinstance(prompt, str) else "")
            started.session, started.agent = scope.session_id, scope.agent
            stream.emit(started)
        wait = self.wait_for_background if wait_for_background is None else wait_for_background
        try:
            conversation = self.begin(prompt, history, scope.session_id)
            result = await self.drive(
                executor,
                conversation,
                scope,
                LoopSettings(
                    options=self.options if options is None else options,
                    prepare=prepare if prepare is not None else self._make_shortening(),
                    wait_for_background=wait,
                ),
                limits=limits,
                structured=structured,
            )
        except BaseException:
            executor.end_work(scope.session_id)
            raise
        finally:
            if not is_named:
                executor.end_session(scope.session_id)
            if stream.listening:
                await stream.drain()
        return result

    async def drive(
        self,
        executor: ToolExecutor,
        conversation: Conversation,
        scope: Scope,
        settings: LoopSettings,
        *,
        provider: Provider | None = None,
        limits: Limits | None = None,
        structured: Structured | None = None,
    ) -> RunResult[OutputT]:
        """Drives a conversation to its end with the given executor. `run` and stored runs both use it."""
        provider = provider if provider is not None else self.model_for(scope.session_id)
        if structured is not None:
            settings = replace(settings, accept=structured.accept)
        result = await run_loop(
            provider, executor, conversation, scope, limits if limits is not None else self.limits, settings
        )
        if structured is not None and result.error is None:
            result.output = structured.found
        if self.guard is not None and is_denied(self.guard, scope.session_id, result.text):
            result.text = MARK
        return result

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        session: str = "",
        scope: Scope | None = None,
        activity: ActivityStream | None = None,
    ) -> ToolResult:
        """Calls one of its tools, through the same steps and rules as a call of the model."""
        scope, is_named = self._scope_of(scope, session)
        executor = await self._prepare_executor(activity if activity is not None else self.activity)
        try:
            return await executor.execute(ToolCall(name, arguments), scope)
        finally:
            if not is_named:
                executor.end_session(scope.session_id)

    @property
    def executor(self) -> ToolExecutor:
        """The executor that runs its tools and emits events to `activity`."""
        return self._executor_of(self.registry, self.activity)

    def system_prompt(self) -> str:
        """Returns the instructions for a conversation that begins now."""
        return self.instructions if isinstance(self.instructions, str) else self.instructions()

    def begin(
        self, prompt: Prompt | None, history: list[Message] | Conversation | None = None, session: str = ""
    ) -> Conversation:
        """Begins a conversation with its instructions and the prompt. Raises `ToolError` if a guardrail denies."""
        if isinstance(prompt, (list, Conversation)):
            prompt, history = None, prompt
        history = [] if history is None else history
        conversation = history if isinstance(history, Conversation) else Conversation(history)
        if prompt is not None and self.guard is not None:
            check_prompt(self.guard, session, prompt)
        if not any(message.role == "system" for message in conversation.messages[:1]):
            text = self.system_prompt()
            if text and conversation.messages:
                conversation.show([Message("system", text), *conversation.shown])
            elif text:
                conversation.say(Message("system", text))
        if prompt is not None:
            left = unanswered_calls(conversation.messages)
            conversation.say(
                *(Message("tool", INTERRUPTED.format(call.name), call_id=call.id, is_error=True) for call in left)
            )
            conversation.say(Message("user", prompt))
        return conversation

    def run_sync(self, prompt: Prompt | None = None, **parameters: Unpack[RunParameters]) -> RunResult[OutputT]:
        """`run` for programs without an event loop. Raises `RuntimeError` inside one."""
        _check_no_loop()

        async def main() -> RunResult[OutputT]:
            async with self:
                return await self.run(prompt, **parameters)

        return asyncio.run(main())

    def end_session(self, session: str) -> None:
        """Ends a named session: its programs end, and nothing of it is remembered."""
        if not session:
            raise ValueError("Agent.end_session needs the name of a session")
        self._opening.sessions.discard(session)
        ToolExecutor(self.registry, self.steps, None, self.secrets, self._opening.background).end_session(session)

    async def stream(
        self, prompt: Prompt | None = None, **parameters: Unpack[StreamParameters]
    ) -> AsyncGenerator[Event | RunResult[OutputT], None]:
        """Run and yield every event; the `RunResult` comes last. Leaving the loop early stops the work."""
        activity, queue = ActivityStream(self.secrets), asyncio.Queue[Event | None]()
        activity.subscribe(queue.put_nowait)
        running = asyncio.create_task(self.run(prompt, activity=activity, **parameters))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])

    def _scope_of(self, scope: Scope | None, session: str) -> tuple[Scope, bool]:
        """Returns the scope of a run, and says whether the caller named its session."""
        self._opening.check()
        _check_session(session, scope)
        base = scope if scope is not None else self.scope
        name = session or (base.session_id if base.names_session else "")
        if name:
            self._opening.sessions.add(name)
        return replace(base, session_id=name or new_session(), agent=self.name), bool(name)

    async def _prepare_executor(self, activity: ActivityStream, structured: Structured | None = None) -> ToolExecutor:
        registry = self.registry if structured is None else add_answer_tool(self.registry, structured)
        await registry.ready()
        return self._executor_of(registry, activity)

    def _executor_of(self, registry: ToolRegistry, activity: ActivityStream) -> ToolExecutor:
        """Returns the executor for a stream. Its composed chains are reused by the next run."""
        last = self._last
        if (
            last is None
            or last.registry is not registry
            or last.activity is not activity
            or last.steps is not self.steps
        ):
            opening = self._opening
            last = ToolExecutor(registry, self.steps, activity, self.secrets, opening.background)
            opening.background = last.background  # work that ends after a run is received by the session's next run
            self._last = last
        return last

    def model_for(self, session: str) -> Provider:
        """Returns its model, with answers checked by the session's rules. Raises `ToolError` where it has none."""
        if self.provider is None:
            words = f"the agent {self.name!r} was asked to run, and has no model"
            raise ToolError(words, ErrorKind.CONFIG, "Give it one: Agent(model=…), --model or agent.model.")
        return GuardedProvider(self.provider, self.guard, session) if self.guard is not None else self.provider

    def _make_shortening(self) -> Shortening | None:
        return Shortening(self.provider, self.window) if self.window and self.provider is not None else None


def add_answer_tool(registry: ToolRegistry, structured: Structured) -> ToolRegistry:
    """Returns the tools of a run that ends with a structured answer."""
    picked = registry.select(lambda spec: spec.name not in ("task_completion", "converse"))
    picked.add(structured.tool)
    return picked


class _OpenAgent:
    """The resources of an agent in use; copies made by `replace` share them."""

    def __init__(self) -> None:
        self.contexts: list[Callable[[], AbstractAsyncContextManager[Any]]] = []
        self.background: BackgroundWork | None = None
        self.sessions: set[str] = set()  # named sessions: their programs end with the agent
        self._stack = AsyncExitStack()
        self._is_open = False

    async def open(self) -> None:
        try:
            for make in self.contexts:
                await self._stack.enter_async_context(make())
        except BaseException:
            await self.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        while self.sessions:
            end_started(self.sessions.pop())
        await self._stack.aclose()

    def check(self) -> None:
        if self.contexts and not self._is_open:
            raise RuntimeError("this agent mounts tool sources: use it inside `async with agent:`")


def _check_session(session: str, scope: Scope | None) -> None:
    if not isinstance(session, str):
        raise TypeError(f'Agent.run(session={session!r:.80}): a session is a name, such as session="alice"')
    if session and scope is not None and scope.names_session and scope.session_id != session:
        raise ValueError(
            f"Agent.run was given session={session!r:.80} and a scope of the session {scope.session_id!r:.80}. "
            "Leave one of them out."
        )


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "Agent.run_sync was called where an event loop runs already, as in a notebook or an async function. "
        "Write `await agent.run(prompt)` there."
    )
