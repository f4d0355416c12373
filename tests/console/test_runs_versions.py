"""Runs of another version of the project: a person is told of them, and may give them to this one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun
from tests.console.conftest import call, running_console, script

CONFIG = "permissions:\n  rules:\n    - deny execute git push *\n"


@pytest.mark.slow
async def test_whoever_writes_a_rule_is_told_which_runs_that_concerns(tmp_path):
    config = tmp_path / "forge.yaml"
    config.write_text(CONFIG)
    model = script(tmp_path, call("file_write", path="a.txt", content="hi"), "Done.")
    async with running_console(tmp_path, config=str(config), model=model) as console:
        rule = {"rule": "allow write notes/**"}
        calm = await console.post("/api/policy/rule", rule)
        assert (calm["runs"], calm["note"]) == (0, "")

        run = (await console.post("/api/runs", {"prompt": "write"}, 201))["run"]
        await console.question()
        shown = await console.post("/api/policy/rule", rule)
        assert (shown["runs"], "forge runs migrate --all" in shown["note"]) == (1, True)
        written = await console.post("/api/policy/rule", {**rule, "write": True, "was": shown["was"], "confirm": True})
        assert (written["written"], written["runs"], written["version"]) == (True, 1, run["version"])
        assert written["next_version"] != run["version"]
        assert (await console.get("/api/overview"))["left_alone"]["runs"] == 0  # this console still has its version

    async with running_console(tmp_path, config=str(config), model=model) as console:
        left = (await console.get("/api/overview"))["left_alone"]
        assert left == {"runs": 1, "versions": [run["version"]], "version": written["next_version"]}
        question = await console.question()
        other = await asyncio.to_thread(asks_another, console.home.runs.store, run["id"], question)
        answered = await console.post(f"/api/questions/{other}/answer", {"kind": "no"})
        assert f"forge runs migrate {run['id']}" in answered["note"]
        given = await console.post("/api/runs/migrate")
        assert given == {"migrated": [run["id"]], "version": written["next_version"], "left": 0}
        assert (await console.get("/api/overview"))["left_alone"]["runs"] == 0
        assert (await console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"}))["note"] == ""
        assert (await console.run_is(run["id"], "finished"))["text"] == "Done."
        assert (tmp_path / "a.txt").read_text() == "hi"


def asks_another(store: RunStore, run: str, question: dict[str, Any]) -> str:
    asked = store.question(question["id"])
    return store.ask(replace(asked, id="another", run=run)).id


async def test_runs_that_some_worker_is_up_for_are_not_taken_from_it(tmp_path):
    model = script(tmp_path, "Done.")
    async with running_console(tmp_path, model=model) as worker:
        theirs = NewRun(id="theirs", version=worker.home.version, prompt="x")
        worker.home.runs.store.create(theirs)
        async with running_console(tmp_path, model=model, works=False) as console:
            console.home.version = "another"
            assert (await console.post("/api/runs/migrate"))["migrated"] == []
            console.home.runs.store.create(NewRun(id="nobodys", version="gone", prompt="x"))
            assert (await console.post("/api/runs/migrate"))["migrated"] == ["nobodys"]
            assert (await console.get("/api/runs/nobodys"))["version"] == "another"
