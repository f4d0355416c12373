"""A tool that runs a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import ToolResult
from forge.core.spec import Permission
from forge.process.scripts.tool import FileTool, ScriptSettings
from forge.sources.scripts.loading import Script, read_script
from forge.workspace.paths import PathValidator
from forge.workspace.paths.digest import digest_of


class ScriptTool(FileTool):
    """Runs the file that was read when the tool was made; a file that has changed since is reloaded instead."""

    def __init__(
        self,
        script: Script,
        settings: ScriptSettings,
        *,
        is_changed: bool = False,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_changed`: the file changed since the session began. `reload` is called if the file has changed."""
        super().__init__(script.name, script.path, script.header, settings, f"script:{script.path}")
        self.script = script
        self.is_changed = is_changed
        self.reload = reload

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.permissions.gate import is_opened  # needed only for a call
        from forge.process.scripts import MOST_OF_ERRORS, run_script
        from forge.sources.untrusted import clean

        return await run_script(
            self.script,
            self.settings,
            arguments,
            ctx,
            paths=PathValidator.of(ctx.scope),
            folder=self.script.location.path.parent,
            network=is_opened(ctx, Permission.NETWORK),
            check=self._check,
            clean=lambda text: clean(text, MOST_OF_ERRORS),
        )

    def _check(self) -> None:
        """Raises `ToolError` if the file is no longer the one whose header the model saw."""
        path = self.script.path
        try:
            is_same = digest_of(read_script(self.script.location)) == self.script.digest
        except ToolError as error:
            self.reload()
            problem = f"{path} cannot be run: {error.message}"
            raise ToolError(problem, ErrorKind.NOT_FOUND, "Check the current list of tools.") from None
        if not is_same:
            self.reload()
            raise ToolError(
                f"{path} has changed since it was loaded; Forge has reloaded it",
                ErrorKind.USER,
                "Check the tool's parameters, which may be new, and call it again.",
                passing=False,
            )

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """Marks a changed script as another target: approval of the old content does not cover the new."""
        (path,) = super().targets(arguments)
        return [f"{path} # changed: {self.script.digest[:8]}" if self.is_changed else path]

    async def preview_call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return f"{self.script.path} has changed since this session began." if self.is_changed else ""
