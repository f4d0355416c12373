"""`forge runs delete` and `forge runs prune`: remove runs that are over."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from forge.cli.options import Options
from forge.cli.refusal import Refusal
from forge.cli.running.stored_runs import open_stored_runs, print_json, with_database
from forge.project.config import load_configuration


@click.command()
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
            way = f"To delete that run: {stored.commands.line('runs', 'delete', gone)}"
            raise Refusal(f"cannot delete a run by the beginning of its id: {run!r} may be {gone}\n{way}")
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


@click.command()
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
    words = f"{count:,} {'run has' if count == 1 else 'runs have'} been over for {days:g} days"
    click.echo(f"{words}." if dry_run else f"{words}: deleted.", err=True)


def _prune_kept(options: Options, database: str | None, *, dry_run: bool) -> None:
    """Prunes what is older than the configuration keeps."""
    with open_stored_runs(options, database) as stored:
        kept = load_configuration(options.config).durable
        if kept is None or not kept.retention:
            way = "Use --days N, or write durable: {retention: {runs: 90}} in forge.yaml."
            raise Refusal(f"cannot prune: nothing says how long runs are kept\n{way}")
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
