"""A project's memory: its notes, and what finds things in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.project.assemble.model import chosen_provider
from forge.project.assemble.secrets import project_secrets
from forge.project.assemble.skills import active_skills
from forge.project.assemble.sources import Asked
from forge.project.assemble.workspace import project_scope
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # only where it is enabled
    from forge.core.messages import Message
    from forge.memory.memory import Memory, WrittenEntry

DIRECTORY = "memory"


def project_memory(asked: Asked) -> Memory:
    """Of the workspace, enabled or not: notes are a person's own. Raises `ToolError`."""
    configuration = load_configuration(asked.config)
    scope = project_scope(asked.workspace, configuration)
    return memory_of(configuration, scope.workspace, writes=scope.writes)


async def remember(
    asked: Asked, session: str, messages: Sequence[Message], model: str | None = None
) -> WrittenEntry | None:
    """Note what a session was about, in the words of a model; None where nothing was said. Raises `ToolError`."""
    from forge.agent.recollect import recollect
    from forge.memory.sessions import remember_session

    configuration = load_configuration(asked.config)
    provider = chosen_provider(configuration, model)
    rules = active_skills(configuration, project_scope(asked.workspace, configuration)).rules(session)

    async def summarise(told: Sequence[Message]) -> str:
        text = await recollect(provider, told)
        if rules is not None:
            rules.check_response(text)  # what may not be answered is not noted for later answers either
        return text

    with closing(project_memory(asked)) as memory:
        return await remember_session(
            memory,
            messages,
            summarise,
            title=f"session {session}",
            secrets=project_secrets(configuration),
        )


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
