"""`forge build`: writes a project for production into one directory."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, require_project, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # showing the help does without
    from forge.project.build.record import Build, BuildOrder, StageProblem

OUTPUT = ".forge-output"


@click.command("build")
@with_options("dev")
@click.option("--prod", is_flag=True, help="For production: no development tools, no open settings.")
@click.option(
    "--output", metavar="DIR", help=f"Output directory, which is replaced. Default: {OUTPUT} in the workspace."
)
def command(options: Options, *, prod: bool, output: str | None) -> int:
    """Build the project into a directory that can be deployed.

    \b
    forge build                        check the project and write .forge-output/
    forge build --prod                 the same, for production
    forge build --prod --output dist   write to another directory
    forge run --from .forge-output     run exactly what was built

    A build contains the resolved tools, the compiled rules, and a manifest with the hash of every file. The stages are
    load, resolve, filter, schemas, compile, manifest and validate. The first stage with a problem stops the build, and
    the previous output stays. Builds are reproducible: the same project gives the same bytes on every machine.

    With --prod, development tools are left out. The build refuses open egress, missing environment variables, sandbox:
    off, MCP tools that are not approved, active skills with missing requirements, and broken scripts.

    \b
    With --json: {"ok": true, "output", "sha256", "mode", "counts", "files", "environment", "notes"}
             or: {"ok": false, "stage", "problems": [{"problem", "advice"}]}
    Exit codes: 0 built     2 not built: a stage found a problem, or a flag cannot be used
    """
    if prod and options.dev:
        raise click.UsageError("--dev and --prod cannot be combined: a production build has no development tools.")
    from forge.project.build.stages import BuildError, build  # everything, which showing the help does without

    with refusals():
        order = _order(options, prod=prod, output=output)
    try:
        build_result = build(order, _progress(quiet=options.json))
    except BuildError as error:
        if options.json:
            problems = [{"problem": one.text, "advice": one.advice} for one in error.problems]
            _print_json({"ok": False, "stage": error.stage, "problems": problems})
            return 2
        raise Refusal("\n".join(_render_problem(error.stage, one) for one in error.problems)) from error
    if options.json:
        _print_json(_summary(build_result))
        return 0
    _print_build(build_result)
    return 0


def _order(options: Options, *, prod: bool, output: str | None) -> BuildOrder:
    """Reads the flags into an order. Raises `ToolError`."""
    from forge.project.assemble.access import workspace_root
    from forge.project.build.record import BuildOrder

    workspace = workspace_root(options.workspace)
    return BuildOrder(
        config=require_project(options, "build"),  # to build it is to start its servers
        workspace=workspace,
        output=Path(output) if output is not None else workspace / OUTPUT,
        named=options.workspace is not None,
        prod=prod,
        dev=options.dev,
    )


def _progress(*, quiet: bool) -> Any:
    """Returns a function that prints one line per stage if a person watches."""
    watched = sys.stderr.isatty() and not quiet

    def report(stage: str, message: str) -> None:
        if watched and message:
            click.echo(f"{click.style('✓', fg='green')} {stage:<9} {harmless(message)}", err=True)
        elif watched:
            click.echo(f"· {stage}\r", err=True, nl=False)

    return report


def _render_problem(stage: str, problem: StageProblem) -> str:
    return f"forge build: {stage}: {harmless(str(problem))}"


def _summary(build: Build) -> dict[str, Any]:
    from forge.project.build.manifest import environment

    return {
        "ok": True,
        "output": str(build.order.output),
        "sha256": build.sha256,
        "mode": build.order.mode,
        "counts": build.counts,
        "files": len(build.files),
        "environment": environment(build),
        "notes": build.notes,
    }


def _print_build(build: Build) -> None:
    for note in build.notes:
        click.echo(f"forge: {harmless(note)}", err=True)
    counts = build.counts
    shares = ", ".join(f"{number} {what}" for what, number in counts.items() if number and what != "total")
    click.echo(f"Built: {counts['total']} tools ({shares}), {len(build.files)} files in {build.order.output}")
    click.echo(f"SHA-256 of the manifest: {build.sha256}")
    if build.required:
        click.echo(f"Required variables: {', '.join(sorted(build.required))}")
    click.echo(f"To run it: forge run --from {shlex.quote(str(build.order.output))} --expect {build.sha256}")


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
