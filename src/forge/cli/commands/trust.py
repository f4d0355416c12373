"""`forge trust`: shows what a project's configuration turns on, and accepts it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_named_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import harmless

if TYPE_CHECKING:  # loaded when it is used
    from forge.project.trust import Standing
    from forge.project.trust_summary import TrustItem

_LONGEST = 300  # characters of one line
_LONGEST_RISKY = 4_000  # what is run or allowed is not hidden behind a long beginning
_NEEDS_PERSON = 3


@click.command("trust")
@with_named_options
@click.option("--list", "listing", is_flag=True, help="List the projects that were accepted.")
@click.option("--forget", is_flag=True, help="Take it back.")
@click.option("--dry-run", is_flag=True, help="Only show what it would turn on.")
def command(options: Options, listing: bool, forget: bool, dry_run: bool) -> int:
    """Accept the workspace's forge.yaml as it is now, and a .forge/ that was not made here.

    Before that, Forge says that it is there and goes on without it. It is shown what it would turn on: programs it
    starts, schedules, channels, what it allows without asking, where it connects to. The accepted text is kept in
    $XDG_DATA_HOME/forge/trust.json (by default ~/.local/share/forge), outside the project, and stays in force: when
    forge.yaml is edited, replaced or removed, every command says so and goes on with the accepted version, until
    `forge trust` has shown the difference and accepted the new one. Where the accepted text cannot be known, commands
    end with exit code 2. A file named with --config is used without this: naming it is enough.

    The same goes for .forge/: one that you did not make on this machine (it came with a clone, an archive, a copy) may
    hold schedules, approvals, notes and conversations of somebody else, and is not used until it is accepted.

    With --json: {workspace, status: none | trusted | new | changed | gone | unknown, accepted,
    turns_on: [{kind, detail, risky}], scripts, state: none | own | foreign}.

    \b
    Examples:
      forge trust                      at a terminal: look, then answer
      forge trust --dry-run            only look
      forge trust --yes                accept without being asked
      forge trust --forget
      forge trust --list

    \b
    Exit codes: 0 accepted, or nothing to accept      1 it is not accepted
                2 it cannot be read or remembered     3 nobody is there to answer
    """
    if listing:
        return _print_projects(options)
    workspace = workspace_of(options)
    if forget:
        return _forget(workspace)
    from forge.project.trust import list_accepted, trust_state

    with refusals():
        list_accepted()  # where that cannot be read, nothing can be added to it
    now = trust_state(workspace)
    if now.unreadable:
        raise Refusal(f"forge.yaml cannot be trusted: {now.problem}\nRepair it, then try again.")
    with refusals():
        items, scripts, state = _list_items(now), _scripts(workspace), _list_foreign_state(now)
        can_accept = _can_be_accepted(now, scripts) or state is not None
        answer: bool | None = True if options.yes and not dry_run else None
        if not options.json:
            _print_standing(now, items, scripts, state)
            if answer is None and not dry_run and can_accept:
                answer = _ask()
        accepts = bool(answer) and can_accept
        if accepts:
            _accept(now, _can_be_accepted(now, scripts), state, quiet=options.json)
    if options.json:
        _print_json(now, items, scripts, state, accepts)
    if accepts or dry_run or not can_accept:
        return 0
    return _NEEDS_PERSON if answer is None else 1


def _list_items(now: Standing) -> list[TrustItem]:
    from forge.project.config_layers import file_exists
    from forge.project.trust_summary import trust_summary

    return trust_summary(now.text, str(now.path)) if file_exists(now.path) else []


def _scripts(workspace: str) -> list[str]:
    from forge.project.trust_summary import scripts_in

    return scripts_in(workspace)


def _list_foreign_state(now: Standing) -> list[TrustItem] | None:
    """Lists the contents of a state directory that was not made here; None if there is no such directory."""
    from forge.project.foreign_state import list_foreign_state

    return list_foreign_state(now.path.parent)


def _can_be_accepted(now: Standing, scripts: list[str]) -> bool:
    if now.status == "none":
        from forge.project.trust import is_trusted

        return bool(scripts) and not is_trusted(now.path.parent)
    return now.status != "trusted"


def _print_standing(now: Standing, items: list[TrustItem], scripts: list[str], state: list[TrustItem] | None) -> None:
    if state is not None:
        click.echo(f"{harmless(str(now.path.parent))}/.forge was not made by Forge on this machine, and holds:")
        _print_items(state)
    if now.status == "none" and not scripts:
        if state is None:
            click.echo(f"There is no forge.yaml in {harmless(str(now.path.parent))}: nothing to accept.")
        return
    if now.status == "trusted":
        click.echo(f"{harmless(str(now.path))} is accepted as it is.")
        return
    if now.status == "gone":
        click.echo(f"{harmless(str(now.path))} is gone. To accept that takes back all that it said:")
    else:
        click.echo(f"{harmless(str(now.path))} would turn on:" if items else f"In {harmless(str(now.path.parent))}:")
    _print_items(items)
    if scripts:
        names = ", ".join(harmless(name) for name in scripts[:20])
        more = f" and {len(scripts) - 20} more" if len(scripts) > 20 else ""
        click.echo(f"   scripts in tools/, whose descriptions the model reads: {names}{more}")
    if now.before is not None:
        _print_difference(now.before, now.text)


def _print_items(items: list[TrustItem]) -> None:
    width = max((len(one.kind) for one in items), default=0)
    for one in items:
        line = harmless(" ".join(one.detail.split()))
        most = _LONGEST_RISKY if one.risky else _LONGEST
        clipped = line if len(line) <= most else f"{line[:most]}… ({len(line) - most:,} more characters: read the file)"
        mark = click.style("!", fg="yellow") if one.risky else " "
        click.echo(f" {mark} {one.kind:<{width}}  {clipped}")


def _print_difference(before: str, after: str) -> None:
    from difflib import unified_diff

    from forge.cli.terminal.diffs import colour_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "accepted", "now", lineterm="")
    click.echo("\nWhat changed since it was accepted:")
    click.echo(colour_diff(harmless("\n".join(lines))))


def _ask() -> bool | None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo("Nobody is there to accept it: `forge trust --yes` does.", err=True)
        return None
    return click.confirm("Accept it?", default=False, err=True)


def _accept(now: Standing, is_new: bool, state: list[TrustItem] | None, *, quiet: bool) -> None:
    from forge.project.config_layers import file_exists
    from forge.project.foreign_state import accept_state
    from forge.project.trust import accept

    files = [accept(now.path.parent, now.text if now.text or file_exists(now.path) else None)] if is_new else []
    files += [accept_state(now.path.parent)] if state is not None else []
    if not quiet:
        click.echo(f"Accepted, and remembered in {' and '.join(harmless(str(one)) for one in files)}.")


def _print_json(
    now: Standing, items: list[TrustItem], scripts: list[str], state: list[TrustItem] | None, list_accepted: bool
) -> None:
    file_exists = (now.path.parent / ".forge").is_dir()
    document: dict[str, Any] = {
        "workspace": str(now.path.parent),
        "status": now.status,
        "accepted": list_accepted or (now.status == "trusted" and state is None),
        "turns_on": [one._asdict() for one in (*items, *(state or ()))],
        "scripts": scripts,
        "state": "own"
        if file_exists and (state is None or list_accepted)
        else "foreign"
        if state is not None
        else "none",
    }
    click.echo(json.dumps(document, ensure_ascii=False))


def _forget(workspace: str) -> int:
    from forge.project.trust import forget

    with refusals():
        there = forget(workspace)
    click.echo("Forgotten." if there else "It was not accepted: nothing to forget.")
    return 0


def _print_projects(options: Options) -> int:
    from forge.project.trust import list_accepted, trust_state

    with refusals():
        rows = [{"workspace": name, "status": trust_state(name).status} for name in sorted(list_accepted())]
    if options.json:
        click.echo(json.dumps({"projects": rows}, ensure_ascii=False))
        return 0
    for row in rows:
        click.echo(f"{row['status']:<8} {harmless(row['workspace'])}")
    if not rows:
        click.echo("No project was accepted yet.", err=True)
    return 0
