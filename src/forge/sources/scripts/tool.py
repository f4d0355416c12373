"""A script as a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forge.core.context import ToolContext
from forge.core.result import ToolResult
from forge.process.script_settings import ScriptSettings
from forge.process.script_tool import FileTool
from forge.sources.scripts.loading import Script


class ScriptTool(FileTool):
    """Runs the file that was read when the tool was made: changed since, it is read again instead."""

    def __init__(
        self,
        script: Script,
        settings: ScriptSettings,
        *,
        is_changed: bool = False,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_changed`: since the session began. `reload` is called when the file turns out to be another."""
        super().__init__(script.name, script.path, script.header, settings, f"script:{script.path}")
        self.script = script
        self.is_changed = is_changed
        self.reload = reload

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.sources.scripts.running import run_script  # it loads what only a call needs

        return await run_script(self.script, self.settings, arguments, ctx, self.reload)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """One that changed is marked as another: a yes to what it was is none to what it is."""
        (path,) = super().targets(arguments)
        return [f"{path} # changed: {self.script.digest[:8]}" if self.is_changed else path]

    async def foresee(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return f"{self.script.path} was changed since this session began." if self.is_changed else ""
