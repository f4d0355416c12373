"""`forge tool describe`: shows a tool's schema, permissions and an example call."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from forge.agent.tokens import estimate_definition
from forge.cli.commands.tool.list_tools import facts
from forge.cli.options import Options, with_options
from forge.cli.running.tool_names import complete_name, describe_permissions, find_tool, project_tools
from forge.core.arguments.example import example_arguments
from forge.core.extras import install_command
from forge.core.spec import ToolSpec
from forge.core.tool import UnavailableTool


@click.command("describe")
@click.argument("name", shell_complete=complete_name)
@with_options("dev")
def command(options: Options, name: str) -> None:
    """Show a tool's schema, permissions, aliases, origin, and an example call.

    \b
    forge tool describe math_calculate

    With --json: what `forge tool list` has, and parameters, returns (the schema of the returned value),
    optional_permissions, example (the arguments of a call), tokens (estimated, of the definition).
    """
    tool = find_tool(name, project_tools(options, name))
    spec = tool.spec
    if options.json:
        more: dict[str, Any] = {
            "parameters": spec.parameters,
            "returns": spec.returns,
            "optional_permissions": sorted(map(str, spec.optional_permissions)),
            "example": example_arguments(spec.parameters),
            "tokens": estimate_definition(spec),
        }
        if isinstance(tool, UnavailableTool):
            more |= {"extra": spec.extra, "install": install_command(spec.extra)}
        click.echo(json.dumps({**facts(spec), **more}, ensure_ascii=False))
        return
    click.echo(_page(spec, install_command(spec.extra) if isinstance(tool, UnavailableTool) else ""))


def _page(spec: ToolSpec, install: str = "") -> str:
    arguments = json.dumps(example_arguments(spec.parameters), ensure_ascii=False)
    timeout = f"{spec.timeout:g} s" if spec.timeout is not None else "none"
    entries = {
        "category": str(spec.category),
        "needs": describe_permissions(spec),
        "aliases": ", ".join(spec.aliases) or "none",
        "origin": spec.origin or "unknown",
        "time limit": timeout,
        "definition": f"about {estimate_definition(spec):,} tokens",
        "example": f"forge tool call {spec.name} {shlex.quote(arguments)}",
    }
    if install:
        entries = {"unavailable": install, **entries}
    width = max(12, max(map(len, entries)) + 2)
    lines = [click.style(spec.name, bold=True), spec.description, ""]
    lines += [f"{label + ':':<{width}}{value}" for label, value in entries.items()]
    lines += ["parameters:", json.dumps(spec.parameters, indent=2, ensure_ascii=False)]
    if spec.returns is not None:
        lines += ["returns:", json.dumps(spec.returns, indent=2, ensure_ascii=False)]
    return "\n".join(lines)
