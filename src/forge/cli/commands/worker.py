"""`forge worker`: processes the durable runs of a database, and shows the workers."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from forge.cli.commands.console import serve_console
from forge.cli.options import Options, with_options
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless

DATABASE = "Database of the runs. Default: FORGE_DATABASE, else the configured one, else a file in .forge."


@click.command("worker")
@click.argument("action", metavar="[status]", required=False, type=click.Choice(["status"]))
@with_options("policy", "yes", "dev")
@click.option("--database", metavar="URL", help=DATABASE)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME",
    help="Take runs of this queue; can be repeated. Default: `default` and the configured queues.",
)  # fmt: skip
@click.option(
    "--offer", "offers", multiple=True, metavar="PLACE",
    help='Run calls of tools with runs_on="PLACE", such as gpu; can be repeated.',
)  # fmt: skip
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="Maximum number of concurrent runs.",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True,
    help="Number of processes, each with its own --concurrency: one for each core.",
)  # fmt: skip
@click.option("--name", default="", metavar="NAME", help="Prefix of the worker's id. Default: the machine's name.")
@click.option(
    "--app-version", default="", metavar="VERSION",
    help="Take runs of this version. Default: Forge's version and a hash of the configuration.",
)  # fmt: skip
@click.option(
    "--model", metavar="NAME", help="Model, such as anthropic:MODEL, openai:MODEL, ollama:MODEL, scripted:FILE."
)
@click.option(
    "--drain-seconds", type=click.FloatRange(0, 86_400), default=60.0, show_default=True, metavar="S",
    help="On shutdown, the time in seconds for active runs to end their turn.",
)  # fmt: skip
@click.option(
    "--health", default="", metavar="ADDRESS:PORT",
    help="Serve /healthz, /readyz and /metrics there. Default: FORGE_HEALTH, else the configured one, else nowhere.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(["json", "text"]),
    help="Log to standard error; each line has time, level, run, session and tool. Default: only warnings, for people.",
)  # fmt: skip
@click.option("--migrate", is_flag=True, help="Make or update all tables of the database, and do not work.")
@click.option("--console", is_flag=True, help="Also start the web console: see forge console.")
def command(options: Options, action: str | None, console: bool, processes: int, migrate: bool, **flags: Any) -> int:
    """Process durable runs, as one of any number of workers.

    \b
    forge worker                                     the runs of this workspace
    forge worker --database postgresql://…           runs of a database that several machines share
    forge worker --queue night --concurrency 2       only runs of one queue
    forge worker --health 127.0.0.1:9464             serve probes and metrics for Prometheus
    forge worker --processes 4                       four workers, which use four cores
    forge worker --migrate --database postgresql://… make the tables, as their owner
    forge worker status                              list workers and queues

    If a worker dies or sends no heartbeat for 10 seconds, other workers resume its runs where they stopped. On SIGTERM
    or Ctrl-C, a worker takes no new runs and lets active runs end their turn; a second signal stops it at once.
    With --processes, a signal reaches every process, and a process that ended by itself is started again.
    Questions of a run are stored; answer them with `forge runs answer`. With --yes, all of them are approved.

    `status` shows the workers, the queues, and the number of runs. With --json: {"database", "workers": [{id, state,
    host, pid, version, queues, offers, agents, running, concurrency, started, beat_age}], "queues": {NAME: {queued}},
    "runs": {STATUS: count}, "unattended": [{version, queue, agent, queued}]}. The list includes workers that left
    within the last day. "unattended" counts queued runs that no running worker takes.

    A worker takes only runs of its agents, by name, and of its version of the project: see `forge runs migrate`.

    \b
    Exit codes: 0 stopped on request
                2 a flag, the configuration, a policy, the workspace or the database cannot be used
    """
    if action == "status":
        _print_status(options, flags["database"])
        return 0
    if migrate:
        _make_tables(options, flags["database"])
        return 0
    if processes > 1:
        return _work_in_processes(processes, options, flags["log_format"], console=console)
    if console:
        return _work_in_console(options, flags)
    from forge.cli.running.run_worker import work  # the whole agent, which showing the help does without

    return work(options, flags)


def _work_in_processes(number: int, options: Options, log_format: str | None, *, console: bool) -> int:
    if console:
        raise Refusal(
            "forge worker was given --processes and --console, and only one process can serve the console.\n"
            "Start `forge console` beside it, or leave out --processes."
        )
    from forge.cli.running.worker_processes import run_processes

    if not log_format:
        return run_processes(sys.argv[1:], number, lambda line: click.echo(f"forge: {line}", err=True))
    from forge.cli.running.run_worker import set_up_log_lines

    return run_processes(sys.argv[1:], number, set_up_log_lines(log_format, debug=options.debug))


def _work_in_console(options: Options, flags: dict[str, Any]) -> int:
    if options.yes:
        raise click.UsageError("--yes does not work with the console, which exists to ask you: write rules instead.")

    if flags["log_format"]:
        from forge.cli.running.run_worker import set_up_log_lines

        set_up_log_lines(flags["log_format"], debug=options.debug)
    settings = {name: flags[name] for name in ("queues", "offers", "name", "concurrency", "health") if flags[name]}
    return serve_console(
        options,
        model=flags["model"],
        database=flags["database"],
        version=flags["app_version"],
        settings=settings,
        grace=flags["drain_seconds"],
    )


def _make_tables(options: Options, database: str | None) -> None:
    with refusals():
        from forge.project.runs.durable_runs import check_installed

        check_installed()
        from forge.cli.running.run_worker import make_tables

        label = make_tables(options, database)
    click.echo(f"forge: the tables of {label} are up to date", err=True)


def _print_status(options: Options, database: str | None) -> None:
    with refusals():
        from forge.project.runs.durable_runs import check_installed

        check_installed()
        from forge.cli.running.run_worker import read_status

        status = read_status(options, database)
    if options.json:
        click.echo(json.dumps(status, ensure_ascii=False))
        return
    for line in _status_lines(status):
        click.echo(line)


def _status_lines(status: dict[str, Any]) -> list[str]:
    active = [one for one in status["workers"] if one["state"] != "gone"]
    rows = [("WORKER", "STATE", "RUNS", "BEAT", "VERSION", "QUEUES")] if active else []
    for one in active:
        runs, beat = f"{one['running']}/{one['concurrency']}", f"{one['beat_age']:.0f} s ago"
        rows.append((harmless(one["id"]), one["state"], runs, beat, harmless(one["version"]), ", ".join(one["queues"])))
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    lines = ["  ".join((*map(str.ljust, row, widths), harmless(row[5]))) for row in rows]
    gone = len(status["workers"]) - len(active)
    if not active:
        lines.append("No worker is running; forge worker starts one.")
    if gone:
        lines.append(f"{gone} more {'have' if gone > 1 else 'has'} left within the last day.")
    queued = ", ".join(f"{harmless(name)} {one['queued']}" for name, one in status["queues"].items())
    lines.append(f"queued: {queued or 'nothing'}")
    runs = ", ".join(f"{count} {name}" for name, count in status["runs"].items())
    lines.append(f"runs: {runs or 'none'}")
    for one in status["unattended"] if active else ():
        group = harmless(f"{one['queued']} queued in {one['queue']} for agent {one['agent']}, version {one['version']}")
        lines.append(
            f"{group}, and no running worker takes them: start one, or move them with forge runs migrate RUN or --all"
        )
    return lines
