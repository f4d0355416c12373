"""Makes the damaged calls: functions and right calls from a data set, each call damaged in the ways models do."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.repair.judge import load_functions
from forge import tool
from forge.core.errors import DefinitionError, ToolError
from scores.bfcl import Case, name_of, schema_of
from scores.damage import DAMAGES, has_one_reading

ROWS = {  # the damages of the table, in its words
    "key in camel case": "`camelCase` key",
    "key with dashes": "`kebab-case` key",
    "key in upper case": "key in other case",
    "wrapped in arguments": '`{"arguments": {…}}` around it',
    "python literals": "Python literal",
    "single quotes": "single quotes",
    "in a code fence": "code fence",
    "trailing comma": "trailing comma",
    "closing brace missing": "closing brace missing",
    "prose after": "prose after the JSON",
    "encoded twice": "JSON encoded twice",
    "list as json text": "list as text",
    "object as json text": "object as text",
    "number as text": "number as text",
    "boolean as text": "boolean as text",
    "null for left out": "null for a default",
}
OF_THE_TEXT = frozenset(  # the text is no JSON object; the other damages are inside the object
    (
        *("python literals", "single quotes", "in a code fence", "trailing comma"),
        *("closing brace missing", "prose after", "encoded twice"),
    )
)
_HINTS = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "object": "dict"}
_HEAD = '''"""Functions of the data set; each notes what it received."""

from typing import Any, Literal

from benchmarks.peer_functions import GOT

'''


@dataclass(frozen=True, slots=True)
class DamagedCall:
    """A right call of a function, and the text that a model sent instead."""

    function: str
    damage: str
    text: str
    expected: dict[str, Any]  # what the function should receive, its defaults among it
    names: list[str]  # of the arguments, as they are and as they were sent; an explanation has one of them


def make_corpus(cases: Iterable[Case], folder: Path, most: int) -> Path:
    """Writes the functions and at most `most` damaged calls of each kind. Returns the folder.

    A text that is a right call as it was sent is left out, and one that can be meant in several ways.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources, right = dict[str, str](), list[tuple[str, dict[str, Any], Mapping[str, Any]]]()
    for case in cases:
        offered = {name_of(one["name"]): one for one in case.functions}
        for name, arguments in case.answers:
            schema = schema_of(offered[name]["parameters"]) if name in offered else {}
            source = write_function(f"{name}_{len(sources)}", offered[name]["description"], schema) if schema else ""
            if source:
                right.append((f"{name}_{len(sources)}", arguments, schema))
                sources[f"{name}_{len(sources)}"] = source
    (folder / "functions.py").write_text(_HEAD + "\n\n".join(sources.values()), encoding="utf-8")
    calls = list(_choose(_damage_all(load_functions(folder), right), most))
    used = {call.function for call in calls}
    kept = [source for name, source in sources.items() if name in used]
    (folder / "functions.py").write_text(_HEAD + "\n\n".join(kept), encoding="utf-8")
    lines = (json.dumps(asdict(call)) for call in calls)
    (folder / "calls.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def write_function(name: str, description: str, schema: Mapping[str, Any]) -> str:
    """Writes a typed function with this schema; "" where its names are not names in Python."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not all(key.isidentifier() and not keyword.iskeyword(key) for key in (*properties, name)):
        return ""
    ordered = sorted(properties, key=lambda key: key not in required)
    parameters = ", ".join(_write_parameter(key, properties[key], key in required) for key in ordered)
    texts = [f"        {key}: {_one_line(properties[key].get('description', ''))}" for key in ordered]
    received = ", ".join(f'"{key}": {key}' for key in ordered)
    arguments = ["    Args:", *texts] if texts else []
    lines = [f'    """{_one_line(description)}', "", *arguments, '    """', f"    GOT.append({{{received}}})"]
    return "\n".join([f"def {name}({parameters}) -> str:", *lines, '    return "done"', ""])


def _write_parameter(key: str, shown: Mapping[str, Any], is_required: bool) -> str:
    hint = _write_hint(shown)
    if is_required:
        return f"{key}: {hint}"
    default = shown.get("default")
    return f"{key}: {hint} = {default!r}" if default is not None else f"{key}: {hint} | None = None"


def _write_hint(shown: Any) -> str:
    if not isinstance(shown, Mapping) or "type" not in shown:
        return "Any"
    choices = shown.get("enum")
    if choices and all(isinstance(one, str) for one in choices):
        return f"Literal[{', '.join(map(repr, choices))}]"
    if shown["type"] == "array":
        return f"list[{_write_hint(shown['items'])}]" if "items" in shown else "list"
    return _HINTS[shown["type"]]


def _one_line(text: str) -> str:
    plain = " ".join(text.replace("\\", "/").replace('"', "'").replace(":", ",").split())
    return plain[:200] or "as named"


def _damage_all(
    functions: ModuleType, right: Iterable[tuple[str, dict[str, Any], Mapping[str, Any]]]
) -> Iterator[DamagedCall]:
    for name, arguments, schema in right:
        function = getattr(functions, name)
        try:
            strict = tool(strict=True)(function)
            expected = strict.parse(json.dumps(arguments))
        except (DefinitionError, ToolError):
            continue
        for damage in ROWS:
            text = DAMAGES[damage](arguments, schema)
            if text is None or not has_one_reading(damage, arguments, schema, text) or _is_right(strict, text):
                continue
            sent = json.loads(text) if damage.startswith("key") else {}
            yield DamagedCall(name, damage, text, expected, list({**schema.get("properties", {}), **sent}))


def _is_right(strict: Any, text: str) -> bool:
    try:
        strict.parse(text)
    except ToolError:
        return False
    return True


def _choose(calls: Iterable[DamagedCall], most: int) -> Iterator[DamagedCall]:
    """Takes calls of each kind from the whole data set, evenly."""
    by_damage: dict[str, list[DamagedCall]] = {damage: [] for damage in ROWS}
    for call in calls:
        by_damage[call.damage].append(call)
    for several in by_damage.values():
        step = max(1, len(several) // most)
        yield from several[::step][:most]
