"""A scheduled task: an agent of its own, unattended, whose answer is delivered."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.process.running.jobs import list_jobs
from forge.project.assemble.services import ProjectChannels, project_schedules
from forge.project.config import load_configuration
from forge.project.doctor.services import examine_work
from forge.project.project import Project, RunOptions
from forge.project.runs.scheduled_runs import make_runner
from forge.schedules.schedule import Status
from tests.channels.test_channel import slack_reply
from tests.cli.scripts import call, script
from tests.network.serving import serving
from tests.process.planting import found, mark, until


@pytest.fixture
def project(tmp_path):
    def made(*turns, text: str = "", policy: str | None = None):
        model = script(tmp_path, *turns)
        entry = f'agent: {{model: "{model}"}}\nschedules: [{{id: it, cron: "@daily", task: "Do it.", channel: log}}]\n'
        (tmp_path / "forge.yaml").write_text(f"{entry}channels: {{log: {{type: file, path: out.md}}}}\n{text}")
        config = str(tmp_path / "forge.yaml")
        return SimpleNamespace(workspace=str(tmp_path), config=config, policy=policy)

    return made


async def test_the_answer_and_the_files_it_made_are_delivered(project, tmp_path):
    asked = project(
        call("file_create", filename="report.md", content="# 3"),
        "Counted: 3.",
        text='permissions: {rules: ["allow tool:file_create"]}',
    )
    run = await make_runner(asked).now("it")
    assert run.status is Status.COMPLETED, run.error
    assert run.result == "Counted: 3."
    delivered = (tmp_path / "out.md").read_text()
    assert "Counted: 3." in delivered
    assert "report.md" in delivered
    assert [file.read_text() for file in (tmp_path / "out.md.files").iterdir()] == ["# 3"]


async def test_slack_gets_the_answer_its_files_and_messages_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-of-a-bot")
    async with serving(slack_reply) as server:
        model = script(
            tmp_path,
            call("send_message", content="Half way.", channel="ops", chat_id="C2"),
            call("send_message", content="Elsewhere.", channel="ops", chat_id="C3"),
            call("file_create", filename="report.md", content="# 3"),
            "Counted: 3.",
        )
        (tmp_path / "forge.yaml").write_text(
            f'agent: {{model: "{model}"}}\nschedules: [{{id: it, cron: "@daily", task: "Do it.", channel: ops}}]\n'
            f"channels: {{ops: {{type: slack, token_env: SLACK_BOT_TOKEN, chat_id: C1, targets: [C2],"
            f' api: "{server.url}/api"}}}}\n'
            'permissions: {rules: ["allow tool:file_create", "allow tool:send_message"]}\n'
        )
        config = str(tmp_path / "forge.yaml")
        run = await make_runner(SimpleNamespace(workspace=str(tmp_path), config=config, policy=None)).now("it")
    assert run.status is Status.COMPLETED, run.error
    posted = [json.loads(one.body) for one in server.asked if one.path == "/api/chat.postMessage"]
    assert [(one["channel"], one["text"].partition("\n")[0]) for one in posted] == [
        ("C2", "Half way."),
        ("C1", "Counted: 3."),
    ], "a chat that is not written down got something"
    assert [one.body for one in server.asked if one.path.startswith("/upload/")] == [b"# 3"]


async def test_nobody_is_asked_so_what_asks_is_refused(project, tmp_path):
    run = await make_runner(project(call("file_write", path="a.txt", content="x"), "I could not.")).now("it")
    assert run.status is Status.COMPLETED
    assert not (tmp_path / "a.txt").exists()
    events = [json.loads(line) for line in (tmp_path / ".forge" / "audit.ndjson").read_text().splitlines()]
    assert any("there is no one to ask" in str(event.get("error", "")) for event in events)
    allowed = project(
        call("file_write", path="a.txt", content="x"), "Done.", text='permissions: {rules: ["allow write"]}'
    )
    assert (await make_runner(allowed).now("it")).result == "Done."
    assert (tmp_path / "a.txt").read_text() == "x"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_what_a_run_left_running_ends_with_it(project):
    word = mark()
    started = call("bash", command=f"sleep {word}", background=True)
    rules = 'permissions: {rules: ["allow execute"]}\nsandbox: off\n'
    run = await make_runner(project(started, call("bash_jobs"), "Started.", text=rules)).now("it")
    assert (run.status, run.result) == (Status.COMPLETED, "Started.")
    assert until(lambda: not found(word))
    assert list_jobs(run.session) == []


async def test_every_run_has_a_session_of_its_own(project):
    made = make_runner(project("One."))
    sessions = {(await made.now("it")).session for _ in range(2)}
    assert len(sessions) == 2


async def test_a_run_that_fails_says_so_where_its_answer_would_be(project, tmp_path):
    run = await make_runner(project({"error": "the model is gone"})).now("it")
    assert run.status is Status.FAILED
    assert "failed" in (tmp_path / "out.md").read_text()


async def test_an_answer_that_cannot_be_delivered_is_kept(project, tmp_path):
    made = make_runner(project("Counted: 3."))
    (tmp_path / "out.md").mkdir()
    run = await made.now("it")
    assert (run.status, run.result) == (Status.FAILED, "Counted: 3.")
    assert "not delivered to log" in run.error
    assert run.session.startswith("it-")


async def test_a_channel_that_is_not_there_is_said_before_anything_is_due(project, tmp_path):
    asked = project("One.")
    config = tmp_path / "forge.yaml"
    config.write_text(config.read_text().replace("channel: log", "channel: lag"))
    with pytest.raises(ToolError, match=r"schedules\[0\]\.channel: there is no channel 'lag'"):
        make_runner(asked)


@pytest.mark.parametrize(("channels", "fine"), [("", False), ("channels: {nobody: {type: terminal}}", True)])
async def test_a_model_names_no_channel_that_is_not_there(tmp_path, channels, fine):
    (tmp_path / "forge.yaml").write_text(f'permissions: {{rules: ["allow tool:schedule_set"]}}\n{channels}')
    made = Project(RunOptions(workspace=str(tmp_path), config=str(tmp_path / "forge.yaml"))).agent(with_model=False)
    result = await made.executor.execute(
        ToolCall("schedule_set", {"cron": "@daily", "task": "x", "channel": "nobody"}), made.scope
    )
    assert result.success is fine, result.for_llm


def test_the_doctor_says_that_a_channel_is_not_there(project, tmp_path):
    asked = project("One.")
    with project_schedules(asked) as store:
        store.set(id="mine", cron="@daily", task="x", channel="nobody")
    found = {one.check: one.status for one in examine_work(load_configuration(asked.config), Scope(workspace=tmp_path))}
    assert found["schedule mine"] == "warning"
    assert "schedule it" not in found


async def test_a_model_can_be_named_in_the_place_of_the_configurations(project, tmp_path):
    asked = project("One.")
    other = tmp_path / "other"
    other.mkdir()
    assert (await make_runner(asked, script(other, "Two.")).now("it")).result == "Two."


def test_without_a_model_it_is_said_before_anything_is_due(project, tmp_path, monkeypatch):
    asked = project("One.")
    (tmp_path / "forge.yaml").write_text("agent: {model: 'nothing:x'}")
    with pytest.raises(ToolError):
        make_runner(asked)


def test_what_the_configuration_declares_is_there_and_goes_with_it(project, tmp_path):
    asked = project("One.")
    with project_schedules(asked) as store:
        assert [one.id for one in store.list()] == ["it"]
    (tmp_path / "forge.yaml").write_text("schedules: []")
    with project_schedules(asked) as store:
        assert store.list() == []


@pytest.mark.parametrize(
    "broken", ["{cron: '@daily', task: x}", "{id: a, cron: '61 * * * *', task: x}", "{id: a, cron: x}"]
)
def test_a_broken_entry_is_refused_with_its_place(tmp_path, broken):
    (tmp_path / "forge.yaml").write_text(f"schedules: [{broken}]")
    with pytest.raises(ToolError) as caught:
        project_schedules(SimpleNamespace(workspace=str(tmp_path), config=str(tmp_path / "forge.yaml"), policy=None))
    assert "schedules[0]" in caught.value.message or "schedules" in caught.value.message


async def test_a_model_cannot_choose_who_is_written_to(tmp_path, monkeypatch):
    monkeypatch.setenv("TG", "123:abc")
    (tmp_path / "forge.yaml").write_text(
        "channels: {me: {type: telegram, token_env: TG, chat_id: 42, api: 'http://127.0.0.1:9', targets: [43]}}"
    )
    channels = ProjectChannels(load_configuration(str(tmp_path / "forge.yaml")))
    with pytest.raises(ToolError) as caught:
        await channels.deliver("secrets", "me", "666")
    assert caught.value.kind is ErrorKind.PERMISSION
    for allowed in ("", "42", "43"):
        with pytest.raises(ToolError, match="no connection"):  # the twin: it is tried
            await channels.deliver("hello", "me", allowed)
    with pytest.raises(ToolError, match="there is no channel 'mee'"):
        await channels.deliver("hello", "mee")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("channels: {a: {type: pigeon}}", "expected one of terminal"),
        ("channels: {a: {type: file}}", "path is missing"),
        ("channels: {a: {type: webhook, url: 'https://x'}}", "unknown key"),
        ("channels: {a: {type: telegram, token_env: 'not a name'}}", "environment variable"),
        ("memory: {enabled: maybe}", "expected true or false"),
        ("memory: {embedder: [1]}", "expected none, local"),
        ("skills: {active: 5}", "expected a list"),
        ("schedules: {}", "expected a list"),
    ],
)
def test_what_is_wrong_in_these_sections_is_named(tmp_path, text, problem):
    (tmp_path / "forge.yaml").write_text(text)
    with pytest.raises(ToolError) as caught:
        load_configuration(str(tmp_path / "forge.yaml"))
    assert problem in caught.value.message
