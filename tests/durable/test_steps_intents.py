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
from forge.core.tool import Tool, tool
from forge.durable.engine.dbos_private import StepToRecord, record_step
from forge.durable.engine.start_segments import Starter
from forge.durable.store import NewRun, Outcome, RunStore
from forge.durable.store.tables import intents
from forge.models.scripted import Scripted
from forge.permissions.questions import approve_all
from tests.durable.test_segment_killed import counted, run_of
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
        await worker.engine.context.start_segment(run)
        assert (await rested(worker)).status == "waiting"
        assert intended(worker.store) == []


@tool(name="pay", permissions={"write"}, isolate=True)
def pay_elsewhere(name: str) -> str:
    """Pay somebody in another process."""
    return f"paid {name}"


@pytest.mark.parametrize("payer", [pay, pay_elsewhere], ids=["here", "isolated"])
async def test_a_call_that_is_approved_has_one(sqlite: str, tmp_path: Path, payer: Tool) -> None:
    agent = Agent(script(ToolCall("pay", {"name": "a"}, "p"), "done"), tools=[payer], approve=approve_all)
    async with working(sqlite, agent, tmp_path) as worker:
        run = await asyncio.to_thread(worker.store.create, _new())
        await worker.engine.context.start_segment(run)
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


async def _after_steps(database: str, place: Path, **steps: Any) -> tuple[Any, list[str]]:
    """Runs a segment that another worker had begun, with these recorded steps."""
    with RunStore(database) as store:
        store.prepare()
        starter = Starter(store)
        starter.start(store.create(_new()))
        store.begin("r", 1, "another worker", "first")
        for number, (name, output) in enumerate(steps.items(), start=1):
            step = StepToRecord("r", 1, "first", "r.1", number, name, json.dumps(output), 0, 0)
            assert record_step(store.database, step) == "recorded"
        starter.close()
    agent = Agent(Scripted("done"), tools=[pay], approve=approve_all)
    async with working(database, agent, place) as worker:
        return await ended(worker), told(worker)


def _new() -> NewRun:
    return NewRun(id="r", version="0", prompt="go", messages=(Message("user", "go"),))


TURN = {
    "message": {"role": "assistant", "text": "", "tool_calls": [{"id": "p", "name": "pay", "arguments": {"name": "a"}}]}
}


async def test_a_segment_with_recorded_steps_and_without_an_intent_goes_on(database: str, tmp_path: Path) -> None:
    run, heard = await _after_steps(database, tmp_path, model=TURN)
    assert run.status == "finished"
    assert heard == ["paid a"]


@pytest.mark.parametrize("output", [None, [], {"__error__": "OSError: no"}])
async def test_a_record_without_a_result_ends_the_run_in_words(sqlite: str, tmp_path: Path, output: Any) -> None:
    run, heard = await _after_steps(sqlite, tmp_path, model=TURN, **{"call pay": output})
    assert run.status == "failed"
    assert "the record of step 2 of the run, 'call pay', has no result" in run.result["error"]["message"]
    assert "paid a" not in heard, "the call is not run: it may have been"
