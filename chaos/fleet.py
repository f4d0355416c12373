"""Worker processes, each in a session of its own: started, killed, paused, replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from forge.durable.store import RunStore
from forge.durable.store.heartbeats import WorkerInfo, list_workers


class Process:
    """One worker; `until` is when a paused one goes on."""

    def __init__(self, database: str, place: Path, number: int, settings: dict[str, Any]) -> None:
        self.number = number
        self.settings = settings
        self.started = time.monotonic()
        self.until: float | None = None
        wanted = json.dumps({"workspace": str(place), "version": "1", "name": f"w{number}", **settings})
        self.log = place / f"worker-{number}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chaos.worker", database, wanted],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        return self.process.poll() is None and b"ready " in self.log.read_bytes()

    def kill(self) -> None:
        """The whole tree at once, paused or not."""
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def pause(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        os.killpg(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        self.until = None
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGCONT)


class Fleet:
    """As many workers as there shall be. Some are as if on other machines, and the first always has a press."""

    def __init__(self, database: str, place: Path, workers: int, settings: dict[str, Any]) -> None:
        self.database, self.place = database, place
        self.store = RunStore(database)
        self.settings = settings
        self.started = 0
        self.ended: list[Process] = []
        self.slots = [self._new(slot) for slot in range(workers)]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.slots:
            process.kill()
        self.store.close()

    def kill(self, slot: int) -> Process:
        """And start another in its place."""
        dead = self.slots[slot]
        dead.kill()
        self.ended.append(dead)
        self.slots[slot] = self._new(slot)
        return dead

    def mend(self) -> list[str]:
        """Those that ended by themselves are replaced; what each said last."""
        said = []
        for slot, process in enumerate(self.slots):
            if (code := process.process.poll()) is not None:
                last = process.log.read_text(errors="replace")[-2_000:]
                said.append(f"worker {process.number} ended by itself with {code}:\n{last}")
                self.slots[slot] = self._new(slot)
        return said

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Those whose pause is over."""
        for process in self.slots:
            if process.until is not None and (all_of_them or time.monotonic() >= process.until):
                process.go_on()

    def listed(self) -> list[WorkerInfo]:
        return list_workers(self.store.database)

    def _new(self, slot: int) -> Process:
        self.started += 1
        own = {"offers": ["press"]} if slot == 0 else {}
        return Process(self.database, self.place, self.started, {**self.settings, "far": slot % 2 == 1, **own})
