"""Runs `forge worker` until a signal tells it to leave."""

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
from forge.project.project import Project
from forge.project.runs.durable_runs import check_installed, make_approver, own_file, project_database, project_version

REPEAT_AFTER = 60.0  # seconds before the same line is written again


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
        project = Project(options.for_project(), report=_report)
        agent = project.agent(flags.pop("model"), approve=approve_all if options.yes else make_approver())
        version = flags.pop("app_version") or project_version(project.configuration)
        worker = ProjectWorker(project, agent, WorkerOptions(version=version, **flags))
        _print_warnings(debug=options.debug)
        asyncio.run(_work_until_signal(worker))
    return 0


def read_status(options: Options, database: str | None) -> dict[str, Any]:
    """Returns the workers, queues and runs of the database. Raises `ToolError`."""
    from forge.project.runs.project_worker import read_status  # an extra: asked for by the command

    configuration = load_configuration(options.config)
    workspace = workspace_root(options.workspace, configuration.root)
    url = project_database(configuration, workspace, database)
    if url == f"sqlite:///{own_file(workspace)}" and not own_file(workspace).exists():
        # reading the status creates no file
        return {"database": str(own_file(workspace)), "workers": [], "queues": {}, "runs": {}, "unattended": []}
    return read_status(url)


async def _work_until_signal(worker: Any) -> None:
    """Drains at the first SIGTERM or Ctrl-C; leaves at once at the second."""
    leave, hurry = asyncio.Event(), asyncio.Event()

    def receive_signal() -> None:
        (hurry if leave.is_set() else leave).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, receive_signal)
    await worker.work(leave, hurry, _report)


def _report(line: str) -> None:
    click.echo(f"forge: {line}", err=True)


def _print_warnings(*, debug: bool) -> None:
    """Prints warnings: a takeover of runs, or a database that cannot be reached."""
    if debug:
        logging.getLogger("dbos").addHandler(logging.StreamHandler())
        return
    logging.getLogger("forge.durable").addHandler(_WarningLines())


class _WarningLines(logging.Handler):
    """Prints each warning once a minute at most."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text, moment = f"forge: {record.getMessage()}"[:1_000], time.monotonic()
        if moment - self._printed_at.get(text, -REPEAT_AFTER) >= REPEAT_AFTER:
            self._printed_at = {
                text: moment,
                **{old: when for old, when in self._printed_at.items() if moment - when < REPEAT_AFTER},
            }
            print(text, file=sys.stderr)  # noqa: T201
