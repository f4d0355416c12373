"""Runs a script, once it is certain that it is still the one whose header the model was shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from forge.process.scripts import MOST_OF_ERRORS
from forge.process.scripts import run_script as run_to_its_end
from forge.sources.scripts.loading import Script, read_script
from forge.sources.untrusted import clean
from forge.workspace.digest import digest_of
from forge.workspace.paths import PathValidator


async def run_script(
    script: Script,
    settings: ScriptSettings,
    arguments: Mapping[str, Any],
    ctx: ToolContext,
    reload: Callable[[], None],
) -> ToolResult:
    paths = PathValidator.of(ctx.scope)
    writable = [root.path for root in paths.roots if root.writable]
    command: Command = await in_thread(lambda: _prepared(script, settings, writable, reload))
    confinement = confinement_of(
        ctx.scope,
        paths,
        also=[script.place.path.parent] if paths.place_of(str(script.place.path)) is None else [],
        network=settings.network or is_opened(ctx, Permission.NETWORK),
    )
    return await run_to_its_end(
        script, command, settings, arguments, ctx, confinement, lambda text: clean(text, MOST_OF_ERRORS)
    )


def _prepared(script: Script, settings: ScriptSettings, writable: list[Path], reload: Callable[[], None]) -> Command:
    """What to start, once it is certain that the file is still the one whose header the model was shown."""
    try:
        is_same = digest_of(read_script(script.place)) == script.digest
    except ToolError as error:
        reload()
        raise ToolError(
            f"{script.path} cannot be run: {error.message}", ErrorKind.NOT_FOUND, "Look at the tools there are now."
        ) from None
    if not is_same:
        reload()
        raise ToolError(
            f"{script.path} was changed since it was loaded, and is loaded again",
            ErrorKind.USER,
            "Look at what the tool takes now, and call it again.",
            passing=False,
        )
    return command_for(script, settings.python, writable)
