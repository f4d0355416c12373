"""A project's skills: where they are, which of them are active, and what follows for its agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.project.assemble.sources import Asked, is_held_back
from forge.project.assemble.workspace import project_scope
from forge.project.config import Configuration, load_configuration

if TYPE_CHECKING:  # listing tools does without
    from forge.skills.active import ActiveSkills
    from forge.skills.catalog import Catalog


def project_skills(asked: Asked) -> Catalog:
    """Every skill of the project, and those that come with Forge. Raises `ToolError`."""
    configuration = load_configuration(asked.config)
    return catalog_of(configuration, project_scope(asked.workspace, configuration))


def catalog_of(configuration: Configuration, scope: Scope) -> Catalog:
    from forge.skills.catalog import Catalog

    paths = configuration.skills.paths if configuration.skills else ("skills",)
    if is_held_back(configuration, scope.workspace):
        paths = tuple(path for path in paths if os.path.isabs(os.path.expanduser(path)))  # the person's own
    return Catalog(paths, scope)


def active_skills(configuration: Configuration, scope: Scope) -> ActiveSkills:
    """Those that the configuration names; others become active, as far as that tightens, when the model reads them."""
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


def told_of(active: ActiveSkills) -> str:
    """What the prompt says of the project's skills; empty where there are none but Forge's own."""
    if not active.named and all(skill.is_built_in for skill in active.catalog.skills.values()):
        return ""
    return f"Skills, to be read with read_skill before you do what they are for:\n{active.catalog.summary()}"
