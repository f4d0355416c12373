"""Finds a project's skills and the active ones among them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.project.assemble.sources import is_withheld
from forge.project.assemble.workspace import ProjectFlags, project_scope
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # listing tools does without
    from forge.skills.active import ActiveSkills
    from forge.skills.catalog import Catalog


def project_skills(flags: ProjectFlags) -> Catalog:
    """Returns every skill of the project, and those that come with Forge. Raises `ToolError`."""
    configuration = load_configuration(flags.config)
    return catalog_of(configuration, project_scope(flags.workspace, configuration))


def catalog_of(configuration: Configuration, scope: Scope) -> Catalog:
    from forge.skills.catalog import Catalog

    paths = configuration.skills.paths if configuration.skills else ("skills",)
    if is_withheld(configuration, scope.workspace):
        paths = tuple(path for path in paths if os.path.isabs(os.path.expanduser(path)))  # skills of the person
    return Catalog(paths, scope)


def active_skills(configuration: Configuration, scope: Scope) -> ActiveSkills:
    """Returns the configured active skills. Others become active when the model reads them, if they only tighten."""
    from forge.agent.session import FILE
    from forge.skills.active import ActiveSkills
    from forge.skills.guardrails import Guardrails
    from forge.workspace.state import NAME

    return ActiveSkills(
        catalog_of(configuration, scope),
        configuration.skills.active if configuration.skills else (),
        Guardrails.of(configuration.guardrails, f"{configuration.name}: guardrails"),
        scope.workspace / NAME / FILE,
    )


def skills_prompt(active: ActiveSkills) -> str:
    """Returns the prompt's paragraph about the project's skills; empty if there are only Forge's own."""
    if not active.named and all(skill.is_built_in for skill in active.catalog.skills.values()):
        return ""
    return f"Skills. Before a task that one of them covers, read it with read_skill:\n{active.catalog.summary()}"
