"""A click group that imports a command's module only when the command is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Maps the names of commands to modules; the attribute `command` of a module is the click command."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = self.modules.get(name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.modules or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from forge.core.arguments.checks import near  # only where something is wrong

        hint = near(name, self.modules, 1)
        known = f"Did you mean {hint[0]!r}?" if hint else f"Known are {', '.join(self.list_commands(ctx))}."
        raise click.UsageError(f"There is no command {name!r}. {known}", ctx)
