"""Tools, policy, schedules, memory and sessions, as the page gets them from a project that has them."""

from __future__ import annotations

import ast
import asyncio
import json
import shlex
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forge.agent.session import SessionStore
from forge.console.api.schedules import _next_time
from forge.core.extras import install_command
from forge.core.messages import Message
from forge.durable.store.rows import NewRun
from forge.process.running.trial import find_trial
from forge.process.sandbox import Confinement
from forge.schedules.cron import Cron
from forge.schedules.schedule import Schedule, Source
from forge.schedules.store import ScheduleStore
from forge.workspace.trial import find_places
from tests.console.conftest import Console, call, running_console, script

CONFIG = """
agent: {id: ops}
permissions:
  rules:
    - deny execute git push *   # not from here
    - allow write notes/**
egress: {mode: allowlist, domains: [api.example.com]}
memory: {enabled: true}
schedules:
  - {id: nightly, cron: "0 3 * * *", task: "Say hello."}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "forge.yaml").write_text(CONFIG)
    return tmp_path


async def test_what_a_project_is_made_of(project):
    with SessionStore.of(project) as sessions:
        sessions.open("talk").append(Message("user", "hello there"), Message("assistant", "hi"))
    events = [
        {"event": "run_started", "ts": 1.0, "seq": 1, "session": "talk", "agent": "main", "prompt": "hello there"},
        {"event": "run_started", "ts": 1.0, "seq": 1, "session": "ta*", "agent": "main", "prompt": "other"},
    ]
    (project / ".forge" / "audit.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in events))
    (project / ".forge" / "memory").mkdir()
    (project / ".forge" / "memory" / "MEMORY.md").write_text("# Colours\nThe favourite colour is blue.\n")
    config = str(project / "forge.yaml")
    async with running_console(project, config=config, model=script(project, "Hello."), works=True) as console:
        me = await console.get("/api/me")
        assert (me["project"], me["model"].startswith("scripted:"), me["trusted"]) == ("ops", True, True)

        await check_tools(console)
        await check_policy(console, config)
        await check_schedules(console, me["now"])
        await check_memory(console)
        await check_sessions(console)
        (worker,) = (await console.get("/api/workers"))["workers"]
        assert (worker["here"], worker["state"]) == (True, "working")


async def test_tools_of_a_missing_extra_are_listed_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "selectolax", None)
    async with running_console(tmp_path, works=False) as console:
        told = await console.get("/api/tools")
        (web,) = [one for one in told["unavailable"] if one["name"] == "web_fetch"]
        assert (web["extra"], web["install"]) == ("web", install_command("web"))
        assert "web_fetch" not in {one["name"] for one in told["tools"]}
    monkeypatch.undo()
    async with running_console(tmp_path, works=False) as console:
        told = await console.get("/api/tools")
        assert "web_fetch" in {one["name"] for one in told["tools"]}
        assert told["unavailable"] == []


async def check_tools(console: Console) -> None:
    tools = {one["name"]: one for one in (await console.get("/api/tools"))["tools"]}
    assert tools["bash"]["permissions"] == ["execute"]
    assert tools["bash"]["tokens"] > 20
    assert tools["bash"]["sent"] is True
    assert "memory_search" in tools
    bash = await console.get("/api/tools/shell")
    assert (bash["name"], bash["parameters"]["type"]) == ("bash", "object")
    assert bash["definition"]["function"]["name"] == "bash"
    hostile = {"command": "echo '$(rm -rf x)' \"`y`\"\n"}
    copies = await console.post("/api/tools/bash/copy", {"arguments": hostile})
    assert json.loads(copies["mcp"])["params"]["arguments"] == hostile
    assert json.loads(shlex.split(copies["cli"])[4]) == hostile
    compile(copies["python"], "copied", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def check_policy(console: Console, config: str) -> None:
    policy = await console.get("/api/policy")
    (layer,) = policy["layers"]
    assert (layer["name"], layer["where"]) == ("project", config)
    assert [one["text"] for one in layer["rules"]] == ["deny execute git push *", "allow write notes/**"]
    assert "forge.yaml" in layer["rules"][0]["where"]
    assert (policy["egress"]["mode"], policy["egress"]["domains"]) == ("allowlist", ["api.example.com"])
    assert policy["egress"]["where"] == f"project file {config}"
    assert policy["sandbox"]["where"] == "defaults"  # the file does not name it
    assert policy["can_write"] is True

    async def explained(tool: str, **arguments: str) -> Any:
        return await console.post("/api/policy/explain", {"tool": tool, "arguments": arguments})

    told = await explained("bash", command="git push origin main")
    assert (told["decision"], told["wants"][0]["rule"]) == ("deny", "deny execute git push *")
    assert (await explained("file_write", path="notes/a", content=""))["decision"] == "allow"
    assert (await explained("file_write"))["problems"]
    refused = await explained("cli_execute", binary="git")
    assert (refused["decision"], refused["problems"]) == ("deny", [])
    assert "not in the allowed list" in refused["wants"][0]["reason"]
    assert (await explained("http_request", method="GET", url="https://other.example/"))["decision"] == "deny"
    tried = {"tool": "bash", "arguments": {"command": "make"}, "effects": "create notes/a\ndelete src/b"}
    told = await console.post("/api/policy/explain", tried)
    assert [one["decision"] for one in told["wants"] if one["effect"]] == ["allow", "ask"]
    assert told["decision"] == "ask"
    told = await explained("bash", command="make")
    tier = find_trial(Confinement(workspace=Path(config).parent, sandbox="auto"), find_places([Path(config).parent]))
    assert (told["decision"], told["wants"][0]["trial"]) == ("ask", tier.how)
    assert (await console.post("/api/policy/explain", {**tried, "effects": "remove a"}))["problems"]


async def check_schedules(console: Console, now: float) -> None:
    told = await console.get("/api/schedules")
    (schedule,) = told["schedules"]
    assert told["runner"] is True  # what is due is begun here
    assert (schedule["id"], schedule["running"], schedule["history"]) == ("nightly", False, [])
    assert schedule["next"] > now
    assert (await console.post("/api/schedules/nightly/pause", {}, 409))["error"]["next"]
    await console.post("/api/schedules/nightly/run", {}, 202)

    async def has_run() -> object:
        (one,) = (await console.get("/api/schedules"))["schedules"]
        return one["history"] and one["history"][0]["status"] != "running" and one["history"][0]

    ran = await console.until(has_run)
    assert (ran["status"], ran["result"]) == ("completed", "Hello.")
    (run,) = (await console.get("/api/runs"))["runs"]
    assert (run["session"], run["id"]) == (ran["session"], ran["run"])
    durable = console.home.runs.store
    for name in ("nightly", "nightly-more"):  # as a worker begins them when they are due
        id = f"sched-{name}-20260101T030000Z"
        await asyncio.to_thread(durable.create, NewRun(id=id, version="elsewhere", scope={"schedule": name}))
    (schedule,) = (await console.get("/api/schedules"))["schedules"]
    assert [one["run"] for one in schedule["history"]] == ["sched-nightly-20260101T030000Z", run["id"]]
    assert (schedule["running"], schedule["last"] >= ran["started"]) == (True, True)
    with ScheduleStore.of(console.home.workspace) as store:
        store.set(id="mine", cron="@hourly", task="Look.", by=Source.PERSON)
    assert (await console.post("/api/schedules/mine/pause"))["schedule"]["next"] is None
    assert (await console.post("/api/schedules/mine/resume"))["schedule"]["enabled"] is True


def test_a_time_that_has_gone_by_is_not_what_comes_next():
    """Workers plan in the database of runs, and leave the plan of the schedule's own store as it was."""
    rule = Cron.parse("0 3 * * *", "UTC")
    planned = Schedule(id="x", cron="0 3 * * *", task="t", next_fire=1_000.0)
    assert _next_time(rule, planned, 999.0) == 1_000.0
    assert _next_time(rule, planned, 100_000.0) == rule.next_after(100_000.0)
    assert _next_time(rule, replace(planned, one_shot=True), 100_000.0) == 1_000.0
    assert _next_time(rule, replace(planned, next_fire=None), 100_000.0) is None


async def check_memory(console: Console) -> None:
    memory = await console.get("/api/memory", q="favourite colour")
    assert memory["enabled"] is True
    assert memory["results"][0]["source"] == "MEMORY.md"
    assert memory["results"][0]["score"] > 0
    assert "blue" in (await console.get("/api/memory/note", name="MEMORY.md"))["text"]
    assert (await console.client.get("/api/memory/note", params={"name": "../../forge.yaml"})).status_code >= 400


async def check_sessions(console: Console) -> None:
    talk = await console.get("/api/sessions/talk")
    assert (talk["messages"], talk["runs"]) == (2, [])
    said = (await console.get("/api/sessions/talk/messages"))["messages"]
    assert [one["text"] for one in said] == ["hello there", "hi"]
    for name, prompt in (("talk", "hello there"), ("ta*", "other")):
        happened = (await console.get(f"/api/sessions/{name}/events"))["events"]
        assert [one["event"]["prompt"] for one in happened] == [prompt]
    assert (await console.get("/api/sessions/nobody", 404))["error"]["why"] == "not_found"
    assert talk["problem"] is None
    with closing(sqlite3.connect(console.home.workspace / ".forge" / "state.db")) as connection, connection:
        assert connection.execute("UPDATE session_messages SET role = 'system' WHERE role = 'user'").rowcount
    assert (await console.get("/api/sessions/talk"))["problem"].startswith("it ")
    with closing(sqlite3.connect(console.home.workspace / ".forge" / "state.db")) as connection, connection:
        assert connection.execute("UPDATE session_messages SET body = '{}'").rowcount
    assert "cannot be read" in (await console.get("/api/sessions/talk"))["problem"]


async def test_a_rule_is_shown_written_and_holds_at_once(project):
    config = project / "forge.yaml"
    model = script(project, call("bash", command="git push origin main"), "Refused.", call("bash", command="true"))
    async with running_console(project, config=str(config), model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "push"}, 201))["run"]
        await console.run_is(run["id"], "finished")
        (denial,) = (await console.get("/api/denials"))["denials"]
        assert (denial["tool"], denial["by"], denial["run"]) == ("bash", "rule", run["id"])
        assert denial["suggestion"].startswith("allow execute git push origin main")

        rule = {"rule": denial["suggestion"]}
        shown = await console.post("/api/policy/rule", rule)
        assert (shown["written"], config.read_text()) == (False, CONFIG)
        (change,) = shown["changes"]
        assert (shown["loosens"], change["before"], change["after"]) == (True, "deny", "allow")
        assert f"+    - {json.dumps(denial['suggestion'])}" in shown["diff"]
        config.write_text(CONFIG + "\n")
        again = await console.post("/api/policy/rule", {**rule, "write": True, "was": shown["was"]}, 409)
        assert again["was"] != shown["was"]
        unconfirmed = {**rule, "write": True, "was": again["was"]}
        assert "loosens the policy" in (await console.post("/api/policy/rule", unconfirmed, 409))["error"]["what"]
        assert config.read_text() == CONFIG + "\n"
        written = await console.post("/api/policy/rule", {**unconfirmed, "confirm": True})
        assert written["written"] is True
        told = await console.post(
            "/api/policy/explain", {"tool": "bash", "arguments": {"command": "git push origin main"}}
        )
        assert told["decision"] == "allow"
        assert (await console.post("/api/policy/rule", {"rule": "nonsense"}, 400))["error"]["why"] == "validation_error"

        subject = next(one for one in console.home.agents if one.name == "main")
        assert console.home.worker is not None
        assert console.home.worker.agents["main"] is subject


async def test_without_a_file_of_its_own_no_rule_is_written(tmp_path):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        assert (await console.get("/api/policy"))["can_write"] is False
        assert (await console.post("/api/policy/rule", {"rule": "allow read"}, 409))["error"]["what"]
        assert list(tmp_path.glob("*.yaml")) == []
