"""Shows what a run does that somebody else works on."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from forge.cli.running.next_commands import Commands
from forge.cli.running.waits import result_so_far, what_it_waits_for
from forge.cli.terminal.ending import Ending
from forge.cli.terminal.ndjson import Ndjson
from forge.cli.terminal.output import Output
from forge.cli.terminal.render import ForPeople
from forge.cli.terminal.screen import Screen
from forge.core.activity import ActivityStream
from forge.core.events import RunFinished
from forge.durable.client import Runs


def watch(runs: Runs, run_id: str, commands: Commands, *, as_json: bool) -> int:
    """Until it is over or waits for somebody; the exit code. Raises `OSError` when nobody takes the output."""
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
        if not as_json and (run := runs.get(run_id)).status == "queued":
            screen.note(*what_it_waits_for(runs, run, commands))  # for a worker, where none is up: maybe for ever
        asyncio.run(follow())
        run = runs.get(run_id)
        result = result_so_far(run)
        ending = Ending.of(result, time.monotonic() - started)
        if not run.is_over:
            told = RunFinished(result.text, result.reason, result.turns, result.usage._asdict(), result.calls)
            told.session, told.agent = run.session or run.id, run.agent
            activity.emit(told)
        screen.finish(ending)
        if not (as_json or run.is_over):
            screen.note(*what_it_waits_for(runs, run, commands))
        screen.settle()
    return ending.exit_code
