"""Shows events in order on its own thread, so that a slow reader does not slow the run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from forge.cli.terminal.exit_codes import Ending
from forge.core.events import Event, ToolOutput
from forge.core.execution.threads import in_thread

if TYPE_CHECKING:  # only a conversation at a terminal loads it
    from forge.cli.terminal.input_line import InputLine

log = logging.getLogger(__name__)

PULSE = 0.1  # seconds between two drawings of running calls
BACKLOG = 10_000  # waiting events; beyond this, live output is dropped, because the results hold it too


class View(Protocol):
    """One way to show a run. Only one thread at a time calls it."""

    def show(self, event: Event) -> None: ...

    def note(self, *lines: str) -> None:
        """Shows a line that is no event."""

    def finish(self, ending: Ending) -> None:
        """Shows the end of the run."""

    def tick(self) -> None:
        """Redraws; called regularly while `is_moving`."""

    def clear(self) -> None:
        """Makes room for a question."""

    def expand(self) -> None:
        """Shows the whole of an output that was shortened."""

    @property
    def is_moving(self) -> bool: ...


class Screen:
    """Passes events to a view; between two runs they wait. `broken` is called if the output cannot be written."""

    def __init__(self, view: View, broken: Callable[[], None] = lambda: None, *, plain: bool = False) -> None:
        self.view = view
        self.plain = plain  # questions are answered by lines, not by keys
        self.line: InputLine | None = None  # at the bottom of the terminal; a question takes its place
        self.error: OSError | None = None
        self._broken = broken
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_open = False
        self._waiting: list[Event] = []
        threading.Thread(target=self._work, name="forge-screen", daemon=True).start()

    def take(self, event: Event) -> None:
        """Listens to events and never waits."""
        if isinstance(event, ToolOutput) and self._jobs.qsize() > BACKLOG:
            return
        self._jobs.put(lambda: self._show(event))

    def note(self, *lines: str) -> None:
        self._jobs.put(lambda: self.view.note(*lines))

    def expand(self) -> None:
        """Shows the whole of the newest output that was shortened; the next time, of the one before."""
        self._jobs.put(self.view.expand)

    def begin(self) -> None:
        """Begins a run: from now on events are shown."""

        def begin() -> None:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                self.view.show(event)

        self._jobs.put(begin)

    def finish(self, ending: Ending | None = None) -> None:
        """Ends a run or other work."""

        def finish() -> None:
            self._is_open = False
            if ending is not None:
                self.view.finish(ending)

        self._jobs.put(finish)

    def wait_until_shown(self, timeout: float | None = None) -> None:
        """Waits until everything is shown. Raises the `OSError` that prevented it."""
        shown = threading.Event()
        self._jobs.put(shown.set)
        shown.wait(timeout)
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Shows everything so far, and nothing more until the block ends: the terminal is free for a question."""
        reached, over = threading.Event(), threading.Event()

        def pause() -> None:
            try:
                self.view.clear()
            finally:
                reached.set()
                over.wait()

        self._jobs.put(pause)
        try:
            await in_thread(reached.wait)
            yield
        finally:
            over.set()

    def _show(self, event: Event) -> None:
        if self._is_open:
            self.view.show(event)
        else:
            self._waiting.append(event)

    def close(self) -> None:
        """Shows the remaining events and ends."""
        self._jobs.put(None)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=PULSE if self.view.is_moving else None)
            except queue.Empty:
                job = self.view.tick
            if job is None:
                return
            try:
                job()
            except OSError as error:  # the reader of the output has gone, or the disk is full
                if self.error is None:
                    self.error = error
                    self._broken()
            except Exception:  # an event that cannot be shown must not stop the others
                log.exception("an event could not be shown")
