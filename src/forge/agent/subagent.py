"""The `task` tool: a sub-agent with its own history, some of its parent's tools and all of its parent's rules.

With `quarantine`, a model without any tool reads text that others wrote, and only a checked value comes back.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, Protocol

from forge.agent.conversation import Conversation
from forge.agent.labels import collect_labels
from forge.agent.limits import Limits
from forge.agent.loop import LoopSettings
from forge.agent.quarantine import QuarantinedTask, quarantine_task, read_shape
from forge.agent.result import RunResult
from forge.core.context import Scope, ToolContext
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.execution.background import BackgroundWork
from forge.core.executor import Step, ToolExecutor
from forge.core.messages import Message
from forge.core.provider import Provider
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.conversation import task_completion

MOST_TASKS = 100  # whose histories are kept for resuming
BUDGET = Limits(turns=30, calls=100, seconds=1_800)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentType:
    """A kind of sub-agent, for `Agent(agents={"researcher": AgentType(…)})`.

    Args:
        prompt: the sub-agent's instructions.
        tools: names or groups of the parent's tools; by default all that only read.
        provider: another model than the parent's.
        limits: the limits of one task.
        quarantine: True: each task of this type is a quarantined one, without tools.

    Example:
        >>> AgentType(prompt="Look things up.", tools=("web_search",)).limits.turns
        30
    """

    prompt: str = "You work on one task for another agent. Do it, then call task_completion with what you found out."
    tools: tuple[str, ...] = ()
    provider: Provider | None = None
    limits: Limits = field(default_factory=lambda: BUDGET)
    quarantine: bool = False

    def __post_init__(self) -> None:
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
        self, executor: ToolExecutor, conversation: Conversation, scope: Scope, settings: LoopSettings
    ) -> RunResult: ...

    def subagent(self, agent_type: str, task: Task) -> SubAgent:
        """Returns the agent for tasks of a type that `task` knows. Raises `ToolError` where there is none."""


Delegate = Callable[[ToolContext, Order], Awaitable[ToolResult]]

task_delegate: ContextVar[Delegate | None] = ContextVar("elsewhere", default=None)
"""Runs tasks instead of this process while it is set: in stored runs each task is a run of its own."""


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
        delegate = task_delegate.get()
        if delegate is not None:
            order = Order(agent_type or next(iter(self.types)), task_id, description, prompt)
            return await delegate(ctx, order)
        session = ctx.scope.session_id
        history = self._history(session, task_id, chosen)
        agent = self._subagent(agent_type)
        if agent is None or agent.provider is None:
            message = "No model is configured to run a sub-agent; do the task yourself, step by step."
            return ToolResult(for_llm=message, data={"error": "LLM_ASSIST_REQUIRED", "prompt": prompt})
        task_id = task_id or f"task-{os.urandom(4).hex()}"
        history.append(Message("user", prompt))
        ctx.progress(f"Sub-agent: {description}", task_id=task_id)
        scope = replace(ctx.scope, agent=f"{ctx.scope.agent}/{agent_type or 'general'}", message_id="")
        background = ctx.owner if isinstance(ctx.owner, BackgroundWork) else None  # the parent learns how it ends
        executor = ToolExecutor(agent.registry, agent.steps, ctx.activity, ctx.activity.secrets, background)
        result = await agent.drive(executor, Conversation(history), scope, LoopSettings(announce=False))
        self._keep((session, task_id), history)
        return replace(make_report(result, task_id, description), labels=collect_labels(result.messages))

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

    def _keep(self, key: tuple[str, str], history: list[Message]) -> None:
        self._histories[key] = history
        self._histories.move_to_end(key)
        if len(self._histories) > MOST_TASKS:
            self._histories.popitem(last=False)


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
    text = "\n".join(filter(None, (said, error, f"\n[task_id: {task_id}]")))
    if result.reason not in ("answer", "task_completion", "converse"):
        text = f"The sub-agent ended early ({result.reason}). What there is:\n{text}"
    return ToolResult(for_llm=text, title=description, data=data, failure=result.error)
