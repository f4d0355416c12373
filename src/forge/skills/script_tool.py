"""A skill's scripts as tools: what its `## Tool:` sections say, run by the file that belongs to each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Permission, is_name
from forge.process.scripts.settings import ScriptSettings
from forge.process.scripts.tool import FileTool
from forge.skills.catalog import Problem
from forge.skills.front_matter import one_line
from forge.skills.sections import Section
from forge.skills.skill import Skill, confined
from forge.workspace.paths import PathValidator, Place
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explained, open_file

FOLDER = "scripts"
LANGUAGES = (".py", ".ts", ".js", ".sh")
LONGEST_SAID = 2_000  # characters of what a script says on stderr
LARGEST = 4 * 1024 * 1024  # bytes of a script: it is read before every call


@dataclass(frozen=True, slots=True)
class SkillScript:
    """A file as it was when the tool was made."""

    path: str  # for people
    place: Place
    digest: str

    @property
    def suffix(self) -> str:
        suffix = os.path.splitext(self.place.name)[1]
        return suffix if suffix in LANGUAGES else ""


class SkillTool(FileTool):
    """Runs the file that was read when the tool was made; if it was changed since, it is refused."""

    def __init__(self, skill: str, section: Section, script: SkillScript, settings: ScriptSettings) -> None:
        super().__init__(section.name, script.path, section, settings, f"skill:{skill}")
        self.script = script

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.permissions.gate import is_opened  # they load what only a call needs
        from forge.process.scripts import run_script

        return await run_script(
            self.script,
            self.settings,
            arguments,
            ctx,
            places=PathValidator.of(ctx.scope),
            folder=self.script.place.root,
            network=is_opened(ctx, Permission.NETWORK),
            check=self._check,
            clean=_clean,
        )

    def _check(self) -> None:
        """Makes certain that the file is still the one that was read."""
        if digest_of(read_script(self.script.place)) != self.script.digest:
            raise ToolError(
                f"{self.script.path} was changed since the skill was loaded",
                ErrorKind.SECURITY,
                "The person has to start Forge again, so that the skill is read again.",
            )


def skill_tools(
    skill: Skill, settings: ScriptSettings | None = None, taken: Iterable[str] = ()
) -> tuple[list[SkillTool], list[Problem]]:
    """The tools of a skill, and what is wrong with the others. `taken`: names of tools that none may have.

    The skill's own hint decides how long they may take, and its scripts see the variables that it declares: both only
    where a person made it active, and nobody else makes its tools.
    """
    own = settings if settings is not None else ScriptSettings()
    own = replace(
        own,
        timeout=skill.front.timeout_hint or own.timeout,
        env_passthrough=tuple(dict.fromkeys((*own.env_passthrough, *skill.environment))),
    )
    tools: dict[str, SkillTool] = {}
    problems = []
    for section in skill.tools:
        try:
            _check(section, {*taken, *tools})
            tools[section.name] = SkillTool(skill.name, section, script_of(skill, section), own)
        except ToolError as error:
            words = f"tool {one_line(section.name, 80)}: {error.message}. {error.suggestion}"
            problems.append(Problem(skill.place.shown, words.strip(" .") + "."))
    return list(tools.values()), problems


def script_of(skill: Skill, section: Section) -> SkillScript:
    """Raises `ToolError` where there is none."""
    place = _place(skill, section)
    shown = place.shown if skill.folder is None else f"{skill.folder.shown}/{place.shown}"
    return SkillScript(shown, place, digest_of(read_script(place)))


def read_script(place: Place) -> bytes:
    with open(open_file(place), "rb") as file, explained(place.shown):
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ToolError(f"it has more than {LARGEST // 1024 // 1024} MiB", ErrorKind.CONFIG, "Make it smaller")
    return content


def _clean(text: str) -> str:
    return "\n".join(filter(None, (one_line(line, LONGEST_SAID) for line in text.splitlines())))


def _check(section: Section, taken: Collection[str]) -> None:
    if section.problem:
        raise ToolError(section.problem, ErrorKind.CONFIG)
    if not is_name(section.name) or "__" in section.name:
        how = "a letter, then up to 63 letters, digits, - or single _"
        raise ToolError(f"it cannot be the name of a tool: {how}", ErrorKind.CONFIG)
    if section.name in taken:
        raise ToolError("the name belongs to another tool", ErrorKind.CONFIG, "Choose another")


def _place(skill: Skill, section: Section) -> Place:
    if section.script:
        return confined(skill, section.script)
    stems = dict.fromkeys((section.name, section.name.replace("-", "_"), section.name.replace("_", "-")))
    for file in (f"{FOLDER}/{stem}{suffix}" for stem in stems for suffix in LANGUAGES):
        if skill.folder is not None and os.path.lexists(skill.folder.path / file):
            return confined(skill, file)
    raise ToolError(
        f"there is no script {FOLDER}/{section.name} with the ending {', '.join(LANGUAGES)}",
        ErrorKind.CONFIG,
        "Write one, or name it in a line **Script:** path",
    )
