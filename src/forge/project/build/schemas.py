"""Stage 4: writes tools down: a JSON Schema of each one's arguments, and its entry in the agent's list."""

from __future__ import annotations

from typing import Any

from forge.core.arguments.schema import check_schema
from forge.core.errors import DefinitionError
from forge.core.spec import ToolSpec
from forge.project.build.record import SCHEMAS, Build, OutputFile, StageProblem, StageRefused, to_bytes


def schemas(build: Build) -> str:
    problems: list[StageProblem] = []
    seen: dict[str, str] = {}
    for name, spec in build.tools.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            problems.append(
                StageProblem(f"{other} and {name} differ only in case", "Rename one: some file systems ignore case.")
            )
        try:
            check_schema(name, spec.parameters)
            build.files[schema_path(name)] = OutputFile(to_bytes(schema_of(spec)))
        except (DefinitionError, ValueError) as error:  # a number that JSON does not know
            problems.append(StageProblem(f"{name}: cannot write its schema: {error}"))
    if problems:
        raise StageRefused(problems)
    return f"{len(build.tools)} schemas"


# Writes tools down: their schema for programs, their entry in the agent's list.


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns a tool's definition for models as a JSON Schema of its arguments."""
    own = {"type": "object", "properties": {}, **spec.parameters}
    return {"$schema": DIALECT, **own, "title": spec.name, "description": spec.description}


def schema_path(name: str) -> str:
    return f"{SCHEMAS}/{name}.schema.json"


def entry_of(spec: ToolSpec) -> dict[str, Any]:
    """Returns the fields of a tool that the gate and the steps use."""
    entry: dict[str, Any] = {
        "name": spec.name,
        "description": spec.description,
        "category": str(spec.category),
        "permissions": sorted(map(str, spec.permissions)),
        "optional_permissions": sorted(map(str, spec.optional_permissions)),
        "origin": spec.origin,
        "aliases": sorted(spec.aliases),
        "groups": sorted(spec.groups),
        "confirm": spec.confirm,
        "irreversible": spec.irreversible,
        "harmless": sorted(spec.harmless),
        "ends_turn": spec.ends_turn,
        "hidden": spec.hidden,
        "timeout": spec.timeout,
        "schema": schema_path(spec.name),
    }
    if spec.rate is not None:
        entry["rate"] = spec.rate._asdict()
    if spec.max_concurrency:
        entry["max_concurrency"], entry["concurrency_key"] = spec.max_concurrency, spec.concurrency_key
    return entry
