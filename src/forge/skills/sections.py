"""The `## Tool:` sections of a skill: what each tool takes, and which script it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forge.process.scripts.inputs import InputError, Line, read_inputs
from forge.skills.front_matter import one_line

MOST = 64  # tools of one skill
LONGEST_DESCRIPTION = 2_000  # characters
LONGEST_TEXT = 500  # of one parameter
LONGEST_LINE = 10_000  # characters of a line about parameters: reading it takes time that grows with its square

_HEADING = re.compile(r"##\s+Tool:\s*`?([^`\s]+)`?\s*$", re.IGNORECASE)
_NEXT = re.compile(r"#{1,2}\s")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_FIELD = re.compile(
    r"\s*\*\*(Inputs?|Parameters|Arguments|Outputs?|Returns|Script)(?::\*\*|\*\*\s*:)\s*(.*)$", re.IGNORECASE
)
_FIELDS = {"inputs": "input", "parameters": "input", "arguments": "input", "outputs": "output", "returns": "output"}
_BULLET = re.compile(r"\s*[-*+]\s+")
_ENTRY = re.compile(r"`?([A-Za-z_][A-Za-z0-9_-]*)`?\s*\(")
_TYPED = re.compile(r"`?([A-Za-z_][A-Za-z0-9_-]*)`?\s*:\s*([A-Za-z_]\w*(?:\[[^\]]*\])?)\s*(?=$|[-–—,(])")
_DEFAULT = re.compile(r",?\s*default(?:s to)?\s*[:=]?\s*`?([^,`]+)`?\s*$", re.IGNORECASE)
_REQUIRED = re.compile(r",\s*required\s*$", re.IGNORECASE)
_DASH = re.compile(r"\s+[-–—]+\s+")
_WIDE = re.compile(r"\s{8,}")
_YES = frozenset({"yes", "y", "true", "required", "✓", "✔", "✅", "x", "1"})
_NOTHING = frozenset({"", "none", "nothing", "-", "n/a"})


@dataclass(frozen=True, slots=True)
class Section:
    """A tool as a skill describes it. `problem` says why it can be none."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    defaults: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""  # where the section names one
    problem: str = ""


def sections(body: str, first_line: int = 1) -> list[Section]:
    """All of them, in order; what stands inside code blocks is none. `first_line`: of the body, in its file."""
    found = []
    for name, lines in _split(body, first_line):
        try:
            found.append(_section(name, lines))
        except InputError as error:
            found.append(Section(name, problem=str(error)))
    return found[:MOST]


def _split(body: str, first_line: int) -> Iterator[tuple[str, list[Line]]]:
    name, fence = "", ""
    lines: list[Line] = []
    for number, text in enumerate(body.splitlines(), first_line):
        mark = _FENCE.match(text)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence and _NEXT.match(text):
            if name:
                yield name, lines
            heading = _HEADING.match(text)
            name, lines = (heading[1][:100] if heading else ""), []
            continue
        if name:
            lines.append(Line(number, text))
    if name:
        yield name, lines


def _section(name: str, lines: list[Line]) -> Section:
    parts: dict[str, list[Line]] = {"": []}
    current = ""
    for line in lines:
        if heading := _FIELD.match(line.text):
            current = heading[1].lower()
            current = _FIELDS.get(current, current)
            parts.setdefault(current, []).append(Line(line.number, heading[2]))
        else:
            parts[current].append(line)
    entries = list(_entries(parts.get("input", [])))
    inputs = read_inputs(entries)
    properties = {
        key: {**schema, **({"description": one_line(schema["description"])} if "description" in schema else {})}
        for key, schema in inputs.parameters["properties"].items()
    }
    script = next((line.text.strip().strip("`") for line in parts.get("script", []) if line.text.strip()), "")
    parameters = {**inputs.parameters, "properties": properties}
    if marked := list(filter(None, (_marked_required(entry.text) for entry in entries))):
        parameters["required"] = marked
    return Section(name, _description(name, parts), parameters, inputs.defaults, script)


def _marked_required(entry: str) -> str:
    """The name of a parameter that is said to be required; where some are, the others are optional."""
    found = _ENTRY.match(entry)
    if found is None:
        return ""
    kind = entry[found.end() : _closing(entry, found.end())]
    return found[1] if _REQUIRED.search(kind) else ""


def _description(name: str, parts: Mapping[str, list[Line]]) -> str:
    said = _text(parts[""])
    output = _text(parts.get("output", []))
    words = f"{said}\n\nOutput: {output}" if output else said
    shown = words or f"{name}, a tool of a skill."
    return shown if len(shown) <= LONGEST_DESCRIPTION else f"{shown[: LONGEST_DESCRIPTION - 1]}…"


def _text(lines: list[Line]) -> str:
    """Lines joined to paragraphs."""
    paragraphs = "\n".join(line.text.strip() for line in lines).split("\n\n")
    return "\n\n".join(filter(None, (one_line(one, LONGEST_DESCRIPTION) for one in paragraphs)))


def _entries(lines: list[Line]) -> Iterator[Line]:
    """A line each, written as scripts write it: `name (type): text`."""
    header: list[str] = []
    started = False
    for line in lines:
        text = _WIDE.sub(" ", line.text.strip())
        if text.startswith("|"):
            cells = [cell.strip() for cell in text.strip("|").split("|")]
            if not header:
                header = [cell.lower() for cell in cells]
            elif not all(re.fullmatch(r":?-*:?", cell) for cell in cells):
                yield Line(line.number, _of_row(dict(zip(header, cells, strict=False)))[:LONGEST_LINE])
            continue
        if text.lower().rstrip(".") in _NOTHING:
            continue
        bullet = _BULLET.match(text)
        if not bullet and started and not _ENTRY.match(text):
            break  # words after the parameters
        if len(text) > LONGEST_LINE:
            raise InputError(f"line {line.number}: it has over {LONGEST_LINE:,} characters")
        if any(char < " " and char != "\t" for char in text):
            raise InputError(f"line {line.number}: it holds control characters")
        for entry in _several(text[bullet.end() :] if bullet else text):
            started = True
            yield Line(line.number, _written(entry))


def _several(text: str) -> list[str]:
    """`a (str), b (int, optional): text` are two."""
    starts = [0]
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        behind = text[place + 1 :].lstrip()
        if letter == "," and depth == 0 and (_ENTRY.match(behind) or _TYPED.match(behind)):
            starts.append(place + 1)
    return [text[start:end].strip(" ,") for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _written(entry: str) -> str:
    entry = entry.replace("**", "")
    if typed := _TYPED.match(entry):
        rest = entry[typed.end() :].lstrip(" -–—")
        return f"{typed[1]} ({typed[2]}): {rest}"
    found = _ENTRY.match(entry)
    if found is None:
        return entry
    end = _closing(entry, found.end())
    kind, rest = entry[found.end() : end], entry[end + 1 :]
    if default := _DEFAULT.search(kind):
        kind, rest = kind[: default.start()], f" = {default[1].strip()}{rest}"
    rest = rest if ":" in rest else _DASH.sub(": ", rest, count=1)
    rest = rest if ":" in rest else f"{rest}: "
    return f"{found[1]} ({kind.strip().strip('`')}){rest}"


def _closing(text: str, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    return len(text)


def _of_row(row: Mapping[str, str]) -> str:
    """A row of a table as a line."""

    def cell(*names: str) -> str:
        return next((row[name].strip("` ") for name in names if row.get(name)), "")

    kind = cell("type") or "str"
    default = cell("default")
    has_column = "required" in row or "required?" in row
    optional = has_column and cell("required", "required?").lower() not in _YES and not default
    given = f" = {default}" if default.lower() not in _NOTHING else ""
    name, text = (
        cell("name", "parameter", "param", "field", "argument", "input"),
        cell("description", "meaning", "text"),
    )
    return f"{name} ({kind}{', optional' if optional or (default and not given) else ''}){given}: {text}"
