"""Which model a project uses."""

from __future__ import annotations

from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import Provider
from forge.models.names import default_model, provider_for, setup_advice
from forge.project.config import Configuration


def chosen_model(configuration: Configuration, asked: str | None = None) -> str:
    """The one that is asked for, else the configuration's, else one whose key is set. Raises `ToolError`."""
    chosen = asked or configuration.agent.model or default_model()
    if chosen is None:
        raise ToolError(setup_advice(), ErrorKind.CONFIG, "To try it without one: forge run --model scripted:FILE")
    return chosen


def chosen_provider(configuration: Configuration, asked: str | None = None) -> Provider:
    return provider_for(chosen_model(configuration, asked))
