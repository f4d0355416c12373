"""The flags that every command understands."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forge.cli.refusal import Refusal, refusals

if TYPE_CHECKING:  # slow to load; listing tools does without it
    from logging import LogRecord

PROJECT = "forge.yaml"
STATE = ".forge"


class Options(NamedTuple):
    """What the person asked for, beside the command itself.

    `config` is the file that they named or, where one was accepted, the workspace's own.
    """

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
    click.option(
        "--config",
        metavar="FILE",
        envvar="FORGE_CONFIG",
        help="The project's forge.yaml; by default the workspace's own, once `forge trust` accepted it.",
    ),
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
    return _with_flags(function, found=True)


def with_named_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for commands that look at the workspace's configuration themselves, trusted or not."""
    return _with_flags(function, found=False)


def _with_flags(function: Callable[..., Any], *, found: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def collected(**given: Any) -> Any:
        options = Options(**{name: given.pop(name) for name in Options._fields})
        listen(debug=options.debug)
        if found and options.config is None and given.get("built") is None:  # what was built is not looked for
            options = options._replace(config=_found(options))
        if found:
            _say_what_is_foreign(options)
        return function(options, **given)

    for flag in reversed(_FLAGS):
        collected = flag(collected)
    return collected


def workspace_of(options: Options) -> str:
    """Where a configuration is looked for; whether tools can work there is another question."""
    return options.workspace or os.environ.get("AGENT_WORKSPACE_ROOT") or "."


def _found(options: Options) -> str | None:
    """The configuration that was accepted for the workspace; one line says where the file is another by now.

    Raises `Refusal` (exit code 2) where the accepted rules cannot be known.
    """
    where = workspace_of(options)
    if "\0" in where:
        return None
    from forge.project.trust import Found, check_known, notice, standing

    now = standing(where)
    with refusals():
        check_known(now)
    if told := notice(now):
        click.echo(f"forge: {told}", err=True)
    return None if now.before is None else Found(str(now.path))


def _say_what_is_foreign(options: Options) -> None:
    """One line for what a clone brought and nobody accepted, and one for what the file named with --config is not."""
    where = workspace_of(options)
    if "\0" in where:
        return
    if os.path.lexists(os.path.join(where, STATE)):
        from pathlib import Path

        from forge.workspace.state.ownership import is_foreign

        if is_foreign(Path(where, STATE)):
            way = "`forge trust` shows and accepts it"
            click.echo(f"forge: {STATE}/ was not made by Forge on this machine, and is not used; {way}", err=True)
    own = os.path.join(where, PROJECT)
    if options.config is None or not os.path.lexists(own) or os.path.realpath(own) == os.path.realpath(options.config):
        return
    from forge.project.trust import is_trusted

    if not is_trusted(where):
        way = "`forge trust` accepts them"
        click.echo(f"forge: {PROJECT} here is not accepted, so tools/ and skills/ are not used; {way}", err=True)


def needed_project(options: Options, doing: str) -> str:
    """The project's configuration as it is now, for a command that needs one. Raises `Refusal` (exit code 2)."""
    from forge.project.trust import Found, standing

    if isinstance(options.config, Found) and standing(workspace_of(options)).status != "trusted":
        way = "`forge trust` shows the difference and accepts it; --config names another file."
        raise Refusal(f"cannot {doing}: {PROJECT} is not as it was accepted\n{way}")
    if options.config is not None:
        return options.config
    there = os.path.lexists(os.path.join(workspace_of(options), PROJECT))
    if there:
        raise Refusal(
            f"cannot {doing}: untrusted project: {PROJECT} is not accepted\n`forge trust` shows and accepts it."
        )
    raise Refusal(f"cannot {doing}: there is no {PROJECT} here\n`forge init` writes one; --config names another.")


def listen(*, debug: bool) -> None:
    """Set up the log, now or as soon as `logging` is loaded."""
    if debug or "logging" in sys.modules:
        _set_up(debug)
    elif not any(isinstance(one, _SetUpWhenLoaded) for one in sys.meta_path):
        sys.meta_path.insert(0, _SetUpWhenLoaded())


class _SetUpWhenLoaded:
    """Finds the module `logging` as usual, and sets up the log behind its last line."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "logging":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def load_and_set_up(module: Any) -> None:
            load(module)
            _set_up(debug=False)

        spec.loader.exec_module = load_and_set_up  # type: ignore[method-assign]
        return spec


def _set_up(debug: bool) -> None:
    """Failed calls are logged as warnings too: their results say so already."""
    import logging

    class Terse(logging.Handler):
        """Errors alone, one line each, no message twice."""

        def __init__(self) -> None:
            super().__init__(logging.ERROR)
            self.told: set[str] = set()

        def emit(self, record: LogRecord) -> None:
            cause = record.exc_info[1] if record.exc_info else None
            text = f"forge: {record.getMessage()}{f': {cause}' if cause else ''}"
            if text not in self.told:
                self.told.add(text)
                print(text[:1_000], file=sys.stderr)  # noqa: T201

    log = logging.getLogger("forge")
    log.propagate = False
    log.handlers = [logging.StreamHandler() if debug else Terse()]
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    log.handlers[0].setFormatter(logging.Formatter("%(relativeCreated)6d ms %(name)s: %(message)s"))
