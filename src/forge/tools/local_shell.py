"""Runs short command lines during development: `bash` with fewer options and less time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.bash import MAX_OUTPUT, MAX_TIMEOUT, Bash

if TYPE_CHECKING:  # it loads what only a call needs
    from forge.permissions.targets import CallJudge

TIMEOUT = 30.0  # seconds

_DEFAULTS = {"description": "", "working_dir": "", "background": False, "stdin": ""}  # what `bash` takes beside these


class LocalShell(
    Tool,
    category=Category.DEV,
    argument_aliases={"cmd": "command", "script": "command"},
    permissions={"execute"},
    optional_permissions={"read", "network"},
    target="command",
    keep_end=True,
    timeout=TIMEOUT,
):
    """Run a short shell command in the workspace and get its output and exit code, for development."""

    def __init__(
        self,
        shell: str = "",
        sandbox: str | bool | None = None,
        network: bool = False,
        env_passthrough: Sequence[str] | None = None,
        max_output_bytes: int = MAX_OUTPUT,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """The settings of `bash`, which runs the lines."""
        self._settings: dict[str, Any] = {
            "shell": shell,
            "sandbox": sandbox,
            "network": network,
            "env_passthrough": env_passthrough,
            "max_output_bytes": max_output_bytes,
            "limits": limits,
        }

    async def run(
        self,
        ctx: ToolContext,
        command: Annotated[str, ParameterLimits(example="ls -la", min_length=1), "One or more lines for bash."],
        timeout: Annotated[float, ParameterLimits(gt=0, le=MAX_TIMEOUT), "Seconds until it is killed."] = TIMEOUT,
    ) -> ToolResult:
        whole: dict[str, Any] = {**_DEFAULTS, "command": command, "timeout": timeout}
        return await self._bash().run(ctx.replace(arguments=whole), **whole)

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"timeout": Setting(self.spec.timeout or TIMEOUT)}

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        return self._bash().trial_needs({**_DEFAULTS, **arguments})

    def required_permissions(
        self, arguments: Mapping[str, Any], scope: Scope
    ) -> list[tuple[Permission | None, str]] | None:
        """Asks for the same permissions as `bash`."""
        return self._bash().required_permissions({**_DEFAULTS, **arguments}, scope)

    def _required_permissions_under(
        self, arguments: Mapping[str, Any], scope: Scope, judge: CallJudge
    ) -> list[tuple[Permission | None, str]] | None:
        return self._bash()._required_permissions_under({**_DEFAULTS, **arguments}, scope, judge)

    def _bash(self) -> Bash:
        bash = Bash(**self._settings)
        bash.spec = self.spec  # the permissions that a project gave to this tool
        return bash
