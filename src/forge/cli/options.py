"""The flags that every command understands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from forge.cli.log import listen


class Options(NamedTuple):
    """What the person asked for, beside the command itself."""

    workspace: str | None
    config: str | None
    policy: str | None
    yes: bool
    session: str
    dev: bool
    json: bool
    debug: bool


def _session(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise click.BadParameter("a session's name is 1 to 200 printable characters")
    return name


_FLAGS = (
    click.option("--workspace", metavar="DIR", help="The directory that tools work in; the current one by default."),
    click.option("--config", metavar="FILE", help="The project's forge.yaml; never loaded unless it is named here."),
    click.option(
        "--policy", metavar="FILE", help="Rules for this call, one a line or as YAML, on top of the project's."
    ),
    click.option("--yes", is_flag=True, help="Answer yes to what would ask; what is denied stays denied."),
    click.option(
        "--session",
        metavar="NAME",
        default="cli",
        show_default=True,
        callback=_session,
        help="The session the call belongs to.",
    ),
    click.option("--dev", is_flag=True, help="Offer the development tools too."),
    click.option("--json", is_flag=True, help="JSON on one line, also on a terminal."),
    click.option("--debug", is_flag=True, help="Log what happens, and show tracebacks of internal errors."),
)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common flags, as its first argument `options`."""

    @functools.wraps(function)
    def collected(**given: Any) -> Any:
        options = Options(**{name: given.pop(name) for name in Options._fields})
        listen(debug=options.debug)
        return function(options, **given)

    for flag in reversed(_FLAGS):
        collected = flag(collected)
    return collected
