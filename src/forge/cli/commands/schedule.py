"""`forge schedule`: lists, adds, removes and runs scheduled tasks."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from forge.cli.group import CommandGroup
from forge.cli.options import Options, with_options
from forge.cli.refusal import refusals
from forge.cli.terminal.print_result import harmless, table_lines
from forge.core.errors import ErrorKind, ToolError
from forge.project.config import load_configuration

if TYPE_CHECKING:  # they load SQLite and asyncio, which showing the help does without
    from collections.abc import Coroutine

    from forge.schedules.runner import Runner
    from forge.schedules.schedule import Schedule, ScheduleRun
    from forge.schedules.store import ScheduleStore


@click.group("schedule", cls=CommandGroup)
def command() -> None:
    """Run tasks on a schedule: list, add, remove and run them."""


@command.command("list")
@with_options()
@click.option("--enabled", is_flag=True, help="Only enabled schedules.")
def list_(options: Options, enabled: bool) -> None:
    """List the schedules and their next times.

    \b
    forge schedule list --json

    With --json: {"schedules": [{id, cron, task, enabled, source, next_fire, last_fire, timezone, …}]}.
    """
    with _store(options, read_only=True) as store:
        found = store.list(enabled)
    if options.json:
        _print_json({"schedules": [one.to_dict() for one in found]})
        return
    if not found:
        click.echo("There are no schedules.", err=True)
        return
    rows = [("ID", "CRON", "NEXT", "FROM", "TASK"), *map(_row, found)]
    _print_table(rows)
    for one in found:
        if one.problem:
            _warn(f"{one.id} does not run: {one.problem}.")


@command.command()
@click.argument("id")
@with_options()
def enable(options: Options, id: str) -> None:
    """Enable a schedule, and accept what it runs. Needed if something else than Forge stored or changed it.

    \b
    forge schedule enable nightly

    With --json: the schedule, as `list` shows it.
    """
    with _store(options) as store:
        schedule = store.enable(id)
    if options.json:
        _print_json(schedule.to_dict())
        return
    following = schedule.format_time(schedule.next_fire)
    kind = "command" if schedule.command else "task"
    click.echo(f"{schedule.id}: {_explain_rule(schedule)}; next at {following}", err=True)
    click.echo(f"{kind}: {_on_one_line(schedule.task)}", err=True)


@command.command()
@click.argument("cron")
@click.argument("task")
@with_options()
@click.option("--id", metavar="ID", default="", help="Lower-case words with hyphens. Default: derived from the task.")
@click.option(
    "--timezone", metavar="ZONE", default=None, help="Time zone, such as Europe/Berlin or +02:00. Default: UTC."
)
@click.option("--skill", metavar="NAME", default=None, help="A skill that the agent reads first.")
@click.option("--channel", metavar="NAME", default=None, help="Channel for the result.")
@click.option("--target", metavar="NAME", default=None, help="Target in that channel: a chat, a room, a file.")
@click.option("--one-shot/--repeated", default=None, help="Run only once, or every time.")
@click.option("--command/--prompt", default=None, help="TASK is a command line, which bash runs without a model.")
@click.option("--enabled/--disabled", default=None, help="Default: enabled.")
def add(options: Options, cron: str, task: str, target: str, **more: Any) -> None:
    """Add or change a schedule. In an existing schedule, omitted options keep their values.

    CRON is a single argument: five fields in quotes, an alias (@hourly … @yearly), or an interval.

    \b
    forge schedule add "30 9 * * MON-FRI" "Summarise what changed since yesterday" --timezone Europe/Berlin
    forge schedule add "@every 90m" "Check that the site answers" --id site-check
    forge schedule add @daily "./backup.sh" --command       rules must allow it: no one is asked

    With --json: the schedule, as `list` shows it.
    """
    from forge.project.assemble.secrets import project_secrets
    from forge.schedules.schedule import Source, check_no_secret

    with refusals():
        secrets = project_secrets(load_configuration(options.config))
        check_no_secret({"cron": cron, "task": task, "target": target, **more}, secrets)
    with _store(options) as store:
        schedule = store.set(cron=cron, task=task, channel_target=target, by=Source.PERSON, **more)
    _warn_of_missing_names(schedule, options)
    if options.json:
        _print_json(schedule.to_dict())
        return
    following = schedule.format_time(schedule.next_fire)
    click.echo(
        f"{schedule.id}: {_explain_rule(schedule)}; {f'next at {following}' if following else 'disabled'}", err=True
    )
    if following:
        click.echo("It runs while one of these does: forge schedule run, forge worker, forge console.", err=True)


def _warn_of_missing_names(schedule: Schedule, options: Options) -> None:
    """Warns now about a channel or skill that does not exist, not when the schedule fires."""
    from forge.project.assemble.knowledge import project_skills
    from forge.project.assemble.services import missing_names

    with refusals():
        skills = project_skills(options).skills if schedule.skill else ()
        for message in missing_names(schedule, load_configuration(options.config), skills):
            _warn(message)


def _warn(message: str) -> None:
    click.echo(click.style(harmless(message), fg="yellow"), err=True)


@command.command()
@click.argument("id")
@with_options()
def remove(options: Options, id: str) -> None:
    """Remove a schedule. Its past runs stay in the history.

    \b
    forge schedule remove nightly
    """
    from forge.schedules.schedule import Source

    with _store(options) as store:
        gone = store.delete(id, Source.PERSON)
    if options.json:
        _print_json({"removed": gone.id})
        return
    click.echo(f"{gone.id} is removed.", err=True)
    if gone.origin:
        click.echo(f"Also remove it from {harmless(gone.origin)}: otherwise it comes back.", err=True)


@command.command()
@click.argument("id", required=False)
@with_options()
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Maximum number of runs.",
)
def history(options: Options, id: str | None, limit: int) -> None:
    """Show past runs of schedules, latest first.

    \b
    forge schedule history nightly

    With --json: {"history": [{schedule_id, status, due, started, duration, error, result, session, run}]}. The status
    is running, completed, failed, skipped (the previous run was still active), cancelled, or lost (its process was
    killed). Runs of workers (forge worker) are included; `run` is their id for `forge runs show`.
    """
    elsewhere = _list_worker_runs(options, id, limit)
    with _store(options, read_only=True) as store:
        here = _history(store, id, limit, needed=not elsewhere)
    found = sorted([*here, *elsewhere], key=lambda one: one.started, reverse=True)[:limit]
    if options.json:
        _print_json({"history": [one.to_dict() for one in found]})
        return
    if not found:
        click.echo("No schedule has run yet.", err=True)
        return
    _print_table([("STARTED", "ID", "STATUS", "TOOK", ""), *map(_run_row, found)])


@command.command()
@click.argument("id", required=False)
@with_options("policy")
@click.option("--once", is_flag=True, help="Run what is due now, then exit.")
@click.option("--model", metavar="NAME", help="Model to use instead of the configured one.")
def run(options: Options, id: str | None, once: bool, model: str | None) -> int:
    """Run due schedules until stopped. Several processes can share the work: each due time starts one run.

    \b
    forge schedule run           until stopped
    forge schedule run --once    what is due now
    forge schedule run ID        this schedule now, due or not

    Workers (forge worker, forge console) run due schedules, too; a due time still starts only one run. Runs are
    unattended: a call that would ask is refused. Missed times start one run. A time is skipped if the previous run is
    still active. With --json, every start and end of a run is a line, as in `history`.

    \b
    Exit codes: 0 success, or stopped by SIGTERM     1 a run failed (--once, ID), or the store is damaged
                2 a flag, the configuration or the workspace cannot be used; no such schedule     130 interrupted
    """
    if id is not None and once:
        raise click.UsageError(
            "An ID and --once cannot be combined: --once runs every due schedule. Remove one of them."
        )
    with refusals():
        from forge.project.runs.scheduled_runs import ProjectClaims, make_runner

        if id is None:
            ProjectClaims(options).prepare()
        scheduler: Runner = make_runner(options, model)
        scheduler.report = _report_run_as_json if options.json else _report_run
        if id is not None:
            return _exit_code([_run_coroutine(scheduler.now(id))])
        if once:
            return _exit_code(_run_coroutine(scheduler.once()))
        if not options.json:
            count = len(scheduler.store.list(enabled_only=True))
            click.echo(f"{count} {'schedule is' if count == 1 else 'schedules are'} enabled. Ctrl-C stops.", err=True)
        return _run_forever(scheduler)


@contextmanager
def _store(options: Options, *, read_only: bool = False) -> Iterator[ScheduleStore]:
    with refusals():
        from forge.project.assemble.services import project_schedules, read_schedules

        with read_schedules(options) if read_only else project_schedules(options) as store:
            yield store


def _list_worker_runs(options: Options, id: str | None, limit: int) -> list[ScheduleRun]:
    """Returns the runs of workers. An unreachable database does not hide the runs of this machine."""

    with refusals():
        from forge.project.runs.scheduled_runs import list_worker_runs

        try:
            return list_worker_runs(options, id, limit)
        except ToolError as error:
            click.echo(f"Runs of workers are not shown: {error.message}", err=True)
            return []


def _history(store: ScheduleStore, id: str | None, limit: int, *, needed: bool) -> Sequence[ScheduleRun]:
    """Returns the runs of this machine. `needed` is False if workers know the schedule and this machine may not."""

    try:
        return store.history(id, limit)
    except ToolError as error:
        if needed or error.kind is not ErrorKind.NOT_FOUND:
            raise
        return []


def _run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(work)


def _run_forever(scheduler: Runner) -> int:
    """Runs until Ctrl-C, which interrupts the command, or SIGTERM, with which a service is stopped."""
    import asyncio

    from forge.workspace.state.store import StoreError

    async def until_stopped() -> int:
        task = asyncio.ensure_future(scheduler.forever())
        stopped: list[int] = []

        def stop() -> None:
            stopped.append(signal.SIGTERM)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        try:
            await task
        except asyncio.CancelledError:
            if not stopped:
                raise
        return 0

    try:
        return asyncio.run(until_stopped())
    except StoreError as error:
        click.echo(f"Error: {error.message}\n{error.suggestion}", err=True)
        return 1


def _exit_code(ended: list[ScheduleRun]) -> int:
    from forge.schedules.schedule import Status

    return 0 if all(run.status is Status.COMPLETED for run in ended) else 1


def _report_run_as_json(run: ScheduleRun) -> None:
    _print_json(run.to_dict())
    sys.stdout.flush()


def _report_run(run: ScheduleRun) -> None:
    """Prints events of a run to the standard error and its result to the standard output."""
    at = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    took = f" in {run.duration:.1f} s" if run.duration is not None else ""
    message = f": {harmless(run.error)}" if run.error else ""
    click.echo(f"{at}  {run.schedule_id}  {run.status}{took}{message}", err=True)
    if run.result:
        click.echo(harmless(run.result))


def _row(one: Schedule) -> tuple[str, ...]:
    following = one.format_time(one.next_fire)
    source = "unknown" if one.problem else one.origin or str(one.source)
    return one.id, f"{one.cron} ({one.timezone})", following or "off", harmless(source), _on_one_line(one.task)


def _run_row(one: ScheduleRun) -> tuple[str, ...]:
    started = datetime.fromtimestamp(one.started).strftime("%Y-%m-%d %H:%M:%S")
    took = f"{one.duration:.1f} s" if one.duration is not None else ""
    return started, one.schedule_id, str(one.status), took, _on_one_line(one.error or one.result)


def _on_one_line(text: str) -> str:
    """Puts a text on one line, so that nobody's text looks like a line of its own."""
    return harmless(" ".join(text.split()))


def _print_table(rows: list[tuple[str, ...]]) -> None:
    for number, line in enumerate(table_lines(rows)):
        click.echo(click.style(line, bold=True) if number == 0 and sys.stdout.isatty() else line)


def _explain_rule(one: Schedule) -> str:
    from forge.schedules.cron import Cron

    return Cron.parse(one.cron, one.timezone).explain()


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
