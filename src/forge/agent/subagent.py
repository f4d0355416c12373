"""The `task` tool: a sub-agent with its own history, some of its parent's tools and all of its parent's rules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple
from uuid import uuid4

from forge.agent.limits import Limits
from forge.agent.loop import run_loop
from forge.agent.result import RunResult
from forge.core.background import BackgroundWork
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Step, ToolExecutor
from forge.core.messages import Message
from forge.core.provider import Provider
from forge.core.registry import CONVERSATION, ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool
from forge.tools.conversation import task_completion

MOST_TASKS = 100  # whose histories are kept for resuming
BUDGET = Limits(turns=30, calls=100, seconds=1_800)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentType:
    """A kind of sub-agent. `tools` are names or groups of the parent's; empty means all that only read."""

    prompt: str = "You work on one task for another agent. Do it, then call task_completion with what you found out."
    tools: tuple[str, ...] = ()
    provider: Provider | None = None  # None: the parent's
    limits: Limits = field(default_factory=lambda: BUDGET)


class Order(NamedTuple):
    """A task that somebody else shall have done."""

    agent_type: str
    task_id: str  # an earlier one to go on with, or empty
    description: str
    prompt: str


class Worker(NamedTuple):
    """What a sub-agent works with."""

    prompt: str
    provider: Provider | None
    registry: ToolRegistry
    limits: Limits


Delegate = Callable[[ToolContext, Order], Awaitable[ToolResult]]

elsewhere: ContextVar[Delegate | None] = ContextVar("elsewhere", default=None)
"""Who has tasks done instead of this process, for as long as it is set: runs that are stored have runs of their own."""


class Task(Tool, name="task", category=Category.BUILTIN, permissions={"execute"}, target="description", timeout=None):
    """Give a self-contained task to a sub-agent and get its report back. It sees the prompt, not this conversation."""

    def __init__(
        self,
        provider: Provider | None = None,
        registry: ToolRegistry | None = None,
        steps: tuple[Step, ...] = (),
        types: Mapping[str, AgentType] | None = None,
    ) -> None:
        self._provider = provider
        self._registry = registry if registry is not None else ToolRegistry()
        self._steps = steps  # the parent's: its policy, its denials, the person it asks
        self._types = dict(types or {"general": AgentType()})
        self._histories: OrderedDict[tuple[str, str], list[Message]] = OrderedDict()  # by session and task

    async def run(
        self,
        ctx: ToolContext,
        description: Annotated[str, "Three to five words, for the person."],
        prompt: Annotated[str, "Everything the sub-agent must know, and what it shall report."],
        agent_type: Annotated[str, "Which kind of sub-agent."] = "",
        task_id: Annotated[str, "An earlier task to go on with."] = "",
    ) -> ToolResult:
        chosen = self._chosen(agent_type)
        delegate = elsewhere.get()
        if delegate is not None:
            order = Order(agent_type or next(iter(self._types)), task_id, description, prompt)
            return await delegate(ctx, order)
        session = ctx.scope.session_id
        history = self._history(session, task_id, chosen)
        provider = chosen.provider or self._provider
        if provider is None:
            words = "No model is configured to run a sub-agent; do the task yourself, step by step."
            return ToolResult(for_llm=words, data={"error": "LLM_ASSIST_REQUIRED", "prompt": prompt})
        task_id = task_id or f"task-{uuid4().hex[:8]}"
        history.append(Message("user", prompt))
        ctx.progress(f"Sub-agent: {description}", task_id=task_id)
        scope = replace(ctx.scope, agent=f"{ctx.scope.agent}/{agent_type or 'general'}", message_id="")
        background = ctx.owner if isinstance(ctx.owner, BackgroundWork) else None  # the parent hears how it ends
        executor = ToolExecutor(
            self._tools_of(chosen), self._steps, ctx.activity, ctx.activity.secrets, background=background
        )
        result = await run_loop(provider, executor, history, scope, chosen.limits, announce=False)
        self._keep((session, task_id), history)
        return reported(result, task_id, description)

    def worker(self, agent_type: str) -> Worker:
        """What a sub-agent of this type works with. Raises `ToolError` where there is no such type."""
        chosen = self._chosen("" if agent_type == "general" and "general" not in self._types else agent_type)
        return Worker(chosen.prompt, chosen.provider, self._tools_of(chosen), chosen.limits)

    def _chosen(self, name: str) -> AgentType:
        if not name:
            return next(iter(self._types.values()))
        if name not in self._types:
            known = ", ".join(self._types)
            raise ToolError(f"there is no agent type {name!r}", ErrorKind.NOT_FOUND, f"Use one of: {known}.")
        return self._types[name]

    def _history(self, session: str, task_id: str, chosen: AgentType) -> list[Message]:
        """A task belongs to the session that began it: another can neither see nor continue it."""
        if not task_id:
            return [Message("system", chosen.prompt)]
        if (session, task_id) not in self._histories:
            known = ", ".join(name for owner, name in self._histories if owner == session) or "there are none"
            raise ToolError(f"there is no task {task_id!r}", ErrorKind.NOT_FOUND, f"Known tasks: {known}.")
        return self._histories[session, task_id]

    def _tools_of(self, chosen: AgentType) -> ToolRegistry:
        """A part of the parent's tools: never this one, so that sub-agents have no sub-agents of their own."""
        wanted = set(chosen.tools)
        picked = self._registry.select(
            lambda spec: (
                spec.name not in CONVERSATION
                and spec.name != self.spec.name
                and (bool(wanted & {spec.name, *spec.groups}) if wanted else not spec.permissions - {"read"})
            )
        )
        picked.add(task_completion)
        return picked

    def _keep(self, key: tuple[str, str], history: list[Message]) -> None:
        self._histories[key] = history
        self._histories.move_to_end(key)
        if len(self._histories) > MOST_TASKS:
            self._histories.popitem(last=False)


def reported(result: RunResult, task_id: str, description: str) -> ToolResult:
    data = {
        "task_id": task_id,
        "reason": result.reason,
        "turns": result.turns,
        "usage": result.usage._asdict(),
    }
    error = result.error.text() if result.error is not None else ""
    text = "\n".join(filter(None, (result.text, error, f"\n[task_id: {task_id}]")))
    if result.reason not in ("answer", "task_completion", "converse"):
        text = f"The sub-agent ended early ({result.reason}). What there is:\n{text}"
    return ToolResult(for_llm=text, title=description, data=data, failure=result.error)
