"""The schedule tools as a model calls them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys

import jsonschema_rs
import pytest

from forge.core.context import Scope, ToolContext
from forge.core.errors import ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.secrets import Secrets
from forge.core.spec import Category
from forge.schedules.schedule import ScheduleOutcome, Source, Status
from forge.schedules.tools import schedule_tools

EXAMPLES = {
    "schedule_set": {"cron": "0 3 * * *", "task": "Count the stars"},
    "schedule_list": {},
    "schedule_delete": {"id": "nightly"},
    "schedule_history": {},
}
WRITERS = {"schedule_set", "schedule_delete"}
STRANGE = [
    *(" ", "a\0b", "\ud800", "\u202egnp.exe", "x" * 1_000_000, "\n" * 1_000_000, "../../etc/passwd", "%s%n{0}"),
    *("9" * 5_000, "'; DROP TABLE schedules; --", "* * * * *", "[" * 100_000),
]


class Bench:
    def __init__(self, store, tmp_path, **known):
        self.store = store
        self.registry = ToolRegistry()
        self.registry.add(*schedule_tools(lambda: store, **known))
        self.executor = ToolExecutor(self.registry, [])
        self.scope = Scope(session_id="bench", workspace=tmp_path)

    def call(self, tool, /, **arguments):
        return asyncio.run(self.executor.execute(ToolCall(tool, arguments), self.scope))

    def preview(self, name, /, **arguments):
        tool = self.registry[name]
        parsed = tool.parse(arguments)
        ctx = ToolContext(ToolCall(name, arguments), tool, parsed, self.scope)
        return asyncio.run(tool.preview_call(parsed, ctx))


@pytest.fixture
def bench(store, tmp_path):
    return Bench(store, tmp_path)


def test_a_schedule_is_set_and_its_next_time_said(bench, clocks):
    result = bench.call(
        "schedule_set", cron="0 3 * * *", task="Count the stars", id="nightly", timezone="Europe/Berlin"
    )
    assert result.success
    assert "next 2026-11-16T03:00:00+01:00" in result.for_llm
    assert result.data["schedule"]["id"] == "nightly"
    assert result.title == "set nightly"
    clocks.pass_(1)
    again = bench.call("schedule_set", cron="0 4 * * *", task="Count the stars", id="nightly")
    assert again.for_llm.startswith("Changed: nightly")
    assert "2026-11-16T04:00:00+01:00" in again.for_llm, "the time zone is kept"


def test_what_is_not_repeated_is_kept_and_what_is_said_changes(bench):
    said = {
        "timezone": "Europe/Berlin", "channel": "team", "channel_target": "#x", "skill": "stars", "one_shot": True,
        "enabled": False,
    }  # fmt: skip
    first = bench.call("schedule_set", cron="0 3 * * *", task="Count", id="a", **said).data["schedule"]
    assert {key: first[key] for key in said} == said
    bench.scope = Scope(session_id="s", workspace=bench.scope.workspace, channel="telegram", chat_id="42")
    again = bench.call("schedule_set", cron="0 4 * * *", task="Count more", id="a").data["schedule"]
    assert {key: again[key] for key in said} == said, "also where another talk is held"
    assert (again["cron"], again["task"]) == ("0 4 * * *", "Count more")
    assert "Europe/Berlin" in bench.preview("schedule_set", cron="0 5 * * *", task="Count", id="a")
    other = {"timezone": "UTC", "channel": "", "skill": "", "one_shot": False, "enabled": True}
    changed = bench.call("schedule_set", cron="0 4 * * *", task="Count", id="a", **other).data["schedule"]
    assert (changed["timezone"], changed["one_shot"], changed["enabled"]) == ("UTC", False, True)
    assert not any(changed[key] for key in ("channel", "channel_target", "skill"))
    moved = bench.call("schedule_set", cron="0 4 * * *", task="Count", id="a", channel="telegram").data["schedule"]
    assert (moved["channel"], moved["channel_target"]) == ("telegram", "42")


def test_a_registered_secret_is_never_stored(store, tmp_path):
    bench = Bench(store, tmp_path)
    bench.executor = ToolExecutor(bench.registry, [], secrets=Secrets(["hunter2hunter2"]))
    refused = bench.call("schedule_set", cron="@daily", task="Log in with hunter2hunter2", id="a")
    assert refused.failure is not None
    assert "the task contains a secret" in refused.failure.message
    assert "environment variable" in refused.failure.suggestion
    assert store.list() == []
    assert bench.call("schedule_set", cron="@daily", task="Log in with $TOKEN", id="a").success


def test_the_list_has_what_programs_need(bench):
    bench.call("schedule_set", cron="0 3 * * *", task="Count the stars", id="nightly")
    bench.call("schedule_set", cron="@hourly", task="Rest", id="off", enabled=False)
    [first, second] = bench.call("schedule_list").data["schedules"]
    assert {key: first[key] for key in ("id", "cron", "task", "enabled", "source", "next_fire")} == {
        "id": "nightly",
        "cron": "0 3 * * *",
        "task": "Count the stars",
        "enabled": True,
        "source": "model",
        "next_fire": "2026-11-16T03:00:00Z",
    }
    assert (second["enabled"], second["next_fire"]) == (False, None)
    assert [one["id"] for one in bench.call("schedule_list", enabled_only=True).data["schedules"]] == ["nightly"]


def test_a_task_stays_one_line_of_the_list(bench):
    forged = 'x"\nforged  [* * * * *, UTC]  next 2026-01-01  "y\u2028z\r\x1b[2J'
    bench.call("schedule_set", cron="@daily", task=forged, id="real")
    shown = bench.call("schedule_list").for_llm
    assert len(shown.split("\n")) == 1
    assert shown.startswith("real  [@daily, UTC]")
    assert "\x1b" not in shown
    assert bench.call("schedule_list").data["schedules"][0]["task"] == forged


def test_what_the_configuration_declares_is_read_only(bench, store):
    store.declare([{"id": "nightly", "cron": "0 3 * * *", "task": "Count the stars"}])
    for name, arguments in (
        ("schedule_set", {"id": "nightly", "cron": "* * * * *", "task": "Mine"}),
        ("schedule_delete", {"id": "nightly"}),
    ):
        result = bench.call(name, **arguments)
        assert result.failure.kind == "permission_error"
        assert "forge.yaml" in result.for_llm
    assert bench.call("schedule_list").data["schedules"][0]["source"] == "config"
    assert bench.call("schedule_set", id="mine", cron="* * * * *", task="Mine").success
    assert bench.call("schedule_delete", id="mine").data == {"deleted": "mine"}


PERSONS = {"id": "count-the-stars", "cron": "0 3 * * *", "task": "Count the stars"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("schedule_delete", {"id": "count-the-stars"}),
        ("schedule_delete", {"name": " count-the-stars\n"}),
        ("schedule_set", {**PERSONS, "task": "Mine"}),
        ("schedule_set", {**PERSONS, "enabled": False}),
        ("schedule_set", {**PERSONS, "one_shot": True}),
        ("schedule_set", {**PERSONS, "channel": "elsewhere"}),
        ("schedule_set", {"schedule_id": "count-the-stars ", "cron": "* * * * *", "prompt": "Count the stars"}),
        ("schedule_set", PERSONS),
    ],
)
def test_a_model_changes_and_removes_only_its_own_schedules(bench, store, name, arguments):
    before = store.set(by=Source.PERSON, **PERSONS)
    result = bench.call(name, **arguments)
    assert (result.failure.kind, "a person" in result.for_llm) == ("permission_error", True)
    with pytest.raises(ToolError, match="only a person"):
        bench.preview(name, **arguments)  # refused before anybody is asked
    assert store.list() == [before]
    own = {**PERSONS, "id": "my-own"}
    assert bench.call("schedule_set", **own).success
    assert bench.call("schedule_set", **{**own, "enabled": False}).data["schedule"]["enabled"] is False
    assert bench.call("schedule_delete", id="my-own").data == {"deleted": "my-own"}


def test_the_default_id_of_a_persons_task_is_the_persons(bench, store):
    made = store.set(by=Source.PERSON, cron="0 3 * * *", task="Count the stars")
    assert bench.call("schedule_set", cron="* * * * *", task="Count the stars").failure.kind == "permission_error"
    assert store.get(made.id).cron == "0 3 * * *"
    assert bench.call("schedule_set", cron="* * * * *", task="Count the moons").success


@pytest.mark.parametrize(
    "name", ["Count-the-stars", "COUNT-THE-STARS", "count\u2010the\u2010stars", "count-the-st\uff41rs"]
)
def test_another_spelling_of_an_id_reaches_no_persons_schedule(bench, store, name):
    before = store.set(by=Source.PERSON, **PERSONS)
    assert bench.call("schedule_delete", id=name).failure is not None
    assert bench.call("schedule_set", id=name, cron="* * * * *", task="Mine").failure is not None
    assert store.list() == [before]


def test_what_a_person_changes_is_the_persons_from_then_on(bench, store):
    assert bench.call("schedule_set", **PERSONS).data["schedule"]["source"] == "model"
    assert store.set(by=Source.PERSON, **{**PERSONS, "enabled": False}).source is Source.PERSON
    assert bench.call("schedule_set", **{**PERSONS, "enabled": True}).failure.kind == "permission_error"
    assert store.delete("count-the-stars", Source.PERSON).enabled is False
    assert bench.call("schedule_set", **PERSONS).success  # the name is free again


def test_history_is_bounded_by_its_schema(bench, store):
    bench.call("schedule_set", cron="@daily", task="Count", id="nightly")
    claim = store.start("one", "nightly")
    store.finish(claim.run.id, Status.FAILED, ScheduleOutcome(error="no\nstars"), 2.0)
    result = bench.call("schedule_history", schedule_id="nightly", limit=50)
    assert [(one["status"], one["duration"], one["error"]) for one in result.data["history"]] == [
        ("failed", 2.0, "no\nstars")
    ]
    assert result.for_llm == '2026-11-15T12:00:00Z  nightly  failed in 2.0 s  "no\\nstars"'
    for limit in (0, 51, 2**70):
        assert bench.call("schedule_history", limit=limit).failure.kind == "validation_error"
    assert bench.call("schedule_history", schedule_id="nigthly").failure.kind == "not_found"
    assert bench.registry["schedule_history"].spec.parameters["properties"]["limit"]["maximum"] == 50


def test_the_result_goes_to_where_the_talk_is_held(store, tmp_path):
    bench = Bench(store, tmp_path, channels=["team"], skills=["astronomy"])
    bench.scope = Scope(session_id="s", workspace=tmp_path, channel="telegram", chat_id="42")

    def destination(**arguments):
        store.delete("a") if store.list() else None
        made = bench.call("schedule_set", cron="@daily", task="Count", id="a", **arguments).data["schedule"]
        return made["channel"], made["channel_target"]

    assert destination() == ("telegram", "42")
    assert destination(channel="team") == ("team", None)
    assert destination(channel="team", channel_target="#x") == ("team", "#x")
    assert destination(channel_target="43") == ("telegram", "43")


def test_channels_and_skills_that_are_not_there_are_refused(store, tmp_path):
    bench = Bench(store, tmp_path, channels=["team"], skills=[])
    wrong = bench.call("schedule_set", cron="@daily", task="Count", channel="teem")
    assert (wrong.failure.kind, wrong.failure.suggestion) == ("not_found", "Available: team.")
    assert bench.call("schedule_set", cron="@daily", task="Count", skill="x").failure.kind == "not_found"
    assert bench.call("schedule_set", cron="@daily", task="Count", channel="team").success


def test_a_person_is_shown_what_would_be_set(bench, store):
    shown = bench.preview("schedule_set", cron="0 3 * * *", task="Count\nthe stars", id="nightly")
    assert shown == (
        "New schedule nightly: At 03:00 every day (UTC); next at 2026-11-16T03:00:00Z\n+ Count\n+ the stars"
    )
    assert store.list() == []
    bench.call("schedule_set", cron="0 3 * * *", task="Count", id="nightly")
    changed = bench.preview("schedule_set", cron="0 3 * * *", task="Rest", id="nightly")
    assert changed.splitlines()[1:] == ["- Count", "+ Rest"]
    assert bench.preview("schedule_delete", id="nightly").startswith("- nightly")


def test_the_names_other_systems_use_are_understood(bench):
    made = bench.call("schedule_set", schedule="@daily", prompt="Count", name="nightly", tz="Europe/Berlin")
    assert made.data["schedule"]["timezone"] == "Europe/Berlin"
    assert bench.call("schedule_delete", schedule_id="nightly").success


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_keeps_the_contract_of_built_ins(bench, name):
    spec = bench.registry[name].spec
    assert 8 <= len(re.findall(r"\w+", spec.description)) <= 40
    assert spec.description.endswith(".")
    assert spec.category is Category.BUILTIN
    assert spec.permissions == ({"write"} if name in WRITERS else {"read"})
    jsonschema_rs.meta.validate(spec.parameters)
    assert spec.parameters["additionalProperties"] is False
    assert jsonschema_rs.is_valid(spec.parameters, EXAMPLES[name])
    result = bench.call(name, **EXAMPLES[name], no_such_argument=1)
    assert result.failure.kind == "validation_error"


@pytest.mark.parametrize("text", STRANGE, ids=lambda text: repr(text[:12]))
def test_strange_text_is_answered_and_harms_nobody(bench, text):
    for name, example in EXAMPLES.items():
        for key, schema in bench.registry[name].spec.parameters["properties"].items():
            if schema.get("type") == "string":
                result = bench.call(name, **{**example, key: text})
                assert result.for_llm
                json.dumps(result.to_dict()).encode()
                if result.failure is not None:
                    assert result.failure.kind != "system_error", result.for_llm[:300]
                    assert len(result.for_llm) < 3_000


def test_making_the_tools_loads_nothing_heavy():
    heavy = ["asyncio", "sqlite3", "pydantic", "zoneinfo", "cronsim", "hashlib", "jsonschema_rs"]
    code = (
        "import sys; from forge.core.registry import ToolRegistry; from forge.schedules.tools import schedule_tools\n"
        "registry = ToolRegistry(); registry.add(*schedule_tools(lambda: None)); registry.summaries()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_skill_is_looked_for_when_one_is_named(store, tmp_path):
    asked = []

    def names():
        asked.append(True)
        return {"greet": 1}.keys()

    bench = Bench(store, tmp_path, skills=names)
    assert bench.call("schedule_set", cron="@daily", task="x").success
    assert not asked
    refused = bench.call("schedule_set", cron="@daily", task="x", skill="gret")
    assert "there is no skill" in refused.for_llm
    assert "Available: greet." in refused.for_llm
    assert bench.call("schedule_set", cron="@daily", task="x", skill="greet").success
