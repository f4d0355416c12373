"""The page of the commands: what `--help` says of each, and its flags."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click

from forge.cli import forge
from forge.cli.options import Options, with_options
from scripts.reference.markdown import table

KEPT = "\b"  # click's mark: what follows keeps its lines


def commands_page() -> str:
    common = [one for one in _common() if isinstance(one, click.Option)]
    parts = [
        "# Commands",
        "The output of `forge COMMAND --help`. Exit codes are under [errors](errors.md#exit-codes).",
        "## Common flags",
        "A command takes those of these flags that have an effect on it:",
        _flags(common),
    ]
    shared = {tuple(one.opts): one.help for one in common}
    for path, command in _walk(forge, ("forge",)):
        own = [
            one for one in command.params if isinstance(one, click.Option) and shared.get(tuple(one.opts)) != one.help
        ]
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        shared_flags = [one.opts[0] for one in command.params if tuple(one.opts) in shared]
        named = " ".join(_metavar(one) for one in arguments)
        parts.append(f"## {' '.join(path)}" if len(path) < 3 else f"### {' '.join(path)}")
        if not isinstance(command, click.Group):
            parts.append(
                f"`{' '.join(filter(None, (*path, named)))}`"
                + (f" and `{' '.join(shared_flags)}`" if shared_flags else "")
            )
        parts += [
            _help(command.help or ""),
            _flags(own) if own else "",
            _help(command.epilog or "") if path[1:] else "",
        ]
    return "\n\n".join(part for part in parts if part)


def _common() -> list[click.Parameter]:
    return click.command("common")(with_options(*Options._fields)(_nothing)).params


def _nothing(options: Options) -> None:
    """What the common flags are taken from."""


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if len(path) > 1:
        yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _walk(inner, (*path, name))


def _metavar(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    if isinstance(argument.type, click.Choice):
        name = "|".join(map(str, argument.type.choices))
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _flags(options: Iterable[click.Option]) -> str:
    rows = []
    for one in options:
        spelled = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        value = ""
        if isinstance(one.type, click.Choice):
            value = " " + " or ".join(f"`{choice}`" for choice in one.type.choices)
        elif not one.is_flag:
            value = f" {one.metavar or one.type.name.split()[0].upper()}"
        words = [one.help or ""]
        if isinstance(one.show_default, str):
            words.append(f"Default: {one.show_default}.")
        elif one.show_default and isinstance(one.default, str | int):
            words.append(f"Default: `{one.default}`.")
        rows.append((f"{spelled}{value}", " ".join(words).strip()))
    return table(("flag", ""), rows)


def _help(text: str) -> str:
    """Click's help as markdown: paragraphs are filled, what stands behind a \\b keeps its lines."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).replace(f"{KEPT}\n", KEPT)):
        if paragraph.startswith(KEPT):
            parts.append(f"```text\n{paragraph.replace(KEPT, '').rstrip()}\n```")
        else:
            parts.append(" ".join(_plain(word) for word in paragraph.split()))
    joined = "\n\n".join(part for part in parts if part)
    return joined.replace("\n```\n\n```text\n", "\n\n")


def _plain(word: str) -> str:
    """Nothing in a help text is markdown."""
    return re.sub(r"([*_<\[\]|])", r"\\\1", word)
