"""Schedules, notes and rules that a person adds on the page: the same checks as on the command line."""

from __future__ import annotations

from datetime import date

import pytest

from forge.schedules.store import ScheduleStore
from tests.console.conftest import call, running_console, script

CONFIG = """
permissions:
  rules:
    - deny execute git push *
memory: {enabled: true}
schedules:
  - {id: nightly, cron: "0 3 * * *", task: "Say hello."}
"""
GUARDED = CONFIG.replace("    - deny execute git push *", "    - deny tool:memory_write")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "forge.yaml").write_text(CONFIG)
    return tmp_path


def opened(project, **more):
    return running_console(project, config=str(project / "forge.yaml"), works=False, **more)


async def test_a_schedule_is_shown_then_added_then_changed_then_removed(project):
    wanted = {"cron": "30 9 * * MON-FRI", "task": "Summarise.", "id": "digest", "timezone": "Europe/Berlin"}
    async with opened(project) as console:
        shown = await console.post("/api/schedules", wanted)
        assert (shown["written"], shown["replaces"], shown["notes"]) == (False, None, [])
        assert "Europe/Berlin" in shown["schedule"]["explained"]
        assert len(shown["schedule"]["upcoming"]) == 3
        assert [one["id"] for one in (await console.get("/api/schedules"))["schedules"]] == ["nightly"]

        added = await console.post("/api/schedules", {**wanted, "write": True}, 201)
        assert added["schedule"]["next"] == shown["schedule"]["upcoming"][0]
        with ScheduleStore.of(project) as store:
            assert str(store.get("digest").source) == "person"

        again = {**wanted, "cron": "@every 90m", "timezone": "", "write": True}
        assert "exists already" in (await console.post("/api/schedules", again, 409))["error"]["what"]
        changed = await console.post("/api/schedules", {**again, "replaces": True}, 201)
        assert (changed["replaces"]["cron"], changed["schedule"]["cron"]) == (wanted["cron"], "@every 90m")

        assert (await console.post("/api/schedules/digest/remove"))["removed"] == "digest"
        assert (await console.post("/api/schedules/digest/remove", {}, 404))["error"]["why"] == "not_found"
        declared = (await console.post("/api/schedules/nightly/remove", {}, 409))["error"]
        assert "forge.yaml" in declared["what"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "@every 1s"}, "@every"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"id": "Not An Id"}, "Not An Id"),
        ({"id": "nightly"}, "forge.yaml"),
        ({"task": " "}, "task"),
        ({"enabled": "yes"}, "enabled"),
    ],
)
async def test_a_wrong_schedule_is_refused_with_a_reason_and_nothing_is_stored(project, wrong, said):
    right = {"cron": "@hourly", "task": "Look.", "id": "look"}
    async with opened(project) as console:
        for write in ({}, {"write": True, "replaces": True}):
            found = await console.client.post("/api/schedules", json={**right, **wrong, **write})
            assert found.status_code in (400, 403, 409), found.text
            error = found.json()["error"]
            assert said in error["what"] + error["next"]
        assert [one["id"] for one in (await console.get("/api/schedules"))["schedules"]] == ["nightly"]
        await console.post("/api/schedules", {**right, "write": True}, 201)


async def test_a_schedule_without_its_channel_or_skill_is_added_with_a_note(project):
    async with opened(project) as console:
        wanted = {"cron": "@daily", "task": "Look.", "channel": "nowhere", "skill": "none", "write": True}
        notes = (await console.post("/api/schedules", wanted, 201))["notes"]
        assert ["channel" in notes[0], "skill" in notes[1]] == [True, True]


async def test_a_secret_is_in_no_schedule_and_in_no_note(project, monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", "sk-demo-1234567890abcdef")
    async with opened(project) as console:
        task = {"cron": "@daily", "task": "Use sk-demo-1234567890abcdef.", "write": True}
        assert "secret" in (await console.post("/api/schedules", task, 403))["error"]["what"]
        note = {"content": "The key is sk-demo-1234567890abcdef.", "target": "memory"}
        assert "secret" in (await console.post("/api/memory/note", note))["problem"]
        assert "secret" in (await console.post("/api/memory/note", {**note, "write": True}, 403))["error"]["what"]
        assert not (project / ".forge" / "memory" / "MEMORY.md").exists()
        await console.post("/api/memory/note", {"content": "No key.", "target": "memory", "write": True}, 201)


async def test_a_note_is_shown_then_written_and_logged(project):
    note = {"content": "The favourite colour is <b>blue</b>.", "target": "memory"}
    file = project / ".forge" / "memory" / "MEMORY.md"
    async with opened(project) as console:
        shown = await console.post("/api/memory/note", note)
        assert (shown["written"], shown["problem"], file.exists()) == (False, "", False)
        assert "+The favourite colour is <b>blue</b>." in shown["diff"]
        written = await console.post("/api/memory/note", {**note, "write": True}, 201)
        assert written["note"]["source"] == "MEMORY.md"
        assert "<b>blue</b>" in file.read_text()
        today = {"content": "Rain.", "target": "today", "write": True}
        named = (await console.post("/api/memory/note", today, 201))["note"]["source"]
        assert named.startswith(str(date.today().year))
        assert (await console.get("/api/memory", q="favourite colour"))["results"]
        assert "memory_write" in (project / ".forge" / "audit.ndjson").read_text()


@pytest.mark.parametrize("wrong", [{"content": "  "}, {"target": "elsewhere"}, {"content": 5}])
async def test_a_wrong_note_is_refused(project, wrong):
    right = {"content": "Rain.", "target": "memory", "write": True}
    async with opened(project) as console:
        await console.post("/api/memory/note", {**right, **wrong}, 400)
        assert not (project / ".forge" / "memory").exists()
        await console.post("/api/memory/note", right, 201)


async def test_a_denied_note_stays_denied(project):
    note = {"content": "Rain.", "target": "memory", "write": True}
    (project / "forge.yaml").write_text(GUARDED)
    async with opened(project) as console:
        assert (await console.post("/api/memory/note", note, 403))["error"]["why"] == "permission_error"
    assert not (project / ".forge" / "memory").exists()


async def test_without_a_memory_no_note_is_added(tmp_path):
    async with running_console(tmp_path, model=script(tmp_path, "Hi."), works=False) as console:
        assert (await console.get("/api/memory"))["can_write"] is False
        error = (await console.post("/api/memory/note", {"content": "Rain.", "target": "memory"}, 409))["error"]
        assert "memory: {enabled: true}" in error["next"]


async def test_a_rule_that_tightens_needs_no_confirmation(project):
    model = script(project, call("file_read", path="forge.yaml"), "Read.")
    async with running_console(project, config=str(project / "forge.yaml"), model=model) as console:
        run = (await console.post("/api/runs", {"prompt": "read"}, 201))["run"]
        await console.run_is(run["id"], "finished")
        shown = await console.post("/api/policy/rule", {"rule": "deny read forge.yaml"})
        assert (shown["loosens"], shown["tried"]) == (False, 1)
        assert [(one["tool"], one["before"], one["after"]) for one in shown["changes"]] == [
            ("file_read", "allow", "deny")
        ]
        rule = {"rule": "deny read forge.yaml", "write": True, "was": shown["was"]}
        assert (await console.post("/api/policy/rule", rule))["written"] is True
        after_a_deny = await console.post("/api/policy/rule", {"rule": "ask read forge.yaml"})
        assert after_a_deny["loosens"] is True
        assert (await console.post("/api/policy/rule", {"rule": "ask write x"}))["loosens"] is False


@pytest.mark.parametrize("path", ["/api/schedules", "/api/memory/note", "/api/schedules/nightly/remove"])
async def test_without_the_token_nothing_is_added(project, path):
    body = {"cron": "@daily", "task": "Look.", "content": "Rain.", "target": "memory", "write": True}
    async with opened(project) as console:
        console.client.headers.pop("x-forge-token")
        assert (await console.client.post(path, json=body)).status_code == 403
        assert not (project / ".forge" / "memory").exists()
        with ScheduleStore.of(project) as store:
            assert [one.id for one in store.list()] in ([], ["nightly"])
