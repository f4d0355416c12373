"""Prints a run for programs: every event as a line of JSON, or only the answer."""

from __future__ import annotations

import json

from forge.cli.terminal.exit_codes import Ending
from forge.cli.terminal.output import Output
from forge.core.events import Event, RunFinished


class Ndjson:
    """The view for `--json`. A run's last line is always its `run_finished`."""

    is_moving = False

    def __init__(self, out: Output) -> None:
        self.out = out
        self._finished: Event | None = None
        self._last = Event()

    def show(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._finished = event
        else:
            self._write(event)

    def finish(self, ending: Ending) -> None:
        finished, self._finished = self._finished or self._build_finished(ending), None
        self._write(finished)

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def _build_finished(self, ending: Ending) -> Event:
        """Builds the last event of a run that could not emit its own."""
        error = ending.error.text() if ending.error is not None else ""
        finished = RunFinished(ending.text, ending.reason, ending.turns, error=error)
        finished.seq, finished.session, finished.agent = self._last.seq + 1, self._last.session, self._last.agent
        return finished

    def _write(self, event: Event) -> None:
        self._last = event
        self.out.data(json.dumps(event.to_dict(), ensure_ascii=False))


class OnlyTheAnswer:
    """The view for `--quiet`."""

    is_moving = False

    def __init__(self, out: Output) -> None:
        self.out = out

    def show(self, event: Event) -> None: ...

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def finish(self, ending: Ending) -> None:
        if ending.text:
            self.out.say(ending.text)
            self.out.end_line()
        if ending.words:
            self.out.note(*ending.words.splitlines())
