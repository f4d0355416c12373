"""Runs a project's tests, whatever they are written with, and says which failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from forge.core.arguments.parameters import ParameterLimits, Setting
from forge.core.context import Scope, ToolContext, TrialNeeds
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission
from forge.core.tool import Tool
from forge.tools.bash import Bash

if TYPE_CHECKING:  # they load what only a call needs
    from forge.process.running.run import FinishedProgram
    from forge.tools.test_runner.frameworks import Plan

TIMEOUT = 300.0  # seconds
MAX_TIMEOUT = 3_600.0
MAX_OUTPUT = 16 * 1024 * 1024  # bytes kept of each stream, half of them from the beginning

Name = Literal["auto", "pytest", "unittest", "jest", "vitest", "node", "go", "cargo"]


class TestRunner(
    Tool,
    category=Category.DEV,
    argument_aliases={"path": "target", "file": "target", "test": "target", "runner": "framework"},
    permissions={"execute"},
    optional_permissions={"read", "network"},
    keep_end=True,
    timeout=TIMEOUT,
):
    """Run the project's tests (pytest, unittest, jest, vitest, node, go, cargo) and get counts and each failure."""

    __test__ = False  # its name does not make it a test

    def __init__(
        self,
        shell: str = "",
        sandbox: str | bool | None = None,
        network: bool = False,
        env_passthrough: Sequence[str] | None = None,
        max_output_bytes: int = MAX_OUTPUT,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """The settings of `bash`, by which the framework is run."""
        self._settings = Bash(
            shell=shell,
            sandbox=sandbox,
            network=network,
            env_passthrough=env_passthrough,
            max_output_bytes=max_output_bytes,
            limits=limits,
        )

    async def run(
        self,
        ctx: ToolContext,
        framework: Annotated[Name, "By default detected from the project's files."] = "auto",
        target: Annotated[str, "A file, a directory, file::test, or the name of a test; by default all."] = "",
        timeout: Annotated[float, ParameterLimits(gt=0, le=MAX_TIMEOUT), "Seconds until it is killed."] = TIMEOUT,
    ) -> ToolResult:
        from forge.core.execution.threads import in_thread  # they load what only a call needs
        from forge.permissions.gate import gate_of
        from forge.tools.test_runner.frameworks import plan_run
        from forge.tools.test_runner.results import build_result

        plan = plan_run(ctx.scope, framework, target)
        if gate_of(ctx).judges:  # the files that it was found out from may have changed since it was asked for
            await ctx.require(Permission.EXECUTE, plan.line)
        ctx.progress(f"running {plan.framework}", command=plan.line)
        finished = await self._run_plan(ctx, plan, timeout)
        report = await in_thread(lambda: plan.how.read(finished.output, finished.errors))
        return build_result(ctx, plan, finished, report, timeout)

    async def _run_plan(self, ctx: ToolContext, plan: Plan, timeout: float) -> FinishedProgram:

        from forge.process.running.output import Capture, OutputPlan
        from forge.process.running.run import run
        from forge.tools.bash.run import prepare_line

        work = await prepare_line(self._settings, ctx, plan.line, plan.folder, "", None)
        toolchain = [path for toolchain_folder in plan.how.toolchains for path in toolchain_folder.readable]
        half = self._settings.max_output_bytes // 2
        return await run(
            work.argv,
            cwd=work.cwd,
            env={
                **work.env,
                **{
                    toolchain_folder.variable: str(toolchain_folder.path)
                    for toolchain_folder in plan.how.toolchains
                    if toolchain_folder.path.is_dir()
                },
            },
            timeout=timeout,
            output=OutputPlan(
                Capture(half, half),
                on_output=_WithoutReport(ctx).show if ctx.activity.listening and plan.how.shows else None,
            ),
            limits=work.limits,
            confinement=replace(work.confinement, readable=(*work.confinement.readable, *toolchain)),
        )

    def parameter_settings(self) -> Mapping[str, Setting]:
        return {"timeout": Setting(self.spec.timeout or TIMEOUT)}

    def trial_needs(self, arguments: Mapping[str, Any]) -> TrialNeeds | None:
        return self._settings.trial_needs({"background": False})

    def required_permissions(self, arguments: Mapping[str, Any], scope: Scope) -> list[tuple[Permission | None, str]]:
        """Asks to execute the detected command line; refuses the call if there is none."""
        from forge.tools.test_runner.frameworks import plan_run

        line = plan_run(scope, arguments["framework"], arguments["target"]).line
        return [(permission, line) for permission in sorted(self.spec.permissions)]


class _WithoutReport:
    """Shows what a framework writes while it runs, but not the report that pytest writes in between."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._inside = False

    def show(self, piece: str) -> None:
        if not self._inside:
            before, start, piece = piece.partition("<?xml")
            self._inside = bool(start)
            if before:
                self._ctx.output(before)
        if self._inside:
            _, end, after = piece.partition("</testsuites>")
            self._inside = not end
            if after:
                self._ctx.output(after)
