"""Finds and loads skills: the project's first, then the built-in ones."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from forge.core.arguments.names import near
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import find_status
from forge.skills.skill import Skill, one_line, read_skill_file
from forge.skills.standard import FILES, is_standard_name
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.open import open_directory

BUILT_IN = Path(__file__).parent / "builtin"
MOST_ENTRIES = 1_000  # entries of a folder that are read
MOST_SHOWN = 200  # skills in a prompt
LONGEST_LINE = 400  # characters of a skill in a prompt, about a hundred tokens


class SkillProblem(NamedTuple):
    """A skill that cannot be used, and the reason."""

    path: str
    why: str


class _SkillEntry(NamedTuple):
    name: str
    file: str  # the path below the root
    folder: str  # "" for a flat file


class Catalog:
    """The skills in some folders, read on first use. A broken skill becomes a problem; the others load.

    A relative folder belongs to the workspace, and no link leads outside; an absolute folder is its own root.

    Args:
        paths: the folders.
        scope: the workspace.
        built_in: whether the built-in skills are included.

    Example:
        >>> "code-agent" in Catalog().skills
        True
    """

    def __init__(
        self, paths: Sequence[str] = ("skills",), scope: Scope | None = None, *, built_in: bool = True
    ) -> None:
        self.paths = tuple(paths)
        self.scope = scope if scope is not None else Scope()
        self._built_in = built_in
        self._problems: list[SkillProblem] = []

    @cached_property
    def skills(self) -> dict[str, Skill]:
        """The skills by name, sorted."""
        found: dict[str, Skill] = {}
        self._problems = []
        for folder in self.paths:
            self._load_folder(folder, found)
        if self._built_in:
            self._add_skills(PathValidator(BUILT_IN, environment={}), ".", found, is_built_in=True)
        return dict(sorted(found.items()))

    @property
    def problems(self) -> list[SkillProblem]:
        _ = self.skills
        return self._problems

    def reload(self) -> None:
        """Reads all skills again on the next use."""
        self.__dict__.pop("skills", None)

    def find(self, name: str) -> Skill:
        """Returns a skill by name. Raises `ToolError`, which lists the known names."""
        if found := self.skills.get(name):
            return found
        if not is_standard_name(name):
            raise ToolError(
                f"{name[:80]!r} cannot be the name of a skill",
                ErrorKind.SECURITY if re.search(r"[/\\]|\.\.|\0", name) else ErrorKind.NOT_FOUND,
                f"Use lower-case letters, digits and dashes. {self._suggest_names(name)}",
            )
        for problem in self.problems:
            if problem.path.endswith((*(f"/{name}/{one}" for one in FILES), f"/{name}.md")):
                message = f"the skill {name!r} cannot be used: {problem.why}"
                raise ToolError(message, ErrorKind.CONFIG, f"The person must fix {problem.path}.")
        raise ToolError(f"there is no skill {name!r}", ErrorKind.NOT_FOUND, self._suggest_names(name))

    def summary(self) -> str:
        """Returns one line per skill for the prompt: its purpose, so that a model knows when to read it."""
        lines = [_summarise(skill) for skill in list(self.skills.values())[:MOST_SHOWN]]
        if more := len(self.skills) - len(lines):
            lines.append(f"- and {more} more: read_skill with an unknown name lists them.")
        return "\n".join(lines)

    def _suggest_names(self, name: str) -> str:
        hint = [f"Did you mean {one!r}?" for one in near(name, self.skills, 1)]
        names = ", ".join(self.skills)
        listed = names if len(names) <= 2_000 else f"{names[:2_000].rpartition(', ')[0]} …"
        return " ".join([*hint, f"There are: {listed}." if listed else "There are none."])

    def _load_folder(self, folder: str, found: dict[str, Skill]) -> None:
        if os.path.isabs(folder):
            self._add_skills(PathValidator(Path(folder), environment={}), ".", found)
        else:
            self._add_skills(PathValidator.of(self.scope), folder, found)

    def _add_skills(
        self, paths: PathValidator, folder: str, found: dict[str, Skill], *, is_built_in: bool = False
    ) -> None:
        try:
            entries = list(_list_entries(paths, folder))
        except ToolError as error:
            if error.kind != ErrorKind.NOT_FOUND or not (is_built_in or folder == "skills"):
                self._problems.append(SkillProblem(folder, f"{error.message}. {error.suggestion}".strip()))
            return
        for entry in entries:
            try:
                skill = self._read_entry(entry, paths, found, is_built_in=is_built_in)
            except ToolError as error:
                words = error.message.removeprefix(f"{entry.file}: ")
                self._problems.append(SkillProblem(entry.file, f"{words}. {error.suggestion}".strip(" .") + "."))
            else:
                if skill is not None:
                    found[skill.name] = skill

    def _read_entry(
        self, entry: _SkillEntry, paths: PathValidator, found: dict[str, Skill], *, is_built_in: bool
    ) -> Skill | None:
        if entry.name in found:
            if is_built_in:  # the project overrides it
                return None
            raise ToolError(
                f"{found[entry.name].location.shown} already is a skill with that name", ErrorKind.CONFIG, "Rename one"
            )
        if not entry.folder and not is_standard_name(entry.name) and entry.name.upper() == entry.name:
            return None  # README.md
        skill = read_skill_file(
            entry.name,
            self._resolve(paths, entry.file),
            folder=self._resolve(paths, entry.folder) if entry.folder else None,
            is_built_in=is_built_in,
            writable=[root.path for root in PathValidator.of(self.scope).roots if root.writable],
        )
        if skill is not None and not is_standard_name(entry.name):
            raise ToolError(
                f"{entry.name[:80]!r} cannot be the name of a skill",
                ErrorKind.CONFIG,
                "Name its file or folder with up to 64 lower-case letters, digits and dashes",
            )
        return skill

    def _resolve(self, paths: PathValidator, file: str) -> Location:
        """Resolves a file; it is shown relative to the workspace, or as an absolute path."""
        location = paths.resolve(file)
        own = PathValidator.of(self.scope).location_of(str(location.path))
        return replace(location, shown=own.shown if own is not None else str(location.path))

    def __repr__(self) -> str:
        return f"<Catalog of {', '.join(self.paths) or 'no folders'}>"


def _list_entries(paths: PathValidator, folder: str) -> Iterator[_SkillEntry]:
    """Yields the entries of a folder that may be skills; nothing is opened yet."""
    location: Location = paths.resolve(folder)
    descriptor = open_directory(location)
    try:
        names = sorted(name for name in os.listdir(descriptor) if not name.startswith("."))[:MOST_ENTRIES]
        prefix = "" if folder == "." else f"{folder.rstrip('/')}/"
        for name in names:
            status = find_status(descriptor, name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                file = next((one for one in FILES if find_status(descriptor, f"{name}/{one}") is not None), None)
                if file is not None:
                    yield _SkillEntry(name, f"{prefix}{name}/{file}", f"{prefix}{name}")
            elif name.endswith(".md"):
                yield _SkillEntry(name.removesuffix(".md"), f"{prefix}{name}", "")
    finally:
        os.close(descriptor)


def _summarise(skill: Skill) -> str:
    lacks = f" (cannot be used here: {'; '.join(skill.missing)})" if skill.missing else ""
    return one_line(f"- {skill.name}: {skill.description}", LONGEST_LINE - min(len(lacks), 150)) + lacks[:150]
