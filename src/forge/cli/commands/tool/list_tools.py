"""`forge tool list`: lists every tool of the project, without building a schema."""

from __future__ import annotations

import sys
from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.running.tool_names import NO_PERMISSION, describe_permissions, project_tools
from forge.core.spec import Category, Permission, ToolSpec


@click.command("list")
@with_options
@click.option("--category", type=click.Choice([str(one) for one in Category]), help="Only tools of this category.")
@click.option(
    "--permission",
    type=click.Choice([*map(str, Permission), NO_PERMISSION]),
    help="Only tools that need this, or nothing.",
)
def command(options: Options, category: str | None, permission: str | None) -> None:
    """List the tools, sorted by name.

    \b
    forge tool list --permission write

    With --json: {"tools": [{name, category, description, permissions, aliases, origin}]}.
    """
    specs = [tool.spec for _, tool in sorted(project_tools(options).items())]
    chosen = [spec for spec in specs if _is_selected(spec, category, permission)]
    if options.json:
        import json  # slow to load: only for programs

        click.echo(json.dumps({"tools": [facts(spec) for spec in chosen]}, ensure_ascii=False))
        return
    click.echo("\n".join(_table(chosen)) if chosen else "No tool matches.")


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
    """Aligns columns; a terminal's width clips the descriptions."""
    rows = [("NAME", "ORIGIN", "NEEDS", "DESCRIPTION")]
    rows += [
        (spec.name, origin(spec), describe_permissions(spec), spec.description.partition("\n")[0]) for spec in specs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3])) for row in rows]
    if not sys.stdout.isatty():
        return lines
    import shutil  # slow to load: only on a terminal

    width = shutil.get_terminal_size().columns
    clipped = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    return [click.style(clipped[0], bold=True), *clipped[1:]]
