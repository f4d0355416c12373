"""How a tool is written down: its schema for programs, its entry in the agent's list."""

from __future__ import annotations

from typing import Any

from forge.project.build.record import SCHEMAS
from forge.core.spec import ToolSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(spec: ToolSpec) -> dict[str, Any]:
    """What a model is told of the tool, as a JSON Schema of its arguments."""
    own = {"type": "object", "properties": {}, **spec.parameters}
    return {"$schema": DIALECT, **own, "title": spec.name, "description": spec.description}


def schema_path(name: str) -> str:
    return f"{SCHEMAS}/{name}.schema.json"


def entry_of(spec: ToolSpec) -> dict[str, Any]:
    """What the gate and the steps go by."""
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
        "ends_turn": spec.ends_turn,
        "hidden": spec.hidden,
        "timeout": spec.timeout,
        "schema": schema_path(spec.name),
    }
    if spec.rate is not None:
        entry["rate"] = spec.rate._asdict()
    return entry
