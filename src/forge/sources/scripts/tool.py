"""A script as a tool."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from forge.core.context import Scope, ToolContext
from forge.core.result import ToolResult
from forge.core.schema import compiled
from forge.core.spec import Category, Permission, ToolSpec
from forge.core.tool import Tool
from forge.process.script_settings import ScriptSettings
from forge.sources.scripts.loading import Script


class ScriptTool(Tool):
    """Runs the file that was read when the tool was made: changed since, it is read again instead."""

    checked = True  # the schema is of our own making

    def __init__(
        self,
        script: Script,
        settings: ScriptSettings,
        *,
        is_changed: bool = False,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_changed`: since the session began. `reload` is called when the file turns out to be another."""
        self.script = script
        self.settings = settings
        self.is_changed = is_changed
        self.reload = reload
        self.spec = ToolSpec(
            name=script.name,
            description=script.header.description,
            parameters=script.header.parameters,
            category=Category.CUSTOM,
            permissions=frozenset({Permission.EXECUTE}),
            timeout=settings.timeout,
            origin=f"script:{script.path}",
        )

    def with_settings(self, **changes: Any) -> ScriptTool:
        """The same script with other settings, as `ScriptSettings` has them."""
        own = copy.copy(self)
        own.__dict__.pop("parse", None)
        own.settings = replace(self.settings, **changes)
        if "timeout" in changes:
            own.spec = self.spec.changed(timeout=own.settings.timeout)
        return own

    def parse(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """With the defaults filled in, so that a person who is asked sees all that the script will be given."""
        parser, defaults = compiled(self.spec), self.script.header.defaults

        def parse(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
            parsed = parser(arguments)
            for name, value in defaults.items():
                if name not in parsed:
                    parsed[name] = copy.deepcopy(value)
            return parsed

        self.__dict__["parse"] = parse
        return parse(arguments)

    async def invoke(self, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolResult:
        from forge.sources.scripts.running import run_script  # it loads what only a call needs

        return await run_script(self.script, self.settings, arguments, ctx, self.reload)

    def targets(self, arguments: Mapping[str, Any]) -> list[str]:
        """The file as a command. One that changed is marked as another: a yes to what it was is none to what it is."""
        path = shlex.quote(self.script.path)
        return [f"{path} # changed: {self.script.digest[:8]}" if self.is_changed else path]

    def wants(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]] | None:
        """To execute the file; of other permissions that a person declared, the script cannot say what it touches."""
        (target,) = self.targets(arguments)
        return [(one, target if one is Permission.EXECUTE else "") for one in sorted(self.spec.permissions)] or None

    async def foresee(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        return f"{self.script.path} was changed since this session began." if self.is_changed else ""
