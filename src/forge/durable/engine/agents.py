"""Finds the agents that a worker can run, by names that all workers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forge.agent.agent import Agent, with_approver
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.durable.engine.approval import stored_approval
from forge.durable.engine.wait_tool import wait
from forge.durable.engine.worker_context import Models
from forge.permissions.questions import nobody


def prepare_for_worker(agent: Agent, scope: Scope | None = None) -> Agent:
    """Returns a copy of the agent with the scope of its runs, whose questions are stored, unless it has an approver."""
    made = with_approver(agent, stored_approval) if agent.gate.approve is nobody else agent
    return made.replace(scope=scope)


def find_agent(agents: Mapping[str, Agent], name: str, model: str = "", models: Models | None = None) -> Agent:
    """Returns the agent of that name, or the sub-agent of `main/researcher`, with the model that its run asks for.

    Raises `ToolError`.
    """
    base, agent_type = name, ""
    if name not in agents:
        base = next((one for one in agents if name.startswith(f"{one}/")), name)
        agent_type = name[len(base) + 1 :]
    if base not in agents:
        known = ", ".join(sorted(agents)) or "none"
        message = f"this worker has no agent {base!r}"
        raise ToolError(
            message, ErrorKind.NOT_FOUND, f"It has: {known}. Start a worker of the project with this agent."
        )
    agent = agents[base]
    if model and models is not None:
        agent = agent.replace(model=models(model))
    return agent.subagent(agent_type) if base != name else agent


def list_runnable(agents: Mapping[str, Agent]) -> Sequence[str]:
    """Lists the names of the agents and sub-agents that `find_agent` finds."""
    names: dict[str, None] = {}
    for name, agent in agents.items():
        names.update(dict.fromkeys([name, *(f"{name}/{one}" for one in agent.list_subagents())]))
    return list(names)


class OfferedTools:
    """The tools of an agent's stored runs: its current tools, and those that only stored runs have."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[ToolRegistry, int, ToolRegistry]] = {}  # by agent

    def of(self, agent: Agent) -> ToolRegistry:
        registry, version, offered = self._cache.get(agent.name, (None, -1, None))
        if offered is None or registry is not agent.registry or version != agent.registry.version:
            offered = agent.registry.select(lambda spec: True)
            if wait.spec.name not in offered.names:  # the agent may have its own
                offered.add(wait)
            self._cache[agent.name] = (agent.registry, agent.registry.version, offered)
        return offered
