"""Chooses the model of a project."""

from __future__ import annotations

from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import Provider
from forge.models.names import default_model, provider_for, setup_advice
from forge.project.config import Configuration


def choose_model(configuration: Configuration, requested: str | None = None) -> str:
    """Returns the requested model, else the configured one, else one whose key is set. Raises `ToolError`."""
    chosen = requested or configuration.agent.model or default_model()
    if chosen is None:
        raise ToolError(setup_advice(), ErrorKind.CONFIG, "To try it without one: forge run --model scripted:FILE")
    return chosen


def choose_provider(configuration: Configuration, requested: str | None = None) -> Provider:
    return provider_for(choose_model(configuration, requested))
