"""How values, schemas and tables are written on a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from forge.project.config.reader import on_one_line


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def type_of(schema: Any, root: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(reference := schema.get("$ref"), str):
        return type_of(root.get("$defs", {}).get(reference.rpartition("/")[2], {}), root)
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for key in ("anyOf", "oneOf"):
        if key in schema and "type" not in schema:
            kinds = dict.fromkeys(type_of(one, root) for one in schema[key])
            return " or ".join(kind for kind in kinds if kind != "null")
    kind = schema.get("type", "object" if "properties" in schema else "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        inner = type_of(schema.get("items", {}), root)
        return "list" if inner == "anything" else f"list of {inner}"
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", {low} or more" if low is not None else f", {high} at most" if high is not None else ""


def yaml(value: Any) -> str:
    return on_one_line([*value] if isinstance(value, tuple) else value)
