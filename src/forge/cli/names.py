"""Tools by the name a person typed: found, suggested, or completed."""

from __future__ import annotations

import click

from forge.cli.options import Options
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool


def project_tools(options: Options) -> ToolRegistry:
    """The tools of this project; their schemas are not built."""
    from forge.app.choose import choose_tools
    from forge.app.config import load_configuration

    with complaints():
        return choose_tools(load_configuration(options.config), dev=options.dev)


def tool_named(name: str, registry: ToolRegistry) -> Tool:
    """The tool of that name or alias; otherwise near ones are suggested and the command ends."""
    from forge.app.choose import near_names

    found = registry.find(name)
    if found.spec.name in registry:
        return found
    hints = near_names(name, registry)
    meant = " or ".join(repr(hint) for hint in hints)
    raise click.UsageError(f"There is no tool {name!r}. " + (f"Did you mean {meant}?" if hints else SEE_LIST))


SEE_LIST = "`forge tool list` shows all of them."
