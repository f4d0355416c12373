"""`forge session rewind` and `/rewind`: list the turns of a session, preview a rewind, ask, and do it."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from forge.agent.rewind import Rewind, Turn
from forge.cli.options import Options
from forge.cli.refusal import refusals
from forge.cli.running.event_log import log_events
from forge.cli.terminal.print_result import clip, colour_diff, harmless, wrap
from forge.core.errors import ToolError
from forge.permissions.questions import nobody
from forge.project.project import Project
from forge.project.runs.durable_runs import check_runs_are_over

if TYPE_CHECKING:
    from forge.agent.session import SessionStore

LEAST_COLUMNS = 40
MOST_NAMED = 6  # files of a turn that the list names


def rewind_session(
    options: Options, store: SessionStore, name: str, turn: int | None, *, listed: bool, files_only: bool = False
) -> int:
    """Lists the turns, or shows what a rewind would change and makes it if the person agrees. Returns the exit code."""
    with refusals():
        project = Project(options.for_project())
        agent = project.agent(with_model=False, approve=nobody)
    try:
        check_runs_are_over(project.configuration, project.workspace, name)
        if listed:
            _print_turns(options, name, asyncio.run(agent.list_turns(name, store=store)))
            return 0
        plan = asyncio.run(agent.rewind(name, turn, store=store, preview=True, files_only=files_only))
        if not options.json:
            for line in preview_lines(plan):
                click.echo(line)
        if not _is_wanted(options, plan):
            return 0 if options.json else 1

        async def work() -> Rewind:
            try:
                return await agent.rewind(name, turn, store=store, files_only=files_only, expect=plan.digest)
            finally:
                await agent.activity.drain()

        with log_events(agent.activity, project.workspace, None, wanted=True):
            done = asyncio.run(work())
    except ToolError as error:
        if options.json:
            _print_json({"session": name, "is_done": False, "error": error.message, "hint": error.suggestion})
        else:
            click.echo(harmless("\n".join(filter(None, (f"forge: {error.message}", error.suggestion)))), err=True)
        return 1
    if options.json:
        _print_json(done.as_json())
    else:
        click.echo(describe_done(done), err=True)
    return 0


def _is_wanted(options: Options, plan: Rewind) -> bool:
    """Returns whether to go on. A rewind that cannot be made is refused by itself, with the reason."""
    if options.yes or plan.conflicts:
        return True
    if options.json:
        _print_json(plan.as_json())
        return False
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm("Rewind?", default=False, err=True)
    click.echo("Nothing was changed: --yes rewinds without a question.", err=True)
    return False


def describe_done(done: Rewind) -> str:
    """Returns the last line of a rewind."""
    again = f"To take this back: forge session rewind {shlex.quote(done.session)} --back"
    return harmless(f"{done.session} is at turn {done.turn}. {again}")


def preview_lines(plan: Rewind) -> Iterator[str]:
    """Yields what a rewind changes, for a person at a terminal."""
    columns = _columns()
    yield from plan.summary().split("\n")
    diff = harmless(plan.effects.diff().rstrip("\n"))
    if diff:
        yield from colour_diff(diff).split("\n") if sys.stdout.isatty() else diff.split("\n")
    for title, lines in (("Stays as it is:", plan.left), ("Changed by someone else since:", plan.conflicts)):
        if lines:
            yield click.style(title, bold=True) if sys.stdout.isatty() else title
        for line in lines:
            first, *rest = wrap(harmless(line), columns - 4) or [""]
            yield from (f"  {first}", *(f"    {one}" for one in rest))


def turn_lines(turns: Sequence[Turn]) -> Iterator[str]:
    """Yields the turns, for a person: what was said, then the files and programs of each."""
    columns = _columns()
    for turn in turns:
        said = turn.prompt and f"“{turn.prompt}”"
        what = " · ".join(filter(None, (said, ", ".join(turn.calls) or turn.text)))
        yield clip(f"{turn.number:>4}  {_one_line(what)}", columns)
        more = f" and {len(turn.files) - MOST_NAMED} more" if len(turn.files) > MOST_NAMED else ""
        if turn.files:
            yield clip(f"      files: {_one_line(', '.join(turn.files[:MOST_NAMED]))}{more}", columns)
        for line in turn.unrecorded:
            yield clip(f"      not recorded: {_one_line(line)}", columns)


def _print_turns(options: Options, name: str, turns: Sequence[Turn]) -> None:
    if options.json:
        _print_json({"session": name, "turns": [one.as_json() for one in turns]})
        return
    for line in turn_lines(turns):
        click.echo(line)
    if turns:
        click.echo(f"To go back: forge session rewind {name} --to TURN", err=True)
    else:
        click.echo(f"{name} has no turns yet.", err=True)


def _columns() -> int:
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def _one_line(text: str) -> str:
    return " ".join(harmless(text).split())


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))
