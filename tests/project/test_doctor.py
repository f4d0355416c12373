"""What `forge doctor` looks at."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from forge.mcp.pins import reseal_pins
from forge.process.running.cgroups import find_delegated
from forge.process.running.trial import find_trial
from forge.process.sandbox import Confinement, Tier, choose_tier, problem
from forge.project.doctor import examine
from forge.project.trust import accept
from forge.schedules.schedule import Source
from forge.schedules.store import ScheduleStore
from forge.workspace.state import state_directory
from forge.workspace.trial import find_places

SCRIPT = '''"""
Tool: fine
Description: Says that all is fine.

Input:
  text (str): What to repeat.
"""

print("fine")
'''
SKILL = "---\nname: {name}\ndescription: Does something.\n{more}---\nDo it.\n"


@pytest.fixture
def looked(tmp_path, tmp_path_factory, monkeypatch):
    """`looked(forge_yaml)`: the findings of a project, by their names."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "AGENT_WORKSPACE_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def look(text: str = "", **files: str):
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        if text:
            (tmp_path / "c.yaml").write_text(text)
        return {one.check: one for one in examine(str(tmp_path), "c.yaml" if text else None, None)}

    return look


def kept(tmp_path: Path) -> Path:
    return state_directory(tmp_path)


def test_whatever_is_not_ok_says_how_to_mend_it(looked, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    kept(tmp_path).chmod(0o777)
    found = looked(
        "mcpServers: {a: {command: nothing-here}}\nskills: {active: [nope]}\negress: {mode: open}\n"
        "channels: {c: {type: webhook, url_env: NOT_SET_AT_ALL}}\nschedules: [{id: a, cron: '@daily', task: t}]\n"
        "secrets: [NOT_SET_EITHER]\nsandbox: off\nopenapi: {p: {spec: gone.json}}\n"
    )
    unwell = [one for one in found.values() if one.status != "ok"]
    assert len(unwell) > 15
    assert [one.check for one in unwell if not one.fix] == []


def test_a_healthy_project_has_no_warnings_of_its_own(looked, tmp_path):
    kept(tmp_path)
    found = looked("egress: {mode: deny-all}\nmemory: {enabled: true}\n")
    for check in ("workspace", "state", "state for others", "configuration", "policy", "tools", "network policy"):
        assert found[check].status == "ok", found[check]
    assert found["memory"].status == "ok"


# state


@pytest.mark.parametrize(("mode", "words"), [(0o755, "read"), (0o777, "change"), (0o770, "change")])
def test_state_that_others_can_reach_is_a_warning(looked, tmp_path, mode, words):
    folder = kept(tmp_path)
    assert looked()["state for others"].status == "ok"
    folder.chmod(mode)
    found = looked()["state for others"]
    assert (found.status, found.fix) == ("warning", f"chmod 700 {folder}")
    assert f"others may {words}" in found.detail


def test_files_that_others_can_write_are_named(looked, tmp_path):
    folder = kept(tmp_path)
    (folder / "audit.ndjson").touch()
    (folder / "audit.ndjson").chmod(0o666)
    assert "audit.ndjson" in looked()["state for others"].detail
    (folder / "audit.ndjson").chmod(0o600)
    assert looked()["state for others"].status == "ok"


def test_a_workspace_that_everybody_can_write_is_a_warning(looked, tmp_path):
    tmp_path.chmod(0o777)
    assert looked()["workspace for others"].status == "warning"
    tmp_path.chmod(0o755)
    assert "workspace for others" not in looked()


def test_a_link_in_the_place_of_the_state_is_broken(looked, tmp_path):
    (tmp_path / ".forge").symlink_to(tmp_path.parent)
    assert looked()["state"].status == "broken"


@pytest.mark.parametrize("name", ["state.db", "memory.db"])
def test_a_store_is_looked_through_and_left_alone(looked, tmp_path, name):
    path = kept(tmp_path) / name
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [("y" * 1_000,) for _ in range(100)])
    connection.close()
    assert looked()[name].status == "ok"
    damaged = bytearray(path.read_bytes())
    damaged[4096:12_288] = os.urandom(8_192)
    path.write_bytes(damaged)
    found = looked()[name]
    assert (found.status, "damaged" in found.detail) == ("broken", True)
    path.write_bytes(b"this is no database, and never was one" * 100)
    assert looked()[name].status == "broken"
    assert sorted(os.listdir(path.parent)) == [".gitignore", "made-here", name]


def test_a_large_store_keeps_nobody_waiting(looked, tmp_path, monkeypatch):
    monkeypatch.setattr("forge.project.doctor.state.PATIENCE", -1.0)
    monkeypatch.setattr("forge.project.doctor.state._OPCODES", 1)
    with sqlite3.connect(kept(tmp_path) / "state.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    found = looked()["state.db"]
    assert (found.status, "in part" in found.detail) == ("ok", True)


def test_what_was_set_aside_and_what_grew_is_noted(looked, tmp_path, monkeypatch):
    folder = kept(tmp_path)
    (folder / "state.db.corrupt-20260101T000000").touch()
    (folder / "audit.ndjson").write_text("x" * 100)
    monkeypatch.setattr("forge.project.doctor.state.LARGEST_LOG", 10)
    found = looked()
    assert found["set aside"].status == "note"
    assert found["audit log"].status == "note"


def test_the_limits_of_programs_are_described(looked, tmp_path):
    """And the limit that the kernel does not apply to root."""
    if choose_tier() is Tier.NONE:
        pytest.skip("NOT TESTED: there is no sandbox here")
    (tmp_path / "forge.yaml").write_text("programs: {memory: 3000}\n")
    accept(tmp_path)
    found = looked()["limits"]
    assert "memory: 3,000 MiB for each process" in found.detail
    for_root = "not limited: the kernel does not apply this limit to root" in found.detail
    delegated = find_delegated()
    controllers = delegated.controllers if delegated else ()
    assert for_root is (os.geteuid() == 0 and "pids" not in controllers)
    assert found.detail.count("(cgroup)") == len(controllers)
    if for_root:
        assert (found.status, "ordinary user" in found.fix) == ("note", True)


def test_it_says_how_programs_are_tried_here_and_why_not_better(looked, tmp_path):
    found = looked()["trial"]
    tier = find_trial(Confinement(workspace=tmp_path, sandbox="auto"), find_places([tmp_path]))
    assert found.status == ("ok" if tier.how else "note")
    assert tier.problem in found.detail
    assert ("no trial is possible here" in found.detail) is (not tier.how)
    without = looked("sandbox: off\n")["trial"]
    assert (without.status, "a trial needs bubblewrap" in without.detail) == ("note", True)
    assert looked("trial: off\n")["trial"].detail == "off: programs ask before they run"


# trust


def test_a_project_is_accepted_or_not(looked, tmp_path):
    (tmp_path / "forge.yaml").write_text("sandbox: auto\n")
    found = looked()
    assert (found["configuration"].status, found["trust"].status) == ("warning", "note")
    assert "forge trust" in found["configuration"].fix
    accept(tmp_path)
    found = looked()
    assert (found["configuration"].status, found["trust"].status) == ("ok", "ok")
    (tmp_path / "forge.yaml").write_text("sandbox: off\n")
    found = looked()
    assert (found["configuration"].status, found["trust"].status) == ("ok", "warning")
    assert "the version you trusted still applies" in found["trust"].detail


def test_without_a_home_it_can_be_used(looked, monkeypatch):
    looked()
    monkeypatch.delenv("HOME")
    assert all(one.status != "broken" for one in looked().values())


# other people's tools


def test_a_servers_program_is_looked_for_and_not_started(looked, tmp_path):
    ran = tmp_path / "ran"
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    found = looked(
        "mcpServers:\n  here: {command: ./server}\n  gone: {command: no-such-program}\n"
        "  far: {url: 'https://far.example/mcp/very-secret-token'}\n"
    )
    assert found["mcp here"].status == "note"
    assert found["mcp here"].fix == "forge mcp approve here"
    assert found["mcp gone"].status == "warning"
    assert "very-secret" not in found["mcp far"].detail
    assert not ran.exists()


def test_approved_tools_are_counted(looked, tmp_path):
    pins = kept(tmp_path) / "pins.json"
    pins.write_text('{"version": 1, "servers": {"far": {"target": "t", "tools": {"a": {}, "b": {}}}}}')
    reseal_pins(pins)
    text = "mcpServers: {far: {url: 'https://far.example/'}}\n"
    assert "2 approved tools" in looked(text)["mcp far"].detail
    pins.write_text(pins.read_text().replace('"b"', '"c"'))
    assert "it was changed outside Forge" in looked(text)["approved tools"].detail
    pins.write_text("broken")
    assert looked(text)["approved tools"].status == "warning"
    assert pins.read_text() == "broken"


def test_a_document_that_is_gone_is_a_warning(looked):
    found = looked("openapi: {here: {spec: pets.json}, gone: {spec: gone.json}}\n", **{"pets.json": "{}"})
    assert (found["openapi here"].status, found["openapi gone"].status) == ("ok", "warning")


def test_scripts_that_are_no_tools_are_named(looked, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/fine.py").write_text(SCRIPT)
    assert looked()["scripts"].status == "ok"
    (tmp_path / "tools/bad.py").write_bytes(b"\xff\xfe\x00 not text")
    found = looked()
    assert found["script tools/bad.py"].status == "warning"
    assert found["scripts"].detail == "1 is a tool"


def test_skills_say_what_they_lack(looked, tmp_path):
    (tmp_path / "skills/one").mkdir(parents=True)
    (tmp_path / "skills/two").mkdir()
    needs = "metadata: {forge: {requires: {bins: [no-such-program-here]}}}\n"
    (tmp_path / "skills/one/SKILL.md").write_text(SKILL.format(name="one", more=needs))
    (tmp_path / "skills/two/SKILL.md").write_text("no front matter")
    found = looked()
    assert found["skill one"].status == "note"
    assert "no-such-program-here" in found["skill one"].detail
    assert any(check.startswith("skill skills/two") for check in found)
    assert looked("skills: {active: [one]}\n")["skill one"].status == "warning"
    assert looked("skills: {active: [three]}\n")["skill three"].status == "broken"


# what goes on without a person


def test_variables_of_channels_and_secrets_are_missed(looked, monkeypatch):
    text = "channels: {team: {type: webhook, url_env: TEAM_URL}, t: {type: terminal}}\nsecrets: [MY_TOKEN]\n"
    found = looked(text)
    assert (found["channel team"].status, found["channel t"].status, found["secrets"].status) == (
        "warning",
        "ok",
        "warning",
    )
    monkeypatch.setenv("TEAM_URL", "https://very-secret.example/hook")
    monkeypatch.setenv("MY_TOKEN", "very-secret-value")
    found = looked(text)
    assert (found["channel team"].status, found["secrets"].status) == ("ok", "ok")
    assert "very-secret" not in repr(found)


def test_the_file_of_a_secret_that_programs_can_read_is_named(looked, tmp_path, tmp_path_factory):
    inside, outside = tmp_path / "token", tmp_path_factory.mktemp("outside") / "token"
    for path in (inside, outside):
        path.write_text("the value of a file")
        path.chmod(0o600)
        found = looked(f"sandbox: off\nsecrets: [{{name: A_TOKEN, file: {path}, for: [api.example.com]}}]\n")
        assert ("secret file" in found) == (path == inside)
        assert path == outside or "only bubblewrap hides it" in found["secret file"].detail
        assert path == outside or "change its `file` in " in found["secret file"].fix


@pytest.mark.skipif(bool(problem(Tier.BUBBLEWRAP)), reason="only bubblewrap hides single files")
def test_the_file_of_a_secret_among_those_that_programs_see_is_named_also_where_it_is_hidden(looked, tmp_path):
    """A mount over a file goes away where the file is replaced, as a rotation of tokens does."""
    (tmp_path / "token").write_text("the value of a file")
    (tmp_path / "token").chmod(0o600)
    found = looked(f"secrets: [{{name: A_TOKEN, file: {tmp_path}/token, for: [api.example.com]}}]\n")
    assert "a program that runs while it is replaced reads the new one" in found["secret file"].detail
    assert "secret file" not in looked("secrets: [{name: HOME, for: [api.example.com]}]\n")


def test_secrets_of_programs_need_bubblewrap(looked, monkeypatch):
    monkeypatch.setenv("A_TOKEN", "a-value-of-some-length")
    secrets = "secrets: [{name: A_TOKEN, for: [api.example.com]}]\n"
    found = looked(secrets + "sandbox: off\n")["secrets"]
    assert (found.status, "only bubblewrap keeps secrets outside" in found.detail) == ("broken", True)
    assert "set to off" not in looked(secrets)["secrets"].detail


def test_what_is_planned_is_told_and_what_is_late_is_a_warning(looked, tmp_path):
    found = looked("schedules: [{id: nightly, cron: '0 3 * * *', task: t}]\n")
    assert found["schedules"].status == "warning"
    path = kept(tmp_path) / "state.db"
    with ScheduleStore(path) as store:
        store.set(id="nightly", cron="0 3 * * *", task="t", by=Source.PERSON)
    found = looked()
    assert (found["schedules"].status, "nightly" in found["schedules"].detail) == ("ok", True)
    with ScheduleStore(path, clock=lambda: time.time() - 2 * 86_400) as store:
        store.set(id="late", cron="0 3 * * *", task="t", by=Source.PERSON)
    found = looked()
    assert found["schedules"].status == "warning"
    assert "late has been due since" in found["schedules"].detail


def test_a_schedule_that_something_else_changed_is_broken_until_a_person_enables_it(looked, tmp_path):
    with ScheduleStore.of(tmp_path) as store:
        store.set(id="nightly", cron="0 3 * * *", task="Count", by=Source.PERSON)
        assert "schedule nightly" not in looked()
        with store._store.write_transaction() as connection:
            connection.execute("UPDATE schedules SET task = 'steal'")
        found = looked()["schedule nightly"]
        assert (found.status, "changed outside Forge" in found.detail) == ("broken", True)
        assert "forge schedule enable nightly" in found.fix
        store.enable("nightly")
    assert "schedule nightly" not in looked()


def test_a_schedule_that_cannot_be_planned_is_broken(looked):
    found = looked("schedules: [{id: bad, cron: '@every 5s', task: t}, {id: nightly, cron: '0 3 * * *', task: t}]\n")
    assert found["schedules"].status == "broken"
    assert "schedules[0]" in found["schedules"].detail


def test_where_durable_runs_are_kept_is_told_and_nobody_is_contacted(looked, tmp_path, monkeypatch):
    pytest.importorskip("dbos")
    from forge.durable.store import RunStore
    from forge.durable.store.rows import NewRun

    monkeypatch.delenv("FORGE_DATABASE", raising=False)
    assert looked()["durable runs"].status == "note"
    with RunStore(f"sqlite:///{kept(tmp_path) / 'durable.db'}") as store:
        store.prepare()
        store.create(NewRun(id="one"))
    assert looked()["durable runs"].detail.startswith("1 queued")
    found = looked("durable: {database: 'postgresql://forge:hidden@127.0.0.1:1/runs'}\n")["durable runs"]
    assert found.status == "ok"
    assert "127.0.0.1" in found.detail
    assert "hidden" not in found.detail
    monkeypatch.setenv("FORGE_DATABASE", "mysql://a/b")
    assert looked()["configuration"].status == "broken"
    monkeypatch.setenv("FORGE_DATABASE", "postgresql://127.0.0.1:1/other")
    assert "other" in looked()["durable runs"].detail
    monkeypatch.delenv("FORGE_DATABASE")
    (kept(tmp_path) / "durable.db").write_bytes(b"no database" * 100)
    assert looked()["durable runs"].status == "broken"


def test_a_store_without_schedules_gets_none(looked, tmp_path):
    path = kept(tmp_path) / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = path.read_bytes()
    assert "schedules" not in looked()
    assert path.read_bytes() == before


def test_a_memory_needs_its_embedder(looked, monkeypatch):
    endpoint = "memory: {embedder: {type: endpoint, url: 'http://127.0.0.1:1/v1', model: m, key_env: NO_KEY_HERE}}\n"
    assert looked(endpoint)["memory"].status == "warning"
    monkeypatch.setenv("NO_KEY_HERE", "abcdefghijk")
    assert looked(endpoint)["memory"].status == "ok"


# the machine


def test_a_model_needs_its_key(looked, monkeypatch):
    for key in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "GROQ_API_KEY", "GROQ_BASE_URL"):
        monkeypatch.delenv(key, raising=False)
    assert looked("agent: {model: 'groq:m'}\n")["model"].fix == "export GROQ_API_KEY=…"
    monkeypatch.setenv("GROQ_API_KEY", "gsk-123456789")
    assert looked("agent: {model: 'groq:m'}\n")["model"].status == "ok"
    assert looked("agent: {model: 'ollama:m'}\n")["model"].status == "ok"


def test_programs_that_are_not_there_are_noted(looked, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = looked()
    for check in ("git", "node", "deno", "esbuild", "JavaScript scripts", "TypeScript scripts"):
        assert (found[check].status, bool(found[check].fix)) == ("note", True)
