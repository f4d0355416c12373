"""Figures by day and tool, from the index of the log; the log itself is not read."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from datetime import time as clock
from typing import Any

import pytest
import sqlalchemy as sa

from forge.core.errors import Waiting
from forge.durable.store.encoding import figures_of
from forge.durable.store.tables import questions, runs
from forge.project.audit.log_events import read_line
from forge.workspace.state import state_directory
from tests.console.conftest import call, running_console, script
from tests.console.test_run_list import stored
from tests.durable.conftest import postgres, postgres_server, postgres_template

__all__ = ["postgres", "postgres_server", "postgres_template"]  # fixtures

NOW = datetime.combine(date.today(), clock(12)).timestamp()
DAY = 86_400


def ended(tool: str, seconds: float, *, ago: float = 0.0, error: str = "", suggestion: str = "") -> dict:
    result = {"is_error": bool(error), "error_type": error or None, "suggestion": suggestion}
    common = {"event": "tool_call_end", "ts": NOW - ago, "seq": 1, "session": "s", "agent": "main"}
    return {**common, "call": {"id": "1", "name": tool}, "seconds": seconds, "success": not error, "result": result}


def finished(cost: float | None, *, ago: float = 0.0, reason: str = "answer") -> dict:
    common = {"event": "run_finished", "ts": NOW - ago, "seq": 1, "session": "s", "agent": "main"}
    return {**common, "reason": reason, "cost": cost, "usage": {"input": 100, "output": 10}, "error": None}


EVENTS = [
    *(ended("bash", seconds) for seconds in range(1, 101)),
    ended("bash", 1, error="permission_error"),
    ended("file_read", 0.5, ago=DAY),
    ended("file_read", 0.5, ago=DAY, error="system_error"),
    ended("file_read", 99.0, error="user_error", suggestion=Waiting("").suggestion),
    ended("old", 1, ago=20 * DAY),
    finished(0.25),
    finished(0.5),
    finished(None, ago=DAY, reason="error"),
]


@pytest.fixture
def workspace(tmp_path):
    lines = [json.dumps(one) for one in EVENTS]
    (state_directory(tmp_path) / "audit.ndjson").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


async def test_one_day_is_enough(workspace):
    async with running_console(workspace, works=False) as console:
        assert (await console.get("/api/trends", days=1))["days"] == [date.today().isoformat()]


async def test_calls_errors_denials_times_and_costs_by_day(workspace):
    async with running_console(workspace, works=False) as console:
        told = await console.get("/api/trends", days=7)
        assert told["days"][-1] == date.today().isoformat()
        assert told["days"][0] == (date.today() - timedelta(days=6)).isoformat()
        today, before = -1, -2
        series = told["series"]
        assert [series[name][today] for name in ("calls", "errors", "denied")] == [101, 0, 1]
        assert [series[name][before] for name in ("calls", "errors", "denied")] == [2, 1, 0]
        assert (series["p50"][today], series["p95"][today]) == (50, 95)
        assert (series["cost"][today], series["cost"][before], series["unlisted"][today]) == (0.75, None, 2)
        assert (series["unlisted_failed"][before], series["input"][today], series["output"][today]) == (1, 200, 20)
        assert sum(series["runs"]) == sum(series["failed"]) == 0  # no run is stored
        assert [(one["tool"], one["calls"], one["errors"]) for one in told["tools"]] == [
            ("bash", 101, 0),
            ("file_read", 2, 1),
        ]
        assert [(one["tool"], one["counts"][today]) for one in told["denials"]] == [("bash", 1)]
        assert told["notes"] == []

        read = (await console.get("/api/trends", days=7, tool="file_read"))["series"]
        assert (read["calls"][today], read["calls"][before], read["cost"][today]) == (0, 2, 0.75)
        assert sum((await console.get("/api/trends", days=30))["series"]["calls"]) == 104
        assert len((await console.get("/api/trends", days=9_999))["days"]) == 90
        assert "days" in (await console.get("/api/trends", 400, days="many"))["error"]["what"]


async def test_only_the_ends_of_runs_are_read_from_the_log(workspace, monkeypatch):
    async with running_console(workspace, works=False) as console:
        await console.get("/api/trends")
        parsed: list[bytes] = []

        def counted(line: bytes) -> object:
            parsed.append(line)
            return read_line(line)

        monkeypatch.setattr("forge.project.audit.log.read_line", counted)
        await console.get("/api/trends")
        assert [json.loads(line)["event"] for line in parsed] == ["run_finished"] * 3


async def test_a_call_that_waited_counts_once(tmp_path):
    turns = call("file_write", path="a.txt", content="x"), "Done."
    async with running_console(tmp_path, model=script(tmp_path, *turns)) as console:
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]["id"]
        question = await console.question()
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        await console.run_is(run, "finished")
        (told,) = (await console.get("/api/trends"))["tools"]
        assert (told["tool"], told["calls"], told["errors"], told["denied"]) == ("file_write", 1, 0, 0)


@pytest.mark.slow
async def test_a_run_that_was_resumed_counts_once(tmp_path):
    """Its end reports the totals of the whole run each time."""
    async with running_console(tmp_path, model=script(tmp_path, "First.", "Second.", "Third.")) as console:
        run = (await console.post("/api/runs", {"prompt": "begin"}, 201))["run"]["id"]
        await console.run_is(run, "finished")
        for turns in (2, 3):
            await console.post(f"/api/runs/{run}/resume", {"say": "And then?"})

            async def is_over(turns: int = turns) -> dict | None:
                found = await console.run_is(run, "finished")
                return found if found["turns"] == turns else None

            whole = await console.until(is_over)
        log = (state_directory(tmp_path) / "audit.ndjson").read_text()
        assert log.count('"run_finished"') == 3
        series = (await console.get("/api/trends"))["series"]
        assert (series["runs"][-1], series["input"][-1]) == (1, whole["usage"]["input"])
        assert series["output"][-1] == whole["usage"]["output"] > 0


async def test_the_tokens_of_a_stored_sub_agent_are_counted_with_its_parent(tmp_path):
    child = {**finished(0.25), "agent": "main/general", "run": "a-1"}
    lines = [json.dumps(one) for one in (child, {**finished(1.0), "run": "a"}, finished(2.0))]
    (state_directory(tmp_path) / "audit.ndjson").write_text("".join(f"{line}\n" for line in lines))
    async with running_console(tmp_path, works=False) as console:
        series = (await console.get("/api/trends"))["series"]
        assert (series["unlisted"][-1], series["cost"][-1], series["input"][-1]) == (2, 3.0, 200)


@pytest.mark.parametrize("elsewhere", [0, 900])
async def test_trends_and_the_overview_count_the_runs_of_the_run_list(tmp_path, elsewhere):
    """Runs that workers elsewhere ran are in no log here, and a sub-agent's run is part of another run."""
    child = {**finished(0.5), "agent": "main/general", "run": "here1-c"}
    log = [{**finished(1.0), "run": "here1"}, child, finished(2.0)]
    (state_directory(tmp_path) / "audit.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in log))
    async with running_console(tmp_path, works=False) as console:
        names = ["here1", "here2", *(f"far{number}" for number in range(elsewhere))]
        store_runs(console.home.runs.store, *names, cost=1.0)
        store_runs(console.home.runs.store, "here1-c", parent="here1", cost=0.5)
        store_runs(console.home.runs.store, "bad", status="failed", cost=None)
        store_runs(console.home.runs.store, "old", ended=NOW - 200 * DAY)
        series = (await console.get("/api/trends", days=7))["series"]
        counts = (await console.get("/api/overview"))["counts"]
        listed = 0
        page: dict = {"next": ""}
        while page["next"] or not listed:
            page = await console.get("/api/runs", limit=200, before=page["next"])
            listed += len(page["runs"])
        assert listed == sum(counts.values()) == len(names) + 2
        assert sum(series["runs"]) == listed - 1  # the old one is not of these days
        assert (sum(series["failed"]), counts["failed"]) == (1, 1)
        assert sum(series["unlisted"]) == 1
        assert series["cost"][-1] == pytest.approx(len(names) * 1.0 + 2.0)
        assert series["input"][-1] == 100 * (len(names) + 2)


async def test_a_runs_time_is_the_same_in_the_list_and_on_its_page(tmp_path):
    async with running_console(tmp_path, works=False) as console:
        store_runs(console.home.runs.store, "r", seconds=7.5)
        (row,) = (await console.get("/api/runs"))["runs"]
        page = await console.get("/api/runs/r")
        assert row["seconds"] == page["seconds"] == 7.5


def store_runs(store, *names, status="finished", parent="", ended=NOW, cost=None, seconds=1.0):
    spent = {"usage": {"input": 100, "output": 10}, "cost": cost, "seconds": seconds}
    common: dict[str, Any] = dict.fromkeys(("session", "tenant", "prompt", "parent_call", "worker", "attempt"), "")
    common |= {"agent": "main", "queue": "default", "version": "0", "priority": 0, "segment": 1, "waits": []}
    common |= {
        "scope": {},
        "carrier": {},
        "cancelling": False,
        "result": {"text": "", "reason": "answer"},
        "look": None,
    }
    more = {"status": status, "parent": parent, "spent": spent, "created": ended - 1, "updated": ended}
    more |= figures_of({}, spent, common["result"])
    with store.engine.begin() as connection:
        connection.execute(sa.insert(runs), [{"id": name, **common, **more} for name in names])


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


async def test_figures_by_agent_model_tool_and_user(tmp_path, shared):
    """Ten runs of Ada with the large model, two of Bob with the small one, and the questions of both."""
    calls = [{**ended("bash", 1.0, error="permission_error"), "session": "r1", "agent": "ops"}, ended("bash", 2.0)]
    (state_directory(tmp_path) / "audit.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in calls))
    async with running_console(tmp_path, works=False, database=shared) as console:
        rows, asked = [], []
        for number in range(1, 13):
            is_ada = number <= 10
            used = {"input": 100, "output": 10, "cached": 50 if is_ada else 0}
            spent: dict[str, Any] = {"usage": used, "cost": 0.5 if is_ada else None, "seconds": float(number)}
            spent["model"] = "m:large" if is_ada else "m:small"
            scope, result = {"user": "ada" if is_ada else "bob"}, {"reason": "answer" if number > 1 else "turns"}
            more = {"agent": "ops" if is_ada else "main", "session": f"r{number}", "spent": spent, "scope": scope}
            status = "finished" if number > 1 else "failed"
            row = stored(f"r{number}", NOW, status=status, **{**more, **figures_of(scope, spent, result)})
            rows.append(row)
            answer = {"kind": "no" if number == 3 else "once"}
            question = {"id": f"q{number}", "run": row["id"], "call": "c", "tool": "bash" if is_ada else "file_write"}
            question |= {"digest": "", "request": {}, "asked": NOW - 10 * number, "answered": NOW, "answer": answer}
            asked.append({**question, "by": "console", "always": None})
        with console.home.runs.store.engine.begin() as connection:
            connection.execute(sa.insert(runs), rows)
            connection.execute(sa.insert(questions), asked)
        told = await console.get("/api/trends", days=3)
        ada, bob = told["by"]["user"][:2]
        assert (ada["name"], ada["runs"], ada["failed"], ada["cost"]) == ("ada", 10, 1, 5.0)
        assert (ada["input"], ada["output"], ada["cached"]) == (1_000, 100, 500)
        assert (ada["run_p50"], ada["run_p95"]) == (5.0, 10.0)
        assert (ada["questions"], ada["refused"], ada["wait_p50"], ada["wait_p95"]) == (10, 1, 50.0, 100.0)
        assert (ada["calls"], ada["denied"], ada["errors"]) == (1, 1, 0)
        assert (bob["name"], bob["runs"], bob["cost"], bob["calls"]) == ("bob", 2, None, 0)
        assert [one["name"] for one in told["by"]["model"][:2]] == ["m:large", "m:small"]
        assert {one["name"]: one["denied"] for one in told["by"]["agent"]} == {"ops": 1, "main": 0}
        tools = {one["name"]: one for one in told["by"]["tool"]}
        assert (tools["bash"]["calls"], tools["bash"]["denied"], tools["bash"]["questions"]) == (2, 1, 10)
        assert (tools["file_write"]["calls"], tools["file_write"]["wait_p50"]) == (0, 110.0)
        series = {name: values[-1] for name, values in told["series"].items()}
        assert (series["runs"], series["cached"], series["questions"], series["refused"]) == (12, 500, 12, 1)
        assert (series["run_p50"], series["wait_p50"], series["wait_p95"]) == (6.0, 60.0, 120.0)
        assert told["series"]["questions"][0] == 0
        assert told["series"]["wait_p50"][0] is None

        chosen: tuple[tuple[dict[str, Any], int, float | None], ...]
        chosen = (({"user": "bob"}, 2, None), ({"model": "m:large"}, 10, 5.0), ({"agent": "main"}, 2, None))
        for wanted, count, cost in chosen:
            found = (await console.get("/api/trends", days=3, **wanted))["series"]
            assert (found["runs"][-1], found["cost"][-1], found["questions"][-1]) == (count, cost, count)
        told = await console.get("/api/trends", tool="file_write")
        assert (told["series"]["questions"][-1], told["series"]["runs"][-1]) == (2, 12)
        noted = (await console.get("/api/trends", user="nobody"))["notes"]
        assert any("all models and users" in one for one in noted)
        assert (await console.get("/api/trends"))["notes"] == []


async def test_without_a_log_there_are_no_figures(tmp_path):
    async with running_console(tmp_path, works=False) as console:
        told = await console.get("/api/trends")
        assert (told["tools"], told["denials"], sum(told["series"]["calls"])) == ([], [], 0)
