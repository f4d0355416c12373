"""The list of runs: filters, pages to the first run, marks, and several runs at once; on both databases."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forge.durable.client import Runs
from forge.durable.store.tables import runs
from forge.evaluation import read_cases
from forge.workspace.state import state_directory
from tests.console.conftest import Console, call, running_console, script
from tests.durable.conftest import postgres, postgres_server, postgres_template

__all__ = ["postgres", "postgres_server", "postgres_template"]  # fixtures


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


def stored(name: str, created: float, **more: Any) -> dict[str, Any]:
    """A row of a run that is over."""
    texts = dict.fromkeys(("session", "tenant", "parent", "parent_call", "worker", "attempt"), "")
    kept = {"scope": {}, "carrier": {}, "waits": [], "spent": {}, "result": {"text": "", "reason": "answer"}}
    numbers = {"priority": 0, "segment": 1, "look": None, "cancelling": False, "cost": None}
    usual = {"agent": "main", "queue": "default", "version": "0", "prompt": name, "status": "finished"}
    named = {"model": "", "user": "", "failure": ""}
    return {**texts, **kept, **numbers, **usual, **named, "id": name, "created": created, "updated": created, **more}


def store(console: Console, *rows: dict[str, Any]) -> None:
    with console.home.runs.store.engine.begin() as connection:
        connection.execute(sa.insert(runs), list(rows))


async def names(console: Console, **wanted: Any) -> list[str]:
    found = await console.client.get("/api/runs", params=wanted)  # `Console.get` has a `status` of its own
    assert found.status_code == 200
    return [one["id"] for one in found.json()["runs"]]


async def test_every_filter_finds_its_runs_and_no_others(tmp_path: Path, shared: str | None) -> None:
    async with running_console(tmp_path, works=False, database=shared) as console:
        store(
            console,
            stored("a", 100.0, agent="ops", model="m:large", cost=2.5, user="ada", result={"text": "Blue WHALE"}),
            stored("b", 200.0, model="m:small", cost=0.5, user="bob", failure="timeout", status="failed"),
            stored("c", 300.0, failure="cancelled", status="cancelled", scope={"only_call": True}),
            stored("c-1", 300.0, parent="c", agent="ops", user="ada"),
        )
        for wanted, found in (
            ({}, ["c", "b", "a"]),
            ({"agent": "ops"}, ["a"]),
            ({"model": "m:small"}, ["b"]),
            ({"user": "ada"}, ["a"]),
            ({"cost": "1"}, ["a"]),
            ({"cost": "0.5"}, ["b", "a"]),
            ({"failure": "timeout"}, ["b"]),
            ({"failure": "any"}, ["c", "b"]),
            ({"status": "failed,cancelled"}, ["c", "b"]),
            ({"since": "200"}, ["c", "b"]),
            ({"until": "200"}, ["a"]),
            ({"since": "150", "until": "250"}, ["b"]),
            ({"text": "blue whale"}, ["a"]),
            ({"kind": "call"}, ["c"]),
            ({"kind": "chat"}, ["b", "a"]),
            ({"mark": "none"}, ["c", "b", "a"]),
            ({"mark": "any"}, []),
            ({"agent": "ops", "cost": "9"}, []),
        ):
            assert await names(console, **wanted) == found, wanted
        told = await console.get("/api/runs")
        choices = {name: told[name] for name in ("agents", "models", "users", "failures")}
        assert choices == {
            "agents": ["main", "ops"],
            "models": ["m:large", "m:small"],
            "users": ["ada", "bob"],
            "failures": ["cancelled", "timeout"],
        }
        for name, value in (("cost", "much"), ("since", "nan"), ("mark", "nice"), ("kind", "other")):
            refused = (await console.get("/api/runs", 400, **{name: value}))["error"]
            assert name in refused["what"]
            assert refused["next"]


async def test_every_one_of_10_000_runs_is_reached_and_a_page_reads_no_more_than_before(
    tmp_path: Path, shared: str | None
) -> None:
    async with running_console(tmp_path, works=False, database=shared) as console:
        many = [stored(f"r{number:05}", float(number // 3), agent=f"a{number % 2}") for number in range(10_000)]
        many[7]["prompt"] = "the needle"
        store(console, *many)
        seen: list[str] = []
        before = ""
        while True:
            page = await console.get("/api/runs", limit=200, before=before)
            seen += [one["id"] for one in page["runs"]]
            before = page["next"]
            if not before:
                break
        assert seen == sorted((one["id"] for one in many), reverse=True)

        pages, found, before = 0, [], ""
        while True:  # a rare one is found in portions: no request looks at all runs
            page = await console.get("/api/runs", text="needle", before=before)
            pages, before = pages + 1, page["next"]
            found += [one["id"] for one in page["runs"]]
            if not before:
                break
            assert page["searched"] is not None
        assert (pages, found) == (3, ["r00007"])

        database = console.home.runs.store
        looked = f"{database.list(limit=1)[0].created!r} r09999"
        plan = await read_plan(console, looked)
        assert "forge_runs_roots" in plan or "forge_runs_created" in plan
        for whole in ("TEMP B-TREE", "->  Sort", "Seq Scan", "SCAN forge_runs'"):
            assert whole not in plan


async def read_plan(console: Console, before: str) -> str:
    """How the database finds a page in the middle."""
    statements: list[tuple[str, Any]] = []
    engine = console.home.runs.store.engine
    sa.event.listen(engine, "before_cursor_execute", lambda *told: statements.append((told[2], told[3])))
    with engine.begin() as connection:
        connection.exec_driver_sql("ANALYZE")
    await console.get("/api/runs", before=before, limit=10)
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    with engine.connect() as connection:
        found = [
            str(connection.exec_driver_sql(explain + text, values).all())
            for text, values in list(statements)
            if "forge_runs" in text and text.startswith("SELECT")
        ]
    assert len(found) >= 2
    return "\n".join(found)


async def test_time_worked_and_time_waited_are_apart(tmp_path: Path, shared: str | None) -> None:
    turns = call("file_write", path="a.txt", content="x"), "Done."
    async with running_console(tmp_path, model=script(tmp_path, *turns), database=shared) as console:
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]["id"]
        question = await console.question()
        waiting = (await console.run_is(run, "waiting"))["updated"]
        with console.home.runs.store.engine.begin() as connection:  # an hour later
            connection.execute(sa.update(runs).values(updated=waiting - 3_600))
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        await console.run_is(run, "finished")
        (row,) = (await console.get("/api/runs"))["runs"]
        assert 3_600 <= row["waited"] < 3_700
        assert row["seconds"] < 60
        assert row["model"].startswith("scripted:")
        assert await names(console, model=row["model"]) == [run]


@asynccontextmanager
async def two_ended(folder: Path, database: str | None = None) -> AsyncIterator[tuple[Console, str, str]]:
    model = script(folder, call("math_calculate", expression="6*7"), "It is 42.")
    async with running_console(folder, model=model, database=database) as console:
        ids = []
        for prompt in ("How much is 6*7?", 'Say "no":\n\x1b[31m<b>\u2028😀'):
            ids.append((await console.post("/api/runs", {"prompt": prompt}, 201))["run"]["id"])
            await console.run_is(ids[-1], "finished")
        yield console, ids[0], ids[1]


async def test_a_marked_answer_is_found_kept_and_becomes_a_case(tmp_path: Path, shared: str | None) -> None:
    hostile = "<img src=x onerror=alert(1)>: wrong\nreally"
    async with two_ended(tmp_path, shared) as (console, good, bad):
        told = await console.post(f"/api/runs/{good}/mark", {"verdict": "good"})
        assert told["run"]["mark"]["verdict"] == "good"
        await console.post(f"/api/runs/{bad}/mark", {"verdict": "good"})
        told = await console.post(f"/api/runs/{bad}/mark", {"verdict": "bad", "note": hostile})
        assert (told["run"]["mark"]["note"], told["run"]["mark"]["by"]) == (hostile, "console")
    async with running_console(tmp_path, works=False, database=shared) as console:  # after a restart
        assert await names(console, mark="good") == [good]
        assert await names(console, mark="bad") == [bad]
        assert await names(console, mark="any") == [bad, good]
        assert (await console.get(f"/api/runs/{bad}"))["mark"]["note"] == hostile
        events = [one["event"] for one in (await console.get(f"/api/runs/{bad}/events"))["events"]]
        marked = [(one["verdict"], one["by"]) for one in events if one["event"] == "run_marked"]
        assert marked == [("good", "console"), ("bad", "console")]
        log = [
            json.loads(line) for line in (state_directory(tmp_path) / "audit.ndjson").read_text().strip().split("\n")
        ]
        assert [(one["run"], one["by"]) for one in log if one["event"] == "run_marked"] == [
            (good, "console"),
            (bad, "console"),
            (bad, "console"),
        ]
        for judge in ("0", "1"):
            told = await console.client.get("/api/cases", params={"judge": judge})
            assert told.headers["content-type"] == "application/octet-stream"
            (tmp_path / "cases.yaml").write_bytes(told.content)
            second, first = read_cases(tmp_path / "cases.yaml")
            assert (first.name, first.prompt, first.expect.calls) == (good, "How much is 6*7?", ["math_calculate"])
            assert (second.name, second.prompt) == (bad, 'Say "no":\n\x1b[31m<b>\u2028😀')
            assert second.expect.result == {"lacks": "It is 42."}
            assert bool(second.expect.judge) is bool(first.expect.judge) is (judge == "1")
            assert ("really" in second.expect.judge) is (judge == "1")
        (tmp_path / "one.yaml").write_bytes((await console.client.get("/api/cases", params={"mark": "good"})).content)
        assert [case.name for case in read_cases(tmp_path / "one.yaml")] == [good]
        await console.post(f"/api/runs/{bad}/mark", {"verdict": ""})
        assert await names(console, mark="any") == [good]
        assert await names(console, mark="none") == [bad]


async def test_what_cannot_be_marked_is_refused(tmp_path: Path) -> None:
    turns = call("file_write", path="a.txt", content="x"), "Done."
    async with running_console(tmp_path, model=script(tmp_path, *turns)) as console:
        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]["id"]
        question = await console.question()
        early = (await console.post(f"/api/runs/{run}/mark", {"verdict": "good"}, 409))["error"]
        assert "no answer to mark yet" in early["what"]
        await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
        await console.run_is(run, "finished")
        for body in ({}, {"verdict": "nice"}, {"verdict": 1}, {"verdict": "good", "note": "x" * 10_001}):
            assert (await console.post(f"/api/runs/{run}/mark", body, 400))["error"]["next"]
        assert (await console.post("/api/runs/nobody/mark", {"verdict": "good"}, 404))["error"]["next"]
        sent = {"arguments": {"expression": "1"}}
        single = (await console.post("/api/tools/math_calculate/call", sent, 201))["run"]["id"]
        await console.run_is(single, "finished")
        await console.post(f"/api/runs/{single}/mark", {"verdict": "good"}, 409)
        assert await names(console, mark="any") == []
        await console.post(f"/api/runs/{run}/mark", {"verdict": "good", "note": "x" * 10_000})  # the twin
        assert await names(console, mark="any") == [run]


async def test_deleted_runs_are_gone_with_what_was_announced(tmp_path: Path, shared: str | None) -> None:
    async with two_ended(tmp_path, shared) as (console, first, second):
        store(console, stored("child", 1.0, parent=first), stored("busy", 2.0, status="waiting"))
        await console.post(f"/api/runs/{first}/mark", {"verdict": "good"})
        asked = {"runs": [first, "busy", second]}
        told = await console.post("/api/runs/delete", asked)
        assert (told["written"], told["runs"]) == (False, [first, second])
        assert [one["run"] for one in told["refused"]] == ["busy"]
        parts = told["parts"]
        assert (parts["started"], parts["marks"], parts["files"]) == (1, 1, 0)
        assert parts["events"] > 5
        assert len(await names(console)) == 3  # nothing is written yet

        told = await console.post("/api/runs/delete", {**asked, "write": True})
        assert (told["written"], told["runs"], [one["run"] for one in told["refused"]]) == (
            True,
            [first, second],
            ["busy"],
        )
        assert await names(console) == ["busy"]
        await console.get("/api/runs/child", 404)
        assert await names(console, mark="any") == []
        if shared is None:  # their conversation is in their sessions
            talk = (await console.get(f"/api/sessions/{first}/messages"))["messages"]
            assert talk[-1]["text"] == "It is 42."


async def test_only_runs_that_did_not_end_well_are_retried(tmp_path: Path) -> None:
    async with running_console(tmp_path, works=False) as console:
        mine = {"version": console.home.version}
        bad = {"status": "failed", "failure": "timeout", "result": {"reason": "error", "error": {"kind": "timeout"}}}
        store(console, stored("bad", 3.0, **bad, **mine), stored("fine", 2.0, **mine), stored("far", 1.0, **bad))
        for write in (False, True):
            told = await console.post("/api/runs/retry", {"runs": ["bad", "fine", "far"], "write": write})
            assert (told["written"], told["runs"]) == (write, ["bad"])
            assert [one["run"] for one in told["refused"]] == ["fine", "far"]
            assert "forge runs migrate" in told["refused"][1]["next"]
            assert (await console.get("/api/runs/bad"))["status"] == ("queued" if write else "failed")
        assert await names(console, failure="any") == ["far"]
        assert (await console.get("/api/runs/fine"))["status"] == "finished"


async def test_questions_of_selected_runs_are_answered_one_by_one_as_on_their_page(tmp_path: Path) -> None:
    turns = call("file_write", path="a.txt", content="x"), "Done."
    async with running_console(tmp_path, model=script(tmp_path, *turns)) as console:
        ids = []
        for prompt in ("first", "second"):
            ids.append((await console.post("/api/runs", {"prompt": prompt}, 201))["run"]["id"])
            await console.run_is(ids[-1], "waiting")
        told = (await console.post("/api/runs/questions", {"runs": [ids[1]]}))["questions"]
        assert [one["run"] for one in told] == [ids[1]]
        both = (await console.post("/api/runs/questions", {"runs": ids}))["questions"]
        assert [one["run"] for one in both] == ids
        await console.post(f"/api/questions/{both[0]['id']}/answer", {"kind": "no"})
        await console.post(f"/api/questions/{both[1]['id']}/answer", {"kind": "once"})
        await console.post(f"/api/questions/{both[1]['id']}/answer", {"kind": "no"}, 409)
        for run in ids:
            await console.run_is(run, "finished")
        assert (tmp_path / "a.txt").exists()
        told = [(one["answer"]["kind"], one["answer"]["by"]) for run in ids for one in await questions(console, run)]
        assert told == [("no", "console"), ("once", "console")]
        assert (await console.post("/api/runs/questions", {"runs": ids}))["questions"] == []


async def questions(console: Console, run: str) -> list[dict[str, Any]]:
    return list((await console.get(f"/api/runs/{run}"))["questions"])


@pytest.mark.parametrize("path", ["/api/runs/questions", "/api/runs/retry", "/api/runs/delete"])
async def test_a_selection_is_checked(tmp_path: Path, path: str) -> None:
    async with running_console(tmp_path, works=False) as console:
        store(console, stored("a", 1.0), stored("a-1", 1.0, parent="a"))
        for chosen in (None, [], "a", [1], ["x"] * 201, ["a-1"]):
            assert (await console.post(path, {"runs": chosen}, 400))["error"]["next"]
        assert (await console.post(path, {"runs": ["a", "nobody"], "write": True}, 404))["error"]["next"]
        assert (await console.post(path, {"runs": ["a"], "write": False})) is not None
        assert await names(console) == ["a"]


@pytest.mark.parametrize(
    "path", ["/api/runs/questions", "/api/runs/retry", "/api/runs/delete", "/api/runs/a/mark", "/api/cases"]
)
async def test_nobody_else_may_use_these_addresses(tmp_path: Path, path: str) -> None:
    body = {"runs": ["a"], "write": True, "verdict": "good"}
    async with running_console(tmp_path, works=False) as console:
        store(console, stored("a", 1.0))
        method = "GET" if path == "/api/cases" else "POST"
        sent = None if method == "GET" else body
        token = {"x-forge-token": "wrong"}
        assert (await console.client.request(method, path, json=sent, headers=token)).status_code == 403
        foreign = {"origin": "https://evil.example"}
        assert (await console.client.request(method, path, json=sent, headers=foreign)).status_code == 403
        kept, console.client.cookies = console.client.cookies, type(console.client.cookies)()
        assert (await console.client.request(method, path, json=sent)).status_code == 401
        console.client.cookies = kept
        assert await names(console) == ["a"]
        assert await names(console, mark="any") == []
        assert (await console.client.request(method, path, json=sent)).status_code == 200  # the twin


def test_runs_are_marked_and_filtered_from_python(tmp_path: Path) -> None:
    with Runs(f"sqlite:///{tmp_path / 'runs.db'}") as found:
        run = found.submit("Hi", run_id="r1", scope={"user": "ada", "model": "m:x"})
        found.cancel(run.id)
        event = found.mark("r1", "bad", "too slow", by="ada")
        assert (event.verdict, event.by) == ("bad", "ada")
        assert found.marks(["r1"])["r1"].note == "too slow"
        for wanted in ({"mark": "bad"}, {"user": "ada"}, {"model": "m:x"}, {"failure": "cancelled"}):
            assert [one.id for one in found.list(**wanted)] == ["r1"]
        for other in ({"mark": "good"}, {"user": "bob"}, {"model": "m"}, {"failure": "timeout"}, {"cost": 0.1}):
            assert found.list(**other) == []
