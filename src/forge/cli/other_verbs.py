"""Suggests what a person meant: `new` for the verb `create` of other programs, `--model` for `--modle`."""

from __future__ import annotations

from collections.abc import Iterable

import click

from forge.cli.options import Options
from forge.core.arguments.explain import near

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
        if word.lower() in line.split() and (way := ELSEWHERE.get((group, line.split()[0]))):
            return way
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
