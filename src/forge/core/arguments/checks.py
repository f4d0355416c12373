"""Reads the arguments that a model sent, repairs them where nothing is lost, and explains mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from forge.core.arguments.schema_names import NamesByPath
from forge.core.arguments.spelling import close_names
from forge.core.errors import ErrorKind, ToolError
from forge.core.lazy import lazy_pattern
from forge.core.plain_values import brief, clip_bytes, quote_json
from forge.core.spec import JsonSchema

MOST_PROBLEMS = 10  # listed in an error
MOST_REPAIRED = 50_000  # values that are repaired in one call
MOST_PARTS = 100_000  # lists and objects in the arguments of a call
_STRING = lazy_pattern(r'"[^"]*"?')  # once no quote in it is escaped; it fits at every quote, so the time is linear
LONGEST_PROBLEM = 160
LONGEST_PATH = 80  # characters of a name or a path in a problem
LONGEST_CHOICES = 4_000  # characters of the choices that are compared with a value
_SHOWN_CHOICES = 120  # characters of them in an error
LONGEST_KEY = 100  # of an unknown argument that is compared with the known ones
_VALIDATION = ErrorKind.VALIDATION  # looking up an enum member costs more than the rest of the line
_SHORT_ERROR = 250  # characters, which no text encodes in more than the bytes of the longest
LONGEST_ERROR = 1_000  # bytes, so that an error with its call and its example stays under 2 kB

Path = tuple[str | int, ...]
_JSON_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    set: "array",
}


class Problem(NamedTuple):
    """One mistake in the arguments, independent of any validator."""

    path: Path
    kind: str  # type, missing, unknown, choice, or "": see `message`
    expected: str = ""  # for a type: its JSON name; for a choice: the choices
    value: Any = None
    message: str = ""


class FlatProblems(list[Problem]):
    """Problems that each concern a different whole parameter: there are no branches of a union to sort out."""

    __slots__ = ()


class Repaired(dict[str, Any]):
    """Validated arguments that were repaired and differ from the sent ones."""

    __slots__ = ("repaired",)
    repaired: list[str]


def mark_repaired(values: Mapping[str, Any], notes: list[str]) -> Repaired:
    """Returns the arguments with notes on their repairs."""
    made = Repaired(values)
    made.repaired = notes
    return made


def as_text(arguments: Mapping[str, Any] | str) -> str:
    """Returns the arguments as JSON text, which validators read fastest and judge alike."""
    if isinstance(arguments, str):
        return arguments
    import pydantic_core  # heavy: paid at the first call, not at import

    try:
        return pydantic_core.to_json(arguments, inf_nan_mode="constants", fallback=_encode_mapping).decode()
    except (ValueError, TypeError, RecursionError) as error:
        half = "surrogates not allowed" in str(error)
        problem = "half a surrogate pair is not a character" if half else str(error)[:200]
        words = f"the arguments cannot be written as JSON: {problem}"
        raise ToolError(words, ErrorKind.VALIDATION, "Send plain JSON values only.") from None


def check_amount(text: str) -> None:
    """Refuses JSON of very many small parts, which would block the event loop for seconds. Raises `ToolError`.

    What stands inside a string, such as the content of a file, is not counted.
    """
    if len(text) <= MOST_PARTS or text.count("[") + text.count("{") <= MOST_PARTS:
        return
    bare = _STRING.sub("", text.replace("\\\\", "").replace('\\"', ""))
    parts = bare.count("[") + bare.count("{")
    if parts > MOST_PARTS:
        words = f"the arguments hold {parts:,} lists and objects; the limit is {MOST_PARTS:,}"
        raise ToolError(words, _VALIDATION, "Send less at once, or write the data to a file and name the file.")


def _encode_mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def read(text: str) -> dict[str, Any]:
    """Reads the arguments as plain JSON data. Broken JSON is reported with its position, never run as `{}`."""
    import pydantic_core

    check_amount(text)
    try:
        data = pydantic_core.from_json(text, allow_inf_nan=False) if text else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise make_unreadable_error(text, str(error)[:200]) from None
    if not isinstance(data, dict):
        raise make_not_object_error(data)
    return data


def is_readable(text: str) -> bool:
    """Says whether the text is a JSON object, without the numbers that JSON does not have."""
    try:
        read(text)
    except ToolError:
        return False
    return True


def make_not_object_error(data: Any) -> ToolError:
    return ToolError(
        f"the arguments are {article(json_type(data))}, not an object",
        ErrorKind.VALIDATION,
        'Send one JSON object with the parameters by name, like {"name": "value"}.',
    )


class ArgumentHelp(NamedTuple):
    """The facts about a tool that explanations use: made once, when its first call goes wrong."""

    names: tuple[str, ...]  # of its parameters
    listed: str
    aliases: Mapping[str, str]
    suggestion: str  # a call that is right
    names_by_path: NamesByPath


def make_help(schema: JsonSchema, aliases: Mapping[str, str], shown_example: str) -> ArgumentHelp:
    names = tuple(schema.get("properties") or ())
    return ArgumentHelp(names, ", ".join(names) or "none", aliases, f"Example: {shown_example}", NamesByPath(schema))


def explain(problems: list[Problem], known: ArgumentHelp) -> ToolError:
    """Explains every wrong field with its path, near names and choices; then shows a correct call."""
    wrong = problems if type(problems) is FlatProblems else _merge_problems(problems)
    shown = [render_problem(problem, known) for problem in wrong[:MOST_PROBLEMS]]
    if len(wrong) > MOST_PROBLEMS:
        shown.append(f"and {len(wrong) - MOST_PROBLEMS} more")
    return make_argument_error(shown, known)


def make_argument_error(shown: list[str], known: ArgumentHelp) -> ToolError:
    text = "; ".join(shown)
    if len(text) > _SHORT_ERROR:
        text = clip_bytes(text, LONGEST_ERROR)
    return ToolError(text, _VALIDATION, known.suggestion)


def list_choices(expected: str) -> list[str]:
    """Returns the texts among the choices of a problem."""
    return re.findall(r"'([^']*)'", expected)


def json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "object")


def article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeio" else f"a {noun}"


def near(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Returns the names that someone who wrote `name` may have meant."""
    return _near(name[:LONGEST_KEY], tuple(names), most)


@lru_cache(maxsize=1_000)  # models repeat their mistakes
def _near(name: str, names: tuple[str, ...], most: int) -> list[str]:
    wanted = name.casefold()
    letters = set(wanted)
    folded = {known.casefold(): known for known in names}
    likely = [known for known in folded if 2 * len(letters & set(known)) > len(letters)]
    if not likely:
        return []
    from difflib import get_close_matches  # only where something is wrong

    return [folded[hit] for hit in get_close_matches(wanted, likely, n=most, cutoff=0.6)]


def render_path(path: Path) -> str:
    """Renders a path as in `tags[1].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text[:LONGEST_PATH] or "arguments"


def make_unreadable_error(text: str, words: str) -> ToolError:
    position = re.search(r"line (\d+) column (\d+)", words)
    near_it = ""
    if position:
        line = text.split("\n", int(position[1]))[int(position[1]) - 1]
        excerpt = line[max(0, int(position[2]) - 30) : int(position[2]) + 10]
        near_it = f", near {quote_json(excerpt)}" if excerpt else ""
    is_cut = "EOF while parsing" in words
    return ToolError(
        f"{'the call was cut: ' if is_cut else ''}the arguments are not valid JSON: {words}{near_it}",
        ErrorKind.VALIDATION,
        "Send one complete JSON object with the parameters by name.",
    )


def _merge_problems(problems: list[Problem]) -> list[Problem]:
    """Merges type problems of one path into one: a union reports every branch it tried."""
    paths = set()
    nested = False
    for problem in problems:
        paths.add(problem.path)
        nested |= len(problem.path) != 1
    if not nested and len(paths) == len(problems):
        return problems
    inside = {problem.path[:end] for problem in problems for end in range(1, len(problem.path))}
    by_path: dict[tuple[Path, str], Problem] = {}
    for problem in problems:
        if problem.kind == "type" and problem.path in inside:
            continue  # another branch of the union got further: what it says is more to the point
        key = (problem.path, problem.kind or problem.message)
        known = by_path.get(key)
        if known and known.kind == "type" and problem.expected not in known.expected.split(" or "):
            problem = known._replace(expected=f"{known.expected} or {problem.expected}")
        by_path[key] = problem
    return list(by_path.values())


def render_problem(problem: Problem, known: ArgumentHelp) -> str:
    path, kind, expected, value, message = problem
    where = str(path[0]) if len(path) == 1 else render_path(path)
    if kind == "missing":
        return render_missing(where)
    if kind == "type":
        return render_type(where, expected, value)
    if kind == "unknown":
        return render_unknown(where, path, known)
    where = where[:LONGEST_PATH]
    if kind == "choice":
        hint = near(value, list_choices(expected), 1) if isinstance(value, str) else []
        meant = f'; did you mean "{hint[0]}"?' if hint else ""
        text = f"{where}: {brief(value)} is not one of {expected[:_SHOWN_CHOICES]}{meant}"
    else:
        text = f"{where}: {message}" if value is None else f"{where}: {message}, got {brief(value)}"
    return text[:LONGEST_PROBLEM]


def render_missing(where: str) -> str:
    return f"{where[:LONGEST_PATH]}: required, but missing"


def render_type(where: str, expected: str, value: Any) -> str:
    got = "null" if value is None else f"{_JSON_TYPES.get(type(value), 'object')} {brief(value)}"
    return f"{where[:LONGEST_PATH]}: expected {expected}, got {got}"[:LONGEST_PROBLEM]


def render_unknown(where: str, path: Path, known: ArgumentHelp) -> str:
    return f"{where[:LONGEST_PATH]}: unknown argument{_suggest_names(path, known)}"[:LONGEST_PROBLEM]


def _suggest_names(path: Path, known: ArgumentHelp) -> str:
    if len(path) == 1:
        names, listed, aliases = known.names, known.listed, known.aliases
        hints = _find_hints(str(path[0])[:LONGEST_KEY], (*names, *aliases) if aliases else names)
    elif path:
        key = str(path[-1])
        names = tuple(name for name in known.names_by_path.names(path[:-1]).known if name != key)  # of another branch
        hints, listed, aliases = _find_hints(key[:LONGEST_KEY], names), ", ".join(names) or "none", {}
    else:
        return ""
    if not hints:
        return f"; known: {listed}"
    meant = " or ".join(dict.fromkeys([f'"{aliases.get(hint, hint)}"' for hint in hints]))
    return f"; did you mean {meant}?"


@lru_cache(maxsize=1_000)  # models repeat their mistakes
def _find_hints(key: str, names: tuple[str, ...]) -> list[str]:
    return close_names(key, names, True)[:3] or _near(key, names, 1)
