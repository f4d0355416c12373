"""The flags that commands share; each command takes those that have an effect on it."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forge.cli.refusal import Refusal, refusals
from forge.workspace.state import is_foreign

if TYPE_CHECKING:  # slow to load; listing tools does without it
    from forge.project.project import RunOptions

PROJECT = "forge.yaml"
STATE = ".forge"


class Options(NamedTuple):
    """The common flags of a command.

    `config` is the file that they named or, where one is trusted, the workspace's own.
    """

    workspace: str | None
    config: str | None
    policy: str | None
    yes: bool
    session: str
    dev: bool
    json: bool
    debug: bool
    trial: Any = None  # off, auto or always

    def for_project(self) -> RunOptions:
        """Returns the flags with which a project is loaded."""
        from forge.project.project import RunOptions  # the whole agent, which showing the help does without

        return RunOptions(
            workspace=self.workspace,
            config=self.config,
            policy=self.policy,
            session=self.session,
            dev=self.dev,
            trial=self.trial,
        )


def _session(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    if not 0 < len(name) <= 200 or not name.isprintable():
        raise click.BadParameter("a session's name is 1 to 200 printable characters")
    return name


_FLAGS: dict[str, Callable[[Any], Any]] = {
    "workspace": click.option(
        "--workspace", metavar="DIR", help="Directory in which tools work. Default: the current one."
    ),
    "config": click.option(
        "--config",
        metavar="FILE",
        envvar="FORGE_CONFIG",
        help="The project's forge.yaml. Default: the workspace's own, once it is trusted (`forge trust`).",
    ),
    "policy": click.option("--policy", metavar="FILE", help="More rules for this command: one per line, or YAML."),
    "yes": click.option("--yes", is_flag=True, help="Approve calls that would ask. Denied calls stay denied."),
    "session": click.option(
        "--session",
        metavar="NAME",
        default="cli",
        show_default=True,
        callback=_session,
        help="Session of the call.",
    ),
    "trial": click.option(
        "--trial",
        type=click.Choice(["off", "auto", "always"]),
        help="Whether programs run as trials, whose effects are judged and shown. Default: `trial` in forge.yaml.",
    ),
    "dev": click.option("--dev", is_flag=True, help="Include the development tools."),
    "json": click.option("--json", is_flag=True, help="Print JSON, on one line."),
    "debug": click.option("--debug", is_flag=True, help="Print a log, and tracebacks of internal errors."),
}


EVERYWHERE = ("workspace", "config", "json", "debug")
_UNSET = Options(None, None, None, False, "cli", False, False, False)


def with_options(
    *flags: str, find_config: bool = True, **helps: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the common flags as its first argument `options`.

    Args:
        flags: the flags beyond `EVERYWHERE` that have an effect on this command.
        find_config: False for a command that reads the workspace's configuration itself, trusted or not.
        helps: what a flag means for this command, where that differs from its usual meaning.
    """

    def add_flags(function: Callable[..., Any]) -> Callable[..., Any]:
        taken = [name for name in Options._fields if name in (*EVERYWHERE, *flags)]

        @functools.wraps(function)
        def collect_flags(**given: Any) -> Any:
            options = _UNSET._replace(**{name: given.pop(name) for name in taken})
            set_up_log(debug=options.debug)
            if find_config and options.config is None and given.get("built") is None:  # a build has its own
                options = options._replace(config=_find_config(options))
            if find_config:
                _warn_of_untrusted_files(options)
            return function(options, **given)

        for name in reversed(taken):
            collect_flags = _FLAGS[name](collect_flags)
            if name in helps:
                flag = collect_flags.__click_params__[-1]  # type: ignore[attr-defined]
                flag.help, flag.show_default = helps[name], False
        return collect_flags

    return add_flags


def workspace_of(options: Options) -> str:
    """Returns the directory in which a configuration is looked for; tools may be unable to work there."""
    return options.workspace or os.environ.get("AGENT_WORKSPACE_ROOT") or "."


def _find_config(options: Options) -> str | None:
    """Returns the trusted configuration of the workspace; prints a line if the file has changed since.

    Raises `Refusal` (exit code 2) where the trusted rules cannot be known.
    """
    workspace = workspace_of(options)
    if "\0" in workspace:
        return None
    from forge.project.trust import FoundConfig, check_known, notice, trust_state

    now = trust_state(workspace)
    with refusals():
        check_known(now)
    if warning := notice(now):
        click.echo(f"forge: {warning}", err=True)
    return None if now.before is None else FoundConfig(str(now.path))


def _warn_of_untrusted_files(options: Options) -> None:
    """Prints a line for a state directory of a clone, and one for an untrusted forge.yaml beside --config."""
    workspace = workspace_of(options)
    if "\0" in workspace:
        return
    if os.path.lexists(os.path.join(workspace, STATE)) and is_foreign(Path(workspace, STATE)):
        hint = "run `forge trust` to review and trust it"
        click.echo(f"forge: {STATE}/ was not made by Forge on this machine, and is not used; {hint}", err=True)
    own_file = os.path.join(workspace, PROJECT)
    if (
        options.config is None
        or not os.path.lexists(own_file)
        or os.path.realpath(own_file) == os.path.realpath(options.config)
    ):
        return
    from forge.project.trust import is_trusted

    if not is_trusted(workspace):
        hint = "run `forge trust` to trust it"
        click.echo(f"forge: {PROJECT} here is not trusted, so tools/ and skills/ are not used; {hint}", err=True)


def require_project(options: Options, action: str) -> str:
    """Returns the project's current configuration for a command that needs one. Raises `Refusal` (exit code 2)."""
    from forge.project.trust import FoundConfig, trust_state

    if isinstance(options.config, FoundConfig) and trust_state(workspace_of(options)).status != "trusted":
        hint = "Run `forge trust` to review the difference and trust it, or name another file with --config."
        raise Refusal(f"cannot {action}: {PROJECT} has changed since you trusted it\n{hint}")
    if options.config is not None:
        return options.config
    exists = os.path.lexists(os.path.join(workspace_of(options), PROJECT))
    if exists:
        raise Refusal(
            f"cannot {action}: untrusted project: {PROJECT} is not trusted\nRun `forge trust` to review and trust it."
        )
    raise Refusal(f"cannot {action}: there is no {PROJECT} here\n`forge init` writes one; --config names another.")


class TerseLog(logging.Handler):
    """Prints errors only, one line each, no message twice."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        text = f"forge: {record.getMessage()}{f': {cause}' if cause else ''}"
        if text not in self.printed:
            self.printed.add(text)
            print(text[:1_000], file=sys.stderr)  # noqa: T201


def set_up_log(*, debug: bool) -> None:
    """Prints errors only. Failed calls are also logged as warnings, but their results already say so."""
    log = logging.getLogger("forge")
    log.propagate = False
    log.handlers = [logging.StreamHandler() if debug else TerseLog()]
    log.setLevel(logging.DEBUG if debug else logging.NOTSET)
    log.handlers[0].setFormatter(logging.Formatter("%(relativeCreated)6d ms %(name)s: %(message)s"))
