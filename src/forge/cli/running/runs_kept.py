"""Where the commands about runs find them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals


class Kept(NamedTuple):
    """The runs that are kept, and how they are spoken of. `runs` is None where nothing is kept yet."""

    runs: Any  # `Runs`, which is an extra
    workspace: Path
    commands: Any  # `Commands`
    is_own: bool = False  # of this workspace alone, whose sessions have what its runs said

    def keep_all(self) -> None:
        """See to it that what ended is in its session, before it is removed. Raises `ToolError`."""
        if self.is_own:
            from forge.project.runs.durable_runs import keep_finished

            keep_finished(self.runs.store, self.workspace, limit=1_000_000)


def with_database(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Where runs are kept; by default FORGE_DATABASE, else what the configuration says, else a file in .forge."
    return click.option("--database", metavar="URL", help=text)(with_options(function))


@contextmanager
def kept_runs(options: Options, database: str | None, needed: str | None = None) -> Iterator[Kept]:
    """The runs that are kept. Looking makes nothing: `needed` is a run that must be there, or the command ends."""
    with refusals():
        from forge.cli.running.next_commands import Commands
        from forge.project.assemble.workspace import workspace_root
        from forge.project.config import load_configuration
        from forge.project.runs.durable_runs import check_installed, is_own, project_database

        check_installed()
        configuration = load_configuration(options.config)
        workspace = workspace_root(options.workspace, configuration.root)
        url = project_database(configuration, workspace, database)
        own, commands = is_own(url, workspace), Commands(options, database)
        missing = _missing(url)
        if missing is not None:
            if needed is not None:
                way = "forge run --durable begins one; --workspace or --database say where else to look."
                raise Refusal(f"there is no run {needed!r}: none is kept in {workspace if own else missing}\n{way}")
            yield Kept(None, workspace, commands)
            return
        from forge.durable.client import Runs

        with Runs(url) as runs, commands.suggested():
            yield Kept(runs, workspace, commands, own)
            if own:
                _keep_sessions(runs, workspace)


def _missing(url: str) -> Path | None:
    """The file that is not there."""
    if not url.startswith("sqlite:"):
        return None
    from forge.durable.store.database import parsed

    path = Path(str(parsed(url).database))
    return None if path.exists() else path


def _keep_sessions(runs: Any, workspace: Path) -> None:
    """What ended is part of its session, whoever looked. Nobody asked for that: where it fails, all else is done."""
    from forge.core.errors import ToolError
    from forge.project.runs.durable_runs import keep_finished

    try:
        keep_finished(runs.store, workspace, limit=20)
    except ToolError as error:
        click.echo(f"forge: what ended is not kept in its session yet: {error.message}", err=True)
    except OSError as error:
        click.echo(f"forge: what ended is not kept in its session yet: {error.strerror or error}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
