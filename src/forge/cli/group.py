"""Groups of commands: help with whole sentences, commands imported when they are used, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click

from forge.cli.options import Options
from forge.core.arguments.names import near

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


# Suggests what a person meant: `new` for the verb `create` of other programs, `--model` for `--modle`.


ALIKE = (  # words for the same intent, the closest first
    "new create add make generate scaffold init set write",
    "remove delete rm del erase discard prune",
    "list ls all index",
    "show describe get info inspect view print cat read status",
    "call run exec execute invoke use try start",
    "run chat ask start prompt agent",
    "explain why check test",
    "rename title name mv",
    "answer approve accept reply respond reject deny",
    "cancel stop kill abort end",
    "resume continue restart retry",
    "search find grep query",
    "console ui web dashboard gui",
    "doctor check status health verify",
    "trust accept allow",
    "undo revert restore rollback",
    "export dump save",
)

ELSEWHERE = {  # what a group has no command for, and how it is done
    ("tool", "remove"): "To remove a tool of the project, delete its file in tools/.",
    ("policy", "new"): "Rules are written in forge.yaml, under permissions.rules.",
    ("config", "new"): "Settings are written in forge.yaml; `forge init` writes one.",
}


def suggest(group: str, word: str, known: Iterable[str], path: str) -> str:
    """Returns a sentence for a person who typed an unknown command of a group. `path` is the group as it was typed."""
    names = list(known)
    if found := suggest_commands(word, names):
        return f"Did you mean {' or '.join(f'`{path} {one}`' for one in found)}?"
    if group == "session":  # the word is probably the name of a session
        return f"For a session of that name: `{path} show {word}`, or `forge run --session {word}` to resume it."
    for line in ALIKE:
        if word.lower() in line.split() and (hint := ELSEWHERE.get((group, line.split()[0]))):
            return hint
    return f"Known are {', '.join(names)}."


def suggest_commands(word: str, known: Iterable[str]) -> list[str]:
    """Returns commands of similar spelling, or of the same meaning; at most two."""

    names = list(known)
    spelled = near(word, names, 1)
    meant = [one for line in ALIKE if word.lower() in line.split() for one in line.split() if one in names]
    return list(dict.fromkeys([*spelled, *meant]))[:2]


def explain_option(error: click.NoSuchOption) -> click.UsageError:
    """Return the error for an unknown option: with the argument or the closest option that was meant, if any."""

    name, ctx = error.option_name, error.ctx
    if ctx is None:
        return error
    written = name.lstrip("-").replace("-", "_")
    for argument in ctx.command.params:
        if isinstance(argument, click.Argument) and argument.name == written:
            shown = argument.make_metavar(ctx)
            return click.UsageError(f"There is no option {name}: {shown} is given without one, in its place.", ctx)
    if written in Options._fields:
        return click.UsageError(f"There is no option {name}: it has no effect on `{ctx.command_path}`.", ctx)
    known = [
        flag
        for option in ctx.command.get_params(ctx)
        if isinstance(option, click.Option) and not option.hidden
        for flag in (*option.opts, *option.secondary_opts)
    ]
    close = near(name, known, 1)
    hint = f"Did you mean {close[0]}?" if close else f"`{ctx.command_path} --help` lists the options."
    return click.UsageError(f"There is no option {name}. {hint}", ctx)
