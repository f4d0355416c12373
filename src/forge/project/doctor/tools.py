"""Examines the tools of a project: the same ones that `forge tool list` lists. No server is started or contacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.extras import install_command
from forge.core.registry import ToolRegistry
from forge.project.assemble.choose import check_names
from forge.project.assemble.memory import DIRECTORY
from forge.project.assemble.own_tools import own_tools, project_tools
from forge.project.assemble.skills import active_skills
from forge.project.assemble.sources import Sources, mount_tools
from forge.project.assemble.task_tool import add_task
from forge.project.config import Configuration
from forge.project.doctor.finding import Finding, finding_of_error
from forge.workspace.state import NAME as STATE

if TYPE_CHECKING:  # imported only if skills are active
    from forge.skills.active import ActiveSkills

CHECK = "tools"


def examine_tools(configuration: Configuration, scope: Scope, *, dev: bool) -> Finding:
    """Counts the tools, and checks their names and schemas."""
    unmatched: list[str] = []
    closed = _name_closed(configuration)
    try:
        has_more = bool(closed or configuration.unset)
        registry = _collect_tools(configuration, scope, dev=dev, later=has_more)
        for tool in registry.values():
            tool.spec.parameters  # noqa: B018 - built on first use; a broken one raises
        if not has_more:
            check_names(configuration, registry, unmatched.append)
    except (ToolError, DefinitionError) as error:
        return finding_of_error(CHECK, error)
    unavailable = registry.unavailable if configuration.tools is not None else []
    if unavailable:
        names = ", ".join(spec.name for spec in unavailable)
        return Finding(CHECK, "warning", f"unavailable: {names}", install_command(unavailable[0].extra))
    if unmatched:
        return Finding(CHECK, "warning", "; ".join(unmatched), "Correct the pattern, or remove it.")
    count = len(registry)
    return Finding(
        CHECK, "ok", f"{count}, and those of {closed}, which `forge tool list` opens" if closed else f"{count}"
    )


def _collect_tools(configuration: Configuration, scope: Scope, *, dev: bool, later: bool) -> ToolRegistry:
    """Returns the tools without those of servers and documents. Writes nothing: not even the state directory."""
    closed = configuration.replace(servers={}, openapi={}, unset={})
    sources = Sources(closed, scope.workspace, watch=False)
    sources.is_part = True  # what has no tool yet may come from a server

    def skills() -> ActiveSkills:
        return active_skills(configuration, scope)

    own = own_tools(closed.replace(memory=None), scope.workspace, sources, skills)
    if configuration.memory is not None and configuration.memory.enabled:
        from forge.memory.memory import Memory  # only where it is enabled
        from forge.memory.tools import memory_tools

        own += memory_tools(Memory(scope.workspace / STATE / DIRECTORY, writes=False))
    registry = project_tools(closed, scope.workspace, sources, skills, dev=dev, own=own, later=later)
    add_task(registry, closed)
    return mount_tools(registry, sources, lambda note: None)  # examine_sources reports what is left out


def _name_closed(configuration: Configuration) -> str:
    """Names the sources that are not opened here."""
    kinds = {"MCP server": len(configuration.servers), "OpenAPI document": len(configuration.openapi)}
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in kinds.items() if count)
