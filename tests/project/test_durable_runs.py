"""A project's durable runs: where they are kept, under which version, with what they are run, and their sessions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from forge.agent.session import SessionStore
from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.extras import install_command
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.core.registry import ToolRegistry
from forge.core.spec import Permission
from forge.core.tool import tool
from forge.durable.engine.agents import find_agent
from forge.durable.engine.attempt import Attempt, current_attempt
from forge.durable.engine.queues import QueueLimits
from forge.durable.store import RunStore
from forge.durable.store.rows import INITIAL_MESSAGES, NewRun, Outcome, Question, RunInfo
from forge.models.scripted import Scripted
from forge.permissions.gate import PolicyGate
from forge.permissions.questions import Answer, ask_approver, request_text
from forge.project.assemble.secrets import project_secrets
from forge.project.config import Configuration, load_configuration, read_configuration
from forge.project.config.durable import passwords, without_password
from forge.project.effective_config import effective_values
from forge.project.project import Project, RunOptions
from forge.project.runs.durable_runs import (
    build_request,
    check_installed,
    is_own,
    make_approver,
    make_own_file,
    models_for,
    project_database,
    project_version,
    queue_limits,
    store_finished_runs,
    store_in_session,
)
from forge.project.trust_summary import trust_summary

SECRET = "hunter2/hunter2"
URL = "postgresql://forge:hunter2%2Fhunter2@db.example.com:5433/forge?sslpassword=topsecret1"


def configured(folder: Path, text: str, **environment: str) -> Configuration:
    (folder / "forge.yaml").write_text(text)
    return load_configuration(str(folder / "forge.yaml"), environment=environment, organisation="/nowhere")


def test_the_flag_comes_before_the_variable_before_the_file_before_the_workspaces_own(tmp_path):
    said = "durable: {database: 'sqlite:///kept/runs.db'}\n"
    assert project_database(Configuration(), tmp_path) == f"sqlite:///{tmp_path}/.forge/durable.db"
    assert project_database(configured(tmp_path, said), tmp_path) == f"sqlite:///{tmp_path}/kept/runs.db"
    by_variable = configured(tmp_path, said, FORGE_DATABASE="postgresql://h/d")
    assert project_database(by_variable, tmp_path) == "postgresql://h/d"
    assert project_database(by_variable, tmp_path, "sqlite:////x.db") == "sqlite:////x.db"
    assert is_own(project_database(Configuration(), tmp_path), tmp_path)
    assert not is_own("postgresql://h/d", tmp_path)


def test_variables_in_the_url_are_looked_up_when_it_is_needed(tmp_path):
    said = configured(tmp_path, 'durable: {database: "postgresql://forge:${PASSWORD}@h/d"}\n')
    assert said.variables == ("PASSWORD",)
    found = project_database(said, tmp_path, environment={"PASSWORD": "abc"})
    assert found == "postgresql://forge:abc@h/d"
    with pytest.raises(ToolError, match="PASSWORD is not set") as caught:
        project_database(said, tmp_path, environment={})
    assert "durable.database" in caught.value.message
    other = configured(tmp_path, 'durable: {database: "${ALL}"}\n')
    with pytest.raises(ToolError, match="not a URL") as caught:
        project_database(other, tmp_path, environment={"ALL": f"mysql://{SECRET}"})
    assert SECRET not in f"{caught.value} {caught.value.suggestion}"


def test_a_wrong_variable_is_named_and_not_repeated(tmp_path):
    with pytest.raises(ToolError, match="FORGE_DATABASE") as caught:
        configured(tmp_path, "{}", FORGE_DATABASE=f"mysql://{SECRET}")
    assert SECRET not in f"{caught.value} {caught.value.suggestion}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://forge:***@db.example.com:5433/forge"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@q@h/d", "postgresql://u:***@h/d"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("postgresql:///d?password=x", "postgresql:///d"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert without_password(url) == shown


def test_the_password_is_a_secret_everywhere(tmp_path):
    assert {*passwords(URL)} == {"hunter2%2Fhunter2", SECRET, "topsecret1"}
    said = configured(tmp_path, f"durable: {{database: '{URL}'}}\n")
    secrets = project_secrets(said, {})
    assert secrets.mask(f"a {SECRET} b topsecret1") == "a [secret] b [secret]"
    shown = json.dumps([value.value for value in effective_values(said)])
    assert "hunter2" not in shown
    assert "db.example.com" in shown
    (told,) = [one for one in trust_summary(f"durable: {{database: '{URL}'}}\n", "forge.yaml") if "runs" in one.kind]
    assert told.detail.endswith("@db.example.com:5433/forge")
    assert "hunter2" not in told.detail
    assert told.risky


def test_queues_have_the_limits_of_the_file():
    said = read_configuration(
        "durable: {queues: {default: {concurrency: 5, rate: {calls: 9, seconds: 1}, per_tenant: 2}, slow: {}}}", "f"
    )
    assert queue_limits(said) == {"default": QueueLimits(5, 9, 1, 2), "slow": QueueLimits()}
    wrong = read_configuration("durable: {queues: {a: {concurrency: 1, per_tenant: 2}}}", "f")
    with pytest.raises(ToolError, match="more runs per tenant than in total"):
        queue_limits(wrong)


def test_a_version_is_that_of_what_the_projects_file_says(tmp_path):
    first = project_version(configured(tmp_path, "limits: {turns: 5}\n"))
    assert project_version(configured(tmp_path, "limits: {turns: 5}\ndurable: {database: 'sqlite:///a.db'}\n")) == first
    assert project_version(configured(tmp_path, "limits: {turns: 5}\n", FORGE_MODEL="a:b")) == first
    assert project_version(configured(tmp_path, "limits: {turns: 6}\n")) != first
    assert project_version(Configuration()) == first.partition("+")[0]
    assert project_version(Configuration(), "abcdef0123456789").endswith("+abcdef012345")


def test_without_the_extra_it_is_said_what_to_install(monkeypatch):
    check_installed()
    monkeypatch.setitem(sys.modules, "dbos", None)
    with pytest.raises(ToolError, match=r"not installed \(dbos missing\)") as caught:
        check_installed()
    assert caught.value.suggestion == f"Install it with: {install_command('durable')}"


def test_a_directory_that_somebody_else_brought_keeps_no_runs(tmp_path):
    (tmp_path / ".forge").mkdir()
    (tmp_path / ".forge" / "pins.json").write_text("{}")
    with pytest.raises(ToolError, match="no run can be stored"):
        project_database(Configuration(), tmp_path)
    with pytest.raises(ToolError, match="no run can be stored"):
        make_own_file(tmp_path)
    assert project_database(Configuration(), tmp_path, "sqlite:////x.db") == "sqlite:////x.db"


def made(folder: Path, *turns: Any, config: str = "{}") -> Any:
    (folder / "script.json").write_text(json.dumps(turns))
    (folder / "forge.yaml").write_text(config)
    wishes = RunOptions(workspace=str(folder), config=str(folder / "forge.yaml"))
    return Project(wishes).agent(f"scripted:{folder / 'script.json'}", approve=make_approver("r"))


def test_a_worker_runs_the_agent_that_forge_run_has(tmp_path):
    agent = made(tmp_path, "hi", config="limits: {turns: 7}\n")
    found = find_agent({"main": agent}, "main", agent.model, models_for(agent))
    assert (found.name, found.limits.turns, found.scope) == ("main", 7, agent.scope)
    assert found.registry is agent.registry
    assert found.secrets is agent.secrets
    assert found.window > 0


async def test_a_worker_has_the_models_that_runs_ask_for_by_name(tmp_path, store):
    agent = made(tmp_path, "hi")
    models = models_for(agent)
    (tmp_path / "other.json").write_text('["I am another"]')
    other = find_agent({"main": agent}, "main", f"scripted:{tmp_path / 'other.json'}", models)
    run = store.create(NewRun(id="r", messages=(Message("user", "go"),)))
    assert await said(other.provider, run, store, Message("user", "go")) == "I am another"
    assert other.provider is models(f"scripted:{tmp_path / 'other.json'}")
    for name in ("", agent.model):
        assert find_agent({"main": agent}, "main", name, models).provider is agent.provider
    with pytest.raises(ToolError, match="nobody:model"):
        find_agent({"main": agent}, "main", "nobody:model", models)


def test_a_run_begins_as_any_other_does(tmp_path):
    agent = made(tmp_path, "hi", config="agent: {prompt: Be brief.}\nguardrails: {deny_prompts: [forbidden]}\n")
    first = agent.begin("go").messages
    assert [message.role for message in first] == ["system", "user"]
    assert "Be brief." in first[0].text
    open_call = Message("assistant", tool_calls=(ToolCall("bash", {}, "c"),))
    more = agent.begin("more", [*first, open_call]).messages
    assert [message.role for message in more][-2:] == ["tool", "user"]
    with pytest.raises(ToolError):
        agent.begin("something forbidden")


class Home:
    worker, offers = "w", ()

    def __init__(self, store: RunStore) -> None:
        self.store = store


@pytest.fixture
def store(tmp_path):
    make_own_file(tmp_path)
    with RunStore(f"sqlite:///{tmp_path}/.forge/durable.db") as made:
        made.prepare()
        yield made


async def said(provider: Any, run: RunInfo, store: RunStore, *messages: Message) -> str:
    home: Any = Home(store)
    token = current_attempt.set(Attempt(run, home))
    try:
        parts = [part async for part in provider.stream(ModelRequest(messages=list(messages), tools=[]))]
    finally:
        current_attempt.reset(token)
    last = parts[-1]
    assert isinstance(last, Message)
    return last.text


async def test_a_script_is_followed_from_where_a_run_is_whoever_said_the_rest(tmp_path, store):
    before = [Message("user", "a"), Message("assistant", "of an earlier run"), Message("user", "b")]
    run = store.create(NewRun(id="r", messages=before))
    agents = [made(tmp_path, "first", "second") for _ in range(2)]
    one, two = (models_for(agent)(agent.model) for agent in agents)
    assert await said(one, run, store, *before) == "first"
    assert await said(two, run, store, *before, Message("assistant", "first"), Message("user", "c")) == "second"
    assert await said(one, run, store, *before) == "first"


def test_a_script_can_be_had_again():
    script = Scripted("a", "b")
    assert script.again(1).left == 1
    assert script.left == 2


async def test_yes_is_said_to_the_run_that_it_is_for_and_to_those_it_started(tmp_path, store):
    @tool(permissions={"write"}, target="name")
    def note(name: str) -> str:
        """Note."""
        return name

    shown = {"arguments": {"name": "a"}, "editable": True}
    asked = Question(id="q", run="r", call="c", tool="note", digest="", request=shown)
    request = build_request(asked, ToolRegistry([note]), Scope(workspace=tmp_path))
    approve, kinds = make_approver("r", yes=True), []
    for name, parent in (("r", ""), ("r-child", "r"), ("r-others", ""), ("other", "")):
        store.create(NewRun(id=name, parent=parent))
        run = store.begin(name, 1, Home.worker)
        assert run is not None
        home: Any = Home(store)
        token = current_attempt.set(Attempt(run, home))
        try:
            answer = await ask_approver(approve, request)
            kinds.append(answer.by if isinstance(answer, Answer) else str(answer))
        except ToolError as error:
            kinds.append(type(error).__name__)
        finally:
            current_attempt.reset(token)
    assert kinds == ["--yes", "--yes", "Waiting", "Waiting"]


async def test_a_stored_question_is_shown_as_it_was_asked(tmp_path):
    from forge.core.context import ToolContext
    from forge.durable.engine.approval import request_to_json

    @tool(permissions={"write"}, target="name")
    def note(name: str, text: str = "") -> str:
        """Note."""
        return name

    asked: list[Any] = []

    async def ask(request: Any) -> Answer:
        asked.append(request)
        return Answer.ONCE

    call, scope = ToolCall("note", {"name": "a.txt", "text": "x"}, "c1"), Scope(workspace=tmp_path)
    await PolicyGate(approve=ask).authorize(ToolContext(call, note, {"name": "a.txt", "text": "x"}, scope))
    shown = json.loads(json.dumps(request_to_json(asked[0])))
    question = Question(id="q", run="r", call="c1", tool="note", digest="", request=shown)
    back = build_request(question, ToolRegistry([note]), scope)
    assert request_text(back) == request_text(asked[0])
    assert (back.permission, back.target, back.editable) == (Permission.WRITE, "a.txt", True)
    elsewhere = build_request(question, ToolRegistry(), scope)
    assert "write a.txt" in request_text(elsewhere)


def over(store: RunStore, name: str, session: str, before: int = 0) -> RunInfo:
    messages = [Message("user", f"old {number}") for number in range(before)]
    run = store.create(
        NewRun(id=name, session=session, messages=[*messages, Message("user", name)], scope={INITIAL_MESSAGES: before})
    )
    assert store.begin(run.id, run.segment, "w")
    outcome = Outcome(status="finished", messages=(Message("assistant", f"done {name}"),), spent={}, result={})
    return store.close_segment(run.id, run.segment, outcome)


def texts(folder: Path, session: str) -> list[str]:
    with SessionStore.of(folder) as sessions:
        return [message.text for message in sessions.show(session).messages]


def test_a_run_that_is_over_is_kept_in_its_session_once(tmp_path, store):
    run = over(store, "a", "s")
    with SessionStore.of(tmp_path) as sessions:
        assert [store_in_session(run, store, sessions) for _ in range(3)] == [2, 0, 0]
        assert store_in_session(over(store, "b", "s", before=2), store, sessions) == 2
    assert texts(tmp_path, "s") == ["a", "done a", "b", "done b"]
    again = store.advance("a", say=[Message("user", "more")])
    assert again is not None
    with SessionStore.of(tmp_path) as sessions:
        assert store_in_session(again, store, sessions) == 0  # it is at work
        assert store.begin("a", 2, "w")
        outcome = Outcome(status="finished", messages=(Message("assistant", "even more"),), spent={}, result={})
        assert store_in_session(store.close_segment("a", 2, outcome), store, sessions) == 2
    assert texts(tmp_path, "s") == ["a", "done a", "b", "done b", "more", "even more"]


def test_all_that_is_over_is_kept_but_for_what_has_no_session(tmp_path, store):
    over(store, "a", "s")
    over(store, "b", "")
    store.create(NewRun(id="c", session="s"))
    assert store_finished_runs(store, tmp_path) == 2
    assert store_finished_runs(store, tmp_path) == 0
    assert texts(tmp_path, "s") == ["a", "done a"]
