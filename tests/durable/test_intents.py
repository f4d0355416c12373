"""An intent is stored after the yes and before the call: what a person was only asked about has never begun."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge.agent.agent import Agent
from forge.core.messages import Message, ToolCall
from forge.core.tool import tool
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, Outcome, RunStore
from forge.durable.store.tables import events, intents, versions
from forge.models.scripted import Scripted
from forge.permissions.answers import approve_all
from tests.durable.test_killed import counted, run_of
from tests.durable.working import ended, rested, script, told, working


@pytest.fixture
def store(database: str) -> Any:
    with RunStore(database) as store:
        store.prepare()
        store.create(NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),)))
        yield store


def test_an_intent_belongs_to_the_first_attempt_that_stores_it(store: RunStore) -> None:
    assert store.begin_attempt("r", 1, "w1", "first") is not None
    assert store.record_intent("r", 1, "first", "pay") == "recorded"
    assert store.record_intent("r", 1, "first", "pay") == "recorded", "a lost reply of the database does no harm"
    begun = store.begin_attempt("r", 1, "w2", "second")
    assert begun is not None
    assert not begun.is_first
    assert set(begun.intents) == {"pay"}
    assert store.record_intent("r", 1, "second", "pay") == "repeated"
    assert store.record_intent("r", 1, "second", "other") == "recorded"


def test_an_attempt_that_lost_its_segment_begins_no_call_and_stores_no_outcome(store: RunStore) -> None:
    store.begin_attempt("r", 1, "w", "first")
    store.begin_attempt("r", 1, "w", "second")  # in the same worker, such as after an outage of the database
    assert store.record_intent("r", 1, "first", "pay") == "lost"
    over = Outcome(status="finished", messages=(Message("assistant", "done"),), spent={})
    assert store.close_attempt("r", 1, over, "first") is None
    assert store.get("r").status == "running"
    closed = store.close_attempt("r", 1, over, "second")
    assert closed is not None
    assert closed.status == "finished"
    assert [message.text for message in store.messages("r")] == ["go", "done"]


def test_intents_go_with_their_run(store: RunStore) -> None:
    store.begin_attempt("r", 1, "w", "first")
    store.record_intent("r", 1, "first", "pay")
    store.close_attempt("r", 1, Outcome(status="finished", messages=(), spent={}), "first")
    store.delete("r")
    assert store.database.read(lambda connection: connection.execute(sa.select(intents)).all()) == []


def intended(store: RunStore) -> list[str]:
    return store.database.read(lambda connection: list(connection.execute(sa.select(intents.c.call)).scalars()))


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay somebody, which must not be repeated."""
    return f"paid {name}"


async def test_a_call_that_waits_for_a_person_has_no_intent(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "a"}, "p"), "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        run = await asyncio.to_thread(worker.store.create, _new())
        await worker.engine.start_segment(run)
        assert (await rested(worker)).status == "waiting"
        assert intended(worker.store) == []


async def test_a_call_that_is_approved_has_one(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "a"}, "p"), "done"), tools=[pay], approve=approve_all)
    async with working(sqlite, agent, tmp_path) as worker:
        run = await asyncio.to_thread(worker.store.create, _new())
        await worker.engine.start_segment(run)
        await ended(worker)
        assert intended(worker.store) == ["p"]
        assert told(worker) == ["paid a"]


@pytest.mark.parametrize(
    ("death", "state"),
    [
        ("asking-a", "known"),
        pytest.param("asked-a", "known", marks=pytest.mark.slow),
        pytest.param("before-a", "unknown", marks=pytest.mark.slow),
        pytest.param("pay-a", "unknown", marks=pytest.mark.slow),
        pytest.param("model-2", "known", marks=pytest.mark.slow),
    ],
)
def test_killed_at_each_point_a_call_is_unknown_only_once_it_began(
    local_first: str, tmp_path: Path, death: str, state: str
) -> None:
    run, log = run_of(local_first, tmp_path, death)
    assert run.status == "finished"
    assert run.result is not None
    assert ("its state is unknown" in run.result["text"]) == (state == "unknown")
    assert counted(log)["pay a"] == (0 if death == "before-a" else 1)


async def _after_older_steps(
    database: str, place: Path, *, prepare: bool = True, **steps: Any
) -> tuple[Any, list[str]]:
    """Runs a segment that an older version had begun, with these recorded steps."""
    with RunStore(database) as store:
        if prepare:
            store.prepare()
        starter = Starter(store)
        starter.start(store.create(_new()))
        table = "operation_outputs" if store.database.is_sqlite else "dbos.operation_outputs"
        columns = "workflow_uuid, function_id, function_name, output, serialization, retention_timestamp"
        new = sa.text(f"INSERT INTO {table} ({columns}) VALUES ('r.1', :number, :name, :output, 'forge_json', 0)")
        rows = [
            {"number": number, "name": name, "output": json.dumps(output)}
            for number, (name, output) in enumerate(steps.items(), start=1)
        ]
        store.database.write(lambda connection: connection.execute(new, rows))
        store.begin("r", 1, "older worker")
        starter.close()
    agent = Agent(Scripted("done"), tools=[pay], approve=approve_all)
    async with working(database, agent, place) as worker:
        return await ended(worker), told(worker)


def _new() -> NewRun:
    return NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),))


TURN = {
    "message": {"role": "assistant", "text": "", "tool_calls": [{"id": "p", "name": "pay", "arguments": {"name": "a"}}]}
}


async def test_an_intent_of_an_older_version_still_counts(database: str, tmp_path: Path) -> None:
    run, heard = await _after_older_steps(database, tmp_path, model=TURN, intent={"attempt": "older"})
    assert run.status == "finished"
    assert "its state is unknown" in heard[0]


async def test_a_segment_of_an_older_version_without_an_intent_goes_on(sqlite: str, tmp_path: Path) -> None:
    run, heard = await _after_older_steps(sqlite, tmp_path, model=TURN)
    assert run.status == "finished"
    assert heard == ["paid a"]


async def test_the_end_that_an_older_version_recorded_is_the_end(sqlite: str, tmp_path: Path) -> None:
    said = {"role": "assistant", "text": "it was done before"}
    end = {"status": "failed", "messages": [said], "spent": {"turns": 7}, "result": {"text": "", "reason": "error"}}
    run, _ = await _after_older_steps(sqlite, tmp_path, model=TURN, end=end)
    assert (run.status, run.spent) == ("failed", {"turns": 7})


@pytest.mark.parametrize("version", [3, 4])
async def test_a_worker_opens_a_database_of_an_older_version_and_ends_its_run(
    database: str, tmp_path: Path, version: int
) -> None:
    def downgrade(connection: sa.Connection) -> None:
        newer = [intents.c.detail] if version < 4 else []
        for column in (*newer, events.c.size, events.c.segment, events.c.packed):
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}")
        connection.execute(sa.update(versions).values(version=version))

    with RunStore(database) as store:
        store.prepare()
        store.database.write(downgrade)
    run, heard = await _after_older_steps(database, tmp_path, prepare=False, model=TURN)
    assert (run.status, heard) == ("finished", ["paid a"])
    with RunStore(database) as store:
        # a worker of the version before may still be there
        old = f"INSERT INTO {intents.name} (run, segment, call, attempt) VALUES ('r', 1, 'q', 'older')"
        store.database.write(lambda connection: connection.exec_driver_sql(old))
        query = sa.select(intents.c.call, intents.c.detail)
        found = store.database.read(lambda connection: connection.execute(query).all())
        assert ("q", None) in [tuple(row) for row in found]
