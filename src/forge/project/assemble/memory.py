"""Opens a project's memory: its notes and the search in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.errors import ToolError
from forge.project.assemble.model import choose_provider
from forge.project.assemble.secrets import project_secrets
from forge.project.assemble.skills import active_skills
from forge.project.assemble.workspace import ProjectFlags, project_scope
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # only where it is enabled
    from forge.core.messages import Message
    from forge.memory.memory import Memory, WrittenEntry

DIRECTORY = "memory"


def project_memory(flags: ProjectFlags) -> Memory:
    """Opens the workspace's memory, enabled or not: notes belong to the person. Raises `ToolError`."""
    configuration = load_configuration(flags.config)
    scope = project_scope(flags.workspace, configuration)
    return memory_of(configuration, scope.workspace, writes=scope.writes)


async def remember(
    flags: ProjectFlags, session: str, messages: Sequence[Message], model: str | None = None
) -> WrittenEntry | None:
    """Notes a model's summary of a session; returns None if there are no messages. Raises `ToolError`."""
    from forge.agent.conversation_note import recollect
    from forge.agent.labels import collect_labels
    from forge.memory.sessions import remember_session

    configuration = load_configuration(flags.config)
    provider = choose_provider(configuration, model)
    rules = active_skills(configuration, project_scope(flags.workspace, configuration)).rules(session)

    async def summarise(messages_to_sum: Sequence[Message]) -> str:
        text = await recollect(provider, messages_to_sum)
        if rules is not None:
            rules.check_response(text)  # a forbidden answer is not noted either
        return text

    with closing(project_memory(flags)) as memory:
        return await remember_session(
            memory,
            messages,
            summarise,
            title=f"session {session}",
            secrets=project_secrets(configuration),
            labels=collect_labels(messages) if configuration.labels.enabled else (),
        )


def memory_of(configuration: Configuration, workspace: Path, *, writes: bool = True) -> Memory:
    """Opens the memory of a workspace with the configured embedder."""
    from forge.memory.embedders import embedder_from
    from forge.memory.memory import Memory
    from forge.workspace.state import state_directory

    try:
        embedder = embedder_from(configuration.memory.embedder if configuration.memory else None)
    except ToolError as error:
        error.message = f"{configuration.name}: {error.message}"
        raise
    return Memory(state_directory(workspace) / DIRECTORY, embedder, writes=writes)
