"""A skill: instructions in a file, its requirements, and the tools and limits it brings.

The file begins with YAML, which is checked key by key; `## Tool:` sections describe tools. A template makes a new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forge.core.arguments.names import near
from forge.core.errors import ErrorKind, ToolError
from forge.core.yaml import LARGEST_YAML, Unreadable, bounded_yaml, safe_loader
from forge.process.environment import find_trusted_program
from forge.process.run_script.types import InputError, InputLine, read_inputs
from forge.skills.guardrails import Guardrails
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import explain_errors, open_file

LARGEST_FILE = 1024 * 1024  # bytes of a file of a skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill as it was read. `missing` lists requirements that this machine lacks: then it cannot be active."""

    name: str
    body: str
    front: FrontMatter
    location: Location  # the skill's file
    folder: Location | None = None  # None: a flat file without other files
    is_built_in: bool = False
    tools: tuple[ToolSection, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # harmless oddities

    @property
    def description(self) -> str:
        return self.front.description

    @property
    def guardrails(self) -> Guardrails:
        """The skill's guardrails, including denied tools."""
        denied = Guardrails(tools=dict.fromkeys(self.front.denied_tools, f"the skill {self.name}"))
        return self.front.guardrails.joined(denied)

    @property
    def environment(self) -> tuple[str, ...]:
        """The variables that the scripts see once a person made the skill active."""
        needs = self.front.requires
        return (*needs.env, *needs.one_of, *needs.optional)


def read_skill_file(
    name: str,
    location: Location,
    *,
    folder: Location | None = None,
    is_built_in: bool = False,
    writable: Sequence[Path] = (),
    environment: Mapping[str, str] = os.environ,
) -> Skill | None:
    """Reads a skill; None for a flat file without front matter, such as a README. Raises `ToolError`."""
    text = read_text(location)
    head, body = split_front_matter(text)
    if head is None:
        if folder is None:
            return None
        raise _file_error(location, "it has no front matter", "Begin it with ---, name: …, description: …, ---.")
    front = read_front_matter(head, location.shown)
    if not front.description:
        raise _file_error(
            location, "it has no description", "Add one to its front matter: what it does, and when to use it."
        )
    notes = [*front.notes]
    if front.name and front.name != name:
        notes.append(f"its front matter has the name {front.name!r}, but its file name {name!r} is used")
    tools = tuple(read_sections(body, text.count("\n", 0, len(text) - len(body)) + 1))
    return Skill(
        name=name,
        body=body.strip("\n"),
        front=front,
        location=location,
        folder=folder,
        is_built_in=is_built_in,
        tools=tools,
        missing=tuple(_find_missing(front.requires, writable, environment)),
        notes=tuple(notes),
    )


def read_text(location: Location) -> str:
    """Reads a file of a skill. Raises `ToolError` if it is not a file, too large, or not UTF-8."""
    return read_exact_text(location).removeprefix("\ufeff")


def read_exact_text(location: Location) -> str:
    """Reads a file of a skill with the mark that some editors write before its first line. Raises `ToolError`."""
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise _file_error(
            location, f"it has more than {LARGEST_FILE // 1024 // 1024} MiB", "Move long parts into other files."
        )
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _file_error(
            location, f"it is not UTF-8 text: byte {error.start} cannot be read", "Save it as UTF-8."
        ) from None


def resolve_skill_file(skill: Skill, file: str) -> Location:
    """Resolves a file of the skill to its real path. Raises `ToolError` if it is outside the skill's folder."""
    if skill.folder is None:
        raise ToolError(f"{skill.name} has no other files", ErrorKind.NOT_FOUND, "Omit the parameter file.")
    if os.path.isabs(file) or ".." in file.replace("\\", "/").split("/"):
        raise ToolError(f"{file[:200]!r} is outside the skill", ErrorKind.SECURITY, "Name a file of the skill.")
    return PathValidator(skill.folder.path, environment={}).resolve(file)


def _find_missing(requires: Requires, writable: Sequence[Path], environment: Mapping[str, str]) -> list[str]:
    found = [
        f"the program {name} is not installed" for name in requires.bins if not find_trusted_program(name, writable)
    ]
    found += [f"the variable {name} is not set" for name in requires.env if not environment.get(name)]
    if requires.one_of and not any(environment.get(name) for name in requires.one_of):
        found.append(f"none of the variables {', '.join(requires.one_of)} is set")
    return found


def _file_error(location: Location, problem: str, advice: str) -> ToolError:
    return ToolError(f"{location.shown}: {problem}", ErrorKind.CONFIG, advice)


# Reads the YAML at the beginning of a skill's file, with bounds, and checks it key by key.

PUBLISHED = ("name", "description", "license", "compatibility", "allowed-tools", "metadata", "version", "tags")
OWN = ("requires", "egress_domains", "denied_tools", "guardrails", "timeout_hint", "groups", "tools")
LONGEST_DESCRIPTION = 1_024  # characters
LONGEST_TEXT = 500
LONGEST_WORDS = 10_000  # characters of a list written as words: splitting takes quadratic time
MOST_ENTRIES = 200  # entries of a list
MAX_TIMEOUT = 3_600.0  # seconds

_BLOCK = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)(?:^---[ \t]*\r?$|^\.\.\.[ \t]*\r?$)\n?", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


class Requires(NamedTuple):
    """The programs and environment variables that a skill requires."""

    bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # all of these
    one_of: tuple[str, ...] = ()  # one of these
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The front matter of a skill."""

    name: str = ""
    description: str = ""
    version: str = ""
    license: str = ""
    compatibility: str = ""
    tags: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()  # shown to people; a skill cannot permit anything
    metadata: Mapping[str, Any] = field(default_factory=dict)
    requires: Requires = field(default_factory=Requires)
    egress_domains: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()
    guardrails: Guardrails = field(default_factory=Guardrails)
    timeout_hint: float | None = None
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Splits a file into its front matter (None if there is none) and its body."""
    found = _BLOCK.match(text)
    if found is not None:
        return found[1], text[found.end() :]
    parts = text.split("---", 2)  # as the standard's validator reads it: at any dashes
    return (None, text) if parts[0] or len(parts) < 3 else (parts[1], parts[2])


def read_front_matter(text: str, where: str) -> FrontMatter:
    """Parses front matter. Raises `ToolError` of kind `config_error`, with the file and the key."""
    if len(text) > LARGEST_YAML:
        raise _config_error(
            where, f"its front matter is larger than {LARGEST_YAML // 1024} KiB", "Move text into the body."
        )
    try:
        document = bounded_yaml(text, where, lambda yaml, source: yaml.load(source, Loader=safe_loader()))
    except Unreadable as error:
        raise _config_error(error.place, error.problem, error.advice) from None
    if not isinstance(document, dict):
        raise _config_error(where, "its front matter is not a mapping", "Write name: … and description: …")
    return _FrontMatterReader(where).read_document(document)


def one_line(text: object, limit: int = LONGEST_TEXT) -> str:
    """Cleans foreign text for use in a sentence: no line breaks, no invisible characters, bounded."""
    shown = " ".join(_UNSEEN.sub(" ", str(text)[: limit * 4]).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1].rstrip()}…"


class _FrontMatterReader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.notes: list[str] = []

    def read_document(self, document: dict[Any, Any]) -> FrontMatter:
        top = {str(key): value for key, value in document.items()}
        if unknown := [key for key in top if key not in PUBLISHED and key != "allowed_tools"]:
            self.notes.append(f"keys that Forge ignores: {one_line(', '.join(unknown), 200)}")
        metadata = top.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            self.notes.append("metadata is not a mapping, so it is ignored")
            metadata = None
        own = (metadata or {}).get("forge")
        description = one_line(top.get("description") or "", 10 * LONGEST_DESCRIPTION)
        if len(description) > LONGEST_DESCRIPTION:
            self.notes.append(f"its description has more than {LONGEST_DESCRIPTION:,} characters, so it is cut")
        return FrontMatter(
            name=one_line(top.get("name") or "", 100),
            description=one_line(description, LONGEST_DESCRIPTION),
            version=one_line(top.get("version") or (metadata or {}).get("version") or "", 60),
            license=one_line(top.get("license") or "", 200),
            compatibility=one_line(top.get("compatibility") or ""),
            tags=self.read_loose_list(top.get("tags", (metadata or {}).get("tags"))),
            allowed_tools=self.read_loose_list(top.get("allowed-tools", top.get("allowed_tools"))),
            metadata=metadata or {},
            **self.read_own_keys(own, "metadata.forge"),
            notes=tuple(self.notes),
        )

    def read_own_keys(self, value: Any, key_path: str) -> dict[str, Any]:
        """Reads Forge's own keys. Mistakes in them are errors, since an unread limit would not hold."""
        if value is None:
            return {}
        said = self.read_mapping(value, key_path)
        for key in said:
            if key not in OWN:
                if hint := near(key, OWN, 1):
                    raise self.error(f"{key_path}.{key}", "there is no such key", f"Did you mean {hint[0]!r}?")
                self.notes.append(f"{key_path}.{one_line(key, 60)} is ignored: Forge does not know this key")
        return {
            "requires": self.read_requires(said.get("requires"), f"{key_path}.requires"),
            "egress_domains": self.read_texts(said.get("egress_domains"), f"{key_path}.egress_domains"),
            "denied_tools": self.read_texts(said.get("denied_tools"), f"{key_path}.denied_tools"),
            "guardrails": Guardrails.of(said.get("guardrails"), f"{self.where}: {key_path}.guardrails"),
            "timeout_hint": self.read_seconds(said.get("timeout_hint"), f"{key_path}.timeout_hint"),
            "groups": (
                *self.read_texts(said.get("groups"), f"{key_path}.groups"),
                *self.read_texts(said.get("tools"), f"{key_path}.tools"),
            ),
        }

    def read_requires(self, value: Any, key_path: str) -> Requires:
        if value is None:
            return Requires()
        said = self.read_mapping(value, key_path, ("bins", "env"))
        env = said.get("env")
        named = self.read_mapping(
            {"required": env} if env is None or isinstance(env, list | str) else env,
            f"{key_path}.env",
            ("required", "one_of", "optional"),
        )
        required, one_of, optional = (
            self.read_variables(named.get(key), f"{key_path}.env.{key}") for key in ("required", "one_of", "optional")
        )
        bins = self.read_texts(said.get("bins"), f"{key_path}.bins")
        if odd := next((one for one in bins if "/" in one or one.startswith("-")), None):
            raise self.error(
                f"{key_path}.bins", f"{one_line(odd, 60)!r} is not the name of a program", "Write [git, jq]."
            )
        return Requires(bins, required, one_of, optional)

    def read_mapping(self, value: Any, key_path: str, keys: Iterable[str] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(key_path, "expected a mapping", "Fix the file.")
        known = list(keys)
        for key in value:
            if known and key not in known:
                raise self.error(f"{key_path}.{one_line(key, 60)}", "there is no such key", f"Use {', '.join(known)}.")
        return {str(key): one for key, one in value.items()}

    def read_variables(self, value: Any, key_path: str) -> tuple[str, ...]:
        named = self.read_texts(value, key_path)
        if any(not _VARIABLE.fullmatch(name) for name in named):  # not repeated: it may be the secret itself
            raise self.error(key_path, "expected names of environment variables", "Write [GITHUB_TOKEN].")
        return named

    def read_texts(self, value: Any, key_path: str) -> tuple[str, ...]:
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        is_list = isinstance(listed, list) and len(listed) <= MOST_ENTRIES
        if not is_list or not all(isinstance(one, str) and one.strip() and one.isprintable() for one in listed):
            raise self.error(key_path, "expected a list of strings", "Write [a, b].")
        return tuple(one.strip() for one in listed)

    def read_seconds(self, value: Any, key_path: str) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TIMEOUT:
            raise self.error(key_path, f"expected seconds, from 1 to {MAX_TIMEOUT:g}", "Write a number such as 300.")
        return float(value)

    def read_loose_list(self, value: Any) -> tuple[str, ...]:
        """Reads a list, or words separated by commas or blanks, as other systems write them."""
        words = re.split(r",\s*|\s+(?![^(]*\))", value[:LONGEST_WORDS]) if isinstance(value, str) else value
        if not isinstance(words, list):
            return ()
        return tuple(one_line(word, 100) for word in words[:MOST_ENTRIES] if str(word).strip())

    def error(self, key_path: str, problem: str, advice: str) -> ToolError:
        return _config_error(f"{self.where}: {key_path}", problem, advice)


def _config_error(where: str, problem: str, advice: str) -> ToolError:
    return ToolError(f"{where}: {problem}", ErrorKind.CONFIG, advice)


# Reads the `## Tool:` sections of a skill: each tool's description, parameters and script.

MOST_TOOLS = 64  # tools of one skill
LONGEST_TOOL_DESCRIPTION = 2_000  # characters
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
class ToolSection:
    """A tool as a skill describes it. `problem` is the reason if it cannot be used."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    defaults: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""  # if the section names one
    problem: str = ""


def read_sections(body: str, first_line: int = 1) -> list[ToolSection]:
    """Returns all sections in order, except those in code blocks. `first_line`: the body's first line in its file."""
    found = []
    for name, lines in _split_sections(body, first_line):
        try:
            found.append(_read_section(name, lines))
        except InputError as error:
            found.append(ToolSection(name, problem=str(error)))
    return found[:MOST_TOOLS]


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


def _read_section(name: str, lines: list[InputLine]) -> ToolSection:
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
    return ToolSection(name, _description(name, parts), parameters, inputs.defaults, script)


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
    return shown if len(shown) <= LONGEST_TOOL_DESCRIPTION else f"{shown[: LONGEST_TOOL_DESCRIPTION - 1]}…"


def _join_lines(lines: list[InputLine]) -> str:
    """Joins lines to paragraphs."""
    paragraphs = "\n".join(line.text.strip() for line in lines).split("\n\n")
    return "\n\n".join(filter(None, (one_line(one, LONGEST_TOOL_DESCRIPTION) for one in paragraphs)))


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


# The files of a new skill. They pass every check unchanged.

_SKILL = """\
---
name: {name}
description: Say in a sentence or two what it does, and when to use it.
metadata:
  tags: example
---
# {title}

Write here what an agent needs to know to do this well: the steps, in order; what to check first; what to avoid; how it
can tell that it is done. It reads this text only when it needs the skill, so be as clear as to a colleague.

## Tool: {tool}
Repeats a text. Say what the tool does, and when to use it.

**Input:**
- text (str): What to repeat.
- times (int) = 1: How often.

**Output:** JSON: `result` is the repeated text.
"""

_SCRIPT = '''\
"""Repeats a text."""

import json
import sys


def execute(text: str, times: int) -> dict[str, str]:
    return {"result": " ".join([text] * times)}


if __name__ == "__main__":
    # Arguments arrive as JSON on stdin. The output is the result. stderr is shown while the tool runs.
    print(json.dumps(execute(**json.load(sys.stdin))))
'''


def files_of(name: str) -> dict[str, str]:
    """Returns the texts of the files by their path inside the skill's folder."""
    tool = tool_of(name)
    title = name.replace("-", " ").capitalize()
    return {
        "SKILL.md": _SKILL.format(name=name, title=title, tool=tool),
        f"scripts/{tool}.py": _SCRIPT,
    }


def tool_of(name: str) -> str:
    """Returns the name of the example tool, which begins with a letter."""
    word = "_".join(filter(None, re.sub(r"[^a-z0-9-]", "", name).split("-"))) + "_repeat"
    return (word if word[0].isalpha() else f"skill_{word}")[:64]
