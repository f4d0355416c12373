"""Explains mistakes in arguments: what is missing, of another type or unknown, and which names may have been meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

from forge.core.arguments.example import example
from forge.core.arguments.names import LONGEST_NAME, Names, near
from forge.core.arguments.references import References
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, clip_bytes, json_type
from forge.core.spec import JsonSchema, ToolSpec

MOST_PROBLEMS = 10  # listed in an error
MOST_REPAIRED = 50_000  # values that are repaired in one call
LONGEST_PROBLEM = 160
LONGEST_PATH = 80  # characters of a name or a path in a problem
_LONGEST_CHOICES = 4_000  # characters of the choices that are compared with a value
_SHOWN_CHOICES = 120  # characters of them in an error
_MOST_SCHEMAS = 1_000  # that describe one place in the arguments
LONGEST_ERROR = 1_000  # bytes, so that an error with its call and its example stays under 2 kB

Path = tuple[str | int, ...]
ProblemKind = Literal["type", "missing", "unknown", "choice", "other"]


class ArgumentProblem(NamedTuple):
    """One mistake in the arguments, independent of any validator."""

    path: Path
    kind: ProblemKind
    expected: tuple[Any, ...] = ()  # for a type: the names of JSON types; for a choice: the choices
    value: Any = None
    message: str = ""  # for the kind "other"


class NamesByPath:
    """The names of a schema by path, each looked up once. `aliases` are other names at the top."""

    def __init__(self, schema: JsonSchema, aliases: Mapping[str, str]) -> None:
        self._schema = schema
        self._aliases = aliases
        self._found: dict[tuple[str | int, ...], Names] = {}

    def at(self, path: tuple[str | int, ...]) -> Names:
        """Returns the keys that an object at `path` may have."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._look(path)
        return found

    @cached_property
    def _references(self) -> References:
        return References(self._schema)

    def _look(self, path: tuple[str | int, ...]) -> Names:
        here = self._references.same_place([self._schema], _MOST_SCHEMAS)
        for part in path:
            inside = [one for node in here for one in _schemas_inside(node, part)]
            here = self._references.same_place(inside, _MOST_SCHEMAS)
        objects = [node for node in here if isinstance(node.get("properties"), Mapping)]
        known = dict.fromkeys(name for node in objects for name in node["properties"])
        required = [name for name in known if all(name in (node.get("required") or ()) for node in objects)]
        return Names(tuple(known), tuple(required), {} if path else self._aliases)


def _schemas_inside(node: Mapping[str, Any], part: str | int) -> list[Any]:
    """Returns the schemas of one key or item."""
    if isinstance(part, int):
        first = node.get("prefixItems")
        if isinstance(first, list | tuple) and part < len(first):
            return [first[part]]
        return [node.get("items")]
    properties = node.get("properties")
    if isinstance(properties, Mapping) and part in properties:
        return [properties[part]]
    return [node.get("additionalProperties")]


class ToolHelp:
    """The facts about a tool that repairs and explanations use: made once, when its first call goes wrong.

    `schema` is flat: it has the parameters of the whole.
    """

    def __init__(self, spec: ToolSpec, schema: JsonSchema) -> None:
        self._spec = spec
        self.names = NamesByPath(schema, spec.argument_aliases)

    @cached_property
    def suggestion(self) -> str:
        return f"Example: {example(self._spec.name, self._spec.parameters)}"


def explain(problems: list[ArgumentProblem], tool: ToolHelp) -> ToolError:
    """Explains every wrong field with its path, near names and choices; then shows a correct call."""
    wrong = _merge_problems(problems) if share_parameters(problems) else problems
    shown = [_render_problem(problem, tool) for problem in wrong[:MOST_PROBLEMS]]
    if len(wrong) > MOST_PROBLEMS:
        shown.append(f"and {len(wrong) - MOST_PROBLEMS} more")
    return ToolError(clip_bytes("; ".join(shown), LONGEST_ERROR), ErrorKind.VALIDATION, tool.suggestion)


def share_parameters(problems: list[ArgumentProblem]) -> bool:
    """Returns whether several problems concern one parameter: they may come from branches of a union."""
    return len({problem.path[:1] for problem in problems}) < len(problems)


def limit_choices(choices: Sequence[Any]) -> Sequence[Any]:
    """Returns the choices that are compared with a value: all of them, or the first where they are very long."""
    left = _LONGEST_CHOICES
    for index, choice in enumerate(choices):
        left -= len(repr(choice)) + 2
        if left < 0:
            return choices[:index]
    return choices


def render_path(path: Path) -> str:
    """Renders a path as in `tags[1].name`."""
    text = "".join([f"[{part}]" if isinstance(part, int) else f".{part}" for part in path])
    return text[1 : LONGEST_PATH + 1] or "arguments"


def _merge_problems(problems: list[ArgumentProblem]) -> list[ArgumentProblem]:
    """Merges type problems of one path into one: a union reports every branch it tried."""
    inside = {problem.path[:end] for problem in problems for end in range(1, len(problem.path))}
    by_path: dict[tuple[Path, str], ArgumentProblem] = {}
    for problem in problems:
        if problem.kind == "type" and problem.path in inside:
            continue  # another branch of the union got further, so its problem says more
        key = (problem.path, problem.message or problem.kind)
        known = by_path.get(key)
        if known and known.kind == "type":
            problem = known._replace(expected=tuple(dict.fromkeys((*known.expected, *problem.expected))))
        by_path[key] = problem
    return list(by_path.values())


def _render_problem(problem: ArgumentProblem, tool: ToolHelp) -> str:
    path, kind, expected, value, message = problem
    where = str(path[0])[:LONGEST_PATH] if len(path) == 1 else render_path(path)
    if kind == "missing":
        text = f"{where}: required, but missing"
    elif kind == "type":
        got = "null" if value is None else f"{json_type(value)} {brief(value)}"
        text = f"{where}: expected {' or '.join(expected)}, got {got}"
    elif kind == "unknown":
        text = f"{where}: unknown argument; {tool.names.at(path[:-1]).suggest(str(path[-1])[:LONGEST_NAME])}"
    elif kind == "choice":
        texts = [one for one in limit_choices(expected) if type(one) is str]
        hint = near(value, texts, 1) if isinstance(value, str) else []
        meant = f'; did you mean "{hint[0]}"?' if hint else ""
        choices = ", ".join(map(repr, expected[:_SHOWN_CHOICES]))[:_SHOWN_CHOICES]
        text = f"{where}: {brief(value)} is not one of {choices}{meant}"
    else:
        text = f"{where}: {message}" if value is None else f"{where}: {message}, got {brief(value)}"
    return text[:LONGEST_PROBLEM]
