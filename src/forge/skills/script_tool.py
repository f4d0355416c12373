"""Makes tools of a skill's scripts: each `## Tool:` section describes a tool, and a file runs it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import is_name
from forge.process.run_script import FileTool, ScriptSettings, run_script
from forge.skills.catalog import SkillProblem
from forge.skills.skill import Skill, ToolSection, one_line, resolve_skill_file
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.digest import digest_of
from forge.workspace.paths.open import explain_errors, open_file

FOLDER = "scripts"
LANGUAGES = (".py", ".ts", ".js", ".sh")
LONGEST_SAID = 2_000  # characters of a script's stderr
LARGEST_SCRIPT = 4 * 1024 * 1024  # bytes of a script, which is read before every call


@dataclass(frozen=True, slots=True)
class SkillScript:
    """A script file, with its digest from when the tool was made."""

    path: str  # for people
    location: Location
    digest: str

    @property
    def suffix(self) -> str:
        suffix = os.path.splitext(self.location.name)[1]
        return suffix if suffix in LANGUAGES else ""


class SkillTool(FileTool):
    """Runs the file that was read when the tool was made; refuses a file that has changed since."""

    def __init__(self, skill: str, section: ToolSection, script: SkillScript, settings: ScriptSettings) -> None:
        super().__init__(section.name, script.path, section, settings, f"skill:{skill}")
        self.script = script

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.permissions.gate import confine_as_trial  # needed only for a call
        from forge.permissions.program_network import program_network

        settings = self.settings
        opened = await program_network(ctx, opened=settings.network, sandbox=settings.sandbox)
        return await run_script(
            self.script,
            self.settings,
            arguments,
            ctx,
            paths=PathValidator.of(ctx.scope),
            folder=self.script.location.root,
            network=opened,
            check=self._check,
            clean=_clean,
            confine=confine_as_trial,
        )

    def _check(self) -> None:
        """Raises `ToolError` if the file has changed since it was read."""
        if digest_of(read_script(self.script.location)) != self.script.digest:
            raise ToolError(
                f"{self.script.path} has changed since the skill was loaded",
                ErrorKind.SECURITY,
                "The person must restart Forge to reload the skill.",
            )


def skill_tools(
    skill: Skill, settings: ScriptSettings | None = None, taken: Iterable[str] = ()
) -> tuple[list[SkillTool], list[SkillProblem]]:
    """Returns the tools of a skill, and the problems of the others. `taken`: names that are in use.

    The skill's own hint sets the timeout, and its scripts see the variables that it declares. Call this only for skills
    that a person made active.
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
            tools[section.name] = SkillTool(skill.name, section, load_script(skill, section), own)
        except ToolError as error:
            message = f"tool {one_line(section.name, 80)}: {error.message}. {error.suggestion}"
            problems.append(SkillProblem(skill.location.shown, message.strip(" .") + "."))
    return list(tools.values()), problems


def load_script(skill: Skill, section: ToolSection) -> SkillScript:
    """Finds the script of a section. Raises `ToolError` if there is none."""
    location = _find_script(skill, section)
    shown = location.shown if skill.folder is None else f"{skill.folder.shown}/{location.shown}"
    return SkillScript(shown, location, digest_of(read_script(location)))


def read_script(location: Location) -> bytes:
    with open(open_file(location), "rb") as file, explain_errors(location.shown):
        content = file.read(LARGEST_SCRIPT + 1)
    if len(content) > LARGEST_SCRIPT:
        raise ToolError(f"it has more than {LARGEST_SCRIPT // 1024 // 1024} MiB", ErrorKind.CONFIG, "Make it smaller")
    return content


def _clean(text: str) -> str:
    return "\n".join(filter(None, (one_line(line, LONGEST_SAID) for line in text.splitlines())))


def _check(section: ToolSection, taken: Collection[str]) -> None:
    if section.problem:
        raise ToolError(section.problem, ErrorKind.CONFIG)
    if not is_name(section.name) or "__" in section.name:
        how = "a letter, then up to 63 letters, digits, - or single _"
        raise ToolError(f"it cannot be the name of a tool: {how}", ErrorKind.CONFIG)
    if section.name in taken:
        raise ToolError("the name is taken by another tool", ErrorKind.CONFIG, "Choose another")


def _find_script(skill: Skill, section: ToolSection) -> Location:
    if section.script:
        return resolve_skill_file(skill, section.script)
    stems = dict.fromkeys((section.name, section.name.replace("-", "_"), section.name.replace("_", "-")))
    for file in (f"{FOLDER}/{stem}{suffix}" for stem in stems for suffix in LANGUAGES):
        if skill.folder is not None and os.path.lexists(skill.folder.path / file):
            return resolve_skill_file(skill, file)
    raise ToolError(
        f"there is no script {FOLDER}/{section.name} with the ending {', '.join(LANGUAGES)}",
        ErrorKind.CONFIG,
        "Add one, or name it in a line **Script:** path",
    )
