"""A skill: instructions in a file, its requirements, and the tools and limits it brings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import find_trusted_program
from forge.skills import front_matter
from forge.skills.front_matter import FrontMatter, Requires
from forge.skills.guardrails import Guardrails
from forge.skills.sections import Section, read_sections
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import explain_errors, open_file

LARGEST = 1024 * 1024  # bytes of a file of a skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill as it was read. `missing` lists requirements that this machine lacks: then it cannot be active."""

    name: str
    body: str
    front: FrontMatter
    location: Location  # the skill's file
    folder: Location | None = None  # None: a flat file without other files
    is_built_in: bool = False
    tools: tuple[Section, ...] = ()
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
    head, body = front_matter.split_front_matter(text)
    if head is None:
        if folder is None:
            return None
        raise _config_error(location, "it has no front matter", "Begin it with ---, name: …, description: …, ---.")
    front = front_matter.read_front_matter(head, location.shown)
    if not front.description:
        raise _config_error(
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
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise _config_error(
            location, f"it has more than {LARGEST // 1024 // 1024} MiB", "Move long parts into other files."
        )
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _config_error(
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


def _config_error(location: Location, problem: str, advice: str) -> ToolError:
    return ToolError(f"{location.shown}: {problem}", ErrorKind.CONFIG, advice)
