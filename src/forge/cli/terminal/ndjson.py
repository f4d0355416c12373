"""A run as programs see it: every event on a line of its own; or only the answer."""

from __future__ import annotations

import json

from forge.cli.terminal.ending import Ending
from forge.cli.terminal.output import Output
from forge.core.events import Event, RunFinished


class Ndjson:
    """`--json`. A run's last line is its `run_finished`, whatever happened."""

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
        finished, self._finished = self._finished or self._made_up(ending), None
        self._write(finished)

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def _made_up(self, ending: Ending) -> Event:
        """For a run that could not say so itself any more."""
        error = ending.error.text() if ending.error is not None else ""
        text = ending.text if error else ending.text or ending.words
        finished = RunFinished(text, ending.reason, ending.turns, error=error)
        finished.seq, finished.session, finished.agent = self._last.seq + 1, self._last.session, self._last.agent
        return finished

    def _write(self, event: Event) -> None:
        self._last = event
        self.out.data(json.dumps(event.to_dict(), ensure_ascii=False))


class OnlyTheAnswer:
    """`--quiet`."""

    is_moving = False

    def __init__(self, out: Output) -> None:
        self.out = out

    def show(self, event: Event) -> None: ...

    def tick(self) -> None: ...

    def clear(self) -> None: ...

    def note(self, *lines: str) -> None: ...

    def finish(self, ending: Ending) -> None:
        if ending.error is None or ending.text:
            self.out.say(ending.text)
            self.out.end_line()
        if ending.words:
            self.out.note(*ending.words.splitlines())
