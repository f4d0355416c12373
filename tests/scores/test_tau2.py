"""The runner of τ²-bench's tasks, with a domain of our own."""

from __future__ import annotations

import gzip
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from forge import tool
from scores import tau2

TOOLS = '''
from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import StoreModel, store_as
from pydantic import BaseModel, Field

class DB(BaseModel):
    seats: dict[str, float] = {}

class Own(StoreModel):
    db: DB = Field(default_factory=DB)
    def initialize(self) -> None:
        self.db = DB(seats={"a": 1.0})

@tool
def get_seats() -> Tool:
    async def execute(row: str) -> str:
        """Get the seats of a row.

        Args:
            row: The row.
        """
        if row not in store_as(Own).db.seats:
            raise ToolError("no such row")
        return str(store_as(Own).db.seats[row])
    return execute

@tool
def book() -> Tool:
    async def execute(row: str, seats: float) -> str:
        """Book seats of a row."""
        store_as(Own).db.seats[row] = seats
        return "booked"
    return execute
'''
DOMAIN = tau2.Domain("airline", "airline.tools", "", "airline")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "inspect_evals" / "tau2" / "airline"
    folder.mkdir(parents=True)
    (folder / "tools.py").write_text(TOOLS)
    return tmp_path


def task(*actions: tuple[str, dict[str, object]]) -> dict[str, object]:
    made = [{"name": name, "arguments": arguments} for name, arguments in actions]
    return {"id": "1", "evaluation_criteria": {"actions": made}}


async def test_actions_are_compared_with_direct_calls(package):
    tally = tau2.Tally("airline")
    with tau2.stand_ins(package):
        tools = {"assistant": tau2.find_tools(DOMAIN.assistant, "", tally), "user": {}}
        asks = task(("get_seats", {"row": "a"}), ("book", {"row": "a", "seats": 3}), ("get_seats", {"row": "z"}))
        await tau2.play(DOMAIN, asks, tools, tally)
        assert tally.definitions == 2
        assert [(row.passed, row.cases) for row in tally.rows()] == [(2, 2), (3, 3), (1, 1), (2, 2), (1, 1)]

        read = tools["assistant"]["get_seats"].run
        tools["assistant"]["get_seats"] = tool(read, name="get_seats", permissions={"write"})
        await tau2.play(DOMAIN, task(("get_seats", {"row": "a"})), tools, tally)
        assert tally.asked == ["airline: 1: get_seats"], "a read that asks must be seen"


def test_of_telecom_only_the_base_split_is_played(tmp_path):
    (tmp_path / "split_tasks.json").write_text(json.dumps({"base": ["2"], "small": ["1"]}))
    (tmp_path / "tasks.json.gz").write_bytes(gzip.compress(json.dumps([{"id": "1"}, {"id": "2"}]).encode()))
    assert tau2.read_tasks(tmp_path) == [{"id": "2"}]


def test_a_package_that_was_loaded_meanwhile_stays_loaded(package, monkeypatch):
    (package / "loaded_meanwhile.py").write_text("")
    monkeypatch.syspath_prepend(package)
    with tau2.stand_ins(package):
        import_module("loaded_meanwhile")
        import_module("inspect_evals.tau2.airline.tools")
    assert "loaded_meanwhile" in sys.modules
    assert not [name for name in sys.modules if name.startswith(("inspect_ai", "inspect_evals"))]
    monkeypatch.delitem(sys.modules, "loaded_meanwhile")
