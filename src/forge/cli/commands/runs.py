"""`forge runs`: lists stored runs, answers their questions, resumes and removes them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.remove_runs import delete, prune
from forge.cli.running.run_lines import all_run_fields, format_time, run_fields, run_lines, shorten_prompt, state_of
from forge.cli.running.stored_runs import StoredRuns, open_stored_runs, print_json, with_database
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # an extra, and slow to import: showing the help does without
    from forge.durable.store.rows import RunInfo

STATUSES = ("queued", "running", "waiting", "finished", "failed", "cancelled")


@click.group("runs")
def command() -> None:
    """See the runs that are kept (forge run --durable), answer what they ask, stop one, go on with one.

    A run is named by its id or, where nothing is deleted, by the beginning of it.
    """


@command.command("list")
@with_database
@click.option("--status", type=click.Choice(STATUSES), multiple=True, help="Only these; may be given again.")
@click.option("--tenant", metavar="NAME", help="Only those of a tenant.")
@click.option("--all", "everything", is_flag=True, help="Also the runs that other runs started.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="How many.")
def list_(
    options: Options, database: str | None, status: tuple[str, ...], tenant: str | None, everything: bool, limit: int
) -> None:
    """List the runs, the newest first.

    \b
    forge runs list --status waiting
    forge runs list --json

    With --json: {"runs": [{id, status, prompt, agent, session, tenant, queue, priority, version, segment, waits,
    spent, worker, parent, created, updated, cancelling, result}]}.
    """
    found: list[RunInfo] = []
    alone: list[str] = []
    with open_stored_runs(options, database) as stored:
        if stored.runs is not None:
            from forge.cli.running.waiting_runs import unattended_lines

            parent = None if everything else ""
            found = stored.runs.list(status=status or None, tenant=tenant, parent=parent, limit=limit)
            alone = [] if options.json else list(unattended_lines(stored.runs, found, stored.commands))
    if options.json:
        print_json({"runs": [run_fields(run) for run in found]})
        return
    if not found:
        click.echo("No such run is kept here." if status or tenant else "No run is kept here.", err=True)
    width = max((len(run.id) for run in found), default=0)
    for run in found:
        click.echo(
            f"{run.id:<{width}}  {state_of(run):<9}  {format_time(run.created)}  {shorten_prompt(run.prompt)}".rstrip()
        )
    for line in alone:
        click.echo(line, err=True)


@command.command()
@click.argument("run")
@with_database
@click.option("--follow", is_flag=True, help="Show what it does, until it is over or waits for somebody.")
def show(options: Options, run: str, database: str | None, follow: bool) -> int:
    """Show a run: how far it is, what it waits for, what was said.

    \b
    forge runs show run-3f2a --follow

    With --json: all that is known of it, with messages, questions, files and the runs it started. With --follow --json
    every event is a line of JSON, as with `forge run`; the exit codes are those of `forge run`, too.
    """
    with open_stored_runs(options, database, run) as stored:
        found = stored.runs.find(run)
        if follow:
            from forge.cli.running.follow_run import follow_run

            return follow_run(stored.runs, found.id, stored.commands, as_json=options.json)
        if options.json:
            print_json(all_run_fields(stored.runs, found))
            return 0
        for line in run_lines(stored.runs, found, stored.commands):
            click.echo(line)
    return 0


@command.command()
@click.argument("run")
@click.argument("text", required=False)
@with_database
@click.option("--no", "no", is_flag=False, flag_value="", metavar="[WHY]", help="It may not; the model is told why.")
@click.option("--always", is_flag=True, help="It may, and so may what is like it in this run.")
@click.option("--edit", metavar="JSON", help="It may, with these arguments instead.")
@click.option("--question", metavar="ID", help="Which one, where a run asks for several.")
def answer(
    options: Options,
    run: str,
    text: str | None,
    database: str | None,
    no: str | None,
    always: bool,
    edit: str | None,
    question: str | None,
) -> None:
    """Answer what a run waits for, and let it go on.

    \b
    forge runs answer run-3f2a "The second one."     its question
    forge runs answer run-3f2a --yes                 a call that wants to be allowed
    forge runs answer run-3f2a --no "not on Fridays"
    forge runs answer run-3f2a --edit '{"path": "b.txt"}'

    An answer is taken once, and counts for exactly the call that was asked about.
    """
    from forge.cli.running.waiting_runs import find_question, parse_answer  # the permissions

    reply = parse_answer(text, yes=options.yes, no=no, always=always, edit=edit)
    with open_stored_runs(options, database, run) as stored:
        asker = stored.runs.find(run)
        after = stored.runs.answer(asker.id, reply, find_question(stored.runs, asker, question), by="forge runs")
        _print_next_step(options, stored, after)


@command.command()
@click.argument("run")
@with_database
def cancel(options: Options, run: str, database: str | None) -> None:
    """Stop a run, and those that it started.

    \b
    forge runs cancel run-3f2a

    One that is at work is stopped by its worker, within seconds.
    """
    with open_stored_runs(options, database, run) as stored:
        before = stored.runs.find(run)
        if before.is_over:
            say = ' --say "…"' if before.status == "finished" else ""
            way = f"To go on with it: {stored.commands.line('runs', 'resume', before.id)}{say}"
            raise Refusal(f"cannot cancel run {before.id}: it is {before.status}\n{way}")
        after = stored.runs.cancel(before.id)
    if options.json:
        print_json(run_fields(after))
        return
    click.echo(f"{after.id} is {'cancelled' if after.is_over else 'being cancelled'}.", err=True)


@command.command()
@click.argument("run")
@with_database
@click.option("--say", metavar="TEXT", help="Something new to say to it.")
@click.option("--model", metavar="NAME", help="Another model than the run began with.")
@click.option("--max-turns", metavar="N", type=click.IntRange(min=1), default=None, help="As for `forge run`.")
@click.option("--quiet", is_flag=True, help="Only the final text.")
@click.option("--audit", metavar="FILE", help="Where the log of events goes; .forge/audit.ndjson by default.")
@click.option("--no-audit", is_flag=True, help="Keep no log of events.")
@click.option("--detach", is_flag=True, help="Leave it to a worker.")
@click.option("--app-version", metavar="VERSION", help="As for `forge run`.")
def resume(
    options: Options,
    run: str,
    database: str | None,
    say: str | None,
    detach: bool,
    app_version: str | None,
    model: str | None,
    **more: Any,
) -> int:
    """Go on with a run, here: one whose process was killed, one that failed, one that has something new to hear.

    \b
    forge runs resume run-3f2a                       where it broke off
    forge runs resume run-3f2a --say "And the rest?"

    What was done is not done again. The output and the exit codes are those of `forge run`.
    """
    if say is not None and not say.strip():
        raise click.UsageError('--say is empty. Write what the model is to hear: forge runs resume RUN --say "TEXT"')
    with refusals():
        from forge.project.runs.durable_runs import check_installed

        check_installed()
    from forge.cli.running.chat_session import RunFlags
    from forge.cli.running.durable_run import resume as resume_run

    flags = RunFlags(model=model, session=None, reads_stdin=not sys.stdin.isatty(), **more)
    return resume_run(options, flags, run, say=say, database=database, detach=detach, app_version=app_version)


@command.command()
@click.argument("run", required=False)
@with_database
@click.option("--all", "everything", is_flag=True, help="Every run that is not over.")
@click.option("--to", "version", metavar="VERSION", help="Another version than that of this project.")
def migrate(options: Options, run: str | None, database: str | None, everything: bool, version: str | None) -> None:
    """Give runs to workers of this version of the project.

    \b
    forge runs migrate run-3f2a
    forge runs migrate --all

    Workers leave alone what another version began (of Forge, or of the project's configuration): it may have other
    tools. With --json: {"migrated": [id], "version"}.
    """
    if (run is None) is not everything:
        raise click.UsageError("Name a run, or --all of them.")
    with open_stored_runs(options, database, run or "") as stored:
        runs, to = stored.runs, version or _version(options)
        found = runs.list(status=STATUSES[:3], parent="", limit=100_000) if run is None else [runs.find(run)]
        moved = [runs.migrate(one.id, to).id for one in found if one.version != to]
    if options.json:
        print_json({"migrated": moved, "version": to})
        return
    click.echo(f"{len(moved)} {'run belongs' if len(moved) == 1 else 'runs belong'} to version {to} now.", err=True)


@command.command()
@click.argument("run")
@with_database
@click.option("--get", "name", metavar="NAME", help="Write this one to the standard output.")
def files(options: Options, run: str, database: str | None, name: str | None) -> None:
    """List the files of a run: results that were too long for the model, and are kept whole.

    \b
    forge runs files run-3f2a
    forge runs files run-3f2a --get NAME > whole.txt

    With --json: {"files": [{name, size}]}.
    """
    with open_stored_runs(options, database, run) as stored:
        store, run_id = stored.runs.store, stored.runs.find(run).id
        if name is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(store.file(run_id, name))
            return
        found = store.files(run_id)
    if options.json:
        print_json({"files": [{"name": one, "size": size} for one, size in found]})
        return
    if not found:
        click.echo("It has no files.", err=True)
    for one, size in found:
        click.echo(f"{size:>12,}  {harmless(one)}")


def _version(options: Options) -> str:
    from forge.project.config import load_configuration
    from forge.project.runs.durable_runs import project_version

    return project_version(load_configuration(options.config))


def _print_next_step(options: Options, stored: StoredRuns, run: RunInfo) -> None:
    from forge.cli.running.waiting_runs import worker_for

    if options.json:
        print_json(run_fields(run))
    elif run.is_over or stored.runs.is_attended(run):
        click.echo(f"{run.id} goes on.", err=True)
    else:
        way = f"{worker_for(run.queue, stored.commands)}, or here: {stored.commands.line('runs', 'resume', run.id)}"
        click.echo(f"{run.id} goes on as soon as a worker is up: {way}", err=True)


command.add_command(delete)
command.add_command(prune)
