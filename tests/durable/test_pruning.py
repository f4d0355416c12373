"""What has been over for longer than it is kept goes, by a worker at a quiet time or by the command; the rest stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge import Agent, DurableAgent, WorkerSettings
from forge.durable.client import Runs
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome
from forge.durable.store.tables import runs
from forge.durable.worker import housekeeping as retention
from forge.durable.worker.housekeeping import claim_pass
from tests.durable.working import script

DAY = 86_400.0


@pytest.fixture
def store(database: str) -> Iterator[RunStore]:
    """Runs that ended 1, 10 and 100 days ago, one that waits for 100 days; each with an event and a file."""
    with RunStore(database) as store:
        store.prepare()
        for days in (1, 10, 100):
            add(store, f"over-{days}", days, "finished")
        add(store, "waits-100", 100, "waiting")
        yield store


def add(store: RunStore, name: str, days: float, status: Any) -> None:
    store.create(NewRun(id=name))
    store.begin(name, 1, "w")
    store.add_events(name, [("k", {"event": "text"})])
    store.put_file(name, "a.txt", b"hello")
    store.close_segment(name, 1, Outcome(status=status, messages=(), spent={}))
    moment = time.time() - days * DAY
    aged = sa.update(runs).where(runs.c.id == name).values(created=moment, updated=moment)
    store.database.write(lambda connection: connection.execute(aged))


def left(store: RunStore) -> dict[str, tuple[int, int]]:
    """The runs, each with the number of its events and files."""
    names = sorted(run.id for run in store.list())
    return {name: (len(store.events(name)), len(store.files(name))) for name in names}


def test_each_part_has_its_own_time(store: RunStore) -> None:
    with Runs(store.url) as client:
        assert sum(client.prune_kept(runs=50, events=5)) == 2  # a run, and the event of another
    assert left(store) == {"over-1": (1, 1), "over-10": (0, 1), "waits-100": (1, 1)}
    with Runs(store.url) as client:
        assert sum(client.prune_kept(files=0.5)) == 2
        assert sum(client.prune_kept()) == 0
    assert left(store) == {"over-1": (1, 0), "over-10": (0, 0), "waits-100": (1, 1)}


def test_a_worker_prunes_when_it_is_quiet(store: RunStore, tmp_path: Path) -> None:
    async def main() -> None:
        async with DurableAgent(
            Agent(script("hi")), store.url, worker=WorkerSettings(retention={"runs": 50})
        ) as durable:
            while len(store.list()) > 3:  # noqa: ASYNC110 - the worker tells nobody
                await asyncio.sleep(0.05)
            assert (await durable.run("Hi")).text == "hi"

    asyncio.run(main())
    assert sorted(name for name in left(store) if not name.startswith("run-")) == ["over-1", "over-10", "waits-100"]


def test_one_worker_in_an_hour_prunes(store: RunStore) -> None:
    assert [claim_pass(store) for _ in range(3)] == [True, False, False]
    assert claim_pass(store, every=0)


def test_a_worker_that_has_work_waits(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        concurrency = 2

        def __init__(self, running: int) -> None:
            self.running = running
            self.store = RunStore(sqlite)

        def list_running(self) -> list[str]:
            return ["r"] * self.running

    monkeypatch.setattr(retention, "count_queued", lambda database: {})
    busy, idle = Engine(2), Engine(1)
    assert not retention._is_quiet(busy)  # type: ignore[arg-type]
    assert retention._is_quiet(idle)  # type: ignore[arg-type]
    monkeypatch.setattr(retention, "count_queued", lambda database: {"default": 3})
    assert not retention._is_quiet(idle)  # type: ignore[arg-type]
