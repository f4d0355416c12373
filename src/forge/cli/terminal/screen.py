"""Shows events on a thread of its own, in order: however slow the reader is, the run goes on."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from forge.cli.terminal.ending import Ending
from forge.core.events import Event, ToolOutput
from forge.core.execution.threads import in_thread

log = logging.getLogger(__name__)

PULSE = 0.1  # seconds between two drawings of what is under way
BACKLOG = 10_000  # events that wait to be shown; beyond, live output is left out: the results hold it too


class View(Protocol):
    """One way to show a run. Only ever called by one thread at a time."""

    def show(self, event: Event) -> None: ...

    def note(self, *lines: str) -> None:
        """Something that is no event, but belongs among them."""

    def finish(self, ending: Ending) -> None:
        """The run is over."""

    def tick(self) -> None:
        """Time went by; called only while `is_moving`."""

    def clear(self) -> None:
        """Make room for a question."""

    @property
    def is_moving(self) -> bool: ...


class Screen:
    """Brings events to a view; between two runs they wait. `broken`: nobody takes the output any more."""

    def __init__(self, view: View, broken: Callable[[], None] = lambda: None) -> None:
        self.view = view
        self.error: OSError | None = None
        self._broken = broken
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_open = False
        self._waiting: list[Event] = []
        threading.Thread(target=self._work, name="forge-screen", daemon=True).start()

    def take(self, event: Event) -> None:
        """An event listener, which never waits."""
        if isinstance(event, ToolOutput) and self._jobs.qsize() > BACKLOG:
            return
        self._jobs.put(lambda: self._show(event))

    def note(self, *lines: str) -> None:
        self._jobs.put(lambda: self.view.note(*lines))

    def begin(self) -> None:
        """A run begins: from now on events are shown."""

        def begin() -> None:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                self.view.show(event)

        self._jobs.put(begin)

    def finish(self, ending: Ending | None = None) -> None:
        """A run is over, or something that was no run."""

        def finish() -> None:
            self._is_open = False
            if ending is not None:
                self.view.finish(ending)

        self._jobs.put(finish)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until everything is shown. Raises the `OSError` that kept it from being shown."""
        shown = threading.Event()
        self._jobs.put(shown.set)
        shown.wait(timeout)
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Everything so far is shown, and nothing more until this is over: the terminal is somebody else's."""
        reached, over = threading.Event(), threading.Event()

        def hold() -> None:
            try:
                self.view.clear()
            finally:
                reached.set()
                over.wait()

        self._jobs.put(hold)
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
        """Show what there is, and no more."""
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
            except OSError as error:  # whoever read the output has left, or the disk is full
                if self.error is None:
                    self.error = error
                    self._broken()
            except Exception:  # what cannot be shown must not keep the rest from being shown
                log.exception("an event could not be shown")
