"""The path language of `json_parse`: `a.b`, `a[0]`, `a.0`, `a["x.y"]`, `a[*].b`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import EllipsisType
from typing import Any

from forge.core.arguments.checks import near
from forge.core.errors import ErrorKind, ToolError

MAX_LENGTH = 1_000  # characters of a path

Step = str | int | EllipsisType  # a key, an index, or `...` for every item

_SHOWN = 12  # keys named in an error
_STEP = r"""\.?\[\s*(?:(?P<index>-?[0-9]{1,15})|(?P<quoted>"(?:[^"\\]|\\.)*")|'(?P<plain>[^']*)'|(?P<each>\*))\s*\]
    |\.(?P<key>[^.\[\]]+)"""
_SIMPLE_KEY = r"[^.\[\]\s\"'*$]+"


def read_path(path: str) -> list[Step]:
    """Returns the steps of a path; none for the whole document."""
    if len(path) > MAX_LENGTH:
        raise _path_error(f"the query has {len(path):,} characters, the limit is {MAX_LENGTH:,}")
    rest = path.strip()
    if rest in ("$", ".") or rest.startswith(("$.", "$[")):
        rest = rest[1:]
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    pattern = re.compile(_STEP, re.VERBOSE)  # not when the module loads: listing tools does without
    steps, position = [], 0
    while position < len(rest):
        match = pattern.match(rest, position)
        if match is None:
            raise _path_error(f"the query is not valid from {_clip(rest[position:], 20)!r} on")
        steps.append(_read_step(match))
        position = match.end()
    return steps


def select(document: Any, steps: list[Step]) -> tuple[Any, int]:
    """Returns the selected value, and the number of items of a `[*]` that lack it.

    Raises `ToolError` of kind not_found when nothing has it, naming the deepest part of the path that exists.
    """
    found, missed = [document], 0
    for depth, step in enumerate(steps):
        below = [child for value in found for child in _find_children(value, step)]
        if step is not ...:
            missed += len(found) - len(below)
        if not below and found and not (step is ... and any(isinstance(value, list | dict) for value in found)):
            raise _missing_error(found[0], steps[:depth], step)
        found = below
    return (found if ... in steps else found[0]), missed


def render_path(steps: Iterable[Step]) -> str:
    """Renders the steps as a path."""
    text = "".join(_render_step(step) for step in steps)
    return text.removeprefix(".")


def _read_step(match: re.Match[str]) -> Step:
    if match["index"]:
        return int(match["index"])
    if match["each"] or match["key"] == "*":
        return ...
    if match["quoted"] is None:
        return match["key"] or match["plain"] or ""
    try:
        import json

        return str(json.loads(match["quoted"], strict=False))
    except ValueError:
        raise _path_error(f"{match['quoted']} in the query is not a JSON string") from None


def _find_children(value: Any, step: Step) -> list[Any]:
    if step is ...:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if isinstance(value, dict):
        return [value[step]] if step in value else []
    if isinstance(value, list) and (index := _index(step)) is not None and -len(value) <= index < len(value):
        return [value[index]]
    return []


def _index(step: Step) -> int | None:
    if isinstance(step, int):
        return step
    return int(step) if isinstance(step, str) and step.isascii() and step.isdigit() and len(step) < 16 else None


def _missing_error(value: Any, prefix: list[Step], step: Step) -> ToolError:
    parent = render_path(prefix) or "the document"
    message = f"nothing at {render_path([*prefix, step])}: {parent} {_describe_value(value)}"
    return ToolError(_clip(message, 1_000), ErrorKind.NOT_FOUND, _hint(value, prefix, step))


def _describe_value(value: Any) -> str:
    if isinstance(value, dict) and value:
        import json

        names = ", ".join(json.dumps(_clip(key, 60), ensure_ascii=False) for key in list(value)[:_SHOWN])
        more = f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return f"has the keys {names}{more}"
    if isinstance(value, list) and value:
        return f"is a list with the indices 0 to {len(value) - 1}"
    kinds = {dict: "an empty object", list: "an empty list", bool: "a boolean", type(None): "null"}
    return f"is {kinds.get(type(value), 'a string' if type(value) is str else 'a number')}"


def _hint(value: Any, prefix: list[Step], step: Step) -> str:
    if isinstance(value, dict) and isinstance(step, str):
        similar = near(step, list(value)[:1_000], 1)
        if similar:
            return f"Did you mean {_clip(render_path([*prefix, similar[0]]), 200)}?"
    if isinstance(value, list) and value and _index(step) is None:
        return f"Use an index, or {render_path([*prefix, ..., step])} for every item."
    return "Query the part that exists, then continue from there."


def _render_step(step: Step) -> str:
    if step is ...:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    import json

    return f".{step}" if re.fullmatch(_SIMPLE_KEY, step) else f"[{json.dumps(step, ensure_ascii=False)}]"


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _path_error(problem: str) -> ToolError:
    return ToolError(problem, ErrorKind.VALIDATION, 'Write it like users[0].name, a["x.y"] or items[*].id.')
