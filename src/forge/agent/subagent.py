"""The `task` tool: a sub-agent with its own history, some of its parent's tools and all of its parent's rules.

With `quarantine`, a model without any tool reads text that others wrote, and only a checked value comes back.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

from forge.agent.conversation import Conversation, Prepare
from forge.agent.instructions import evaluate_instructions
from forge.agent.labels import collect_labels
from forge.agent.limits import Limits
from forge.agent.loop import LoopSettings
from forge.agent.output import Structured
from forge.agent.quarantine import QuarantinedTask, quarantine_task, read_shape
from forge.agent.result import RunResult
from forge.core.arguments.names import near
from forge.core.context import ClosedGate, Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.background import BackgroundWork
from forge.core.execution.chain import Step
from forge.core.executor import ToolExecutor
from forge.core.messages import Message
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.secrets import Secrets
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.models.vendors import find_model
from forge.permissions.gate import Grant, JoinedGate, JoinedGrant, PolicyGate
from forge.pipeline.authorize import Authorize
from forge.pipeline.label_results import LabelResults
from forge.tools.conversation import task_completion

MOST_TASKS = 100  # whose histories are kept for resuming
BUDGET = Limits(turns=30, calls=100, seconds=1_800)


class OutsideAgent(Protocol):
    """An agent that others wrote, such as `AcpAgent`: it works on a task by itself, and asks for calls of ours."""

    async def work(
        self, ctx: ToolContext, name: str, prompt: str, *, tools: Collection[str], seconds: float | None, calls: int
    ) -> ToolResult:
        """Returns its report, with labels. Raises `ToolError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentType:
    """A kind of sub-agent, for `Agent(agents={"researcher": AgentType(…)})`.

    Args:
        prompt: the sub-agent's instructions.
        tools: names or groups of the parent's tools; by default all that only read.
        model: another model than the parent's: a name, or a provider.
        limits: the limits of one task.
        quarantine: True: each task of this type is a quarantined one, without tools.
        outside: an agent that others wrote works on the tasks, such as an `AcpAgent`. It has a model of its own, and
            its instructions are the prompt, with the task behind it.

    Example:
        >>> AgentType(prompt="Look things up.", tools=("web_search",)).limits.turns
        30
    """

    prompt: str = "You work on one task for another agent. Do it, then call task_completion with what you found out."
    tools: tuple[str, ...] = ()
    model: str | Provider | None = None
    limits: Limits = field(default_factory=lambda: BUDGET)
    quarantine: bool = False
    outside: OutsideAgent | None = None

    def __post_init__(self) -> None:
        if self.outside is not None and (self.quarantine or self.model is not None):
            raise DefinitionError("AgentType(outside=…): an agent of others has its own model, and no quarantine")
        if isinstance(self.model, str):
            object.__setattr__(self, "model", find_model(self.model))
        if self.quarantine and self.tools:
            raise DefinitionError("AgentType(quarantine=True, tools=…): a sub-agent in quarantine has no tools")


class Order(NamedTuple):
    """A task for another agent or process."""

    agent_type: str
    task_id: str  # an earlier task to resume, or empty
    description: str
    prompt: str


class SubAgent(Protocol):
    """The part of an `Agent` that the tool needs."""

    provider: Provider | None
    options: dict[str, Any]
    limits: Limits
    registry: ToolRegistry
    steps: tuple[Step, ...]

    async def drive(
        self, executor: ToolExecutor, conversation: Conversation, scope: Scope, loop: LoopSettings
    ) -> RunResult: ...

    def subagent(self, agent_type: str, task: Task) -> SubAgent:
        """Returns the agent for tasks of a type that `task` knows. Raises `ToolError` where there is none."""


@runtime_checkable
class DelegatesTasks(Protocol):
    """An executor that runs tasks elsewhere: in stored runs each task is a run of its own."""

    async def delegate(self, ctx: ToolContext, order: Order) -> ToolResult: ...


class Task(
    Tool,
    name="task",
    category=Category.BUILTIN,
    permissions={"execute"},
    target="description",
    argument_aliases={"subagent_type": "agent_type"},
    timeout=None,
):
    """Give a task to a sub-agent and get its report. It sees the prompt, not this conversation."""

    reports_usage = True  # of the sub-agent's model
    deduplicates_by_key = True  # in a stored run, the sub-agent's run has the key of the call: there is never a second

    def __init__(
        self,
        parent: Callable[[], SubAgent] | None = None,
        types: Mapping[str, AgentType] | None = None,
    ) -> None:
        self._parent = parent
        self.types = dict(types or {"general": AgentType()})
        self._histories: OrderedDict[tuple[str, str], list[Message]] = OrderedDict()  # by session and task

    async def run(
        self,
        ctx: ToolContext,
        description: Annotated[str, "Three to five words, for the person."],
        prompt: Annotated[str, "All that it must know, and what to report."],
        agent_type: str = "",
        task_id: Annotated[str, "An earlier task to continue."] = "",
        quarantine: Annotated[
            bool, "A model without tools answers about untrusted text; only the typed answer returns."
        ] = False,
        content: Annotated[str, "Quarantine: the text, unless read gets it."] = "",
        read: Annotated[
            dict[str, Any] | None, 'Quarantine: a call that gets the text: {"tool": …, "arguments": {…}}.'
        ] = None,
        output: Annotated[
            dict[str, Any] | None,
            "Quarantine: JSON Schema of the answer: enum, boolean, number, date, text with maxLength, or a flat"
            " object of these.",
        ] = None,
    ) -> ToolResult:
        chosen = self.type_of(agent_type)
        if quarantine or chosen.quarantine:
            quarantined = QuarantinedTask(description, prompt, content, read, read_shape(output))
            return await quarantine_task(
                ctx, quarantined, self._subagent(agent_type), chosen.prompt if agent_type else ""
            )
        if content or read or output:
            message = "content, read and output belong to a task with quarantine: true"
            raise ToolError(message, ErrorKind.VALIDATION, "Set quarantine, or write the text into the prompt.")
        if chosen.outside is not None:
            return await self._work_outside(ctx, chosen.outside, chosen, agent_type, prompt, task_id)
        if isinstance(ctx.executor, DelegatesTasks):
            order = Order(agent_type or next(iter(self.types)), task_id, description, prompt)
            return await ctx.executor.delegate(ctx, order)
        session = ctx.scope.session_id
        history = self._history(session, task_id, chosen)
        agent = self._subagent(agent_type)
        if agent is None or agent.provider is None:
            message = "No model is configured to run a sub-agent; do the task yourself, step by step."
            return ToolResult(for_llm=message, data={"error": "LLM_ASSIST_REQUIRED", "prompt": prompt})
        task_id = task_id or f"task-{os.urandom(4).hex()}"
        history.append(Message("user", prompt))
        ctx.progress(f"Sub-agent: {description}", task_id=task_id)
        name = f"{ctx.scope.agent}/{agent_type or 'general'}"
        # a task has limits of its own
        scope = replace(ctx.scope, agent=name, task=ctx.subtask, message_id="", budget=None)
        background = ctx.owner if isinstance(ctx.owner, BackgroundWork) else None  # the parent learns how it ends
        executor = ToolExecutor(agent.registry, agent.steps, ctx.activity, ctx.activity.secrets, background)
        result = await agent.drive(executor, Conversation(history), scope, LoopSettings(announce=False))
        self._keep((session, task_id), history)
        return replace(make_report(result, task_id, description), labels=collect_labels(result.messages))

    async def _work_outside(
        self, ctx: ToolContext, outside: OutsideAgent, chosen: AgentType, agent_type: str, prompt: str, task_id: str
    ) -> ToolResult:
        """Gives the task to an agent that others wrote. It begins anew each time."""
        if task_id:
            message = f"continuing the task {task_id!r:.80}: this agent does not remember its tasks"
            raise ToolError(message, ErrorKind.USER, "Give it a new task, with all that it must know.")
        name = agent_type or next(iter(self.types))
        given = prompt if chosen.prompt == AgentType().prompt else f"{chosen.prompt}\n\n{prompt}"
        limits = chosen.limits
        tools = self.tools_of(chosen, self._parent().registry).names if self._parent is not None else chosen.tools
        return await outside.work(
            ctx, name, given, tools=tools, seconds=limits.seconds or None, calls=limits.calls or 0
        )

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """A quarantined task needs no permission: it has no tools. The call that reads for it asks for itself."""
        chosen = self.type_of(arguments.get("agent_type", ""))
        return [(None, "")] if arguments.get("quarantine") or chosen.quarantine else None

    def _subagent(self, agent_type: str) -> SubAgent | None:
        return self._parent().subagent(agent_type, self) if self._parent is not None else None

    def type_of(self, name: str) -> AgentType:
        """Returns the type of that name; without a name the first. Raises `ToolError` where there is none."""
        if not name:
            return next(iter(self.types.values()))
        if name not in self.types:
            known = ", ".join(self.types)
            raise ToolError(f"there is no agent type {name!r}", ErrorKind.NOT_FOUND, f"Use one of: {known}.")
        return self.types[name]

    def _history(self, session: str, task_id: str, chosen: AgentType) -> list[Message]:
        """Returns the history of a task. Only the session that began a task can see and continue it."""
        if not task_id:
            return [Message("system", chosen.prompt)]
        if (session, task_id) not in self._histories:
            known = ", ".join(name for owner, name in self._histories if owner == session) or "there are none"
            raise ToolError(f"there is no task {task_id!r}", ErrorKind.NOT_FOUND, f"Known tasks: {known}.")
        return self._histories[session, task_id]

    def tools_of(self, chosen: AgentType, registry: ToolRegistry) -> ToolRegistry:
        """Selects some of the parent's tools: never this one, so that sub-agents have no sub-agents of their own."""
        wanted = set(chosen.tools)
        self._check_names(chosen, registry)
        picked = registry.select(
            lambda spec: (
                not spec.only_talks
                and spec.name != self.spec.name
                and (
                    bool(wanted & {spec.name, spec.origin, *spec.groups}) if wanted else not spec.permissions - {"read"}
                )
            )
        )
        picked.add(task_completion)
        if wanted:
            picked.defer(())  # the tools of an agent type are listed: all of them are sent
        return picked

    def check_tools(self, registry: ToolRegistry) -> None:
        """Raises `DefinitionError` where a type has a tool that the agent does not have."""
        try:
            for chosen in self.types.values():
                self._check_names(chosen, registry)
        except ToolError as error:
            raise DefinitionError(f"{error.message}. {error.suggestion}") from None

    def _check_names(self, chosen: AgentType, registry: ToolRegistry) -> None:
        known = {name for one in registry.values() for name in (one.spec.name, one.spec.origin, *one.spec.groups)}
        known |= {spec.name for spec in registry.unavailable}
        for name in chosen.tools:
            if name not in known:
                kind = next((key for key, one in self.types.items() if one is chosen), "")
                hint = near(name, sorted(known), 1)
                advice = f"Did you mean {hint[0]!r}?" if hint else "Name tools or groups of the agent."
                message = f"choosing the tools of the sub-agent {kind!r}: the agent has no tool or group {name[:80]!r}"
                raise ToolError(message, ErrorKind.CONFIG, advice)

    def _keep(self, key: tuple[str, str], history: list[Message]) -> None:
        self._histories[key] = history
        self._histories.move_to_end(key)
        if len(self._histories) > MOST_TASKS:
            self._histories.popitem(last=False)


# An agent as a tool of another one.


MOST_NESTED = 5  # agents that call each other


class WholeAgent(Protocol):
    """The part of an `Agent` that a tool of it needs."""

    name: str
    instructions: Any
    options: dict[str, Any]
    registry: ToolRegistry
    steps: tuple[Step, ...]
    secrets: Secrets

    async def with_deps(self, scope: Scope) -> Scope: ...
    def structure(self, scope: Scope) -> Structured | None: ...
    def begin(self, prompt: str, history: None, session: str, instructions: str | None) -> Conversation: ...
    def make_shortening(self, scope: Scope) -> Prepare: ...

    async def drive(
        self,
        executor: ToolExecutor,
        conversation: Conversation,
        scope: Scope,
        loop: LoopSettings,
        *,
        structured: Structured | None,
    ) -> RunResult[Any]: ...


class AgentTool(Tool, name="agent", permissions={"execute"}, target="prompt", timeout=None):
    """Give a task to another agent and get its answer. It sees the prompt, not this conversation."""

    reports_usage = True  # of the agent's model

    def __init__(
        self,
        find: Callable[[], WholeAgent],
        forget: Callable[[str], None],
        opens: Callable[[], AbstractAsyncContextManager[None]] | None,
    ) -> None:
        """`find` returns the agent, `forget` ends a session of it, and `opens` opens its sources of tools."""
        self.opens = opens
        self._find, self._forget = find, forget
        self._forgetting: set[str] = set()

    def describe(self, name: str, description: str, tools: str, *, ends_turn: bool) -> None:
        """Sets what the other model reads about it."""
        text = description or " ".join(filter(None, (self.spec.description, tools and f"It has the tools {tools}.")))
        self.spec = self.spec.changed(name=name, description=text, ends_turn=ends_turn)

    async def run(
        self, ctx: ToolContext, prompt: Annotated[str, "All that it must know, and what to answer."]
    ) -> ToolResult:
        if ctx.scope.agent.count("/") >= MOST_NESTED:
            message = f"{MOST_NESTED} agents have called each other, and no more may"
            raise ToolError(message, ErrorKind.USER, "Do this part yourself.")
        agent = self._find()
        ctx.progress(f"Agent: {agent.name}")
        result = await _work_for(agent, ctx, prompt, _join_steps(agent.steps, ctx))
        if result.reason == "waiting":
            message = f"the agent {agent.name!r} needs an answer that a stored run cannot wait for inside a call"
            hint = "Do this part yourself; or a rule has to allow it."
            raise ToolError(message, ErrorKind.PERMISSION, hint)
        return replace(make_report(result, "", agent.name), labels=collect_labels(result.messages))

    def forget_session(self, session_id: str) -> None:
        """Forgets what the agent's steps and tools know of a session. Agents may be tools of each other."""
        if session_id not in self._forgetting:
            self._forgetting.add(session_id)
            try:
                self._forget(session_id)
            finally:
                self._forgetting.discard(session_id)


async def _work_for(agent: WholeAgent, ctx: ToolContext, prompt: str, steps: Iterable[Step]) -> RunResult[Any]:
    """Runs a task of an agent inside a call of another one: in its session, with its events, through these steps."""
    name = f"{ctx.scope.agent}/{agent.name}"
    scope = await agent.with_deps(replace(ctx.scope, agent=name, task=ctx.subtask, message_id=""))
    structured = agent.structure(scope)
    registry = agent.registry if structured is None else structured.offer(agent.registry)
    await registry.ready(scope)
    background = ctx.owner if isinstance(ctx.owner, BackgroundWork) else None  # the caller learns how it ends
    secrets = ctx.activity.secrets
    secrets.include(agent.secrets)
    # a plain executor, also in a stored run: its own sub-agents are part of this call
    executor = ToolExecutor(registry, steps, ctx.activity, secrets, background)
    text = await evaluate_instructions(agent.instructions, scope)
    settings = LoopSettings(
        options=agent.options if structured is None else structured.add_format(agent.options),
        prepare=agent.make_shortening(scope),
        announce=False,
    )
    conversation = agent.begin(prompt, None, scope.session_id, text)
    return await agent.drive(executor, conversation, scope, settings, structured=structured)


def _join_steps(steps: Iterable[Step], ctx: ToolContext) -> list[Step]:
    """Returns the steps of an agent that works for a call, with the gate of that call inside its own."""
    gate = ctx.gate.gate if isinstance(ctx.gate, Grant | JoinedGrant) else None
    if gate is None:
        if not isinstance(ctx.gate, ClosedGate):  # a gate of another kind, which cannot be joined
            message = (
                f"{ctx.spec.name} works under its own rules and those of its caller, whose gate is of another kind"
            )
            raise ToolError(message, ErrorKind.CONFIG, "Use the standard steps, with a PolicyGate.")
        return [*steps]  # the caller's steps have no gate
    joined: list[Step] = [
        Authorize(JoinedGate(one.gate, gate))
        if isinstance(one, Authorize) and isinstance(one.gate, PolicyGate)
        else one
        for one in steps
    ]
    if not any(isinstance(one, Authorize) and isinstance(one.gate, JoinedGate) for one in joined):
        joined.insert(0, Authorize(gate))
    if gate.labels is not None and not any(isinstance(one, LabelResults) for one in joined):
        joined.insert(0, LabelResults(gate.labels))
    return joined


def make_report(result: RunResult, task_id: str, description: str) -> ToolResult:
    data = {
        "task_id": task_id,
        "reason": result.reason,
        "turns": result.turns,
        "usage": result.usage._asdict(),
        "cost": result.cost,
    }
    error = result.error.text() if result.error is not None else ""
    said = result.text or ("" if error else "The sub-agent said nothing.")
    text = "\n".join(filter(None, (said, error, task_id and f"\n[task_id: {task_id}]")))
    if result.reason not in ("answer", "task_completion", "converse"):
        text = f"The sub-agent ended early ({result.reason}). What there is:\n{text}"
    return ToolResult(for_llm=text, title=description, data=data, failure=result.error)
