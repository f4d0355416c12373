"""The tool with which a model reads a skill."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.context import Scope, ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool

if TYPE_CHECKING:
    from forge.skills.active import ActiveSkills
    from forge.skills.skill import Skill

MOST_FILES = 100  # named in a result
DEEPEST_FOLDERS = 4  # levels of nested folders


class ReadSkill(
    Tool,
    category=Category.BUILTIN,
    groups={"default"},
    permissions={"read"},
    argument_aliases={"skill": "name", "skill_name": "name", "path": "file", "file_path": "file"},
    repeatable=False,
    idempotent=True,
    timeout=30.0,
):
    """Read a skill before a task that it covers; with file, one of the files that it mentions."""

    def __init__(self, active: ActiveSkills | Callable[[], ActiveSkills]) -> None:
        """Makes the tool.

        Args:
            active: the active skills, or a function that returns them.

        Example:
            >>> ReadSkill(ActiveSkills(Catalog())).spec.name
            'read_skill'
        """
        self._given = active

    @property
    def _active(self) -> ActiveSkills:
        """The active skills, loaded on first use: listing tools reads no skill."""
        if callable(self._given):
            self._given = self._given()
        return self._given

    def run(
        self,
        ctx: ToolContext,
        name: str,
        file: Annotated[str, "A path inside the skill."] = "",
    ) -> ToolResult:
        skill = self._active.catalog.find(name)
        self._active.read(skill, ctx.scope.session_id)
        return _read_file(skill, file) if file.strip() else _read_body(skill, self._active)

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks to read the skill's file, so that a rule about its path applies; built-in skills have no path."""
        skill = self._active.catalog.skills.get(arguments["name"])
        return [(Permission.READ, "" if skill is None or skill.is_built_in else skill.location.shown)]


def _read_body(skill: Skill, active: ActiveSkills) -> ToolResult:
    files = _list_files(skill)
    own = [one.name for one in skill.tools] if any(one.name == skill.name for one in active.skills) else []
    notes = []
    if files:
        more = " …" if len(files) > MOST_FILES else ""
        notes.append(f"[Files of this skill, for read_skill(file=…): {', '.join(files[:MOST_FILES])}{more}]")
    if skill.missing:
        notes.append(f"[This skill cannot be used here: {'; '.join(skill.missing)}.]")
    return ToolResult(
        for_llm="\n\n".join([skill.body, *notes]) or "(The skill has no text.)",
        title=f"skill {skill.name}",
        data={
            "name": skill.name,
            "description": skill.description,
            "path": skill.location.shown,
            "files": files[:MOST_FILES],
            "tools": own,
            "missing": list(skill.missing),
        },
    )


def _read_file(skill: Skill, file: str) -> ToolResult:
    from forge.skills.skill import read_text, resolve_skill_file

    location = resolve_skill_file(skill, file)
    try:
        text = read_text(location)
    except ToolError as error:
        if error.kind != ErrorKind.NOT_FOUND:
            raise
        files = ", ".join(_list_files(skill)[:MOST_FILES]) or "none"
        raise ToolError(f"{skill.name} has no file {file[:200]!r}", ErrorKind.NOT_FOUND, f"It has: {files}.") from None
    return ToolResult(
        for_llm=text or "(The file is empty.)",
        title=f"skill {skill.name}: {location.shown}",
        data={"name": skill.name, "file": location.shown},
    )


def _list_files(skill: Skill) -> list[str]:
    """Lists the paths of a skill's other files. Files behind links are not listed."""
    if skill.folder is None:
        return []
    top = str(skill.folder.path)
    found: list[str] = []
    for folder, folders, names in os.walk(top):
        below = os.path.relpath(folder, top)
        depth = 0 if below == "." else below.count(os.sep) + 1
        folders[:] = [] if depth >= DEEPEST_FOLDERS else sorted(one for one in folders if one[0] not in "._")
        found += [os.path.normpath(os.path.join(below, name)) for name in sorted(names) if name[0] != "."]
        if len(found) > MOST_FILES + 1:
            break
    return [path for path in found if path != skill.location.name]
