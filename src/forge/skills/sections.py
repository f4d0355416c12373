"""Reads the `## Tool:` sections of a skill: each tool's description, parameters and script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from forge.process.scripts.types import InputError, InputLine, read_inputs
from forge.skills.front_matter import one_line

MOST = 64  # tools of one skill
LONGEST_DESCRIPTION = 2_000  # characters
LONGEST_TEXT = 500  # of one parameter
LONGEST_LINE = 10_000  # characters of a line about parameters: reading takes quadratic time

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
    """A tool as a skill describes it. `problem` is the reason if it cannot be used."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    defaults: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""  # if the section names one
    problem: str = ""


def read_sections(body: str, first_line: int = 1) -> list[Section]:
    """Returns all sections in order, except those in code blocks. `first_line`: the body's first line in its file."""
    found = []
    for name, lines in _split_sections(body, first_line):
        try:
            found.append(_read_section(name, lines))
        except InputError as error:
            found.append(Section(name, problem=str(error)))
    return found[:MOST]


def _split_sections(body: str, first_line: int) -> Iterator[tuple[str, list[InputLine]]]:
    name, fence = "", ""
    lines: list[InputLine] = []
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
            lines.append(InputLine(number, text))
    if name:
        yield name, lines


def _read_section(name: str, lines: list[InputLine]) -> Section:
    parts: dict[str, list[InputLine]] = {"": []}
    current = ""
    for line in lines:
        if heading := _FIELD.match(line.text):
            current = heading[1].lower()
            current = _FIELDS.get(current, current)
            parts.setdefault(current, []).append(InputLine(line.number, heading[2]))
        else:
            parts[current].append(line)
    entries = list(_input_entries(parts.get("input", [])))
    inputs = read_inputs(entries)
    properties = {
        key: {**schema, **({"description": one_line(schema["description"])} if "description" in schema else {})}
        for key, schema in inputs.parameters["properties"].items()
    }
    script = next((line.text.strip().strip("`") for line in parts.get("script", []) if line.text.strip()), "")
    parameters = {**inputs.parameters, "properties": properties}
    if marked := list(filter(None, (_required_name(entry.text) for entry in entries))):
        parameters["required"] = marked
    return Section(name, _description(name, parts), parameters, inputs.defaults, script)


def _required_name(entry: str) -> str:
    """Returns the name of a parameter that is marked as required, else "". If some are, the others are optional."""
    found = _ENTRY.match(entry)
    if found is None:
        return ""
    kind = entry[found.end() : _find_closing(entry, found.end())]
    return found[1] if _REQUIRED.search(kind) else ""


def _description(name: str, parts: Mapping[str, list[InputLine]]) -> str:
    said = _join_lines(parts[""])
    output = _join_lines(parts.get("output", []))
    words = f"{said}\n\nOutput: {output}" if output else said
    shown = words or f"{name}, a tool of a skill."
    return shown if len(shown) <= LONGEST_DESCRIPTION else f"{shown[: LONGEST_DESCRIPTION - 1]}…"


def _join_lines(lines: list[InputLine]) -> str:
    """Joins lines to paragraphs."""
    paragraphs = "\n".join(line.text.strip() for line in lines).split("\n\n")
    return "\n\n".join(filter(None, (one_line(one, LONGEST_DESCRIPTION) for one in paragraphs)))


def _input_entries(lines: list[InputLine]) -> Iterator[InputLine]:
    """Yields one line per parameter, in the form of scripts: `name (type): text`."""
    header: list[str] = []
    started = False
    for line in lines:
        text = _WIDE.sub(" ", line.text.strip())
        if text.startswith("|"):
            cells = [cell.strip() for cell in text.strip("|").split("|")]
            if not header:
                header = [cell.lower() for cell in cells]
            elif not all(re.fullmatch(r":?-*:?", cell) for cell in cells):
                yield InputLine(line.number, _format_row(dict(zip(header, cells, strict=False)))[:LONGEST_LINE])
            continue
        if text.lower().rstrip(".") in _NOTHING:
            continue
        bullet = _BULLET.match(text)
        if not bullet and started and not _ENTRY.match(text):
            break  # text after the parameters
        if len(text) > LONGEST_LINE:
            raise InputError(f"line {line.number}: it has over {LONGEST_LINE:,} characters")
        if any(char < " " and char != "\t" for char in text):
            raise InputError(f"line {line.number}: it contains control characters")
        for entry in _split_entries(text[bullet.end() :] if bullet else text):
            started = True
            yield InputLine(line.number, _format_entry(entry))


def _split_entries(text: str) -> list[str]:
    """Splits several entries of one line: `a (str), b (int, optional): text` are two."""
    starts = [0]
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        behind = text[position + 1 :].lstrip()
        if letter == "," and depth == 0 and (_ENTRY.match(behind) or _TYPED.match(behind)):
            starts.append(position + 1)
    return [text[start:end].strip(" ,") for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _format_entry(entry: str) -> str:
    entry = entry.replace("**", "")
    if typed := _TYPED.match(entry):
        rest = entry[typed.end() :].lstrip(" -–—")
        return f"{typed[1]} ({typed[2]}): {rest}"
    found = _ENTRY.match(entry)
    if found is None:
        return entry
    end = _find_closing(entry, found.end())
    kind, rest = entry[found.end() : end], entry[end + 1 :]
    if default := _DEFAULT.search(kind):
        kind, rest = kind[: default.start()], f" = {default[1].strip()}{rest}"
    rest = rest if ":" in rest else _DASH.sub(": ", rest, count=1)
    rest = rest if ":" in rest else f"{rest}: "
    return f"{found[1]} ({kind.strip().strip('`')}){rest}"


def _find_closing(text: str, start: int) -> int:
    depth = 1
    for position in range(start, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if not depth:
            return position
    return len(text)


def _format_row(row: Mapping[str, str]) -> str:
    """Formats a row of a table as a line."""

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
