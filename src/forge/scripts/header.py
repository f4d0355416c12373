"""Reads the header of a script: its first docstring or comment, which describes the tool. Nothing is run.

Tool: weather
Description: Tells the weather of a city.

Input:
  city (str): Where.
  days (int) = 3: How many days.
  units ("metric" | "imperial", optional): Of the answer.

Output:
  days (list): One entry a day.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forge.core.arguments.schema import check_size
from forge.core.errors import DefinitionError
from forge.core.untrusted import clean, clean_schema
from forge.process.run_script.types import InputError, InputLine, is_entry, read_inputs

LONGEST_HEADER = 64 * 1024  # characters at the beginning of a file that are read
LONGEST_TEXT = 500  # characters of one parameter's description

_DOCSTRING = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[rRuU]?(\"\"\"|'''|\"(?!\")|'(?!'))((?:\\.|(?!\1)[^\\])*)\1", re.DOTALL
)
_SECTION = re.compile(r"(Tool|Description|Inputs?|Outputs?|Returns):(?:\s+(.*)|\s*)$")
_MARK = r"^[ \t]*(?:#|//|\*|--|;|%)?[ \t]*"
_MEANT = re.compile(rf"{_MARK}Tool:[ \t]*\w[^\n]*\n(?:[^\n]*\n){{0,3}}?{_MARK}Description:", re.MULTILINE)
_SECTIONS = {"Inputs": "Input", "Outputs": "Output", "Returns": "Output"}
_MARKS = ("//", "#", "--", ";", "%")
_PASSED_OVER = ('"use strict"', "'use strict'", "<?php")


HeaderError = InputError
"""The error of a header; its message names the problem and the line."""


@dataclass(frozen=True, slots=True)
class Header:
    """The description and the parameters of a script."""

    name: str  # "": the file's name is used
    description: str
    parameters: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def header_lines(content: str, *, python: bool) -> list[InputLine]:
    """Returns the first docstring of a Python file, else the leading comments without their marks; [] if none."""
    beginning = content[:LONGEST_HEADER].removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if python and (found := _DOCSTRING.match(beginning)):
        first = beginning.count("\n", 0, found.start(2)) + 1
        lines = [InputLine(first + index, text) for index, text in enumerate(found[2].split("\n"))]
        return [InputLine(first, lines[0].text.strip()), *_dedent(lines[1:])]
    return _read_comments(beginning.split("\n"))


def begins_with_tool(lines: list[InputLine]) -> bool:
    first = next((line.text for line in lines if line.text.strip()), "")
    return first.startswith("Tool:")


def looks_like_header(content: str) -> bool:
    """Returns whether both lines stand close together near the beginning, so that they were meant as a header."""
    return _MEANT.search(content[:LONGEST_HEADER]) is not None


def read_header(lines: list[InputLine]) -> Header | None:
    """Returns the header in these lines; None if there is none. Raises `HeaderError`."""
    sections = _split_sections(lines)
    if not sections:
        return None
    name = _read_name(sections.get("Tool"))
    inputs = read_inputs(_join_entries(sections.get("Input", [])))
    try:
        check_size(name, inputs.parameters)
        parameters = clean_schema(_with_clean_texts(inputs.parameters))
    except (ValueError, DefinitionError) as error:
        raise HeaderError(f"Input: {error}") from None
    return Header(name, _read_description(sections), parameters, inputs.defaults)


def _with_clean_texts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    properties = {}
    for name, schema in parameters["properties"].items():
        text = clean(schema.get("description"), LONGEST_TEXT)
        plain = {key: value for key, value in schema.items() if key != "description"}
        properties[name] = {**plain, "description": text} if text else plain
    return {**parameters, "properties": properties}


def _split_sections(lines: list[InputLine]) -> dict[str, list[InputLine]]:
    """Returns the lines below each heading; lines before the first heading are not part of the header."""
    found: dict[str, list[InputLine]] = {}
    current: list[InputLine] | None = None
    for line in lines:
        heading = _SECTION.match(line.text)
        if heading is None:
            if current is not None:
                current.append(line)
            continue
        name = _SECTIONS.get(heading[1], heading[1])
        if name in found:
            raise HeaderError(f"line {line.number}: there is a second section {name}:")
        current = found[name] = [InputLine(line.number, heading[2])] if heading[2] else []
    return found if "Tool" in found or "Description" in found else {}


def _read_name(lines: list[InputLine] | None) -> str:
    if lines is None:
        return ""
    if not lines or not lines[0].text.strip():
        raise HeaderError("the line Tool: has no name")
    return lines[0].text.strip()


def _read_description(sections: Mapping[str, list[InputLine]]) -> str:
    said = clean("\n".join(line.text.strip() for line in sections.get("Description", [])))
    if not said:
        raise HeaderError("it has no description: add a line Description: …, which the model reads")
    output = clean("\n".join(line.text.strip() for line in sections.get("Output", [])))
    return clean(f"{said}\n\nOutput:\n{output}") if output else said


def _join_entries(lines: list[InputLine]) -> list[InputLine]:
    """Returns one line per parameter; a line that is indented deeper continues the one before."""
    found: list[InputLine] = []
    indent = 0
    for line in lines:
        text = line.text.strip()
        if not text or (not found and text.lower().rstrip(".") in ("none", "nothing", "-")):
            continue
        deep = len(line.text) - len(line.text.lstrip())
        if found and deep > indent:
            found[-1] = InputLine(found[-1].number, f"{found[-1].text} {text}")
        elif deep == 0 and not is_entry(text):
            break  # text after the header
        else:
            indent = indent if found else deep
            found.append(InputLine(line.number, text))
    return found


def _read_comments(lines: list[str]) -> list[InputLine]:
    """Returns the comments before the first line of code, without their marks and margins."""
    found: list[InputLine] = []
    marked: list[InputLine] = []  # consecutive lines with a mark each
    block: list[InputLine] | None = None  # from /* to */
    for number, raw in enumerate(lines, 1):
        text = raw.strip()
        if block is not None or text.startswith("/*"):
            inside, ended, after = (raw if block is not None else text[2:].lstrip("*")).partition("*/")
            block = [*(block or ()), InputLine(number, _without_star(inside))]
            if ended:
                found += [*_dedent(marked), InputLine(block[0].number, block[0].text.strip()), *_dedent(block[1:])]
                marked, block = [], None
            if after.strip():
                break
        elif mark := next((mark for mark in _MARKS if text.startswith(mark)), ""):
            if number > 1 or not text.startswith("#!"):
                marked.append(InputLine(number, text[len(mark) :]))
        elif text and not text.startswith(_PASSED_OVER):
            break
        else:
            marked.append(InputLine(number, ""))
    return [*found, *_dedent(marked)]


def _without_star(text: str) -> str:
    stripped = text.lstrip()
    return stripped[1:] if stripped.startswith("*") else text


def _dedent(lines: list[InputLine]) -> list[InputLine]:
    spread = [InputLine(line.number, line.text.expandtabs(4).rstrip()) for line in lines]
    margin = min((len(line.text) - len(line.text.lstrip()) for line in spread if line.text), default=0)
    return [InputLine(line.number, line.text[margin:]) for line in spread]
