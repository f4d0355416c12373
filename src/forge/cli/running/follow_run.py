"""Follows a run that another process works on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

import click

from forge.cli.running.loop_thread import run_interruptible
from forge.cli.running.next_commands import Commands
from forge.cli.running.waiting_runs import result_so_far, waiting_lines
from forge.cli.terminal.event_thread import Screen
from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.ndjson import Ndjson
from forge.cli.terminal.output import Output
from forge.cli.terminal.render import ForPeople
from forge.core.activity import ActivityStream
from forge.core.events import RunFinished
from forge.durable.client import Runs


def follow_run(runs: Runs, run_id: str, commands: Commands, *, as_json: bool) -> int:
    """Shows the run until it is over or waits for a person; returns the exit code. Raises `OSError` if the output
    cannot be written.
    """
    out, started = Output(), time.monotonic()
    screen = Screen(Ndjson(out) if as_json else ForPeople(out, lambda _, result: result.preview()))
    activity = ActivityStream()
    activity.subscribe(screen.take)

    async def follow() -> None:
        async for event in runs.follow(run_id):
            activity.emit(event)
            if screen.error is not None:
                return

    with closing(screen):
        screen.begin()
        if (run := runs.get(run_id)).status == "queued":  # no worker may be up for it, and then it waits forever
            _note(screen, waiting_lines(runs, run, commands), as_json=as_json)
        run_interruptible(follow())
        run = runs.get(run_id)
        result = result_so_far(run)
        ending = Ending.of(result, time.monotonic() - started)
        if not run.is_over:
            usage = result.usage._asdict()
            event = RunFinished(result.text, result.reason, result.turns, usage, result.calls, run=run_id)
            event.session, event.agent = run.session or run.id, run.agent
            activity.emit(event)
        screen.finish(ending)
        if not run.is_over:
            _note(screen, waiting_lines(runs, run, commands), as_json=as_json)
        screen.settle()
    return ending.exit_code


def _note(screen: Screen, lines: Iterable[str], *, as_json: bool) -> None:
    """Shows lines to the person; beside JSON on stderr."""
    if not as_json:
        screen.note(*lines)
        return
    for line in lines:
        click.echo(f"forge: {line}", err=True)
