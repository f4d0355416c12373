"""Explains mistakes in arguments: what is missing, of another type or unknown, and which names may have been meant."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from forge.core.arguments.outline import References
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief, clip_bytes, quote_json
from forge.core.spec import JsonSchema

MOST_PROBLEMS = 10  # listed in an error
MOST_REPAIRED = 50_000  # values that are repaired in one call
MOST_PARTS = 100_000  # lists and objects in the arguments of a call
_STRING = r'"[^"]*"?'  # once no quote in it is escaped; it fits at every quote, so the time is linear
_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a text as Python writes it
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


class ArgumentProblem(NamedTuple):
    """One mistake in the arguments, independent of any validator."""

    path: Path
    kind: str  # type, missing, unknown, choice, or "": see `message`
    expected: str = ""  # for a type: its JSON name; for a choice: the choices
    value: Any = None
    message: str = ""


class FlatProblems(list[ArgumentProblem]):
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
        message = f"the arguments cannot be written as JSON: {problem}"
        raise ToolError(message, ErrorKind.VALIDATION, "Send plain JSON values only.") from None


def check_amount(text: str) -> None:
    """Refuses JSON of very many small parts, which would block the event loop for seconds. Raises `ToolError`.

    What stands inside a string, such as the content of a file, is not counted.
    """
    if len(text) <= MOST_PARTS or text.count("[") + text.count("{") <= MOST_PARTS:
        return
    bare = re.sub(_STRING, "", text.replace("\\\\", "").replace('\\"', ""))
    parts = bare.count("[") + bare.count("{")
    if parts > MOST_PARTS:
        message = f"the arguments hold {parts:,} lists and objects; the limit is {MOST_PARTS:,}"
        raise ToolError(message, _VALIDATION, "Send less at once, or write the data to a file and name the file.")


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
    """Returns whether the text is a JSON object, without the numbers that JSON does not have."""
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


def explain(problems: list[ArgumentProblem], known: ArgumentHelp) -> ToolError:
    """Explains every wrong field with its path, near names and choices; then shows a correct call."""
    wrong = problems if type(problems) is FlatProblems else _merge_problems(problems)
    shown = [render_problem(problem, known) for problem in wrong[:MOST_PROBLEMS]]
    if len(wrong) > MOST_PROBLEMS:
        shown.append(f"and {len(wrong) - MOST_PROBLEMS} more")
    text = "; ".join(shown)
    if len(text) > _SHORT_ERROR:
        text = clip_bytes(text, LONGEST_ERROR)
    return ToolError(text, _VALIDATION, known.suggestion)


def list_choices(expected: str) -> list[str]:
    """Returns the texts among the choices of a problem, which are written as Python writes them."""

    return [literal_eval(text) for text in re.findall(_TEXT, expected)]


def separate_choices(expected: str) -> str:
    """Puts commas between choices, instead of the `or` of pydantic; an `or` inside a choice stays."""
    return re.sub(rf"({_TEXT})| or ", lambda found: found[1] or ", ", expected)[:LONGEST_CHOICES]


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


def _merge_problems(problems: list[ArgumentProblem]) -> list[ArgumentProblem]:
    """Merges type problems of one path into one: a union reports every branch it tried."""
    paths = set()
    nested = False
    for problem in problems:
        paths.add(problem.path)
        nested |= len(problem.path) != 1
    if not nested and len(paths) == len(problems):
        return problems
    inside = {problem.path[:end] for problem in problems for end in range(1, len(problem.path))}
    by_path: dict[tuple[Path, str], ArgumentProblem] = {}
    for problem in problems:
        if problem.kind == "type" and problem.path in inside:
            continue  # another branch of the union got further: what it says is more to the point
        key = (problem.path, problem.kind or problem.message)
        known = by_path.get(key)
        if known and known.kind == "type" and problem.expected not in known.expected.split(" or "):
            problem = known._replace(expected=f"{known.expected} or {problem.expected}")
        by_path[key] = problem
    return list(by_path.values())


def render_problem(problem: ArgumentProblem, known: ArgumentHelp) -> str:
    path, kind, expected, value, message = problem
    where = str(path[0])[:LONGEST_PATH] if len(path) == 1 else render_path(path)
    if kind == "missing":
        text = f"{where}: required, but missing"
    elif kind == "type":
        got = "null" if value is None else f"{_JSON_TYPES.get(type(value), 'object')} {brief(value)}"
        text = f"{where}: expected {expected}, got {got}"
    elif kind == "unknown":
        text = f"{where}: unknown argument{_suggest_names(path, known)}"
    elif kind == "choice":
        hint = near(value, list_choices(expected), 1) if isinstance(value, str) else []
        meant = f'; did you mean "{hint[0]}"?' if hint else ""
        text = f"{where}: {brief(value)} is not one of {expected[:_SHOWN_CHOICES]}{meant}"
    else:
        text = f"{where}: {message}" if value is None else f"{where}: {message}, got {brief(value)}"
    return text[:LONGEST_PROBLEM]


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


# Finds names that a model may have meant: another spelling of the name, or a close one.


LONGEST = 100  # characters of a name that are compared
SHORTEST_EDITED = 5  # characters: an edit in a shorter name often makes another name
SHORTEST_CLOSE = 4
CLOSE = 0.8  # of difflib's ratio

_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+"


def find_meant_name(
    key: str, names: Iterable[str], aliases: Mapping[str, str], required: Collection[str], others: Collection[str]
) -> str:
    """Returns the one known name that `key` can only be another spelling of, or nothing.

    `others` are the keys that were sent: a name that was sent itself is not meant, and one that two keys may mean is
    not clear. One edit is accepted only in a long name that is required and was not sent.
    """
    known = {**{name: name for name in names}, **aliases}
    folded = fold_name(key)
    for fits in (_same_spelling, _one_edit_away):
        found = {
            right
            for name, right in known.items()
            if (fold_name(name) == folded if fits is _same_spelling else fits(key, name)) and right not in others
        }
        if fits is _one_edit_away:
            found = {name for name in found if name in required and len(name) >= SHORTEST_EDITED}
        if len(found) > 1:
            return ""
        for right in found:
            spelt = [name for name, one in known.items() if one == right]
            rivals = (
                one for one in others if one != key and one not in known and any(fits(one, name) for name in spelt)
            )
            return "" if any(True for _ in rivals) else right
    return ""


@lru_cache(maxsize=1_000)  # models repeat their mistakes
def close_names(key: str, names: tuple[str, ...], widely: bool) -> list[str]:
    """Returns the names that `key` resembles so much that one of them was probably meant.

    Narrowly: another spelling, or one edit. Widely: also alike as a whole, or one made of some words of the other.
    """
    if len(key) > LONGEST:
        return []
    return [name for name in names if _is_close(key, name, widely)]


def _is_close(key: str, name: str, widely: bool) -> bool:
    if _same_spelling(key, name):
        return True
    if min(len(key), len(name)) < SHORTEST_CLOSE:
        return False
    if _one_edit_away(key, name):
        return True
    if not widely:
        return False
    return _shares_words(key, name) or _ratio_is_high(fold_name(key), fold_name(name))


def _shares_words(key: str, name: str) -> bool:
    """Returns whether all the words of one name are in the other: `file` and `file_path`, `path` and `fullPath`."""
    first, second = _words(key), _words(name)
    fewer = min(first, second, key=len)
    return first & second == fewer and sum(map(len, fewer)) >= SHORTEST_CLOSE


def _words(name: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in re.findall(_WORD, name))


def _ratio_is_high(first: str, second: str) -> bool:
    longer = max(len(first), len(second))
    if 2 * min(len(first), len(second)) < CLOSE * (len(first) + len(second)) or longer > LONGEST:
        return False
    letters = set(first)
    if 2 * len(letters & set(second)) < len(letters):
        return False
    from difflib import SequenceMatcher  # only where something is unknown

    match = SequenceMatcher(None, first, second, autojunk=False)
    return match.quick_ratio() >= CLOSE and match.ratio() >= CLOSE


def _same_spelling(first: str, second: str) -> bool:
    return fold_name(first) == fold_name(second)


def fold_name(name: str) -> str:
    """Removes the differences of spellings: `orderStatus`, `order-status` and `Order_Status` are one name."""
    return _fold(name[: LONGEST + 1])


@lru_cache(maxsize=4_000)  # every name of a tool is compared with every unknown key
def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold() or name


def _one_edit_away(first: str, second: str) -> bool:
    """Returns whether one letter was added, removed or changed, or two were swapped. Digits never differ."""
    short, long = sorted((fold_name(first), fold_name(second)), key=len)
    if len(long) - len(short) > 1 or len(long) > LONGEST:
        return False
    same = 0
    while same < len(short) and short[same] == long[same]:
        same += 1
    ends, others = short[same:], long[same:]
    if len(short) < len(long):
        return ends == others[1:] and not others[0].isdigit()
    if not ends:
        return False  # the same
    if ends[1:] == others[1:]:
        return not (ends[0].isdigit() or others[0].isdigit())
    swapped = ends[:2] == others[1::-1] and ends[2:] == others[2:]
    return swapped and not any(letter.isdigit() for letter in ends[:2])


# Finds the names that a schema knows at a path inside the arguments.


_MOST_SCHEMAS = 1_000  # that describe one place


class Names(NamedTuple):
    """The keys of an object."""

    known: tuple[str, ...]
    required: tuple[str, ...]  # whichever branch holds


class NamesByPath:
    """The names of a schema by path, each looked up once."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._found: dict[tuple[str | int, ...], Names] = {}

    def names(self, path: tuple[str | int, ...]) -> Names:
        """Returns the keys that an object at `path` may have."""
        path = tuple(path)
        if path not in self._found:
            self._found[path] = self._look(path)
        return self._found[path]

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
        return Names(tuple(known), tuple(required))


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
