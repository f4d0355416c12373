"""`forge trust`: shows what a project's configuration enables, and trusts it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forge.cli.options import Options, with_options, workspace_of
from forge.cli.refusal import Refusal, refusals
from forge.cli.terminal.print_result import colour_diff, harmless
from forge.core.errors import ErrorKind, ToolError
from forge.core.files import read_regular
from forge.mcp.pins import reseal_pins
from forge.project.config_layers import file_exists
from forge.project.trust_summary import TrustItem, scripts_in, trust_summary
from forge.workspace.state import NAME, is_foreign, mark_own

if TYPE_CHECKING:
    from forge.project.system_prompt import InstructionFile
    from forge.project.trust import Standing


_LONGEST_LINE = 300  # characters of one line
_LONGEST_RISKY = 4_000  # what is run or allowed is not hidden behind a long beginning
_NEEDS_PERSON = 3


@click.command("trust")
@with_options("yes", find_config=False, yes="Trust it without a question.")
@click.option("--list", "listing", is_flag=True, help="List the trusted projects.")
@click.option("--forget", is_flag=True, help="Stop trusting this project.")
@click.option("--dry-run", is_flag=True, help="Only show what it would enable.")
def command(options: Options, listing: bool, forget: bool, dry_run: bool) -> int:
    """Trust this workspace's forge.yaml, its AGENTS.md, and a .forge/ folder from another machine.

    Until you trust it, Forge ignores the file and says so. The command first shows what the file would enable: programs
    to start, schedules, channels, calls that are allowed without asking, and network connections. The trusted text is
    stored outside the project, in $XDG_DATA_HOME/forge/trust.json (by default in ~/.local/share/forge). If forge.yaml
    is later edited, replaced or removed, every command says so and uses the trusted version, until you run `forge
    trust` again, which shows the difference. If the trusted text cannot be read, commands end with exit code 2. A file
    named with --config needs no trust: naming it is enough.

    AGENTS.md and CLAUDE.md files become a part of the agent's instructions, so they are trusted in the same way, by a
    hash of their text: those from the workspace's root down to the current directory. A file that changes is ignored
    until you trust it again.

    The same applies to a .forge/ folder that was not made on this machine (it came with a clone, an archive or a copy).
    It may contain another person's schedules, approvals, notes and conversations, so Forge ignores it until you trust
    it.

    With --json: {workspace, status: none | trusted | new | changed | gone | unknown, accepted,
    turns_on: [{kind, detail, risky}], scripts, instructions: [{name, status: trusted | new | changed | unusable}],
    state: none | own | foreign}.

    \b
    Examples:
      forge trust                      review it, then answer yes or no
      forge trust --dry-run            only review it
      forge trust --yes                trust it without a question
      forge trust --forget             stop trusting it
      forge trust --list               list the trusted projects

    \b
    Exit codes: 0 trusted, or nothing to trust        1 you answered no
                2 it cannot be read or stored         3 it needs an answer, but there is no terminal
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
        raise Refusal(f"forge.yaml cannot be trusted: {now.problem}\nFix it, then try again.")
    with refusals():
        items, scripts, state = _list_items(now), _scripts(workspace), _list_foreign_state(now)
        files = _find_files(now)
        has_new = _can_be_accepted(now, scripts) or any(file.status in ("new", "changed") for file in files)
        can_accept = has_new or state is not None
        answer: bool | None = True if options.yes and not dry_run else None
        if not options.json:
            if files or state is not None or scripts or now.status != "none":
                _print_standing(now, items, scripts, state)
                _print_files(now, files)
            else:
                click.echo(f"There is no forge.yaml in {harmless(str(now.path.parent))}: nothing to trust.")
            if answer is None and not dry_run and can_accept:
                answer = _ask()
        accepts = bool(answer) and can_accept
        if accepts:
            _accept(now, files if has_new else None, state, quiet=options.json)
    if options.json:
        _print_json(now, [*items, *_list_file_items(files)], scripts, files, state, accepts)
    if accepts or dry_run or not can_accept:
        return 0
    return _NEEDS_PERSON if answer is None else 1


def _list_items(now: Standing) -> list[TrustItem]:
    return trust_summary(now.text, str(now.path)) if file_exists(now.path) else []


def _scripts(workspace: str) -> list[str]:
    return scripts_in(workspace)


def _find_files(now: Standing) -> list[InstructionFile]:
    from forge.project.system_prompt import find_instruction_files

    return find_instruction_files(now.path.parent)


def _list_file_items(files: list[InstructionFile]) -> list[TrustItem]:
    from forge.project.system_prompt import list_items

    return list_items(files)


def _list_foreign_state(now: Standing) -> list[TrustItem] | None:
    """Lists the contents of a state directory that was not made here; None if there is no such directory."""

    return list_foreign_state(now.path.parent)


def _can_be_accepted(now: Standing, scripts: list[str]) -> bool:
    if now.status == "none":
        from forge.project.trust import is_trusted

        return bool(scripts) and not is_trusted(now.path.parent)
    return now.status != "trusted"


def _print_standing(now: Standing, items: list[TrustItem], scripts: list[str], state: list[TrustItem] | None) -> None:
    if state is not None:
        click.echo(f"{harmless(str(now.path.parent))}/.forge was not made by Forge on this machine. It contains:")
        _print_items(state)
    if now.status == "none" and not scripts:
        return
    if now.status == "trusted":
        click.echo(f"{harmless(str(now.path))} is trusted.")
        return
    if now.status == "gone":
        click.echo(f"{harmless(str(now.path))} is gone. If you confirm this, its settings no longer apply:")
    else:
        click.echo(f"{harmless(str(now.path))} would enable:" if items else f"In {harmless(str(now.path.parent))}:")
    _print_items(items)
    if scripts:
        names = ", ".join(harmless(name) for name in scripts[:20])
        more = f" and {len(scripts) - 20} more" if len(scripts) > 20 else ""
        click.echo(f"   scripts in tools/, whose descriptions the model reads: {names}{more}")
    if now.before is not None:
        _print_difference(now.before, now.text)


def _print_files(now: Standing, files: list[InstructionFile]) -> None:
    if new := _list_file_items(files):
        click.echo(f"In {harmless(str(now.path.parent))}, for the agent's instructions:")
        _print_items(new)
    for file in files:
        if file.status == "trusted":
            click.echo(f"{harmless(file.name)} is trusted.")
        elif file.status == "unusable":
            click.echo(f"{harmless(file.name)} cannot be used: {harmless(file.problem)}.")


def _print_items(items: list[TrustItem]) -> None:
    width = max((len(one.kind) for one in items), default=0)
    for one in items:
        line = harmless(" ".join(one.detail.split()))
        most = _LONGEST_RISKY if one.risky else _LONGEST_LINE
        clipped = line if len(line) <= most else f"{line[:most]}… ({len(line) - most:,} more characters: read the file)"
        mark = click.style("!", fg="yellow") if one.risky else " "
        click.echo(f" {mark} {one.kind:<{width}}  {clipped}")


def _print_difference(before: str, after: str) -> None:
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "trusted", "now", lineterm="")
    click.echo("\nChanges since you trusted it:")
    click.echo(colour_diff(harmless("\n".join(lines))))


def _ask() -> bool | None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo("There is no terminal to ask at. To trust it without a question: `forge trust --yes`", err=True)
        return None
    return click.confirm("Trust it?", default=False, err=True)


def _accept(now: Standing, files: list[InstructionFile] | None, state: list[TrustItem] | None, *, quiet: bool) -> None:
    """Accepts the configuration with these instruction files, and the state; None: there is nothing new of it."""
    from forge.project.trust import accept

    stores = []
    if files is not None:
        text = now.text if now.text or file_exists(now.path) else None
        stores = [accept(now.path.parent, text, {file.name: file.sha256 for file in files if file.sha256})]
    stores += [accept_state(now.path.parent)] if state is not None else []
    if not quiet:
        click.echo(f"Trusted. The decision is stored in {' and '.join(harmless(str(one)) for one in stores)}.")


def _print_json(
    now: Standing,
    items: list[TrustItem],
    scripts: list[str],
    files: list[InstructionFile],
    state: list[TrustItem] | None,
    list_accepted: bool,
) -> None:
    file_exists = (now.path.parent / ".forge").is_dir()
    document: dict[str, Any] = {
        "workspace": str(now.path.parent),
        "status": now.status,
        "accepted": list_accepted or (now.status == "trusted" and state is None and not _list_file_items(files)),
        "turns_on": [one._asdict() for one in (*items, *(state or ()))],
        "scripts": scripts,
        "instructions": [{"name": one.name, "status": one.status} for one in files],
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
    click.echo("This project is no longer trusted." if there else "This project was not trusted.")
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
        click.echo("No project is trusted yet.", err=True)
    return 0


# A state directory that came with a project, for the person who decides about it.


MOST_SCHEDULES = 50  # schedules that are shown
LARGEST_PINS = 16 * 1024 * 1024  # bytes of a file of pins that is read


def list_foreign_state(workspace: Path) -> list[TrustItem] | None:
    """Lists the contents; None if there is no such directory, or it was made here. Nothing is changed."""
    folder = workspace / NAME
    if folder.is_symlink() or not is_foreign(folder):
        return None
    return [*_schedules(folder), *_pins(folder), *_files(folder)]


def accept_state(workspace: Path) -> Path:
    """Accepts the directory as made here. Raises `ToolError`."""
    folder = workspace / NAME
    try:
        mark_own(folder)
        with suppress(FileNotFoundError, ValueError):  # a damaged file is set aside when it is read
            reseal_pins(folder / "pins.json")
        if next(_schedules(folder), None) is not None:
            from forge.schedules.store import FILE, ScheduleStore  # SQLite

            with ScheduleStore(folder / FILE) as store:
                store.reseal()
        if (folder / "state.db").is_file():
            from forge.agent.session import SessionStore  # SQLite

            with SessionStore(folder / "state.db") as sessions:
                sessions.reseal()
    except OSError as error:
        problem = f"cannot trust {folder}: {error.strerror or error}"
        raise ToolError(problem, ErrorKind.CONFIG, "Make it writable, or move it away.") from None
    return folder


def _schedules(folder: Path) -> Iterator[TrustItem]:
    import sqlite3

    from forge.project.doctor.state import read_only

    path = folder / "state.db"
    if path.is_symlink() or not path.is_file():
        return
    try:
        with closing(sqlite3.connect(read_only(path), uri=True, timeout=1.0)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")  # a planted file runs no code of its own
            rows = connection.execute("SELECT id, cron, task FROM schedules LIMIT ?", (MOST_SCHEDULES,)).fetchall()
    except sqlite3.Error as error:
        if "no such table" not in str(error):
            yield TrustItem("runs on a schedule", "state.db, which cannot be read")
        return
    for id, cron, task in rows:
        yield TrustItem("runs on a schedule", f"schedule {id}: {cron}: {task}")


def _pins(folder: Path) -> Iterator[TrustItem]:
    path = folder / "pins.json"
    try:
        if not os.path.lexists(path):
            return
        servers = json.loads(read_regular(path, LARGEST_PINS, os.O_NOFOLLOW))["servers"]
        for name, entry in servers.items():
            yield TrustItem("approves", f"MCP server {name}: {', '.join(map(str, entry['tools']))}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield TrustItem("approves", "pins.json, which cannot be read")


def _files(folder: Path) -> Iterator[TrustItem]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    yield TrustItem("holds", ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else ""), False)
