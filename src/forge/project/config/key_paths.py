"""Finds the example, the description and the line of a key path such as `tools[0].config.timeout`."""

from __future__ import annotations

import re
from typing import Any, Protocol

Schema = dict[str, Any]


class Declaration(Protocol):
    """A section of the configuration: it has a JSON Schema."""

    def schema(self) -> Schema: ...


def example_at(key_path: str, near: str, declaration: Declaration) -> str:
    """Returns one line of YAML with an example for a key path such as `tools[0].config.timeout`.

    `near` is the key that was probably meant instead of the last one.
    """
    steps = _steps(key_path)
    nodes = _nodes_at([*steps[:-1], near] if near else steps, declaration)
    name, node = next((step, node) for step, node in reversed(nodes) if "examples" in node)
    example = on_one_line(node["examples"][0])
    return example if not name else f"- {example}" if name.startswith("[") else f"{name}: {example}"


def description_at(key_path: str, declaration: Declaration) -> str:
    """Returns the description of the key at a key path; empty if nothing is declared there."""
    steps = _steps(key_path)
    nodes = _nodes_at(steps, declaration)
    return str(nodes[-1][1].get("description", "")) if len(nodes) > len(steps) else ""


def line_of(key_path: str, text: str) -> int:
    """Returns the line of a text in which a key path is written, or the nearest key path around it; 0 if not known."""
    import yaml

    from forge.core.yaml.bounded_yaml import safe_loader

    try:
        node = yaml.compose(text, Loader=safe_loader()) if text else None
    except yaml.YAMLError:  # tabs, which the reader repairs
        return 0
    line = 0
    for step in _steps(key_path):
        if isinstance(node, yaml.SequenceNode) and step.startswith("["):
            node = node.value[int(step[1:-1])]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode) and (found := [two for two in node.value if two[0].value == step]):
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        else:
            break
    return line


def _steps(key_path: str) -> list[str]:
    return re.findall(r"\[\d+\]|[^.\[\]]+", key_path)


def _nodes_at(steps: list[str], declaration: Declaration) -> list[tuple[str, Schema]]:
    """Returns the schemas on the way to a key path, as far as they are declared, each with its step."""
    found: list[tuple[str, Schema]] = [("", declaration.schema())]
    for step in steps:
        if (inner := _inner(found[-1][1], step)) is None:
            break
        found.append((step, inner))
    return found


def _inner(node: Schema, step: str) -> Schema | None:
    """Returns the schema of an entry of a list, a key or a named entry."""
    found: Any = None
    for one in (node, *node.get("anyOf", ()), node.get("else", {})):
        if step.startswith("["):
            found = found or one.get("items")
        else:
            found = found or one.get("properties", {}).get(step) or one.get("additionalProperties")
    return found if isinstance(found, dict) else None


def on_one_line(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {on_one_line(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(on_one_line, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_./~][\w ./~-]*[\w./-]|[A-Za-z]", value):
        import json  # only for an example that has to be quoted

        return json.dumps(value, ensure_ascii=False)
    return str(value)
