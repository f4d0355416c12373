"""`forge tool`: the group of commands about tools."""

from __future__ import annotations

import click

from forge.cli.group import LazyGroup


@click.group(
    "tool",
    cls=LazyGroup,
    modules={
        "call": "forge.cli.commands.tool.call",
        "describe": "forge.cli.commands.tool.describe",
        "list": "forge.cli.commands.tool.list_tools",
        "new": "forge.cli.commands.tool.new",
    },
)
def command() -> None:
    """List, describe, call and create tools."""
