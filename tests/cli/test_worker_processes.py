"""`forge worker --processes`: signals reach all processes, and one that ended by itself is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.cli.running import worker_processes
from forge.cli.running.worker_processes import WorkerProcesses, remove_option
from tests.cli.conftest import start
from tests.cli.scripts import script

STAYS = """
import os, pathlib, signal, sys
place = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
(place / f"here-{os.getpid()}").touch()
signal.pause()
"""
ENDS_ONCE = """
import os, pathlib, sys
place = pathlib.Path(sys.argv[1])
try:
    (place / "ended").mkdir()
    os._exit(7)
except FileExistsError:
    pass
"""


def processes(code: str, place: Path, number: int = 2) -> tuple[WorkerProcesses, list[str]]:
    lines: list[str] = []
    return WorkerProcesses([sys.executable, "-S", "-c", code, str(place)], number, lines.append), lines


async def until_here(place: Path, number: int) -> None:
    async with asyncio.timeout(150):
        while len(list(place.glob("here-*"))) < number:  # noqa: ASYNC110 - other processes make them
            await asyncio.sleep(0.02)


async def test_a_signal_reaches_every_process_and_all_leave(tmp_path: Path) -> None:
    workers, lines = processes(STAYS, tmp_path)
    running = asyncio.create_task(workers.run())
    await until_here(tmp_path, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert lines == []


async def test_a_process_that_ended_by_itself_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "FIRST_PAUSE", 0.0)
    workers, lines = processes(ENDS_ONCE + STAYS, tmp_path)
    running = asyncio.create_task(workers.run())
    await until_here(tmp_path, 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert len(lines) == 1
    assert "ended with code 7" in lines[0]


async def test_a_process_that_refuses_its_flags_ends_them_all(tmp_path: Path) -> None:
    workers, lines = processes("import sys; sys.exit(2)", tmp_path)
    assert await workers.run() == 2
    assert lines == []


def test_the_option_is_not_passed_on() -> None:
    assert remove_option(["worker", "--processes", "4", "--queue", "a"], "--processes") == ["worker", "--queue", "a"]
    assert remove_option(["worker", "--processes=4", "--yes"], "--processes") == ["worker", "--yes"]


def test_a_console_and_several_processes_are_refused(here: Any, workspace: Path) -> None:
    ended = here("worker", "--processes", "2", "--console")
    assert ended.code == 2
    assert "only one process can serve the console" in ended.err


@pytest.mark.slow
def test_two_workers_start_and_leave_when_told(workspace: Path) -> None:
    pytest.importorskip("dbos")
    process = start(workspace, "worker", "--processes", "2", "--model", script(workspace, "hello"))
    assert process.stderr is not None
    assert sum(b"queues default" in process.stderr.readline() for _ in range(2)) == 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == 0
