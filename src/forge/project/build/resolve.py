"""Stage 2: find every tool the agent will have, from all sources: built in, servers, documents, webhooks, scripts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.agent.subagent import Task
from forge.project.build.record import Build, Pinned, Problem, Refused
from forge.project.config import Configuration
from forge.project.assemble.own_tools import project_tools
from forge.project.assemble.skills import active_skills
from forge.project.assemble.sources import Sources
from forge.core.context import Scope
from forge.core.registry import ToolRegistry
from forge.skills.active import ActiveSkills


def resolve(build: Build) -> str:
    asyncio.run(_opened(build, _skills(build)))
    return f"{len(build.tools)} tools"


async def _opened(build: Build, skills: ActiveSkills) -> None:
    order, here = build.order, build.effective
    configuration = build.configuration.replace(
        egress=here.egress, sandbox=here.sandbox
    )  # what is opened is opened here
    sources = Sources(configuration, order.workspace, watch=False)
    dev = wants_dev(configuration, dev=order.dev)
    registry = project_tools(configuration, order.workspace, sources, lambda: skills, dev=dev)
    with_task(registry)
    told: list[str] = []
    async with sources.opened(registry, told.append):
        _judge(build, sources, told)
        await registry.ready()
        build.tools = {name: registry[name].spec for name in sorted(registry)}
        for spec in build.tools.values():
            _ = spec.description, spec.parameters  # some are only known while their source is open
        build.remote = _remote(sources)
        build.sources = _told(build, sources)
        build.notes += [
            f"{name} of {label} is left out: {why}"
            for label, server in sources.servers.items()
            for name, why in server.left_out.items()
        ]
    build.notes += [
        f"mcpServers.{label} starts {word}, which is not part of what is built: it is taken from where it runs"
        for label, entry in build.configuration.servers.items()
        for word in entry.command
        if not word.startswith("-") and _is_file(entry.directory or order.workspace, word)
    ]


def _is_file(directory: Path, word: str) -> bool:
    """Whether a word of a command names a file of the project."""
    try:
        return not os.path.isabs(word) and (directory / word).is_file()
    except (OSError, ValueError):
        return False


def _judge(build: Build, sources: Sources, told: list[str]) -> None:
    """A source that cannot be opened stops the build; a part of one is for the filter to judge."""
    closed = tuple(f"{label} is left out: " for label in sources.all)
    if problems := [Problem(text) for text in told if text.startswith(closed)]:
        raise Refused(problems)
    build.source_problems = [Problem(f"{text} (it would be left out)", "Fix it, or take it away.") for text in told]


def wants_dev(configuration: Configuration, *, dev: bool) -> bool:
    """Development tools are there if they are asked for, or where the project names them itself."""
    return dev or configuration.tools is not None


def with_task(registry: ToolRegistry) -> None:
    """The sub-agents' tool, which a run adds once it has a model."""
    if "task" not in registry.names:
        registry.add(Task())


def _remote(sources: Sources) -> dict[str, Pinned]:
    return {
        tool.spec.name: Pinned(label, tool.remote, str(tool.state), _plain(tool.offer.definition))
        for label, server in sources.servers.items()
        for tool in server.tools
    }


def _told(build: Build, sources: Sources) -> list[dict[str, Any]]:
    """For the manifest: what kind, which name, how many tools."""
    found: list[dict[str, Any]] = []
    for label, server in sources.servers.items():
        found.append({"kind": "mcp", "name": label, "tools": len(server.tools)})
    for label, document in sources.documents.items():
        found.append({"kind": "openapi", "name": label, "tools": len(document.tools)})
    found += [{"kind": "webhook", "name": label, "tools": 1} for label in build.configuration.webhooks]
    if scripts := [name for name, spec in build.tools.items() if spec.origin.startswith("script:")]:
        found.append({"kind": "scripts", "name": "tools", "tools": len(scripts)})
    return sorted(found, key=lambda one: (one["kind"], one["name"]))


def _skills(build: Build) -> ActiveSkills:
    """Those of the project are copied; what the active ones need is needed."""
    active = active_skills(build.configuration, Scope(workspace=build.order.workspace))
    if active.catalog.problems:
        raise Refused(Problem(f"{one.path}: {one.why}") for one in active.catalog.problems)
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
    from forge.sources.pins import pinned_part

    return pinned_part(definition)
