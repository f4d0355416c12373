"""`forge policy`: the group of commands about permissions."""

from __future__ import annotations

import click

from forge.cli.group import LazyGroup


@click.group(
    "policy",
    cls=LazyGroup,
    modules={"explain": "forge.cli.commands.policy.explain", "test": "forge.cli.commands.policy.test"},
)
def command() -> None:
    """Explain what the policy decides, and test it with examples."""
