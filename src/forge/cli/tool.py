"""`forge tool`: the group of commands about tools."""

from __future__ import annotations

import click

from forge.cli.group import LazyGroup


@click.group(
    "tool",
    cls=LazyGroup,
    modules={
        "call": "forge.cli.commands.tool_call",
        "describe": "forge.cli.commands.tool_describe",
        "list": "forge.cli.commands.tool_list",
        "new": "forge.cli.commands.tool_new",
    },
)
def command() -> None:
    """List tools, look at one, call one, write one."""
