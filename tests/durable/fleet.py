"""Workers in processes of their own, and runs for them: what the tests of failing over share."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forge.core.messages import Message
from forge.durable.engine.start_segments import Starter
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, RunInfo
from tests import programs

PROCESS = Path(__file__).with_name("_worker_process.py")
PATIENCE = 120.0  # seconds; the machine may be busy


class Process:
    """A worker that is ready."""

    def __init__(self, database: str, settings: dict[str, Any], through: Sequence[str], program: Sequence[str]) -> None:
        command = [*through, sys.executable, *program, database, json.dumps({"version": "1", **settings})]
        self.process = programs.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert self.process.stdout is not None
            word, _, self.id = self.process.stdout.readline().strip().partition(" ")
            assert word == "ready", "the worker did not start"
        except BaseException:  # also a time limit of the test
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def last_word(self) -> str:
        """What it says when it has drained; waits for its end."""
        words, _ = self.process.communicate(timeout=PATIENCE)
        return words.strip()


class Fleet:
    """A database, its workers, and the file into which their tools write."""

    def __init__(self, database: str, place: Path) -> None:
        self.database = database
        self.file = place / "notes"
        self.file.touch()
        self.store = RunStore(database)
        self.store.prepare()
        self.starter = Starter(self.store)
        self.processes: list[Process] = []

    def worker(self, *through: str, program: Any = (str(PROCESS),), **settings: Any) -> Process:
        """`through`: a command that starts it. `program`: what it is, with its own arguments first."""
        process = Process(self.database, settings, through, program)
        self.processes.append(process)
        return process

    def pause(self, process: Process) -> None:
        """Stops a worker, at a moment when it does not hold the lock of a SQLite file: others could do nothing then."""
        for _ in range(1_000):
            process.signal(signal.SIGSTOP)
            if not self.database.startswith("sqlite") or self._can_write():
                return
            process.signal(signal.SIGCONT)
            time.sleep(0.01)
        raise AssertionError("the worker holds the lock of the database")

    def _can_write(self) -> bool:
        connection = sqlite3.connect(self.database.removeprefix("sqlite:///"), timeout=0.5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    def submit(self, name: str, *, tool: str = "note", calls: int = 3, seconds: float = 0.0, **new: Any) -> str:
        order = {"tool": tool, "calls": calls, "seconds": seconds, "file": str(self.file), "name": name}
        prompt = json.dumps(order)
        wanted = {"id": name, "version": "1", "prompt": prompt, "messages": (Message("user", prompt),), **new}
        run = self.store.create(NewRun(**wanted))
        self.starter.start(run)
        return run.id

    def hold(self, number: int | None = None) -> None:
        """From now on the calls with this number, or all calls, begin and then wait for `release`: what the test does
        meanwhile happens in time, however slow the machine is."""
        Path(f"{self.file}.held").write_text("all" if number is None else str(number))

    def release(self) -> None:
        Path(f"{self.file}.held").unlink()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.file.read_text().splitlines()]

    def begun(self, name: str) -> list[tuple[int, int]]:
        """The numbers of the calls of a run that began, and in which process."""
        return [(int(line[1]), int(line[2])) for line in self.lines() if line[0] == name and len(line) == 3]

    def over(self, *names: str) -> list[RunInfo]:
        until(lambda: all(self.store.get(name).is_over for name in names), f"{names[:3]}… to be over")
        return [self.store.get(name) for name in names]

    def close(self) -> None:
        for one in self.processes:
            one.end()
        self.starter.close()
        self.store.close()


@contextmanager
def fleet_of(database: str, place: Path) -> Iterator[Fleet]:
    fleet = Fleet(database, place)
    try:
        yield fleet
    finally:
        fleet.close()


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> float:
    """Wait for it; the seconds that it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < patience, f"waited too long for {what}"
        time.sleep(0.02)
    return time.monotonic() - started
