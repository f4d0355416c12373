"""A step is recorded with one statement, only by the attempt that runs the segment, where DBOS itself reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from forge.core.errors import ToolError
from forge.durable.engine.attempt import Attempt, LostSegment
from forge.durable.engine.dbos_private import RecordedStep, StepToRecord, list_recorded_steps, record_step
from forge.durable.engine.start_segments import Starter
from forge.durable.monitor.metrics import Counters
from forge.durable.store import NewRun, RunStore

ANSWER = {"message": {"role": "assistant", "text": "a lone surrogate \ud800 and a NUL \0"}}


@pytest.fixture
def starter(store: RunStore) -> Any:
    starter = Starter(store)
    starter.prepare_engine()
    starter.start(store.create(NewRun(id="r", version="0", prompt="go")))
    yield starter
    starter.close()


def attempt_at(store: RunStore, token: str) -> Attempt:
    begun = store.begin_attempt("r", 1, "worker", token)
    assert begun is not None
    context: Any = SimpleNamespace(store=store, counters=Counters())
    recorded = {} if begun.is_first else list_recorded_steps(store.database, "r.1")
    return Attempt(begun.run, context, token, recorded, begun.intents, begun.is_first)


async def answer() -> dict[str, Any]:
    return ANSWER


async def fail() -> dict[str, Any]:
    raise AssertionError("a recorded step does not run again")


async def test_a_recorded_step_is_replayed_and_dbos_reads_it(store: RunStore, starter: Starter) -> None:
    first = attempt_at(store, "first")
    assert await first.record("model", answer) == ANSWER
    (step,) = starter.client.list_workflow_steps("r.1")
    assert (step["function_id"], step["function_name"], step["output"]) == (1, "model", ANSWER)
    second = attempt_at(store, "second")
    second.drain()
    assert not second.should_pause()  # what has happened comes first
    assert await second.record("model", fail) == ANSWER
    assert second.should_pause()


async def test_only_the_attempt_that_runs_the_segment_records_a_step(store: RunStore, starter: Starter) -> None:
    first, second = attempt_at(store, "first"), attempt_at(store, "second")
    with pytest.raises(LostSegment):
        await first.record("model", answer)
    with pytest.raises(LostSegment):  # also when somebody caught it on its way
        first.raise_if_broken()
    assert list_recorded_steps(store.database, "r.1") == {}
    await second.record("model", answer)
    second.raise_if_broken()  # it is not
    assert list(list_recorded_steps(store.database, "r.1")) == [1]


def test_a_step_whose_commit_was_not_confirmed_is_recorded_once(store: RunStore, starter: Starter) -> None:
    store.begin("r", 1, "worker", "mine")
    step = StepToRecord("r", 1, "mine", "r.1", 1, "model", '{"a":1}', 5, 7)
    assert record_step(store.database, step) == "recorded"
    assert record_step(store.database, step) == "recorded"
    assert record_step(store.database, step._replace(output='{"a":2}')) == "taken"
    assert list_recorded_steps(store.database, "r.1") == {1: RecordedStep("model", '{"a":1}', "forge_json")}
    assert record_step(store.database, step._replace(number=2, attempt="another")) == "lost"


async def test_a_step_that_was_recorded_under_another_name_or_by_a_pickle_ends_the_run(
    store: RunStore, starter: Starter
) -> None:
    await attempt_at(store, "first").record("model", answer)
    other = attempt_at(store, "second")
    with pytest.raises(ToolError, match="recorded as 'model', and is now 'call pay'"):
        await other.record("call pay", answer)
    table = "operation_outputs" if store.database.is_sqlite else "dbos.operation_outputs"
    planted = sa.text(f"UPDATE {table} SET serialization = 'py_pickle'")
    store.database.write(lambda connection: connection.execute(planted))
    with pytest.raises(TypeError, match="pickle"):
        await attempt_at(store, "third").record("model", answer)
