"""How `forge worker` works: assembled like a run, until a signal tells it to leave."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import Any

import click

from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.permissions.gate import approve_all
from forge.project.assemble.workspace import workspace_root
from forge.project.config import load_configuration
from forge.project.project import Project, RunOptions
from forge.project.runs.durable_runs import approver, check_installed, own_file, project_database, project_version

AGAIN = 60.0  # seconds before the same line is written again


def work(options: Options, flags: dict[str, Any]) -> int:
    with refusals():
        check_installed()
        from forge.project.runs.project_worker import (  # an extra: asked for above
            ProjectWorker,
            WorkerOptions,
            check_names,
        )

        check_names(flags["queues"], "a queue")
        check_names(flags["offers"], "a place")
        check_names([flags["name"]] if flags["name"] else [], "a worker")
        given = RunOptions(
            workspace=options.workspace, config=options.config, policy=options.policy, session=options.session,
            dev=options.dev,
        )  # fmt: skip
        project = Project(given, report=_report)
        agent = project.agent(flags.pop("model"), approve=approve_all if options.yes else approver())
        version = flags.pop("app_version") or project_version(project.configuration)
        made = ProjectWorker(project, agent, WorkerOptions(version=version, **flags))
        _speak_of_work(debug=options.debug)
        asyncio.run(_until_told(made))
    return 0


def found_status(options: Options, database: str | None) -> dict[str, Any]:
    """Raises `ToolError`."""
    from forge.project.runs.project_worker import status_of  # an extra: asked for by the command

    configuration = load_configuration(options.config)
    workspace = workspace_root(options.workspace, configuration.root)
    url = project_database(configuration, workspace, database)
    if url == f"sqlite:///{own_file(workspace)}" and not own_file(workspace).exists():
        # it stays so: looking makes no file
        return {"database": str(own_file(workspace)), "workers": [], "queues": {}, "runs": {}, "unattended": []}
    return status_of(url)


async def _until_told(made: Any) -> None:
    """SIGTERM and Ctrl-C tell it to leave; the second of them, at once."""
    told, hurry = asyncio.Event(), asyncio.Event()

    def tell() -> None:
        (hurry if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)
    await made.work(told, hurry, _report)


def _report(line: str) -> None:
    click.echo(f"forge: {line}", err=True)


def _speak_of_work(*, debug: bool) -> None:
    """Whoever runs a worker wants to know that it took over, or that the database is away."""
    if debug:
        logging.getLogger("dbos").addHandler(logging.StreamHandler())
        return
    logging.getLogger("forge.durable").addHandler(_Lines())


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, moment = f"forge: {record.getMessage()}"[:1_000], time.monotonic()
        if moment - self._told.get(text, -AGAIN) >= AGAIN:
            self._told = {text: moment, **{old: when for old, when in self._told.items() if moment - when < AGAIN}}
            print(text, file=sys.stderr)  # noqa: T201
