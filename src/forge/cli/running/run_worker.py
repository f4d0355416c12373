"""Runs `forge worker` until a signal tells it to leave."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.terminal.print_result import harmless
from forge.permissions.questions import approve_all
from forge.project.assemble.access import workspace_root
from forge.project.config import load_configuration
from forge.project.project import Project
from forge.project.runs.durable_runs import (
    check_installed,
    is_own,
    make_approver,
    make_own_file,
    own_file,
    project_database,
    project_version,
)

REPEAT_AFTER = 60.0  # seconds before the same line is written again


def work(options: Options, flags: dict[str, Any]) -> int:
    with refusals():
        check_installed()
        from forge.project.runs.project_worker import (  # an extra: asked for above
            ProjectWorker,
            WorkerOptions,
            check_names,
        )

        log_format = flags.pop("log_format")
        report = set_up_log_lines(log_format, debug=options.debug) if log_format else _report
        check_names(flags["queues"], "a queue")
        check_names(flags["offers"], "a place")
        check_names([flags["name"]] if flags["name"] else [], "a worker")
        project = Project(options.for_project(), report=report)
        agent = project.agent(flags.pop("model"), approve=approve_all if options.yes else make_approver())
        version = flags.pop("app_version") or project_version(project.configuration)
        worker = ProjectWorker(project, agent, WorkerOptions(version=version, **flags))
        if not log_format:
            _print_warnings(debug=options.debug)
        asyncio.run(_work_until_signal(worker, report))
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


def make_tables(options: Options, database: str | None) -> str:
    """Makes or migrates all tables of the database; returns its name. Raises `ToolError`."""
    from forge.project.runs.project_worker import make_tables  # an extra: asked for by the command

    configuration = load_configuration(options.config)
    workspace = workspace_root(options.workspace, configuration.root)
    url = project_database(configuration, workspace, database)
    if is_own(url, workspace):
        make_own_file(workspace)
    return make_tables(url)


async def _work_until_signal(worker: Any, report: Callable[[str], None]) -> None:
    """Drains at the first SIGTERM or Ctrl-C; leaves at once at the second."""
    leave, hurry = asyncio.Event(), asyncio.Event()

    def receive_signal() -> None:
        (hurry if leave.is_set() else leave).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, receive_signal)
    await worker.work(leave, hurry, report)


def _report(line: str) -> None:
    click.echo(f"forge: {line}", err=True)


def _print_warnings(*, debug: bool) -> None:
    """Prints warnings: a takeover of runs, or a database that cannot be reached."""
    if debug:
        logging.getLogger("dbos").addHandler(logging.StreamHandler())
        return
    logging.getLogger("forge.durable").addHandler(_WarningLines())


def set_up_log_lines(form: str, *, debug: bool) -> Callable[[str], None]:
    """Writes the log to standard error in a form for machines; returns a function that logs a line of the command.

    Every line has a time, a level, and the run, session and tool that it is about; each of these may be empty.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    for name, level in (("forge", logging.INFO), ("dbos", logging.WARNING)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.DEBUG if debug else level)
    return logging.getLogger("forge.worker").info


class _LogFormatter(logging.Formatter):
    """Collects what a line says. What is not said about a record comes from the run that works right now."""

    def fields_of(self, record: logging.LogRecord) -> dict[str, str]:
        from forge.durable.engine.attempt import current_attempt  # an extra: asked for by the command

        attempt = current_attempt.get()
        run = attempt.run if attempt is not None else None
        about = {"run": run.id, "session": run.session or run.id} if run is not None else {}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            **{name: str(getattr(record, name, "") or about.get(name, "")) for name in ("run", "session", "tool")},
        }

    def message_of(self, record: logging.LogRecord) -> str:
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info and record.exc_info[0] else ""
        return f"{record.getMessage()}{trace}"


class _JsonLines(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({**self.fields_of(record), "logger": record.name, "message": self.message_of(record)})


class _TextLines(_LogFormatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields_of(record)
        about = " ".join(f"{name}={fields[name].replace(' ', '_') or '-'}" for name in ("run", "session", "tool"))
        line = f"{fields['time']} {fields['level'].upper()} {about} {self.message_of(record)}"
        return harmless(line.replace("\n", "\\n"))


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
