"""Where the commands about runs find them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals


def with_database(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "Where runs are kept; by default FORGE_DATABASE, else what the configuration says, else a file in .forge."
    return click.option("--database", metavar="URL", help=text)(with_options(function))


@contextmanager
def kept_runs(options: Options, database: str | None, needed: str | None = None) -> Iterator[Any]:
    """The runs that are kept; None where there is no database yet, unless a run of it is needed."""
    with refusals():
        from forge.app.config import load_configuration
        from forge.app.durable import check_installed, is_own, keep_finished, project_database
        from forge.app.workspace import workspace_root

        check_installed()
        configuration = load_configuration(options.config)
        workspace = workspace_root(options.workspace, configuration.root)
        url = project_database(configuration, workspace, database)
        own = is_own(url, workspace)
        if own and not Path(url.removeprefix("sqlite:///")).exists():
            if needed is not None:
                way = "forge run --durable begins one; --workspace or --database say where else to look."
                raise Refusal(f"there is no run {needed!r}: none is kept in {workspace}\n{way}")
            yield None
            return
        from forge.durable.client import Runs

        with Runs(url) as runs:
            yield runs
            if own:
                keep_finished(runs.store, workspace, limit=20)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
