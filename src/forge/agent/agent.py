"""The agent: a model, its tools, and the rules they follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack, overload

from forge.agent.context_window import Shortening
from forge.agent.conversation import Conversation, Prepare, Prompt, read_prompt
from forge.agent.guarded_model import GuardedProvider, SessionGuard, check_prompt, is_denied, withhold_denied
from forge.agent.hooks import (
    AfterCall,
    BeforeCall,
    ChooseTools,
    Hook,
    HookDecorator,
    Hooks,
    Record,
    TurnHook,
    TurnHooks,
)
from forge.agent.instructions import DepsT, Instructions, call_instructions, check_text, evaluate_instructions
from forge.agent.limits import Limits
from forge.agent.loop import LoopSettings, may_run_again, run_loop
from forge.agent.open_agent import DeclaredDeps, OpenAgent, check_in_loop, check_session, check_stored, run_to_end
from forge.agent.output import MISSING, OutputValidator, PartialReader, Structured, bind_validators, join_types
from forge.agent.result import OutputT, RunResult
from forge.agent.run_control import LocalRun, RunInProgress, StartedRun
from forge.agent.shown_results import ContextRules, make_store
from forge.core.activity import ActivityStream
from forge.core.check_definition import check_listed, check_settings
from forge.core.context import Scope, new_session
from forge.core.errors import DefinitionError, DuplicateToolError, ErrorKind, ToolError
from forge.core.events import Event, RunFinished, RunStarted, SessionRewound
from forge.core.execution.chain import Step
from forge.core.execution.threads import in_thread
from forge.core.executor import ToolExecutor
from forge.core.messages import Message, ToolCall, unanswered_calls
from forge.core.provider import Provider, window_of
from forge.core.registry import ToolRegistry, ToolSource, mount_source
from forge.core.result import ToolResult
from forge.core.secrets import Secrets, secrets_of
from forge.core.spec import Permission
from forge.core.tool import PlainFunction, Tool, explain_unavailable
from forge.models.vendors import find_model
from forge.permissions.gate import PolicyGate
from forge.permissions.labels.settings import LabelSettings
from forge.permissions.policy import TrialMode
from forge.permissions.questions import Approver, OpeningQuestions, Policy, let_ask, nobody
from forge.pipeline import standard_steps
from forge.pipeline.guard import MARK
from forge.pipeline.trace import add_content
from forge.pipeline.track_files import TrackFiles
from forge.tools.conversation import ask_question, converse, task_completion
from forge.workspace.history.tracking import SessionState

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from forge.agent.rewind import Rewind, Turn
    from forge.agent.session import SessionStore
    from forge.agent.subagent import AgentType
    from forge.models.server_tools import ServerTool
else:
    TypeForm = type

log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT")

INTERRUPTED = "{}: interrupted while it was under way. Whether it happened is unknown; check before you repeat it."


ToolList = ToolRegistry | Iterable[Tool | Callable[..., Any] | ToolSource]
"""Functions, tools and sources of tools; or a registry."""

MakeSteps = Callable[[PolicyGate, Secrets], list[Step]]

_overrides: ContextVar[Mapping[Agent[Any, Any], Agent[Any, Any]]] = ContextVar("overrides", default={})  # noqa: B039


class AgentSettings(TypedDict, total=False):
    """The parameters of an `Agent` that few agents need; `Agent` describes them."""

    options: Mapping[str, Any] | None
    secrets: Secrets | Iterable[str]
    steps: MakeSteps
    context: ContextRules | None
    wait_for_background: bool
    agents: Mapping[str, AgentType] | None
    scope: Scope | None
    guard: SessionGuard | None
    code_mode: bool
    labels: LabelSettings | bool
    trial: TrialMode
    choose_tools: ChooseTools | None
    trace_content: bool
    server_tools: Sequence[ServerTool]


class AgentChanges(TypedDict, total=False):
    """Changes for `Agent.replace`, beside the output. None: it stays as it is."""

    name: str | None
    model: str | Provider | None
    tools: ToolRegistry | None
    instructions: str | None
    limits: Limits | None
    steps: Iterable[Step] | None
    scope: Scope | None


class DriveSettings(TypedDict, total=False):
    """The settings of a run that hold for every way to drive a conversation; `RunSettings` describes them."""

    limits: Limits | None
    options: Mapping[str, Any] | None
    prepare: Prepare | None
    wait_for_background: bool | None


class RunSettings(DriveSettings, total=False):
    """The parameters that `start`, `run`, `run_sync`, `stream` and `stream_output` of an agent share.

    `history` is a conversation to continue with the prompt; without a prompt the run resumes where it stopped.

    `session` names whose run this is. Without a `store`, the name continues the answers that a person gave and the
    files of the session, not the conversation. With `store=SessionStore(…)` the run continues the conversation of that
    name, and stores what it adds; it waits for another run of the session that is in progress. Without a name the run
    has a session of its own, whose programs and memory end with it. `scope` has the user and the directories.

    `prepare` is called before each turn and may shorten what the model is shown. `limits`, `options` and
    `wait_for_background` replace the agent's own for this run.

    `not_started` are ids of open calls in the history that never began, such as one that waited for a person when its
    process ended: they run. Of other open calls nobody knows whether they took effect, and most are refused.
    """

    history: list[Message] | Conversation | None
    not_started: Collection[str]
    session: str
    store: SessionStore | None
    scope: Scope | None


class Agent(Generic[OutputT, DepsT]):
    """A model, its tools and its rules: everything that a run needs. One agent may serve many users at once.

    `run` runs to the end, `start` returns a run to control, `stream` yields every event, `run_sync` is for programs
    without an event loop. A session
    holds what belongs to one user: remembered answers, files read, the todo list, jobs, background results. A run that
    names no session has its own, which ends with the run; `run(prompt, session="alice")` continues Alice's session, and
    `run(prompt, session="alice", store=SessionStore(…))` continues her conversation, too.

    Args:
        model: a name such as `anthropic:claude-sonnet-5` or `ollama:qwen3`, or a provider. A key that is not set is an
            error of the first request. None: the agent only calls tools with `call`, and never runs.
        tools: functions, tools and sources of tools, in one list; or a registry. An agent with sources, such as MCP
            servers, is used inside `async with agent:`, which opens them.
        instructions: the system prompt; or a function, plain or async. A function of a `RunContext` is called at the
            start of each run, one without parameters when a conversation begins.
        policy: what calls may do, such as `rules("allow read")`. By default reading is allowed and the rest asks.
        approve: answers what the policy asks. By default nobody is there, and the answer is no.
        limits: the turns, calls, tokens, cost and seconds of one run.
        output: the type of the answer, which `RunResult.output` holds: `Agent(model, output=Weather)` is an
            `Agent[Weather]`. Several types are a union or a list. Or a JSON Schema as a dictionary.
        deps_type: the type of `run(deps=…)`. It is checked at the start of each run, and by type checkers.
        name: the agent's name in events and stored runs.
        options: passed on to the model, such as `{"temperature": 0}`.
        secrets: values that are masked in results, events and logs.
        steps: builds the steps that every call passes; `standard_steps` by default.
        context: how long results are shortened before they are sent, and when older parts become a summary; by default
            `ContextRules()`.
        wait_for_background: whether a run waits for background work of its calls.
        agents: kinds of sub-agents by name. The model gets the tool `task` to use them.
        scope: the user and directories of its runs; by default the current directory.
        guard: checks prompts and answers, such as a project's guardrails.
        code_mode: True: the model gets one tool, `run_code`, and calls the others from scripts. Needs the extra "code".
        labels: requires approval for calls that take values from untrusted text or send private data. False: off.
        trial: "auto": where only the default asks about a program, it runs as a trial if that is possible here, and the
            rules judge its effects; "always": programs that rules allow, too; "off": never.
        server_tools: tools that the provider runs itself, such as its web search; see `ServerTool`. The rules decide
            when a run begins whether each is offered.
        choose_tools: returns the names of the tools that the model gets in a turn, from a `TurnContext`. It may be
            async. A call of another tool is refused.
        trace_content: True: spans of OpenTelemetry hold messages, arguments and results, with secrets masked.

    Example:
        >>> @tool
        ... def word_count(text: str) -> int:
        ...     "Count the words in a text."
        ...     return len(text.split())
        >>> model = Scripted(ToolCall("word_count", {"text": "to be"}), "Two words.")
        >>> Agent(model, tools=[word_count]).run_sync("Count them.").text
        'Two words.'
    """

    if not TYPE_CHECKING:  # type checkers know the default of the second parameter

        def __class_getitem__(cls, types: Any) -> Any:
            given = types if isinstance(types, tuple) else (types,)
            return super().__class_getitem__((*given, Any) if len(given) == 1 else given)

    def __init__(
        self,
        model: str | Provider | None,
        *,
        tools: ToolRegistry | Iterable[Tool[DepsT] | PlainFunction | ToolSource] | None = None,
        instructions: Instructions[DepsT] = "",
        policy: Policy | None = None,
        approve: Approver | None = nobody,
        limits: Limits | None = None,
        output: TypeForm[OutputT] | Sequence[type[OutputT]] | UnionType | Mapping[str, Any] | None = None,
        deps_type: type[DepsT] | UnionType | None = None,
        name: str = "main",
        **settings: Unpack[AgentSettings],
    ) -> None:
        check_settings("Agent", settings, AgentSettings)
        self.provider: Provider | None = find_model(model) if model is not None else None
        self.model = model if isinstance(model, str) else ""  # its name, where it was given by name
        self.instructions: Any = instructions
        self.limits = limits if limits is not None else Limits()
        self.options = dict(settings.get("options") or {})
        self.output: Any = join_types(output)
        self._validators: list[Callable[..., Any]] = []  # of the output
        self._hooks = Hooks()
        self._choose_tools = settings.get("choose_tools")
        self.server_tools = tuple(settings.get("server_tools") or ())
        self.name = name
        self._scope = settings.get("scope")
        self.guard = settings.get("guard")
        secrets = settings.get("secrets", ())
        self.secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self.gate = PolicyGate(policy, approve, settings.get("labels", True), settings.get("trial", "auto"))
        make_steps = settings.get("steps", standard_steps)
        if settings.get("trace_content"):
            make_steps = add_content(make_steps)
        self._make_steps: MakeSteps | None = make_steps
        self.steps = tuple(make_steps(self.gate, self.secrets))
        self.context = settings.get("context") or ContextRules()
        self.window = self.context.window  # tokens the model can see; 0: unknown, and nothing ever becomes a summary
        self.wait_for_background = settings.get("wait_for_background", False)
        self.activity = ActivityStream(self.secrets)  # for runs and calls without a stream of their own
        self._deps = DeclaredDeps(f"the agent {name!r}", deps_type)
        self._deps_instead: Any = None  # of `override`
        self.make_deps: Callable[[Scope], Any] | None = None  # set by `DurableAgent(deps=…)`, for stored runs
        self._opening = OpenAgent()
        self._last: ToolExecutor | None = None
        self._agents, self._code_mode = settings.get("agents"), settings.get("code_mode", False)
        self._take_tools(() if tools is None else tools)

    def _take_tools(self, tools: ToolList) -> None:
        """Makes these its tools, with those that every agent has."""
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry()
        check_listed(tools)
        for item in () if isinstance(tools, ToolRegistry) else tools:
            _check_is_no_agent(item)
            self.secrets.learn(secrets_of(item))
            if isinstance(item, AbstractAsyncContextManager):
                self.while_open(partial(self._mount, item))
            else:
                self.registry.add(item)
                if (opens := getattr(item, "opens", None)) is not None:  # an agent as a tool, with sources of its own
                    self.while_open(opens)
        for spec in () if isinstance(tools, ToolRegistry) else self.registry.unavailable:
            error = explain_unavailable(spec)
            log.warning("%s. %s", error.message, error.suggestion)
        if self._agents is not None:
            from forge.agent.subagent import Task  # loads what only sub-agents need

            task = Task(lambda: self, self._agents)
            self.registry.add(task)
            if not self._opening.contexts:  # else there are more tools once it is open
                task.check_tools(self.registry)
        for one in (task_completion, ask_question, converse):
            found = self.registry.get(one.spec.name)
            if found is None:
                self.registry.add(one)
            elif found.spec.origin != one.spec.origin:
                message = f"an agent was given a tool named {one.spec.name!r}, which is the name of a built-in tool"
                raise DuplicateToolError(f"{message} that hands over to the person. Give yours another name.")
        if self._code_mode:
            from forge.tools.run_code import enter_code_mode  # few agents use it

            enter_code_mode(self.registry)

    @property
    def scope(self) -> Scope:
        """The scope of its runs; by default the directory that is current now."""
        return self._scope if self._scope is not None else Scope()

    def while_open(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Enters a context whenever the agent is opened, such as one that mounts the tools of a server."""
        self._opening.contexts.append(make)

    def _mount(self, source: ToolSource) -> AbstractAsyncContextManager[None]:
        let_ask(source, OpeningQuestions(find_override(self).gate.approve))
        return mount_source(self.registry, source)

    @overload
    def replace(self, **changes: Unpack[AgentChanges]) -> Agent[OutputT, DepsT]: ...

    @overload
    def replace(self, *, output: type[AnswerT], **changes: Unpack[AgentChanges]) -> Agent[AnswerT, DepsT]: ...

    @overload
    def replace(self, *, output: Any, **changes: Unpack[AgentChanges]) -> Agent[Any, DepsT]: ...

    def replace(self, *, output: Any = ..., **changes: Unpack[AgentChanges]) -> Agent[Any, DepsT]:
        """Returns a copy with some fields changed. The copy shares open resources and the rules.

        `output` is the type of the copy's answers; without it the copy has the same type as this agent. The changes
        are `name`, `model`, `tools` (a registry), `instructions`, `limits`, `steps` and `scope`.
        """
        check_settings("Agent.replace", changes, AgentChanges)
        other = copy(find_override(self))
        if (name := changes.get("name")) is not None:
            other.name = name
        if (tools := changes.get("tools")) is not None:
            other.registry = tools
        if (instructions := changes.get("instructions")) is not None:
            other.instructions = instructions
        if (limits := changes.get("limits")) is not None:
            other.limits = limits
        if (steps := changes.get("steps")) is not None:
            other.steps, other._make_steps = other._hooks.keep_in(steps, other.secrets), None
        if (scope := changes.get("scope")) is not None:
            other._scope = scope
        other._validators = [*other._validators] if output is ... else []  # those of another type do not fit
        if output is not ...:
            other.output = join_types(output)
        if (model := changes.get("model")) is not None:
            other.provider = find_model(model)
            other.model = model if isinstance(model, str) else ""
            other.window = window_of(other.provider) or self.window
        return other

    @contextmanager
    def override(
        self,
        *,
        model: str | Provider | None = None,
        tools: ToolList | None = None,
        policy: Policy | None = None,
        approve: Approver | None = None,
        deps: DepsT | None = None,
    ) -> Iterator[None]:
        """Changes this agent inside `with`, for tests. Other tasks and threads do not notice.

        It holds for every way to use the agent: `run`, `run_sync`, `stream`, `call`, sub-agents, and a `DurableAgent`
        that is opened inside. `deps` are used instead of those of each run. What is not given stays as it is, and
        overrides can be nested.

        Args:
            model: another model, such as a `Scripted` one.
            tools: other tools; none of the agent's own are left.
            policy: other rules.
            approve: another approver. With a policy or an approver, earlier answers of a person do not count.
            deps: the dependencies of every run.

        Example:
            >>> agent = Agent("anthropic:claude-sonnet-5")
            >>> with agent.override(model=Scripted("Hello!")):
            ...     agent.run_sync("Hi").text
            'Hello!'
        """
        other = self.replace(model=model)
        other._opening = other._opening.fork()
        if policy is not None or approve is not None:
            if other._make_steps is None:
                message = f"overriding the rules of the agent {self.name!r}: its steps were given, and hold other rules"
                raise ToolError(
                    message, ErrorKind.CONFIG, "Give the rules to the agent that `replace(steps=…)` copied."
                )
            other._take_gate(other._make_steps, policy, approve)
        if tools is not None:
            other._opening.contexts = []
            other._take_tools(tools)
        if deps is not None:
            other._deps_instead = deps
        before = _overrides.get()
        _overrides.set({**before, self: other})
        try:
            yield
        finally:
            _overrides.set(before)

    def _take_gate(self, make_steps: MakeSteps, policy: Policy | None, approve: Approver | None) -> None:
        """Takes a gate of its own, and steps with it, in a copy that nobody uses yet."""
        old = self.gate
        self.gate = PolicyGate(
            policy if policy is not None else old.policy,
            approve if approve is not None else old.approve,
            old.labels or False,
            old.trial,
        )
        self.steps = self._hooks.add_to(make_steps(self.gate, self.secrets), self.secrets)

    def as_tool(self, name: str = "", description: str = "", *, ends_turn: bool = False) -> Tool:
        """Returns a tool that gives this agent a task, for the tools of another agent.

        This agent keeps its own model, tools, instructions, limits and rules. Each of its calls passes its own rules
        and approver, then those of the agent that calls it. Its calls, tokens and cost count for that agent, too.

        Args:
            name: the tool's name; by default the agent's.
            description: what the other model reads about it; by default the name and the tools of this agent.
            ends_turn: True: this agent's answer is the answer of the run, as when a desk hands a person over.

        Example:
            >>> poet = Agent(Scripted("Roses are red."), name="poet")
            >>> model = Scripted(ToolCall("poet", {"prompt": "About roses."}), "Here it is.")
            >>> agent = Agent(model, tools=[poet.as_tool()], policy=rules("allow execute"))
            >>> agent.run_sync("A poem, please.").messages[2].text
            'Roses are red.'
        """
        from forge.agent.subagent import AgentTool

        def find() -> Agent[Any, Any]:
            agent = find_override(self)
            agent._opening.check()
            return agent

        made = AgentTool(find, self.end_session, _open_with_caller(self))
        listed = ", ".join(spec.name for spec in self.registry.specs() if not spec.only_talks)
        made.describe(name or self.name, description, listed, ends_turn=ends_turn)
        return made

    def list_subagents(self) -> Sequence[str]:
        """Lists the types that `subagent` takes."""
        from forge.agent.subagent import Task

        task = self.registry.get("task")
        return ("general", *task.types) if isinstance(task, Task) else ()

    def subagent(self, agent_type: str = "", task: Tool | None = None) -> Agent[Any]:
        """Returns the agent for tasks of a type: this agent with that type's prompt, model, tools and limits.

        `task` is the tool that knows the types, by default the agent's own. Raises `ToolError` where there is no such
        type.
        """
        from forge.agent.subagent import Task

        if (other := find_override(self)) is not self:
            return other.subagent(agent_type, task)
        task = task if task is not None else self.registry.get("task")
        if not isinstance(task, Task):
            message = f"agent {self.name!r} was asked for a sub-agent, and has none"
            raise ToolError(message, ErrorKind.NOT_FOUND, "Give it agents=….")
        is_default = agent_type == "general" and agent_type not in task.types  # how a task without a type is named
        chosen = task.type_of("" if is_default else agent_type)
        made = self.replace(
            name=f"{self.name}/{agent_type or 'general'}",
            model=chosen.model,
            tools=task.tools_of(chosen, self.registry),
            instructions=chosen.prompt,
            limits=self._limits_of(chosen),
            output=None,
        )
        made._hooks, made._choose_tools = made._hooks.of_calls(), None  # turns are those of this agent
        made.server_tools = ()  # it has the tools of its type
        return made

    def _limits_of(self, chosen: AgentType) -> Limits:
        """Returns a sub-agent's limits: with the same model, it has the price of this agent."""
        if chosen.model is not None or chosen.limits.price is not None:
            return chosen.limits
        return replace(chosen.limits, price=self.limits.price)

    async def __aenter__(self) -> Self:
        await find_override(self)._opening.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await find_override(self)._opening.close()

    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        deps: DepsT | None = None,
        activity: ActivityStream | None = None,
        **settings: Unpack[RunSettings],
    ) -> RunResult[OutputT]:
        """Run to the end and return the result.

        `deps` is the object that tools find as `ctx.deps`, such as a database connection of this request. The run
        raises `ToolError` at its start where a tool declares `ctx: ToolContext[Db]` and `deps` is not a `Db`.
        `activity` is the stream that receives the events. `settings` are those of `RunSettings`: `history`, `session`,
        `store`, `scope`, `limits`, `options`, `prepare`, `wait_for_background`.

        Raises `ToolError` for a prompt that a guardrail denies, and where the history cannot be stored.
        """
        agent = find_override(self)
        check_settings("Agent.run", settings, RunSettings)
        scope, is_named = agent._scope_of(settings.get("scope"), settings.get("session", ""), deps)
        stream = activity if activity is not None else agent.activity
        return await agent._work(RunInProgress(scope.session_id), prompt, scope, is_named, stream, settings)

    def start(
        self, prompt: Prompt | None = None, *, deps: DepsT | None = None, **settings: Unpack[RunSettings]
    ) -> StartedRun[RunResult[OutputT]]:
        """Starts a run and returns it at once: `run.events()`, `run.send("…")`, `run.cancel()`, `await run`.

        Takes the parameters of `run`, and is called where an event loop runs. The run goes on until it is over, also if
        nobody keeps or awaits it; leaving the `async with agent` in which it was started cancels it.

        Example:
            >>> async def main():
            ...     run = Agent(Scripted(lambda request: f"Heard: {request.messages[-1].text}")).start("Count to ten.")
            ...     run.send("To three.")
            ...     return (await run).text
            >>> asyncio.run(main())
            'Heard: To three.'
        """
        agent = find_override(self)
        check_settings("Agent.start", settings, RunSettings)
        check_in_loop()
        scope, is_named = agent._scope_of(settings.get("scope"), settings.get("session", ""), deps)
        progress, activity = RunInProgress(scope.session_id), ActivityStream(agent.secrets)
        agent._opening.runs.add(progress)  # it takes messages from now on
        work = agent._work(progress, prompt, scope, is_named, activity, settings)
        begun_here = agent._opening.started if agent._opening.is_open else set()
        return LocalRun(progress, work, activity, partial(agent._say, progress), begun_here)

    async def _work(
        self,
        progress: RunInProgress,
        prompt: Prompt | None,
        scope: Scope,
        is_named: bool,
        stream: ActivityStream,
        settings: RunSettings,
    ) -> RunResult[OutputT]:
        """Works on a run to its end. A run that a person stops returns a result, too."""
        history, prepare = settings.get("history"), settings.get("prepare")
        executor: ToolExecutor | None = None
        turn: AsyncExitStack | None = None  # of a stored session
        self._opening.runs.add(progress)
        progress.begin()
        try:
            if progress.take_stop():
                return _cancelled_result(history)
            prompt = read_prompt(prompt, scope)
            if (store := settings.get("store")) is not None:
                has_history = history is not None or isinstance(prompt, list | Conversation)
                check_stored(is_named=is_named, has_history=has_history)
                turn = AsyncExitStack()
                await turn.enter_async_context(store.turn(scope.session_id))
                stored = await in_thread(lambda: store.open(scope.session_id))
                history = stored.continue_conversation()
                if prepare is None:
                    prepare = shortening = self.make_shortening(scope, meta=stored.meta)
                    shortening.recall(history)
            progress.is_working = True
            structured = self.structure(scope)
            executor = await self._prepare_executor(stream, structured)
            self._deps.check(self.registry, scope.deps)
            if stream.listening:
                started = RunStarted(
                    prompt if isinstance(prompt, str) else prompt.text if isinstance(prompt, Message) else ""
                )
                started.session, started.agent = scope.session_id, scope.agent
                stream.emit(started)
            text = await evaluate_instructions(self.instructions, scope)
            history = conversation = self.begin(prompt, history, scope.session_id, text)
            options, wait = settings.get("options"), settings.get("wait_for_background")
            given = self.options if options is None else options
            result = await self.drive(
                executor,
                conversation,
                scope,
                LoopSettings(
                    id=progress.id,
                    inbox=progress.take,
                    stopped=progress.take_stop,
                    not_started=settings.get("not_started", ()),
                ),
                structured=structured,
                limits=settings.get("limits"),
                options=given if structured is None else structured.add_format(given),
                prepare=prepare if prepare is not None else self.make_shortening(scope),
                wait_for_background=self.wait_for_background if wait is None else wait,
            )
            for late in progress.end():
                conversation.append(Message("user", late))
            if result.reason == "cancelled":
                executor.end_work(scope.session_id)
            return result
        except asyncio.CancelledError:
            if executor is not None:
                executor.end_work(scope.session_id)
            if not progress.take_stop():
                raise
            if stream.listening:
                stream.emit(RunFinished("", "cancelled", 0, session=scope.session_id, agent=scope.agent))
            return _cancelled_result(history)
        except BaseException:
            if executor is not None:
                executor.end_work(scope.session_id)
            raise
        finally:
            progress.end()
            self._opening.runs.remove(progress)
            if turn is not None:
                await turn.aclose()
            if executor is not None and not is_named:
                executor.end_session(scope.session_id)
            if stream.listening:
                await stream.drain()

    def send(self, text: str, session: str | None = None) -> None:
        """Sends a message to a run in progress: the model sees it before its next turn. Any thread may call it.

        `session` names the run's session; it can be left out where only one run is in progress. A message that comes
        after the last turn is part of the history. Raises `ToolError` where there is no such run, and for a text that
        a guardrail denies; `ValueError` for the session "", which could be anybody's.
        """
        self._say(self._opening.runs.choose(session), text)

    def _say(self, progress: RunInProgress, text: str) -> None:
        if self.guard is not None:
            check_prompt(self.guard, progress.session, text)
        progress.put(text)

    def cancel(self, session: str) -> bool:
        """Stops the runs in progress of a session, with their tools and programs. Any thread may call it.

        They return results with the reason "cancelled". Returns False where the session has no run in progress.
        """
        if not session:
            raise ValueError("Agent.cancel needs the name of a session; a run of `start` has its own cancel()")
        found = self._opening.runs.find(session)
        for progress in found:
            progress.stop()
        return bool(found)

    def withdraw(self, text: str, session: str | None = None) -> bool:
        """Takes back a message of `send`. Returns False where the run has received it already. Any thread may call it.

        `session` is that of `send`. Of several messages with the same text, the newest is taken back.
        """
        return any(progress.withdraw(text) for progress in self._opening.runs.find(session))

    async def drive(
        self,
        executor: ToolExecutor,
        conversation: Conversation,
        scope: Scope,
        loop: LoopSettings | None = None,
        *,
        provider: Provider | None = None,
        structured: Structured | None = None,
        **settings: Unpack[DriveSettings],
    ) -> RunResult[OutputT]:
        """Drives a conversation to its end with the given executor. `run`, sub-agents and stored runs use it.

        `loop` are the settings of the loop; `settings`, those of `RunSettings` that a conversation in progress can
        have, replace them.
        """
        check_settings("Agent.drive", settings, DriveSettings)
        provider = provider if provider is not None else self.model_for(scope.session_id)
        limits = settings.pop("limits", None)
        changes: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        if structured is not None:
            changes["accept"] = structured.accept
        if self.server_tools:
            changes["server_tools"] = self.server_tools
        loop = loop if loop is not None else LoopSettings()
        if self._hooks.has_turns or self._choose_tools is not None:
            changes["turns"] = self._make_turn_hooks(scope, loop.record, structured)
        if self.guard is not None:
            withhold_denied(self.guard, scope.session_id, conversation)
        result = await run_loop(
            provider,
            executor,
            conversation,
            scope,
            limits if limits is not None else self.limits,
            replace(loop, **changes) if changes else loop,
        )
        if structured is not None and structured.is_found and result.error is None:
            result.output_or_none, result.has_output = structured.found, True
        if self.guard is not None and is_denied(self.guard, scope.session_id, result.text):
            result.text = MARK
        return result

    @overload
    async def quarantine(self, content: str, *, question: str, output: type[AnswerT]) -> AnswerT: ...

    @overload
    async def quarantine(self, content: str, *, question: str, output: Any) -> Any: ...

    async def quarantine(self, content: str, *, question: str, output: Any) -> Any:
        """Asks the model one question about text that others wrote. The model has no tools, and sees nothing else.

        `output` is the type of the answer: a `Literal` or enum, `bool`, a number, a date, a text with a maximum length
        of up to 200, or a flat model of these. Raises `ToolError` where the answer is anything else; its words contain
        nothing that the model wrote.
        """
        from forge.agent.quarantine import read_in_quarantine

        return await read_in_quarantine(find_override(self).model_for(""), content, question, output, self.options)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        deps: DepsT | None = None,
        session: str = "",
        scope: Scope | None = None,
        activity: ActivityStream | None = None,
    ) -> ToolResult:
        """Calls one of its tools, through the same steps and rules as a call of the model."""
        if (other := find_override(self)) is not self:
            return await other.call(name, arguments, deps=deps, session=session, scope=scope, activity=activity)
        scope, is_named = self._scope_of(scope, session, deps)
        executor = await self._prepare_executor(activity if activity is not None else self.activity)
        try:
            return await executor.execute(ToolCall(name, arguments), scope)
        finally:
            if not is_named:
                executor.end_session(scope.session_id)

    async def list_turns(self, session: str, *, store: SessionStore) -> list[Turn]:
        """Lists the turns of a stored session, with the files that each changed. `rewind` goes back to one of them."""
        from forge.agent.rewind import list_turns

        state = find_override(self)._file_state
        turns: list[Turn] = await in_thread(lambda: list_turns(store, state, session))
        return turns

    async def rewind(
        self,
        session: str,
        turn: int | None,
        *,
        store: SessionStore,
        scope: Scope | None = None,
        preview: bool = False,
        files_only: bool = False,
        expect: str = "",
    ) -> Rewind:
        """Rewinds a stored session: its conversation and its files are as they were after a turn, both or neither.

        `turn` counts the answers of the model; 0 is the time before the first, and None takes back the last rewind.
        With `preview` nothing is changed; `expect`, the digest of a preview, refuses anything else than it showed. With
        `files_only` the conversation stays as it is. The call is the approval, but no path is written that a rule
        denies.

        Raises `ToolError`, and changes nothing, if a run of the session is in progress, or if someone else changed one
        of the files since. `Rewind.left` names what stays as it is, since Forge has no record of it.
        """
        if (other := find_override(self)) is not self:
            how = {"scope": scope, "preview": preview, "files_only": files_only, "expect": expect}
            return await other.rewind(session, turn, store=store, **how)  # type: ignore[arg-type]
        from forge.agent.rewind import check_rules, plan_rewind, rewind  # loads what only a rewind needs

        scope, _ = self._scope_of(scope, session)
        state, may_change = self._file_state, self._may_change_files
        if preview:
            planned: Rewind = await in_thread(
                lambda: plan_rewind(store, state, session, turn, files_only=files_only, changes_files=may_change)
            )
            return planned

        def check(plan: Rewind) -> None:
            check_rules(self.gate, scope, plan, expect)

        done: Rewind = await in_thread(
            lambda: rewind(
                store, state, scope, session, turn, files_only=files_only, changes_files=may_change, check=check
            )
        )
        self._emit_rewound(done, scope)
        return done

    @property
    def _file_state(self) -> SessionState:
        """The record of files that its sessions read and changed."""
        return next((one.state for one in self.steps if isinstance(one, TrackFiles)), None) or SessionState()

    def _may_change_files(self, name: str) -> bool:
        """Returns whether a call of the tool should be in the undo log; True for a tool that it no longer has."""
        found = self.registry.get(name)
        if found is None:
            return True
        return bool(found.spec.permissions & {Permission.WRITE, Permission.EXECUTE}) and not found.reports_usage

    def _emit_rewound(self, done: Rewind, scope: Scope) -> None:
        files = tuple(one.shown for one in done.effects.files)
        event = SessionRewound(done.turn, done.removed, done.restored, files)
        event.session, event.agent = scope.session_id, self.name
        self.activity.emit(event)

    @property
    def executor(self) -> ToolExecutor:
        """The executor that runs its tools and emits events to `activity`."""
        agent = find_override(self)
        return agent._executor_of(agent.registry, agent.activity)

    def system_prompt(self) -> str:
        """Returns the instructions for a conversation that begins now. Raises `ToolError` if they are async."""
        return check_text(call_instructions(self.instructions, self.scope))

    def begin(
        self,
        prompt: Prompt | None,
        history: list[Message] | Conversation | None = None,
        session: str = "",
        instructions: str | None = None,
    ) -> Conversation:
        """Begins a conversation with its instructions and the prompt. Raises `ToolError` if a guardrail denies.

        `instructions` are those of this run. They replace earlier ones in what the model sees; the history keeps those.
        """
        prompt = read_prompt(prompt, self.scope)
        if isinstance(prompt, (list, Conversation)):
            prompt, history = None, prompt
        history = [] if history is None else history
        conversation = history if isinstance(history, Conversation) else Conversation(list(history))
        conversation.given = len(conversation.messages)
        message = Message("user", prompt) if isinstance(prompt, str) else prompt
        if message is not None and self.guard is not None:
            for text in (message.text, *(one.text for one in message.attachments)):
                check_prompt(self.guard, session, text)
        if any(message.role == "system" for message in conversation.messages[:1]):
            if instructions is not None:
                _replace_system(conversation, instructions)
        else:
            text = self.system_prompt() if instructions is None else instructions
            if text and conversation.messages:
                conversation.show([Message("system", text), *conversation.shown])
            elif text:
                conversation.append(Message("system", text))
        if message is not None:
            left = unanswered_calls(conversation.messages)
            conversation.append(
                *(Message("tool", INTERRUPTED.format(call.name), call_id=call.id, is_error=True) for call in left)
            )
            conversation.append(message)
        return conversation

    def run_sync(
        self,
        prompt: Prompt | None = None,
        *,
        deps: DepsT | None = None,
        activity: ActivityStream | None = None,
        **settings: Unpack[RunSettings],
    ) -> RunResult[OutputT]:
        """`run` for programs without an event loop, and for notebooks. Raises `RuntimeError` inside another loop."""

        async def main() -> RunResult[OutputT]:
            async with self:
                return await self.run(prompt, deps=deps, activity=activity, **settings)

        return run_to_end(main)

    def end_session(self, session: str) -> None:
        """Ends a named session: its programs end, and nothing of it is remembered."""
        if not session:
            raise ValueError("Agent.end_session needs the name of a session")
        agent, background = find_override(self), find_override(self)._opening.background
        sessions = agent._opening.sessions
        sessions.discard(session)
        executor = ToolExecutor(agent.registry, agent.steps, None, agent.secrets, background)
        executor.end_session(session, lambda: session in sessions)

    async def stream(
        self,
        prompt: Prompt | None = None,
        *,
        deps: DepsT | None = None,
        **settings: Unpack[RunSettings],
    ) -> AsyncGenerator[Event | RunResult[OutputT], None]:
        """Run and yield every event; the `RunResult` comes last. Leaving the loop early stops the work.

        Takes the parameters of `run`.
        """
        run = self.start(prompt, deps=deps, **settings)
        try:
            async with aclosing(run.events()) as events:
                async for event in events:
                    yield event
            yield await run
        finally:
            if not run.is_over:
                await run.cancel()

    async def stream_output(
        self,
        prompt: Prompt | None = None,
        *,
        deps: DepsT | None = None,
        **settings: Unpack[RunSettings],
    ) -> AsyncGenerator[OutputT, None]:
        """Run and yield the structured answer while it is written, each new value once; the whole one comes last.

        An unfinished value is read leniently: a list holds the items so far, and a field that has not come has its
        default, or None. The last value has passed every check of the type. Raises `ToolError` where the run ends
        without an answer, and where the agent has no `output`. Takes the parameters of `run`.
        """

        structured = find_override(self).structure(self.scope)
        if structured is None:
            message = f"streaming the output of the agent {self.name!r}: it has no output type"
            raise ToolError(message, ErrorKind.CONFIG, "Give it one: Agent(model, output=…).")
        reader = PartialReader(structured)
        async with aclosing(self.stream(prompt, deps=deps, **settings)) as events:
            async for event in events:
                if isinstance(event, RunResult):
                    yield event.output
                elif (value := reader.take(event)) is not MISSING:
                    yield value

    def structure(self, scope: Scope, *, by_tool: bool = False) -> Structured | None:
        """Returns what a structured answer needs; None without `output`. `by_tool`: the API is not asked for it."""
        if self.output is None:
            return None
        provider = None if by_tool else self.provider
        return Structured(self.output, provider, self.registry, bind_validators(self._validators, scope))

    def output_validator(self, function: OutputValidator[OutputT, DepsT]) -> OutputValidator[OutputT, DepsT]:
        """Checks each structured answer with a function, plain or async.

        The function gets the value, or a `RunContext` and the value. It returns the value, changed or not. If it raises
        `Retry("…")`, the model gets the message and answers again, at most three times. Use it as a decorator.
        """
        self._validators.append(function)
        return function

    @property
    def before_call(self) -> HookDecorator[BeforeCall[DepsT]]:
        """Adds a hook that is called before each call: it may block the call, change its arguments or add context.

        Use it as a decorator: `@agent.before_call`, or `@agent.before_call(match="write src/**", timeout=5)`. The
        function gets a `ToolContext`, and returns a `HookDecision` or None. It may be async. Changed arguments are
        checked, and the rules judge them. A hook that raises `ToolError` blocks; one that fails blocks, too.
        """
        return HookDecorator(self._add_hook, "before_call")

    @property
    def after_call(self) -> HookDecorator[AfterCall[DepsT]]:
        """Adds a hook that is called with each result: it may withhold the result, change it or add context.

        The function gets a `ToolContext` and the `ToolResult`, and returns a `HookDecision` or None.
        """
        return HookDecorator(self._add_hook, "after_call")

    @property
    def before_turn(self) -> HookDecorator[TurnHook[DepsT]]:
        """Adds a hook that is called before each turn: it may end the run, change the prompt or add context.

        The function gets a `TurnContext`, and returns a `HookDecision` or None.
        """
        return HookDecorator(self._add_hook, "before_turn")

    @property
    def on_end(self) -> HookDecorator[TurnHook[DepsT]]:
        """Adds a hook that is called before a run ends with an answer: `block` sends the model back, with the reason.

        The function gets a `TurnContext` with the `answer`, and returns a `HookDecision` or None. After five refusals
        the run ends with an error.
        """
        return HookDecorator(self._add_hook, "on_end")

    def _add_hook(self, hook: Hook) -> None:
        self._hooks = self._hooks.add(hook)
        self.steps = self._hooks.add_to(self.steps, self.secrets)

    def _make_turn_hooks(self, scope: Scope, record: Record | None, structured: Structured | None) -> TurnHooks:
        guard = self.guard
        check = None if guard is None else partial(check_prompt, guard, scope.session_id)
        reject = None if structured is None else structured.forget
        return TurnHooks(hooks=self._hooks, choose=self._choose_tools, check_text=check, reject=reject, record=record)

    async def with_deps(self, scope: Scope) -> Scope:
        """Returns the scope of a stored run with the dependencies that its factory makes. Raises `ToolError`."""
        if self._deps_instead is not None:
            scope = replace(scope, deps=self._deps_instead)
        elif self.make_deps is not None:
            deps = self.make_deps(scope)
            scope = replace(scope, deps=await deps if isawaitable(deps) else deps)
        self._deps.check(self.registry, scope.deps)
        return scope

    def _scope_of(self, scope: Scope | None, session: str, deps: Any = None) -> tuple[Scope, bool]:
        """Returns the scope of a run, and says whether the caller named its session."""
        self._opening.check()
        check_session(session, scope)
        base = scope if scope is not None else self.scope
        name = session or (base.session_id if base.names_session else "")
        if name:
            self._opening.sessions.add(name)
        deps = deps if deps is not None else base.deps
        deps = deps if self._deps_instead is None else self._deps_instead
        changes = {"session_id": name or new_session(), "agent": self.name, "deps": deps, "budget": None}
        return replace(base, **changes), bool(name)

    async def _prepare_executor(self, activity: ActivityStream, structured: Structured | None = None) -> ToolExecutor:
        registry = self.registry if structured is None else structured.offer(self.registry)
        await registry.ready(self.scope)
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
            message = f"the agent {self.name!r} was asked to run, and has no model"
            raise ToolError(message, ErrorKind.CONFIG, "Give it one: Agent(model=…), --model or agent.model.")
        return GuardedProvider(self.provider, self.guard, session) if self.guard is not None else self.provider

    def make_shortening(
        self, scope: Scope, provider: Provider | None = None, meta: MutableMapping[str, Any] | None = None
    ) -> Shortening:
        """Returns the function that shortens what the model is shown, for one conversation.

        `provider` writes summaries, by default its model. `meta` stores the summary.
        """
        provider = provider if provider is not None else self.model_for(scope.session_id)
        store = make_store(scope.workspace, lambda name: may_run_again(self.registry.find(name).spec))
        return Shortening(provider, self.window, meta, self.context, store)

    def __repr__(self) -> str:
        model = self.model or (type(self.provider).__name__ if self.provider is not None else "no model")
        return f"<Agent {self.name}: {model}, {len(self.registry)} tools>"


def find_override(agent: Agent[OutputT, DepsT]) -> Agent[OutputT, DepsT]:
    """Returns the agent that `override` makes of this one in the current context; without one, the agent itself."""
    overrides = _overrides.get()
    return overrides.get(agent, agent) if overrides else agent


def with_approver(agent: Agent[OutputT, DepsT], approve: Approver) -> Agent[OutputT, DepsT]:
    """Returns a copy whose questions go to this approver. The given agent keeps its own.

    Steps that `replace(steps=…)` gave one by one hold the agent's gate. There the agent's questions go here, too.
    """
    other = agent.replace()
    if other._make_steps is not None:
        other._take_gate(other._make_steps, None, approve)
    else:
        other.gate.approve = approve
    return other


def _open_with_caller(agent: Agent[Any, Any]) -> Callable[[], AbstractAsyncContextManager[None]] | None:
    """Returns what opens an agent together with one whose tool it is; None where it has nothing to open."""

    @asynccontextmanager
    async def open_once() -> AsyncIterator[None]:
        if find_override(agent)._opening.is_open:
            yield
        else:
            async with agent:
                yield

    return open_once if agent._opening.contexts else None


def _cancelled_result(history: list[Message] | Conversation | None) -> RunResult[Any]:
    """Returns the result of a run that was stopped before its first turn."""
    conversation = history if isinstance(history, Conversation) else Conversation([*(history or ())])
    given = conversation.given
    return RunResult(text="", reason="cancelled", turns=0, messages=conversation.messages, given=given)


def _replace_system(conversation: Conversation, text: str) -> None:
    """Shows the model other instructions than those that the conversation began with."""
    before, *rest = conversation.shown
    if before.role == "system" and before.text != text:
        conversation.show([Message("system", text), *rest])


def _check_is_no_agent(item: object) -> None:
    if isinstance(item, Agent):
        raise DefinitionError(
            f"Agent(tools=[{item!r}]): an agent is not a tool; give the model its `as_tool()`, or sub-agents with "
            "Agent(agents={…})"
        )
