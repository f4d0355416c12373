"""Stage 2: finds every tool of the agent from all sources: built in, servers, documents, webhooks, scripts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.agent.subagent import Task
from forge.core.context import Scope
from forge.core.extras import install_program
from forge.core.registry import ToolRegistry
from forge.project.assemble.knowledge import active_skills
from forge.project.assemble.sources import Sources
from forge.project.assemble.tools import is_part_of_project, list_references, project_tools
from forge.project.build.record import Build, Problem, RemoteTool, StageRefused
from forge.project.config.declaration import Configuration
from forge.skills.active import ActiveSkills


def resolve(build: Build) -> str:
    """Opens the sources and stores their tools in the build."""
    asyncio.run(_open_sources(build, _load_skills(build)))
    return f"{len(build.tools)} tools"


async def _open_sources(build: Build, skills: ActiveSkills) -> None:
    order, here = build.order, build.effective
    configuration = build.configuration.replace(
        egress=here.egress, sandbox=here.sandbox
    )  # the sources are opened on this machine
    sources = Sources(configuration, order.workspace, watch=False)
    dev = wants_dev(configuration, dev=order.dev)
    if own := [one for one in list_references(configuration) if is_part_of_project(one)]:
        suggestion = f"Make the module a package, and install it here and in the image: {install_program()} ."
        raise StageRefused(
            Problem(
                f"{one.entry.key_path}: {one.entry.name!r} is in a file of the project, which is not part of a build",
                suggestion,
            )
            for one in own
        )
    registry = project_tools(configuration, order.workspace, sources, lambda: skills, dev=dev)
    add_task_tool(registry)
    reports: list[str] = []
    async with sources.mount(registry, reports.append):
        _check_reports(build, sources, reports)
        await registry.ready(Scope(workspace=order.workspace))
        build.tools = {name: registry[name].spec for name in sorted(registry)}
        for spec in build.tools.values():
            _ = spec.description, spec.parameters  # some are known only while their source is open
        build.remote = _remote(sources)
        build.sources = _list_sources(build, sources)
        build.notes += [
            f"{name} of {label} is left out: {why}"
            for label, server in sources.servers.items()
            for name, why in server.left_out.items()
        ]
    build.notes += [
        f"mcpServers.{label} starts {word}, which is not part of the build: the agent's machine must have it"
        for label, entry in build.configuration.servers.items()
        for word in entry.command
        if not word.startswith("-") and _is_file(entry.directory or order.workspace, word)
    ]


def _is_file(directory: Path, word: str) -> bool:
    """Returns whether a word of a command names a file of the project."""
    try:
        return not os.path.isabs(word) and (directory / word).is_file()
    except (OSError, ValueError):
        return False


def _check_reports(build: Build, sources: Sources, reports: list[str]) -> None:
    """Stops the build if a source cannot be opened; the filter judges problems of a part."""
    closed = tuple(f"{label} is left out: " for label in sources.all)
    if problems := [Problem(text) for text in reports if text.startswith(closed)]:
        raise StageRefused(problems)
    build.source_problems = [Problem(f"{text} (it would be left out)", "Fix it, or remove it.") for text in reports]


def wants_dev(configuration: Configuration, *, dev: bool) -> bool:
    """Returns whether development tools are included: by a flag, or because the project names them."""
    return dev or configuration.tools is not None


def add_task_tool(registry: ToolRegistry) -> None:
    """Adds the sub-agents' tool, which a run adds once it has a model."""
    if "task" not in registry.names:
        registry.add(Task())


def _remote(sources: Sources) -> dict[str, RemoteTool]:
    return {
        tool.spec.name: RemoteTool(label, tool.remote, str(tool.state), _plain(tool.offer.definition))
        for label, server in sources.servers.items()
        for tool in server.tools
    }


def _list_sources(build: Build, sources: Sources) -> list[dict[str, Any]]:
    """Returns the manifest's list of sources: kind, name, number of tools."""
    found: list[dict[str, Any]] = []
    for label, server in sources.servers.items():
        found.append({"kind": "mcp", "name": label, "tools": len(server.tools)})
    for label, document in sources.documents.items():
        found.append({"kind": "openapi", "name": label, "tools": len(document.tools)})
    found += [{"kind": "webhook", "name": label, "tools": 1} for label in build.configuration.webhooks]
    if scripts := [name for name, spec in build.tools.items() if spec.origin.startswith("script:")]:
        found.append({"kind": "scripts", "name": "tools", "tools": len(scripts)})
    return sorted(found, key=lambda one: (one["kind"], one["name"]))


def _load_skills(build: Build) -> ActiveSkills:
    """Returns the active skills, and records the project's skills and their required variables."""
    active = active_skills(build.configuration, Scope(workspace=build.order.workspace))
    if active.catalog.problems:
        raise StageRefused(Problem(f"{one.path}: {one.why}") for one in active.catalog.problems)
    build.active = active
    build.skills = [skill for skill in active.catalog.skills.values() if not skill.is_built_in]
    for skill in active.named:
        needs = skill.front.requires
        for name in needs.env:
            build.required.setdefault(name, []).append(f"skill {skill.name}")
        build.optional |= {*needs.one_of, *needs.optional}
    build.optional -= build.required.keys()
    return active


def _plain(definition: Mapping[str, Any]) -> dict[str, Any]:
    from forge.mcp.pins import pinned_part

    return pinned_part(definition)
