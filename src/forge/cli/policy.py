"""`forge policy`: the group of the commands about permissions."""

from __future__ import annotations

import click

from forge.cli.group import LazyGroup


@click.group("policy", cls=LazyGroup, modules={"explain": "forge.cli.policy_explain"})
def command() -> None:
    """See what the policy decides."""
