"""Stage 7: write it all beside its place, read it as a run would, and only then put it there."""

from __future__ import annotations

import asyncio

from forge.project.build.definition import schema_of, schema_path
from forge.project.build.output import check_output, put_in_place, staging, write_files
from forge.project.build.record import PROJECT, Build, Problem, Refused, written
from forge.project.build.resolve import with_task
from forge.project.build.built import Built, load_built
from forge.project.assemble.own_tools import project_tools
from forge.project.read_yaml import read_yaml
from forge.project.assemble.skills import active_skills
from forge.core.context import Scope

_REPORT = "Was it changed while it was built? Build it again."


def validate(build: Build) -> str:
    output = build.order.output
    with staging(output) as made:
        write_files(made, build.files)
        built = load_built(made, build.sha256, workspace=build.order.workspace)
        if read_yaml(str(built.directory / PROJECT)) != build.project:
            problem = f"{build.configuration.name} holds a value that is another one when it is read again"
            raise Refused([Problem(problem, "Write numbers without an exponent, and keys as texts.")])
        asyncio.run(_compare(build, built))
        check_output(output)
        made.chmod(0o755)
        put_in_place(made, output)
    return build.sha256


async def _compare(build: Build, built: Built) -> None:
    """Every tool that needs no server must be there again, and say the same."""
    workspace = build.order.workspace
    scope = Scope(workspace=workspace)
    sources = built.sources(workspace)
    skills = active_skills(built.configuration, scope)
    registry = project_tools(built.configuration, workspace, sources, lambda: skills, dev=built.dev)
    with_task(registry)
    sources.servers = {}  # they were asked already
    sources.is_part = True
    left_out: list[str] = []
    async with sources.opened(registry, left_out.append):
        await registry.ready()
        problems = [Problem(text, _REPORT) for text in left_out]
        for name, spec in build.tools.items():
            if name not in build.remote and name not in registry:
                problems.append(Problem(f"{name} is missing from what was built", _REPORT))
            elif name in registry and written(schema_of(registry[name].spec)) != build.files[schema_path(name)].content:
                problems.append(Problem(f"{name} ({spec.origin}) is another than it was", _REPORT))
    if problems:
        raise Refused(problems)
