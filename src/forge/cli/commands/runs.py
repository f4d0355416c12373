"""`forge runs`: lists stored runs, answers their questions, resumes and removes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from forge.cli.group import CommandGroup
from forge.cli.options import Options
from forge.cli.refusal import Refusal, refusals
from forge.cli.running.stored_runs import (
    StoredRuns,
    format_time,
    open_stored_runs,
    print_json,
    run_fields,
    run_lines,
    shorten_prompt,
    state_of,
    with_database,
)
from forge.cli.terminal.print_result import harmless, table_lines
from forge.project.config.load import load_configuration

if TYPE_CHECKING:
    from forge.durable.store.rows import RunInfo


STATUSES = ("queued", "running", "waiting", "finished", "failed", "cancelled")
MARKS = ("good", "bad", "any", "none")


def _with_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the filters of runs."""
    for flag in reversed(
        (
            click.option("--agent", metavar="NAME", help="Only runs of this agent."),
            click.option("--queue", metavar="NAME", help="Only runs of this queue."),
            click.option("--tenant", metavar="NAME", help="Only runs of this tenant."),
            click.option("--user", metavar="NAME", help="Only runs of this user."),
            click.option("--model", metavar="NAME", help="Only runs of this model."),
            click.option(
                "--failure",
                metavar="REASON",
                help="Only runs that ended so: timeout, turns, cancelled, … or any.",
            ),
            click.option("--mark", type=click.Choice(MARKS), help="Only runs whose answer is marked so."),
            click.option("--min-cost", metavar="N", type=click.FloatRange(min=0), help="Only runs that cost so much."),
            click.option(
                "--since", metavar="TIME", help="Only runs created since then: 2026-11-18, or 2026-11-18T08:00."
            ),
            click.option("--until", metavar="TIME", help="Only runs created before then."),
        )
    ):
        function = flag(function)
    return function


_with_text = click.option(
    "--text", metavar="TEXT", help="Only runs with this text in the prompt, the answer, the id or the session."
)


def _read_filters(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the filters for `Runs.list`: times are local, and become seconds since 1970."""
    times = {name: _read_time(name, filters.get(name)) for name in ("since", "until")}
    kept = {name: value for name, value in filters.items() if name != "min_cost"}
    return {**kept, **times, "cost": filters.get("min_cost")}


def _read_time(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.UsageError(f"--{name} {text!r:.60} is not a time. Write 2026-11-18 or 2026-11-18T08:00.") from None


def _read_cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    created, slash, name = text.partition("/")
    try:
        moment = float(created)
    except ValueError:
        slash = ""
    if not slash or not name:
        raise click.UsageError(f"--before {text!r:.60} is not the end of a page. Take what the page before printed.")
    return moment, name


@click.group("runs", cls=CommandGroup)
def command() -> None:
    """List, answer, resume and cancel durable runs.

    `forge run --durable` starts one. Name a run by its id. The beginning of the id is enough, except to delete a run.
    """


@command.command("list")
@with_database
@click.option(
    "--status", type=click.Choice(STATUSES), multiple=True, help="Only runs with this status; can be repeated."
)
@_with_filters
@_with_text
@click.option("--all", "everything", is_flag=True, help="Include runs that other runs started.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Runs on a page.")
@click.option("--before", metavar="CURSOR", help="The next page: what the page before has printed as its end.")
def list_(
    options: Options,
    database: str | None,
    status: tuple[str, ...],
    everything: bool,
    limit: int,
    before: str | None,
    **filters: Any,
) -> None:
    """List the runs, newest first.

    \b
    forge runs list --status waiting
    forge runs list --since 2026-11-01 --until 2026-11-15 --agent main --user ada
    forge runs list --text backup --queue night --json
    forge runs list --failure any --min-cost 0.5
    forge runs list --mark bad

    With --json: {"runs": [{id, status, prompt, agent, session, tenant, queue, priority, version, segment, waits,
    spent, worker, parent, created, updated, cancelling, result, waited, model}], "next"}. "next" is the
    --before of the next page; it is empty on the last one.
    """
    wanted = _read_filters(filters)
    cursor = _read_cursor(before)
    found: list[RunInfo] = []
    alone: list[str] = []
    following = ""
    with open_stored_runs(options, database) as stored:
        if stored.runs is not None:
            from forge.cli.running.waiting_runs import unattended_lines

            parent = None if everything else ""
            found = stored.runs.list(status=status or None, parent=parent, limit=limit + 1, before=cursor, **wanted)
            found, rest = found[:limit], found[limit:]
            following = f"{found[-1].created!r}/{found[-1].id}" if rest else ""
            alone = [] if options.json else list(unattended_lines(stored.runs, found, stored.commands))
    if options.json:
        print_json({"runs": [run_fields(run) for run in found], "next": following})
        return
    if not found:
        is_filtered = status or cursor or any(value is not None for value in wanted.values())
        click.echo("No run matches." if is_filtered else "There are no runs.", err=True)
    rows = [(run.id, f"{state_of(run):<9}", format_time(run.created), shorten_prompt(run.prompt)) for run in found]
    for line in table_lines(rows):
        click.echo(line)
    if following:
        click.echo(f"More: add --before {following}", err=True)
    for line in alone:
        click.echo(line, err=True)


@command.command()
@click.argument("run", required=False)
@with_database
@click.option("--failed", is_flag=True, help="Every failed run, or those that the filters name.")
@_with_filters
def retry(options: Options, run: str | None, database: str | None, failed: bool, **filters: Any) -> None:
    """Queue failed runs again, for any worker.

    \b
    forge runs retry run-3f2a
    forge runs retry --failed --since 2026-11-17 --agent main

    A run continues where it stopped; finished steps are not repeated. With --json: {"retried": [id]}.
    """
    wanted = _read_filters(filters)
    if (run is None) is not failed:
        raise click.UsageError("Name a run, or use --failed.")
    if run is not None and any(value is not None for value in wanted.values()):
        raise click.UsageError("Filters belong to --failed. Name a run, or use --failed with filters.")
    with open_stored_runs(options, database, run or "") as stored:
        runs, retried = stored.runs, []
        if run is not None and (one := runs.find(run)).status != "failed":
            command = stored.commands.line("runs", "resume", one.id)
            raise Refusal(f"cannot retry run {one.id}: it is {one.status}, not failed\nTo continue it: {command}")
        found = [runs.find(run)] if run is not None else runs.list(status="failed", parent="", limit=100_000, **wanted)
        for one in found:
            if runs.resume(one.id).status == "queued":
                retried.append(one.id)
    if options.json:
        print_json({"retried": retried})
        return
    click.echo(f"{len(retried)} {'run is' if len(retried) == 1 else 'runs are'} queued again.", err=True)


@command.command()
@click.argument("run")
@click.argument("verdict", type=click.Choice(("good", "bad", "none")))
@with_database
@click.option("--note", metavar="TEXT", default="", help="Why, for people and for a judge.")
@click.option("--by", metavar="NAME", default="forge runs", show_default=True, help="Who marks it.")
def mark(options: Options, run: str, verdict: str, database: str | None, note: str, by: str) -> None:
    """Mark the answer of a run as good or bad.

    \b
    forge runs mark run-3f2a good
    forge runs mark run-3f2a bad --note "It left out the tests." --by ada
    forge runs mark run-3f2a none                    remove the mark

    `forge runs list --mark bad` finds it again, and `forge eval --from-marked bad` runs it as a case. The log of events
    says who marked it. With --json: {"run", "verdict", "note", "by"}.
    """
    with open_stored_runs(options, database, run) as stored:
        from forge.project.runs.marked_runs import mark_run  # the worker's log

        verdict = "" if verdict == "none" else verdict
        found = stored.runs.find(run)
        mark_run(stored.runs, stored.workspace, found.id, verdict, note.strip(), by)
    if options.json:
        print_json({"run": found.id, "verdict": verdict, "note": note.strip(), "by": by})
        return
    click.echo(f"{found.id} is marked as {verdict}." if verdict else f"{found.id} is not marked any more.", err=True)


@command.command()
@with_database
@_with_filters
@_with_text
@click.option("--judged", is_flag=True, help="Add a statement for a judge to each case, with the note of its mark.")
def cases(options: Options, database: str | None, judged: bool, **filters: Any) -> None:
    """Print marked runs as cases of `forge eval`.

    \b
    forge runs cases --mark bad > cases.yaml
    forge eval cases.yaml --model anthropic:MODEL

    A run that is marked as good expects the tools that it called. A run that is marked as bad expects another answer.
    With --json: {"cases": [case]}.
    """
    wanted = _read_filters(filters)
    found: list[dict[str, Any]] = []
    text = ""
    with open_stored_runs(options, database) as stored:
        if stored.runs is not None:
            from forge.project.runs.marked_runs import cases_text, marked_cases  # the worker's log

            found = marked_cases(stored.runs, judged=judged, **wanted)
            text = cases_text(found)
    if options.json:
        print_json({"cases": found})
        return
    if not found:
        raise Refusal("there is no marked run\nMark one: forge runs mark RUN good")
    click.echo(text, nl=False)


@command.command()
@click.argument("run")
@with_database
@click.option("--follow", is_flag=True, help="Follow its events until it ends or waits for a person.")
def show(options: Options, run: str, database: str | None, follow: bool) -> int:
    """Show a run: its progress, what it waits for, and its messages.

    \b
    forge runs show run-3f2a --follow

    With --json: everything about the run, including messages, questions, files and the runs that it started. With
    --follow --json, every event is a line of JSON. Events and exit codes are those of `forge run`.
    """
    with open_stored_runs(options, database, run) as stored:
        found = stored.runs.find(run)
        if follow:
            from forge.cli.running.durable_run import follow_run

            return follow_run(stored.runs, found.id, stored.commands, as_json=options.json)
        if options.json:
            from forge.project.runs.durable_runs import all_run_fields

            print_json(all_run_fields(stored.runs, found))
            return 0
        for line in run_lines(stored.runs, found, stored.commands):
            click.echo(line)
    return 0


@command.command()
@click.argument("run")
@click.argument("text", required=False)
@partial(with_database, flags=("yes",))
@click.option(
    "--no", "no", is_flag=False, flag_value="", metavar="[WHY]", help="Deny the call; the model gets the reason."
)
@click.option(
    "--always", is_flag=True, help="Approve the call, and store the rules that the question shows, for this run."
)
@click.option("--edit", metavar="JSON", help="Approve the call with these arguments instead.")
@click.option("--question", metavar="ID", help="The question to answer, if the run has several.")
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
    """Answer a waiting run, which then continues.

    \b
    forge runs answer run-3f2a "The second one."     answer its question
    forge runs answer run-3f2a --yes                 approve its call
    forge runs answer run-3f2a --no "not on Fridays"
    forge runs answer run-3f2a --edit '{"path": "b.txt"}'

    Only the first answer counts. It applies to exactly the call that was asked about.
    """
    from forge.cli.running.waiting_runs import find_question, parse_answer  # the permissions

    reply = parse_answer(text, yes=options.yes, no=no, always=always, edit=edit)
    with open_stored_runs(options, database, run) as stored:
        asker = stored.runs.find(run)
        after = stored.runs.answer(asker.id, reply, find_question(stored.runs, asker, question), by="forge runs")
        _print_next_step(options, stored, after)


@command.command()
@click.argument("run")
@click.argument("text")
@with_database
def send(options: Options, run: str, text: str, database: str | None) -> None:
    """Send a message to a run that is not over.

    \b
    forge runs send run-3f2a "Leave the tests alone."

    The model sees the message before its next turn, exactly once, even if the worker is killed. A run that waits for an
    answer in words takes the message as the answer.
    """
    with open_stored_runs(options, database, run) as stored:
        after = stored.runs.send(stored.runs.find(run).id, text)
    if options.json:
        print_json(run_fields(after))
        return
    click.echo(f"{after.id} gets the message before its next turn.", err=True)


@command.command()
@click.argument("run")
@with_database
def cancel(options: Options, run: str, database: str | None) -> None:
    """Cancel a run, and the runs that it started.

    \b
    forge runs cancel run-3f2a

    If the run is active, its worker stops it within seconds.
    """
    with open_stored_runs(options, database, run) as stored:
        before = stored.runs.find(run)
        if before.is_over:
            say = ' --say "…"' if before.status == "finished" else ""
            hint = f"To resume it: {stored.commands.line('runs', 'resume', before.id)}{say}"
            raise Refusal(f"cannot cancel run {before.id}: it is {before.status}\n{hint}")
        after = stored.runs.cancel(before.id)
    if options.json:
        print_json(run_fields(after))
        return
    click.echo(f"{after.id} is {'cancelled' if after.is_over else 'being cancelled'}.", err=True)


@command.command()
@click.argument("run")
@partial(with_database, flags=("policy", "yes", "dev"))
@click.option("--say", metavar="TEXT", help="A new message for the run.")
@click.option("--model", metavar="NAME", help="Switch to another model.")
@click.option("--max-turns", metavar="N", type=click.IntRange(min=1), default=None, help="As for `forge run`.")
@click.option("--quiet", is_flag=True, help="Print only the final text.")
@click.option("--plain", is_flag=True, help="Plain lines, as for `forge run`.")
@click.option("--audit", metavar="FILE", help="File for the event log. Default: .forge/audit.ndjson.")
@click.option("--no-audit", is_flag=True, help="Write no event log.")
@click.option("--detach", is_flag=True, help="Leave the run to a worker.")
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
    """Resume a run in this process.

    Use it for a run that was interrupted or failed, or to send the run a new message with --say.

    \b
    forge runs resume run-3f2a                       continue where it stopped
    forge runs resume run-3f2a --say "And the rest?"

    Finished steps are not repeated. The output and the exit codes are those of `forge run`.
    """
    if say is not None and not say.strip():
        raise click.UsageError('--say is empty. Write a message for the model: forge runs resume RUN --say "TEXT"')
    with refusals():
        from forge.project.runs.durable_runs import check_installed

        check_installed()
    from forge.cli.running.durable_run import resume as resume_run
    from forge.cli.running.run_prompts import RunFlags

    flags = RunFlags(model=model, session=None, reads_stdin=not sys.stdin.isatty(), **more)
    return resume_run(options, flags, run, say=say, database=database, detach=detach, app_version=app_version)


@command.command()
@click.argument("run", required=False)
@with_database
@click.option("--all", "everything", is_flag=True, help="Every run that has not ended.")
@click.option("--to", "version", metavar="VERSION", help="Target version. Default: the version of this project.")
def migrate(options: Options, run: str | None, database: str | None, everything: bool, version: str | None) -> None:
    """Move runs to workers of this version of the project.

    \b
    forge runs migrate run-3f2a
    forge runs migrate --all

    A worker does not take runs that another version (of Forge, or of the project's configuration) started, because the
    tools may differ. With --json: {"migrated": [id], "version"}.
    """
    if (run is None) is not everything:
        raise click.UsageError("Name a run, or use --all.")
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
@click.option("--get", "name", metavar="NAME", help="Print this file.")
def files(options: Options, run: str, database: str | None, name: str | None) -> None:
    """List the files of a run.

    These are results that were too long for the model, stored in full.

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
        click.echo("The run has no files.", err=True)
    for one, size in found:
        click.echo(f"{size:>12,}  {harmless(one)}")


def _version(options: Options) -> str:
    from forge.project.runs.durable_runs import project_version

    return project_version(load_configuration(options.config))


def _print_next_step(options: Options, stored: StoredRuns, run: RunInfo) -> None:
    from forge.cli.running.waiting_runs import worker_for

    if options.json:
        print_json(run_fields(run))
    elif run.is_over or stored.runs.is_attended(run):
        click.echo(f"{run.id} continues.", err=True)
    else:
        hint = f"{worker_for(run.queue, stored.commands)}, or here: {stored.commands.line('runs', 'resume', run.id)}"
        click.echo(f"{run.id} continues as soon as a worker is running: {hint}", err=True)


# `forge runs delete` and `forge runs prune`: remove runs that are over.


@command.command()
@click.argument("run", required=False)
@with_database
@click.option("--user", metavar="NAME", help="Every ended run of this user.")
@click.option("--tenant", metavar="NAME", help="Every ended run of this tenant.")
def delete(options: Options, run: str | None, database: str | None, user: str | None, tenant: str | None) -> None:
    """Delete ended runs with all their data. The runs that they started are deleted, too.

    \b
    forge runs delete run-3f2a9c0d1e2b
    forge runs delete --user ada                     all that is stored of a person
    forge runs delete --tenant acme

    Give the complete id. With --user and --tenant, runs must be of both. Runs that are not over stay, and are counted:
    cancel them first. What the runs changed stays changed. Their sessions stay, too: `forge session delete` deletes
    them. With --json: {"deleted": id}, or {"deleted": [id], "left"} with --user or --tenant.
    """
    if (run is None) is (not user and not tenant):
        raise click.UsageError("Name a run, or use --user or --tenant.")
    if run is None:
        _delete_all(options, database, user, tenant)
        return
    with open_stored_runs(options, database, run) as stored:
        gone = stored.runs.find(run).id
        if gone != run:
            hint = f"To delete that run: {stored.commands.line('runs', 'delete', gone)}"
            raise Refusal(f"cannot delete a run by the beginning of its id: {run!r} may be {gone}\n{hint}")
        stored.store_finished()
        stored.runs.delete(gone, stored.workspace)
    if options.json:
        print_json({"deleted": gone})
        return
    click.echo(f"{gone} is deleted.", err=True)


def _delete_all(options: Options, database: str | None, user: str | None, tenant: str | None) -> None:
    """Deletes the runs of a user or a tenant, and counts those that are not over."""
    gone: list[str] = []
    left = 0
    with open_stored_runs(options, database) as stored:
        if stored.runs is not None:
            stored.store_finished()
            gone = list(stored.runs.delete_all(user=user, tenant=tenant, workspace=stored.workspace))
            left = len(stored.runs.list(user=user, tenant=tenant, parent="", limit=100_000))
    if options.json:
        print_json({"deleted": gone, "left": left})
        return
    click.echo(f"{len(gone):,} {'run is' if len(gone) == 1 else 'runs are'} deleted.", err=True)
    if left:
        click.echo(f"{left:,} are not over and stay: cancel them first (forge runs cancel RUN).", err=True)


@command.command()
@with_database
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Only runs that ended at least N days ago. Default: what durable.retention says.",
)
@click.option("--dry-run", is_flag=True, help="Only count the runs.")
def prune(options: Options, database: str | None, days: float | None, dry_run: bool) -> None:
    """Delete old runs with all their data. The runs that they started are deleted, too.

    \b
    forge runs prune --days 30
    forge runs prune --days 30 --dry-run
    forge runs prune                         as durable.retention in forge.yaml says

    Workers do the last of these at quiet times. What the runs changed stays changed, and their sessions stay, too.
    Workers may keep running. With --json: {"deleted"}, or {"found"} with --dry-run. Without --days, "deleted" also
    counts events and files.
    """
    if days is None:
        _prune_kept(options, database, dry_run=dry_run)
        return
    with open_stored_runs(options, database) as stored:
        if stored.runs is None:
            count = 0
        elif dry_run:
            count = stored.runs.prunable(days * 86_400)
        else:
            stored.store_finished()
            count = sum(
                _show_progress(stored.runs.prune(days * 86_400, stored.workspace), show_progress=not options.json)
            )
    if options.json:
        print_json({"found" if dry_run else "deleted": count})
        return
    message = f"{count:,} {'run has' if count == 1 else 'runs have'} been over for {days:g} days"
    click.echo(f"{message}." if dry_run else f"{message}: deleted.", err=True)


def _prune_kept(options: Options, database: str | None, *, dry_run: bool) -> None:
    """Prunes what is older than the configuration keeps."""

    with open_stored_runs(options, database) as stored:
        kept = load_configuration(options.config).durable
        if kept is None or not kept.retention:
            hint = "Use --days N, or write durable: {retention: {runs: 90}} in forge.yaml."
            raise Refusal(f"cannot prune: nothing says how long runs are kept\n{hint}")
        count = 0
        if stored.runs is not None and dry_run:
            count = stored.runs.prunable(kept.retention["runs"] * 86_400) if "runs" in kept.retention else 0
        elif stored.runs is not None:
            stored.store_finished()
            batches = stored.runs.prune_kept(stored.workspace, **kept.retention)
            count = sum(_show_progress(batches, show_progress=not options.json))
    if options.json:
        print_json({"found" if dry_run else "deleted": count})
        return
    click.echo(f"{count:,} old runs." if dry_run else f"{count:,} runs, events and files are deleted.", err=True)


def _show_progress(batches: Iterator[int], *, show_progress: bool) -> Iterator[int]:
    """Yields the same numbers, and prints the progress on a terminal."""
    so_far = 0
    for batch in batches:
        so_far += batch
        if show_progress and sys.stderr.isatty():
            click.echo(f"\r{so_far:,} …", nl=False, err=True)
        yield batch
    if so_far and show_progress and sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
