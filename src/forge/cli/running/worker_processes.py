"""Runs `forge worker --processes N`: N workers in processes of their own, which use as many cores."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

NUMBER = "FORGE_WORKER_NUMBER"  # environment of a process: its number, from 0; `project_worker` reads it
LOOK = 0.2  # seconds between two checks of the processes
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before an ended process is started again
STEADY = 60.0  # seconds after which a process counts as one that works
REFUSED = 2  # the exit code for wrong flags or configuration: starting again would not help
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl

Report = Callable[[str], None]


@dataclass(slots=True)
class _ProcessSlot:
    """One of the processes, and when to start it again."""

    number: int  # from 0
    pause: float  # before the next start
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0


@dataclass(slots=True)
class WorkerProcesses:
    """Starts the processes, passes signals on, and starts a process again that ended by itself."""

    command: Sequence[str]
    number: int
    report: Report
    signals: int = 0  # how many were received
    code: int = 0
    places: list[_ProcessSlot] = field(default_factory=list)

    async def run(self) -> int:
        """Returns the exit code, once all processes have ended after a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._pass_on)
        self.places = [_ProcessSlot(number, FIRST_PAUSE) for number in range(self.number)]
        try:
            while not self._is_over():
                for place in self.places:
                    self._look_after(place)
                await asyncio.sleep(LOOK)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            for place in self.places:
                if place.process is not None:
                    place.process.kill()
                    place.process.wait()
        return self.code

    def _is_over(self) -> bool:
        return self.signals > 0 and all(place.process is None for place in self.places)

    def _look_after(self, place: _ProcessSlot) -> None:
        if place.process is None:
            if not self.signals and time.monotonic() >= place.start_at:
                place.process, place.started = start_process(self.command, place.number), time.monotonic()
            return
        code = place.process.poll()
        if code is None:
            return
        ended, place.process = place.process, None
        if self.signals:
            self.code = self.code or abs(code)
        elif code == REFUSED:
            self.code = code
            self._pass_on()  # it said why; the others would, too
        else:
            self._start_later(place, ended.pid, code)

    def _start_later(self, place: _ProcessSlot, pid: int, code: int) -> None:
        if time.monotonic() - place.started > STEADY:
            place.pause = FIRST_PAUSE
        self.report(f"worker process {pid} ended with code {code}; another one starts in {place.pause:g} s")
        place.start_at = time.monotonic() + place.pause
        place.pause = min(LONGEST_PAUSE, place.pause * 2)

    def _pass_on(self) -> None:
        """Passes a signal on: the first one drains the workers, the second one ends them at once."""
        self.signals += 1
        for place in self.places:
            if place.process is not None and place.process.poll() is None:
                place.process.send_signal(signal.SIGTERM)


def run_processes(arguments: Sequence[str], number: int, report: Report) -> int:
    """Runs `forge` with these arguments in several processes until a signal; returns the exit code."""
    # -P: a file named forge.py in the current directory is not run
    command = [sys.executable, "-P", "-m", "forge", *remove_option(arguments, "--processes")]
    return asyncio.run(WorkerProcesses(command, number, report).run())


def start_process(command: Sequence[str], number: int) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own: Ctrl-C reaches it once, through this process. It drains if this process
    is killed.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, NUMBER: str(number)},
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def remove_option(arguments: Sequence[str], name: str) -> list[str]:
    """Removes an option and its value."""
    kept: list[str] = []
    given = iter(arguments)
    for one in given:
        if one == name:
            next(given, None)
        elif not one.startswith(f"{name}="):
            kept.append(one)
    return kept
