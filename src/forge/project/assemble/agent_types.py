"""Builds the types of sub-agents that a project configures, and the limits of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forge.agent.limits import Limits, Price
from forge.agent.subagent import AgentType
from forge.models.names import provider_for
from forge.project.config import Configuration, SubAgentEntry


def agent_types(configuration: Configuration) -> dict[str, AgentType]:
    """Returns the types by name. Raises `ToolError` for a model that cannot be used."""
    return {name: _agent_type(entry) for name, entry in configuration.agents.items()}


def limits_of(said: Mapping[str, Any], standard: Limits | None = None) -> Limits:
    """Returns the configured limits, with the standard for the rest."""
    price = {"price": Price(**said["price"])} if "price" in said else {}
    return replace(standard if standard is not None else Limits(), **{**said, **price})


def _agent_type(entry: SubAgentEntry) -> AgentType:
    standard = AgentType()
    return AgentType(
        prompt=entry.prompt or standard.prompt,
        tools=entry.tools,
        provider=provider_for(entry.model) if entry.model else None,
        limits=limits_of(entry.limits, standard.limits),
        quarantine=entry.quarantine,
    )
