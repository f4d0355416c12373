"""Runs a skill's script, once it is certain that it is still the one that was read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.core.threads import in_thread
from forge.permissions.gate import is_opened
from forge.process.layout import confinement_of
from forge.process.runtimes import Command, command_for
from forge.process.script_settings import ScriptSettings
from forge.process.scripts import run_script
from forge.skills.front_matter import one_line
from forge.skills.script_tool import SkillScript, read_script
from forge.workspace.digest import digest_of
from forge.workspace.paths import PathValidator

LONGEST_SAID = 2_000  # characters of what a script says on stderr


async def run_skill_script(
    script: SkillScript, settings: ScriptSettings, arguments: Mapping[str, Any], ctx: ToolContext
) -> ToolResult:
    paths = PathValidator.of(ctx.scope)
    writable = [root.path for root in paths.roots if root.writable]
    command: Command = await in_thread(lambda: _prepared(script, settings, writable))
    confinement = confinement_of(
        ctx.scope,
        paths,
        also=[script.place.root] if paths.place_of(str(script.place.root)) is None else [],
        network=settings.network or is_opened(ctx, Permission.NETWORK),
    )
    return await run_script(script, command, settings, arguments, ctx, confinement, _said)


def _prepared(script: SkillScript, settings: ScriptSettings, writable: list[Path]) -> Command:
    if digest_of(read_script(script.place)) != script.digest:
        raise ToolError(
            f"{script.path} was changed since the skill was loaded",
            ErrorKind.SECURITY,
            "The person has to start Forge again, so that the skill is read again.",
        )
    return command_for(script, settings.python, writable)


def _said(text: str) -> str:
    return "\n".join(filter(None, (one_line(line, LONGEST_SAID) for line in text.splitlines())))
