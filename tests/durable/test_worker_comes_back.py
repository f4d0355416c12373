"""A worker that was given up for dead comes back, whatever the database does meanwhile; one that cannot says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from forge import Agent
from forge.core.errors import ErrorKind, ToolError
from forge.durable.engine import queues
from forge.durable.store.database import Database
from forge.durable.store.heartbeats import Heartbeat, list_workers
from forge.durable.worker import Worker
from forge.workspace.state.store import StoreError
from tests.durable.working import begun, ended, script, working

QUICK = {"every": 0.1}


def fails_at_first(real: Callable[..., Any], error: Exception, times: int = 2) -> Callable[..., Any]:
    left = times

    def failing(*given: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return real(*given)

    return failing


RAW = OperationalError("SELECT 1", {}, Exception("the connection is bad"))
IN_WORDS = StoreError("the database cannot be reached", ErrorKind.SYSTEM)
PLACES = [
    (Database, "migrate_engine", IN_WORDS),
    (queues, "set_limits", RAW),
    (Heartbeat, "start", IN_WORDS),
]


@pytest.mark.parametrize(("where", "name", "error"), PLACES, ids=["migrate", "register", "beats"])
async def test_it_comes_back_however_often_the_database_fails_just_then(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, where: Any, name: str, error: Exception
) -> None:
    async with working(sqlite, Agent(script("hello")), tmp_path, **QUICK) as worker:
        before = worker.id
        monkeypatch.setattr(where, name, fails_at_first(getattr(where, name), error))
        worker.beats.lost.set()
        while worker.id == before or not worker._is_here.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await begun(worker)
        run = await ended(worker)
        assert (run.status, run.worker) == ("finished", worker.id)
        working_ones = [one.id for one in list_workers(worker.store.database) if not one.gone]
        assert working_ones == [worker.id]
    assert sum("cannot reconnect yet" in record.message for record in caplog.records) == 1  # not for every try


async def test_one_that_cannot_go_on_says_so_and_ends(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async def impossible(worker: Worker) -> None:
        raise RuntimeError("no more threads")

    monkeypatch.setattr(Worker, "_come_back", impossible)
    async with working(sqlite, Agent(script("hello")), tmp_path, **QUICK) as worker:
        broken = asyncio.ensure_future(worker.broken())
        await begun(worker)
        await ended(worker)
        assert not broken.done()
        worker.beats.lost.set()
        with pytest.raises(ToolError, match="cannot continue: RuntimeError: no more threads"):
            await asyncio.wait_for(broken, 60)
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "cannot continue" in record.message


async def test_one_that_drains_while_it_comes_back_takes_nothing_more(sqlite: str, tmp_path: Path) -> None:
    async with working(sqlite, Agent(script("hello")), tmp_path, **QUICK) as worker:
        before = worker.id
        assert await worker.drain(5)
        worker.beats.lost.set()
        while worker.id == before or not worker._is_here.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert not worker.engine.takes
        assert worker.beats.draining


async def test_at_its_first_start_the_database_fails_in_words(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "set_limits", fails_at_first(queues.set_limits, RAW, 1))
    with pytest.raises(StoreError, match="the connection is bad"):
        async with Worker(sqlite):
            pass
    async with Worker(sqlite) as worker:  # and leaves room for another try
        assert [one.id for one in list_workers(worker.store.database) if not one.gone] == [worker.id]
