"""`forge tool list`: lists every tool of the project, without building a schema."""

from __future__ import annotations

import sys
from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.running.tool_names import NO_PERMISSION, describe_permissions, project_tools
from forge.core.extras import install_command
from forge.core.spec import Category, Permission, ToolSpec


@click.command("list")
@with_options
@click.option("--category", type=click.Choice([str(one) for one in Category]), help="Only tools of this category.")
@click.option(
    "--permission",
    type=click.Choice([*map(str, Permission), NO_PERMISSION]),
    help="Only tools that need this permission, or none.",
)
def command(options: Options, category: str | None, permission: str | None) -> None:
    """List the tools, sorted by name.

    \b
    forge tool list --permission write

    A tool that needs an extra of Forge which is not installed is listed as unavailable, with the command that installs
    the extra. No model sees it.

    With --json: {"tools": [{name, category, description, permissions, aliases, origin}], "unavailable": [the same with
    extra, install]}.
    """
    registry = project_tools(options)
    specs = [tool.spec for _, tool in sorted(registry.items())]
    chosen = [spec for spec in specs if _is_selected(spec, category, permission)]
    lacking = sorted(registry.unavailable, key=lambda spec: spec.name)
    unavailable = [spec for spec in lacking if _is_selected(spec, category, permission)]
    if options.json:
        import json  # slow to load: only for programs

        listed = {"tools": [facts(spec) for spec in chosen], "unavailable": [*map(_unavailable_facts, unavailable)]}
        click.echo(json.dumps(listed, ensure_ascii=False))
        return
    click.echo("\n".join(_table(chosen)) if chosen else "No tool matches.")
    for line in _unavailable_lines(unavailable):
        click.echo(line)


def facts(spec: ToolSpec) -> dict[str, Any]:
    """Returns the fields of a tool that programs see, without its schema."""
    return {
        "name": spec.name,
        "category": str(spec.category),
        "description": spec.description,
        "permissions": sorted(map(str, spec.permissions)),
        "aliases": list(spec.aliases),
        "origin": spec.origin,
    }


def _unavailable_facts(spec: ToolSpec) -> dict[str, Any]:
    return {**facts(spec), "extra": spec.extra, "install": install_command(spec.extra)}


def _unavailable_lines(specs: list[ToolSpec]) -> list[str]:
    """Returns a line for each unavailable tool. No line is clipped, so that its command can be copied."""
    width = max((len(spec.name) for spec in specs), default=0)
    lines = [f"{spec.name:<{width}}  unavailable: {install_command(spec.extra)}" for spec in specs]
    return ["", *lines] if lines else []


def origin(spec: ToolSpec) -> str:
    """Returns `builtin`, `dev`, or the source of other tools: `mcp:git`, `script:tools/weather.py`."""
    return spec.origin if ":" in spec.origin else str(spec.category)


def _is_selected(spec: ToolSpec, category: str | None, permission: str | None) -> bool:
    if category is not None and spec.category != category:
        return False
    if permission is None:
        return True
    wanted = spec.permissions | spec.optional_permissions
    return not wanted if permission == NO_PERMISSION else permission in wanted


def _table(specs: list[ToolSpec]) -> list[str]:
    """Aligns columns; on a terminal the descriptions are shortened to its width."""
    rows = [("NAME", "ORIGIN", "NEEDS", "DESCRIPTION")]
    rows += [
        (spec.name, origin(spec), describe_permissions(spec), spec.description.partition("\n")[0]) for spec in specs
    ]
    if not sys.stdout.isatty():
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return ["  ".join((*map(str.ljust, row[:3], widths), row[3])) for row in rows]
    from forge.cli.terminal.tables import table_lines  # slow to load: only on a terminal

    head, *lines = table_lines(rows)
    return [click.style(head, bold=True), *lines]
