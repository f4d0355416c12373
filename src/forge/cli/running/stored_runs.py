"""Opens the stored runs of a project for commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals


class StoredRuns(NamedTuple):
    """The stored runs and the commands that name them. `runs` is None if nothing is stored yet."""

    runs: Any  # `Runs`, which is an extra
    workspace: Path
    commands: Any  # `Commands`
    is_own: bool = False  # the database belongs to this workspace alone

    def store_finished(self) -> None:
        """Stores all finished runs in their sessions before they are removed. Raises `ToolError`."""
        if self.is_own:
            from forge.project.runs.durable_runs import store_finished_runs

            store_finished_runs(self.runs.store, self.workspace, limit=1_000_000)


def with_database(function: Callable[..., Any], flags: Sequence[str] = ()) -> Callable[..., Any]:
    """Give a command the common flags, these ones included, and --database."""
    text = "Database of the runs. Default: FORGE_DATABASE, else the configured one, else a file in .forge."
    return click.option("--database", metavar="URL", help=text)(with_options(*flags)(function))


@contextmanager
def open_stored_runs(options: Options, database: str | None, needed: str | None = None) -> Iterator[StoredRuns]:
    """Opens the stored runs. Reading creates no database: `needed` is a run that must exist, or the command ends."""
    with refusals():
        from forge.cli.running.next_commands import Commands
        from forge.project.assemble.access import workspace_root
        from forge.project.config import load_configuration
        from forge.project.runs.durable_runs import check_installed, is_own, project_database

        check_installed()
        configuration = load_configuration(options.config)
        workspace = workspace_root(options.workspace, configuration.root)
        url = project_database(configuration, workspace, database)
        own, commands = is_own(url, workspace), Commands(options, database)
        missing = _missing_file(url)
        if missing is not None:
            if needed is not None:
                way = "forge run --durable begins one; --workspace or --database say where else to look."
                raise Refusal(f"there is no run {needed!r}: none is stored in {workspace if own else missing}\n{way}")
            yield StoredRuns(None, workspace, commands)
            return
        from forge.durable.client import Runs

        with Runs(url) as runs, commands.complete_suggestions():
            yield StoredRuns(runs, workspace, commands, own)
            if own:
                _store_finished(runs, workspace)


def _missing_file(url: str) -> Path | None:
    """Returns the database file if it does not exist."""
    if not url.startswith("sqlite:"):
        return None
    from forge.durable.store.database import parse_url

    path = Path(str(parse_url(url).database))
    return None if path.exists() else path


def _store_finished(runs: Any, workspace: Path) -> None:
    """Stores finished runs in their sessions. A failure is only printed, because no one asked for this."""
    from forge.core.errors import ToolError
    from forge.project.runs.durable_runs import store_finished_runs

    try:
        store_finished_runs(runs.store, workspace, limit=20)
    except ToolError as error:
        click.echo(f"forge: finished runs are not stored in their sessions yet: {error.message}", err=True)
    except OSError as error:
        click.echo(f"forge: finished runs are not stored in their sessions yet: {error.strerror or error}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
