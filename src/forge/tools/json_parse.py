"""Reads JSON, picks a part of it by a path such as `a[0].b`, and writes it for people to read."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable
from types import EllipsisType
from typing import Annotated, Any

from forge.core.arguments.names import near
from forge.core.arguments.parameters import ParameterLimits
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.core.tool import Tool

MAX_DEPTH = 200
MAX_TEXT = 64 * 1024 * 1024  # characters of indented JSON; longer documents are written without indentation

_NAMED = 5  # repeated keys named in a warning
_SURROGATE = "[\ud800-\udfff]"  # patterns are compiled at their first use: listing tools needs none
_NOT_A_NUMBER = r'(?s)"[^"\\]*(?:\\.[^"\\]*)*"|(-?Infinity|NaN)'


class JsonParse(Tool, category=Category.BUILTIN, idempotent=True, timeout=10.0):
    """Parse JSON text; return it indented, or the part that a query names. Errors have line and column."""

    def __init__(self, max_depth: int = MAX_DEPTH) -> None:
        self.max_depth = max_depth

    def run(
        self,
        data: Annotated[str, ParameterLimits(example='{"a": [1, 2]}')],
        query: Annotated[str, 'Such as users[0].name, a["x.y"] or items[*].id.'] = "",
    ) -> ToolResult:

        steps = read_path(query)
        document, repeated = read_json(data)
        value, missed = select(document, steps)
        warnings = [f"key {key[:60]!r} occurs twice in an object, the last value was kept" for key in repeated]
        if missed:
            warnings.append(f"items that lack the queried part were left out: {missed}")
        result = ToolResult(for_llm=pretty(value, self.max_depth), data={"value": value})
        return result.with_data(warning="; ".join(warnings)) if warnings else result


class Verbatim(str):
    """A number that Python would round or refuse, kept as it was written."""

    __slots__ = ()


def read_json(text: str) -> tuple[Any, list[str]]:
    """Returns the value of a JSON text, and the keys that occurred twice in one object."""

    text = text.removeprefix("\ufeff")
    repeated: dict[str, None] = {}

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs) and len(repeated) < _NAMED:
            repeated.update(dict.fromkeys(_repeated_keys(pairs)))
        return made

    try:
        value = json.loads(
            text,
            parse_int=_read_integer,
            parse_float=_read_fraction,
            parse_constant=lambda name: _refuse_constant(text),
            object_pairs_hook=as_object,
        )
    except json.JSONDecodeError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        raise _depth_error(MAX_DEPTH) from None
    return value, list(repeated)[:_NAMED]


def pretty(value: Any, max_depth: int = MAX_DEPTH) -> str:
    """Writes JSON with two spaces of indentation, or without any if the text would become too large."""
    try:
        text = _Writer(max_depth, indent="  ").text(value)
    except _TooLong:
        text = _Writer(max_depth, indent="").text(value)
    return re.sub(_SURROGATE, lambda lone: f"\\u{ord(lone[0]):04x}", text)


class _TooLong(Exception):
    pass


class _Writer:
    def __init__(self, max_depth: int, indent: str) -> None:

        self.max_depth = max_depth
        self.indent = indent
        self.left = MAX_TEXT if indent else math.inf
        self.out = io.StringIO()
        self.quote: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
        self.plain: dict[type, Callable[[Any], str]] = {
            str: self.quote,
            int: repr,
            float: repr,
            Verbatim: str,
            bool: lambda value: "true" if value else "false",
            type(None): lambda value: "null",
        }

    def text(self, value: Any) -> str:
        self._write("", value, 0)
        return self.out.getvalue()

    def _write(self, before: str, value: Any, depth: int) -> None:
        plain = self.plain.get(type(value))
        if plain is not None:
            self._add(before + plain(value))
        elif not value:
            self._add(f"{before}{value!r}")
        else:
            self._group(before, value, depth + 1)

    def _group(self, before: str, group: dict[str, Any] | list[Any], depth: int) -> None:
        if depth > self.max_depth:
            raise _depth_error(self.max_depth)
        margin = f"\n{self.indent * depth}" if self.indent else ""
        comma = f",{margin}" if self.indent else ", "
        first = True
        if isinstance(group, dict):
            self._add(f"{before}{{{margin}")
            for key, value in group.items():
                self._write(f"{'' if first else comma}{self.quote(key)}: ", value, depth)
                first = False
        else:
            self._add(f"{before}[{margin}")
            for value in group:
                self._write("" if first else comma, value, depth)
                first = False
        self._add(f"{margin.removesuffix(self.indent)}{'}' if isinstance(group, dict) else ']'}")

    def _add(self, piece: str) -> None:
        self.left -= len(piece)
        if self.left < 0:
            raise _TooLong
        self.out.write(piece)


def _repeated_keys(pairs: list[tuple[str, Any]]) -> list[str]:
    seen: set[str] = set()
    twice = []
    for key, _ in pairs:
        if key in seen:
            twice.append(key)
        seen.add(key)
    return twice


def _read_integer(digits: str) -> int | Verbatim:
    try:
        return int(digits)
    except ValueError:  # Python's own limit on the digits of an integer
        return Verbatim(digits)


def _read_fraction(digits: str) -> float | Verbatim:
    number = float(digits)
    exact = len(digits) <= 17 or repr(number) == digits  # up to 15 significant digits survive a float
    vanished = number == 0 and any(digit in "123456789" for digit in re.split("[eE]", digits)[0])
    return number if exact and math.isfinite(number) and not vanished else Verbatim(digits)


def _refuse_constant(text: str) -> Any:
    """Raises with the position of the first NaN or Infinity outside a string."""

    found = next(match for match in re.finditer(_NOT_A_NUMBER, text) if match[1])
    raise json.JSONDecodeError(f"{found[1]} is not JSON", text, found.start())


def _syntax_error(text: str, error: json.JSONDecodeError) -> ToolError:
    if not text.strip():
        return ToolError("there is no JSON in the text", ErrorKind.VALIDATION, "Give the JSON text itself as data.")
    start, end = max(error.pos - 30, 0), error.pos + 30
    excerpt = f"{'…' * (start > 0)}{text[start : error.pos]}⟨here⟩{text[error.pos : end]}{'…' * (end < len(text))}"
    message = (
        f"not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}: {excerpt!r}"
    )
    return ToolError(message, ErrorKind.USER, "Correct the text at that place.")


def _depth_error(depth: int) -> ToolError:
    return ToolError(f"the JSON is nested more than {depth} levels deep", ErrorKind.USER, "Query a part of it.")


# The path language of `json_parse`: `a.b`, `a[0]`, `a.0`, `a["x.y"]`, `a[*].b`.

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

    return f".{step}" if re.fullmatch(_SIMPLE_KEY, step) else f"[{json.dumps(step, ensure_ascii=False)}]"


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _path_error(problem: str) -> ToolError:
    return ToolError(problem, ErrorKind.VALIDATION, 'Write it like users[0].name, a["x.y"] or items[*].id.')
