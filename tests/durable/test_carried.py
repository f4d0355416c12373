"""What a run carries from segment to segment, and what of other versions can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, Answer, DurableAgent, Scope, ToolCall, tool
from forge.core.errors import ToolError
from forge.core.messages import Usage
from forge.durable.store.carried import VERSION, CarriedState, RunUsage, read_totals
from forge.durable.store.run_lifecycle import update_run
from tests.durable.working import script

USED = RunUsage(turns=3, calls=2, usage=Usage(100, 20, 5, 1, 7), priced=Usage(10, 2), priced_cost=0.25, seconds=1.5)
OF_RELEASE_2 = {  # without a version
    "turns": 2,
    "calls": 1,
    "usage": {"input": 10, "output": 5, "cached": 0, "cache_writes": 0, "reasoning": 0},
    "priced": {"input": 0, "output": 0, "cached": 0, "cache_writes": 0, "reasoning": 0},
    "priced_cost": 0.0,
    "cost": None,
    "seconds": 0.25,
    "model": "scripted",
    "meta": {"summary": "so far"},
    "before": {"turns": 1},
    "waited": {"s/m/c": [1.0, 2.0]},
}


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay somebody what they are owed."""
    return f"paid {name}"


def test_what_is_stored_is_read_again() -> None:
    state = CarriedState(
        used=USED, before=RunUsage(turns=1), cost=0.5, model="m", meta={"a": [1]}, waited={"key": (1.0, 2.5)}
    )
    assert CarriedState.read(json.loads(json.dumps(state.to_json()))) == state
    assert state.resume().before == USED
    assert state.resume().used == USED


def test_a_new_run_carries_nothing() -> None:
    assert CarriedState.read({}) == CarriedState()


def test_what_release_2_stored_is_read() -> None:
    state = CarriedState.read(OF_RELEASE_2)
    assert (state.used.turns, state.used.usage.input, state.used.seconds, state.cost) == (2, 10, 0.25, None)
    assert (state.before.turns, state.meta, state.waited) == (1, {"summary": "so far"}, {"s/m/c": (1.0, 2.0)})


def test_a_field_that_is_not_known_yet_is_kept() -> None:
    state = CarriedState.read({**OF_RELEASE_2, "later": {"x": 1}})
    assert state.resume().to_json()["later"] == {"x": 1}


def test_a_state_of_a_newer_version_is_refused() -> None:
    newer = {**OF_RELEASE_2, "version": VERSION + 1}
    with pytest.raises(ToolError, match="newer Forge"):
        CarriedState.read(newer)
    with pytest.raises(ToolError, match="newer Forge"):  # what its fields mean is not known here
        CarriedState.read({**newer, "turns": {"main": 2}, "usage": {"sum": 15}})
    assert CarriedState.read({**newer, "version": VERSION}).used.turns == 2
    assert read_totals(newer)["turns"] == 2


def test_a_state_that_something_else_wrote_is_refused() -> None:
    for broken in ({"turns": "many"}, {"usage": {"inputs": 1}}, {"before": 3}, {"waited": {"key": 1}}):
        with pytest.raises(ToolError, match="cannot be read"):
            CarriedState.read({**OF_RELEASE_2, **broken})


async def test_a_run_whose_state_is_newer_fails_and_continues_where_it_can_be_read(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script([ToolCall("pay", {"name": "Eve"}, "p")], "done"), tools=[pay])
    async with DurableAgent(agent, sqlite, scope=Scope(workspace=tmp_path)) as durable:

        def store(spent: dict[str, Any]) -> None:
            durable.runs.store.database.write(lambda connection: update_run(connection, "one", spent=spent))

        await durable.run("Pay Eve.", run_id="one")
        readable = dict(durable.runs.get("one").spent)
        store({**readable, "version": VERSION + 1})
        failed = await durable.answer("one", Answer("once"))
        assert failed.error is not None
        assert "newer Forge" in failed.error.suggestion
        assert durable.runs.get("one").spent == {**readable, "version": VERSION + 1}  # nothing is lost
        with pytest.raises(ToolError, match="newer Forge"):
            durable.runs.resume("one", "Try again.")
        store(readable)
        durable.runs.resume("one", "Try again.")
        assert (await durable.started("one")).text == "done"
