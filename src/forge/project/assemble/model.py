"""Chooses the model of a project."""

from __future__ import annotations

from collections.abc import Callable

from forge.core.errors import ErrorKind, ToolError
from forge.core.provider import Provider
from forge.models.names import LOCAL, default_model, provider_for, setup_advice
from forge.project.config import Configuration


def choose_model(
    configuration: Configuration, requested: str | None = None, report: Callable[[str], None] | None = None
) -> str:
    """Returns the requested model, else the configured one, else one whose key is set. Raises `ToolError`.

    `report` receives a note if the model is one of a local server that was found.
    """
    if named := requested or configuration.agent.model:
        return named
    chosen = default_model()
    if chosen is None:
        raise ToolError(setup_advice(), ErrorKind.CONFIG)
    if report is not None and chosen.partition(":")[0] in LOCAL:
        report(f"no model is set; using {chosen}, which runs on this machine. --model chooses another")
    return chosen


def choose_provider(configuration: Configuration, requested: str | None = None) -> Provider:
    return provider_for(choose_model(configuration, requested))
