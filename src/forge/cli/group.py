"""Groups of commands: their help shows whole sentences; a lazy one imports a command's module when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

LONGEST_SUMMARY = 1_000  # characters: more than any command's first sentence has


class CommandGroup(click.Group):
    """Lists its commands with whole sentences, wrapped to the width of the terminal; click would cut them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(LONGEST_SUMMARY))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from forge.cli.other_verbs import suggest  # only where something is wrong

        raise click.UsageError(
            f"There is no command {name!r}. {suggest(self.name or '', name, known, ctx.command_path)}", ctx
        )


class LazyGroup(CommandGroup):
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
