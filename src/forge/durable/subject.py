"""What a stored run is run with: a model, tools, steps and limits, under a name that every worker knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forge.agent.agent import Agent
from forge.agent.limits import Limits
from forge.agent.subagent import Task
from forge.core.activity import ActivityStream
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Step
from forge.core.provider import Provider, window_of
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.durable.approval import stored_approval
from forge.durable.wait_tool import wait
from forge.permissions.gate import nobody

MODEL = "model"  # in a run's scope: the model that was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Made once in each worker; its runs bring their own conversation."""

    name: str
    provider: Provider
    registry: ToolRegistry
    steps: tuple[Step, ...]
    secrets: Secrets = field(default_factory=Secrets)
    limits: Limits = field(default_factory=Limits)
    options: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    window: int = 0  # tokens the model can see; 0: unknown, and nothing is ever shortened
    output: Any = None  # the shape of the final answer, if it must have one
    scope: Scope = field(default_factory=Scope)  # the worker's own workspace
    listen: Callable[[ActivityStream], Callable[[], None]] | None = None  # to what happens on this worker; how it ends
    models: Callable[[str], Provider] | None = None  # other models by their names, for runs that ask for one
    _kept: dict[int, ToolRegistry] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, agent: Agent, scope: Scope | None = None) -> Subject:
        """An agent whose questions are stored, unless it has somebody to ask."""
        if agent.gate.approve is nobody:
            agent.gate.approve = stored_approval
        return cls(
            name=agent.name,
            provider=agent.provider,
            registry=agent.registry,
            steps=tuple(agent.steps),
            secrets=agent.secrets,
            limits=agent.limits,
            options=agent.options,
            instructions=agent.instructions,
            window=agent.window,
            output=agent.output,
            scope=scope if scope is not None else Scope(),
        )

    @property
    def tools(self) -> ToolRegistry:
        """What its runs are offered: the agent's tools, as they are now, and those of stored runs alone."""
        version = self.registry.version
        if version not in self._kept:
            offered = self.registry.select(lambda spec: True)
            if wait.spec.name not in offered.names:  # the agent may have one of its own
                offered.add(wait)
            self._kept.clear()
            self._kept[version] = offered
        return self._kept[version]

    def asking(self, model: str) -> Subject:
        """The same with the model of this name. Raises `ToolError` where it cannot be had here."""
        if not model or self.models is None:
            return self
        provider = self.models(model)
        return replace(self, provider=provider, window=window_of(provider) or self.window)

    def sub(self, agent_type: str) -> Subject:
        """What a sub-agent of this one is run with. Raises `ToolError` where there is no such type."""
        task = self.registry.find("task")
        if not isinstance(task, Task):
            raise ToolError(f"agent {self.name!r} has no sub-agents", ErrorKind.NOT_FOUND, "Give it agents=….")
        works = task.worker(agent_type)
        return replace(
            self,
            name=f"{self.name}/{agent_type}",
            provider=works.provider or self.provider,
            registry=works.registry,
            limits=works.limits,
            instructions=works.prompt,
            output=None,
        )


def found(subjects: Mapping[str, Subject], name: str, model: str = "") -> Subject:
    """The subject of that name, or of a sub-agent's `main/researcher`, with the model that its run asks for.

    Raises `ToolError`.
    """
    if name in subjects:
        return subjects[name].asking(model)
    base, agent_type = next(((one, name[len(one) + 1 :]) for one in subjects if name.startswith(f"{one}/")), (name, ""))
    if base not in subjects:
        known = ", ".join(sorted(subjects)) or "none"
        words = f"this worker has no agent {base!r}"
        raise ToolError(words, ErrorKind.NOT_FOUND, f"It has: {known}. Start a worker of the project that has it.")
    return subjects[base].asking(model).sub(agent_type)
