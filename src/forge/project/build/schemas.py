"""Stage 4: writes a JSON Schema of every tool's arguments."""

from __future__ import annotations

from forge.core.arguments.schema import check_schema
from forge.core.errors import DefinitionError
from forge.project.build.definition import schema_of, schema_path
from forge.project.build.record import Build, OutputFile, Problem, StageRefused, to_bytes


def schemas(build: Build) -> str:
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for name, spec in build.tools.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            problems.append(
                Problem(f"{other} and {name} differ only in case", "Rename one: some file systems ignore case.")
            )
        try:
            check_schema(name, spec.parameters)
            build.files[schema_path(name)] = OutputFile(to_bytes(schema_of(spec)))
        except (DefinitionError, ValueError) as error:  # a number that JSON does not know
            problems.append(Problem(f"{name}: cannot write its schema: {error}"))
    if problems:
        raise StageRefused(problems)
    return f"{len(build.tools)} schemas"
