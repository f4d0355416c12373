"""A project's skills, the active ones among them, and its memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.project.assemble.access import ProjectFlags, project_scope
from forge.project.assemble.agents import choose_provider
from forge.project.assemble.sources import is_withheld
from forge.project.config.declaration import Configuration
from forge.project.config.load import load_configuration
from forge.workspace.state import NAME, state_directory

if TYPE_CHECKING:
    from forge.core.messages import Message
    from forge.memory.memory import Memory, WrittenEntry
    from forge.skills.active import ActiveSkills
    from forge.skills.catalog import Catalog


def project_skills(flags: ProjectFlags) -> Catalog:
    """Returns every skill of the project, and those that come with Forge. Raises `ToolError`."""
    configuration = load_configuration(flags.config)
    return catalog_of(configuration, project_scope(flags.workspace, configuration))


def catalog_of(configuration: Configuration, scope: Scope, copy_of: Path | None = None) -> Catalog:
    from forge.skills.catalog import Catalog

    paths = configuration.skills.paths if configuration.skills else ("skills",)
    if is_withheld(configuration, scope.workspace, copy_of):
        paths = tuple(path for path in paths if os.path.isabs(os.path.expanduser(path)))  # skills of the person
    return Catalog(paths, scope)


def active_skills(configuration: Configuration, scope: Scope, copy_of: Path | None = None) -> ActiveSkills:
    """Returns the configured active skills. Others become active when the model reads them, if they only tighten."""
    from forge.agent.session import FILE
    from forge.skills.active import ActiveSkills
    from forge.skills.guardrails import Guardrails

    return ActiveSkills(
        catalog_of(configuration, scope, copy_of),
        configuration.skills.active if configuration.skills else (),
        Guardrails.of(configuration.guardrails, f"{configuration.name}: guardrails"),
        scope.workspace / NAME / FILE,
    )


def skills_prompt(active: ActiveSkills) -> str:
    """Returns the prompt's paragraph about the project's skills; empty if there are only Forge's own."""
    if not active.named and all(skill.is_built_in for skill in active.catalog.skills.values()):
        return ""
    return f"Skills. Before a task that one of them covers, read it with read_skill:\n{active.catalog.summary()}"


# Opens a project's memory: its notes and the search in them.


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
    from forge.agent.labels import collect_labels
    from forge.agent.summary import recollect
    from forge.memory.memory import remember_session
    from forge.project.assemble.secrets import project_secrets

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

    try:
        embedder = embedder_from(configuration.memory.embedder if configuration.memory else None)
    except ToolError as error:
        error.message = f"{configuration.name}: {error.message}"
        raise
    return Memory(state_directory(workspace) / DIRECTORY, embedder, writes=writes)
