"""Builds a project in stages; the first with a problem stops the build. Stage 7 reads the output as a run would.

Only the last stage writes to the disk, and then everything at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from forge.agent.subagent import Task
from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.extras import install_program
from forge.core.registry import ToolRegistry
from forge.mcp.pins import pinned_part
from forge.permissions.rules import PolicyError
from forge.project.assemble.knowledge import active_skills
from forge.project.assemble.sources import Sources
from forge.project.assemble.tools import is_part_of_project, list_references, project_tools
from forge.project.build.built import Built, load_built
from forge.project.build.compile import compile_guards, filter_tools, schema_of, schema_path, schemas
from forge.project.build.load import load
from forge.project.build.manifest import manifest
from forge.project.build.output import check_output, replace_output, staging_directory, write_files
from forge.project.build.record import (
    PROJECT,
    Build,
    BuildOrder,
    RemoteTool,
    Stage,
    StageProblem,
    StageRefused,
    to_bytes,
)
from forge.project.config.declaration import Configuration
from forge.project.read_yaml import read_yaml
from forge.skills.active import ActiveSkills

# Stage 2: finds every tool of the agent from all sources: built in, servers, documents, webhooks, scripts.


def resolve(build: Build) -> str:
    """Opens the sources and stores their tools in the build."""
    asyncio.run(_open_sources(build, _load_skills(build)))
    return f"{len(build.tools)} tools"


def _check_hooks(configuration: Configuration, workspace: Path) -> None:
    """Refuses hooks whose command names a file of the project: without the file, the hook would refuse everything."""
    if not configuration.all_hooks:
        return
    from forge.project.assemble.hooks import list_named

    if files := [name for name in list_named(configuration, workspace) if os.path.lexists(workspace / name)]:
        problem = f"hooks: {files[0]!r} is a part of the project, which is not part of a build"
        raise StageRefused([StageProblem(problem, "Install the program in the image, and name it in the command.")])


async def _open_sources(build: Build, skills: ActiveSkills) -> None:
    order, here = build.order, build.effective
    configuration = build.configuration.replace(
        egress=here.egress, sandbox=here.sandbox
    )  # the sources are opened on this machine
    sources = Sources(configuration, order.workspace, watch=False)
    if own := [one for one in list_references(configuration) if is_part_of_project(one)]:
        suggestion = f"Make the module a package, and install it here and in the image: {install_program()} ."
        raise StageRefused(
            StageProblem(
                f"{one.entry.key_path}: {one.entry.name!r} is in a file of the project, which is not part of a build",
                suggestion,
            )
            for one in own
        )
    _check_hooks(configuration, order.workspace)
    registry = project_tools(configuration, order.workspace, sources, lambda: skills, dev=order.dev or None)
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
    if problems := [StageProblem(text) for text in reports if text.startswith(closed)]:
        raise StageRefused(problems)
    build.source_problems = [
        StageProblem(f"{text} (it would be left out)", "Fix it, or remove it.") for text in reports
    ]


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
        raise StageRefused(StageProblem(f"{one.path}: {one.why}") for one in active.catalog.problems)
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

    return pinned_part(definition)


# Stage 7: writes the output beside its target, reads it as a run would, and only then moves it there.


_REPORT = "It may have changed during the build. Build again."


def validate(build: Build) -> str:
    """Writes and checks the output."""
    output = build.order.output
    with staging_directory(output) as directory:
        write_files(directory, build.files)
        built = load_built(directory, build.sha256, workspace=build.order.workspace)
        if read_yaml(str(built.directory / PROJECT)) != build.project:
            problem = f"{build.configuration.name} has a value that changes when it is written and read again"
            raise StageRefused([StageProblem(problem, "Write numbers without an exponent, and keys as strings.")])
        asyncio.run(_compare(build, built))
        check_output(output)
        directory.chmod(0o755)
        replace_output(directory, output)
    return build.sha256


async def _compare(build: Build, built: Built) -> None:
    """Checks that every tool without a server is there again and has the same definition."""
    workspace = build.order.workspace
    scope = Scope(workspace=workspace)
    sources = built.sources(workspace)
    skills = active_skills(built.configuration, scope)
    registry = project_tools(built.configuration, workspace, sources, lambda: skills, dev=built.dev)
    add_task_tool(registry)
    sources.servers = {}  # they were opened before
    sources.is_part = True
    left_out: list[str] = []
    async with sources.mount(registry, left_out.append):
        await registry.ready(scope)
        problems = [StageProblem(text, _REPORT) for text in left_out]
        for name, spec in build.tools.items():
            if name not in build.remote and name not in registry:
                problems.append(StageProblem(f"{name} is missing from the build", _REPORT))
            elif (
                name in registry and to_bytes(schema_of(registry[name].spec)) != build.files[schema_path(name)].content
            ):
                problems.append(StageProblem(f"{name} ({spec.origin}) changed during the build", _REPORT))
    if problems:
        raise StageRefused(problems)


STAGES: tuple[tuple[str, Stage], ...] = (
    ("load", load),  # forge.yaml, and the variables it needs
    ("resolve", resolve),  # the tools of all sources
    ("filter", filter_tools),  # production: no development tools, no open settings
    ("schemas", schemas),  # the arguments of each tool
    ("compile", compile_guards),  # policy, egress, guardrails
    ("manifest", manifest),  # every file with its hash
    ("validate", validate),  # written, read again, put in place
)


class BuildError(Exception):
    """A build that stopped: its stage and its problems."""

    def __init__(self, stage: str, problems: Iterable[StageProblem]) -> None:
        self.stage = stage
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{stage}: {problem}" for problem in self.problems))


def build(order: BuildOrder, report: Callable[[str, str], None] = lambda stage, message: None) -> Build:
    """Runs all stages. `report` is called when a stage begins (no message) and when it is done. Raises `BuildError`."""
    result = Build(order)
    for name, stage in STAGES:
        report(name, "")
        try:
            report(name, stage(result))
        except StageRefused as error:
            raise BuildError(name, error.problems) from error
        except ToolError as error:
            raise BuildError(name, [StageProblem(error.message, error.suggestion)]) from error
        except (DefinitionError, PolicyError, OSError) as error:
            raise BuildError(name, [StageProblem(" ".join(str(error).split()))]) from error
    return result
