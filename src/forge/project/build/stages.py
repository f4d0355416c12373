"""Builds a project in stages; the first with a problem stops the build. Stage 7 reads the output as a run would.

Only the last stage writes to the disk, and then everything at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.permissions.rules import PolicyError
from forge.project.assemble.knowledge import active_skills
from forge.project.assemble.tools import project_tools
from forge.project.build.built import Built, load_built
from forge.project.build.compile import compile_guards, filter_tools
from forge.project.build.load import load
from forge.project.build.manifest import manifest
from forge.project.build.output import check_output, replace_output, staging_directory, write_files
from forge.project.build.record import PROJECT, Build, BuildOrder, Problem, Stage, StageRefused, to_bytes
from forge.project.build.resolve import add_task_tool, resolve
from forge.project.build.schemas import schema_of, schema_path, schemas
from forge.project.read_yaml import read_yaml

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
            raise StageRefused([Problem(problem, "Write numbers without an exponent, and keys as strings.")])
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
        problems = [Problem(text, _REPORT) for text in left_out]
        for name, spec in build.tools.items():
            if name not in build.remote and name not in registry:
                problems.append(Problem(f"{name} is missing from the build", _REPORT))
            elif (
                name in registry and to_bytes(schema_of(registry[name].spec)) != build.files[schema_path(name)].content
            ):
                problems.append(Problem(f"{name} ({spec.origin}) changed during the build", _REPORT))
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

    def __init__(self, stage: str, problems: Iterable[Problem]) -> None:
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
            raise BuildError(name, [Problem(error.message, error.suggestion)]) from error
        except (DefinitionError, PolicyError, OSError) as error:
            raise BuildError(name, [Problem(" ".join(str(error).split()))]) from error
    return result
