"""A project's memory: its notes, and what finds things in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forge.app.config import Configuration, load_configuration
from forge.app.sources import Asked
from forge.app.workspace import project_scope
from forge.core.errors import ToolError

if TYPE_CHECKING:  # only where it is enabled
    from forge.memory.memory import Memory

DIRECTORY = "memory"


def project_memory(asked: Asked) -> Memory:
    """Of the workspace, enabled or not: notes are a person's own. Raises `ToolError`."""
    configuration = load_configuration(asked.config)
    scope = project_scope(asked.workspace, configuration)
    return memory_of(configuration, scope.workspace, writes=scope.writes)


def memory_of(configuration: Configuration, workspace: Path, *, writes: bool = True) -> Memory:
    from forge.memory.embed import embedder_from
    from forge.memory.memory import Memory
    from forge.workspace.state import state_directory

    try:
        embedder = embedder_from(configuration.memory.embedder if configuration.memory else None)
    except ToolError as error:
        error.message = f"{configuration.name}: {error.message}"
        raise
    return Memory(state_directory(workspace) / DIRECTORY, embedder, writes=writes)
