"""The model of a project, the limits of its agents, its types of sub-agents, and the tool `task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forge.core.errors import ErrorKind, ToolError
from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.core.tool import DeferredTool, Tool
from forge.project.assemble.choose_tools import TASK, apply_settings
from forge.project.config.agent import SubAgentEntry
from forge.project.config.declaration import Configuration

if TYPE_CHECKING:
    from forge.agent.limits import Limits
    from forge.agent.subagent import AgentType, SubAgent
    from forge.core.provider import Provider
    from forge.frameworks.acp_agent import AcpAgent
    from forge.project.config.sources import AcpEntry


def choose_model(
    configuration: Configuration, requested: str | None = None, report: Callable[[str], None] | None = None
) -> str:
    """Returns the requested model, else the configured one, else one whose key is set. Raises `ToolError`.

    `report` receives a note if the model is one of a local server that was found.
    """
    from forge.models.vendors import LOCAL, default_model, setup_advice

    if named := requested or configuration.agent.model:
        return named
    chosen = default_model()
    if chosen is None:
        raise ToolError(setup_advice(), ErrorKind.CONFIG)
    if report is not None and chosen.partition(":")[0] in LOCAL:
        report(f"no model is set; using {chosen}, which runs on this machine. --model chooses another")
    return chosen


def choose_provider(configuration: Configuration, requested: str | None = None) -> Provider:
    from forge.models.vendors import provider_for

    return provider_for(choose_model(configuration, requested))


# Builds the types of sub-agents that a project configures, and the limits of its agents.


def agent_types(configuration: Configuration) -> dict[str, AgentType]:
    """Returns the types by name. Raises `ToolError` for a model that cannot be used."""
    return {name: _agent_type(configuration, entry) for name, entry in configuration.agents.items()}


def limits_of(said: Mapping[str, Any], standard: Limits | None = None) -> Limits:
    """Returns the configured limits, with the standard for the rest."""
    from forge.agent.limits import Limits, Price

    price = {"price": Price(**said["price"])} if "price" in said else {}
    return replace(standard if standard is not None else Limits(), **{**said, **price})


def _agent_type(configuration: Configuration, entry: SubAgentEntry) -> AgentType:
    from forge.agent.subagent import AgentType
    from forge.models.vendors import provider_for

    standard = AgentType()
    return AgentType(
        prompt=entry.prompt or standard.prompt,
        tools=entry.tools,
        model=provider_for(entry.model) if entry.model else None,
        limits=limits_of(entry.limits, standard.limits),
        quarantine=entry.quarantine,
        outside=_outside_agent(configuration, entry.acp) if entry.acp is not None else None,
    )


def _outside_agent(configuration: Configuration, entry: AcpEntry) -> AcpAgent:
    """Returns an agent of others. The file may be another's: its program's sandbox and access fail closed."""
    from forge.frameworks.acp_agent import AcpAgent
    from forge.project.assemble.sources import program_access

    return AcpAgent(
        entry.program,
        entry.args,
        env=entry.environment,
        **program_access(configuration, entry),
    )


# Adds the `task` tool for commands that list, describe or call tools; it is loaded when it is called.


DESCRIPTION = "Give a task to a sub-agent and get its report. It sees the prompt, not this conversation."


def add_task(
    registry: ToolRegistry, configuration: Configuration, parent: Callable[[], SubAgent] | None = None
) -> None:
    """Adds the tool. `parent` returns the agent of the sub-agents; without it, a call answers that it needs a model."""

    def make() -> Tool:
        from forge.agent.subagent import Task  # the loop and the models, which listing tools does without

        return apply_settings(Task(parent, agent_types(configuration)), configuration)

    if TASK not in registry.names:
        registry.add(apply_settings(_DeferredTask(make), configuration))


class _DeferredTask(DeferredTool):
    """Has the description of the task tool without loading sub-agents."""

    def __init__(self, make: Callable[[], Tool]) -> None:
        super().__init__(
            TASK,
            make,
            {
                "category": Category.BUILTIN,
                "permissions": {"execute"},
                "target": "description",
                "origin": "forge.agent.subagent",
            },
        )
        self.spec = self.spec.changed(timeout=None)

    def reset(self) -> None:
        super().reset()
        self.spec = self.spec.changed(description=DESCRIPTION)
