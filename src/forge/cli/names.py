"""Tools by the name a person typed: found, suggested, or completed."""

from __future__ import annotations

import click

from forge.app.choose import choose_tools
from forge.app.config import load_configuration
from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.core.arguments import near
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool


def project_tools(options: Options) -> ToolRegistry:
    """The tools of this project, in which no schema is built yet."""
    with refusals():
        return choose_tools(load_configuration(options.config), dev=options.dev)


def tool_named(name: str, registry: ToolRegistry) -> Tool:
    """The tool of that name or alias; otherwise the command ends, with near names."""
    found = registry.find(name)
    if found.spec.name in registry:
        return found
    known = [known for tool in registry.values() for known in (tool.spec.name, *tool.spec.aliases)]
    hints = " or ".join(repr(hint) for hint in near(name, known))
    advice = f"Did you mean {hints}?" if hints else "`forge tool list` shows all of them."
    raise Refusal(f"there is no tool {name!r}. {advice}")


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What a shell offers after `forge tool call`."""
    names = choose_tools(load_configuration(None), dev=bool(ctx.params.get("dev")))
    return [name for name in sorted(names) if name.startswith(incomplete)]
