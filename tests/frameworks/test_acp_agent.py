"""An ACP agent as a sub-agent: real programs behind our gate, obedient and hostile ones."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, AgentType, Answer, Limits, Scripted, ToolCall, rules
from forge.core.context import Root, Scope
from forge.core.errors import DefinitionError
from forge.events import ToolFinished
from forge.frameworks import acp_agent
from forge.frameworks.acp_agent import AcpAgent
from forge.tools.bash import Bash
from forge.tools.file_read import FileRead
from forge.tools.file_write import FileWrite

PROGRAM = Path(__file__).with_name("acp_program.py")
ALLOW = rules("allow read", "allow write", "allow execute")
TOOLS = ("file_read", "file_write", "bash")


def program(kind: str, **settings: Any) -> AcpAgent:
    settings.setdefault("sandbox", "off")
    return AcpAgent(sys.executable, [str(PROGRAM), kind], **settings)


def task(*lines: Any, kind: str = "theirs") -> ToolCall:
    prompt = "\n".join(json.dumps(line) for line in lines) or "Go."
    return ToolCall("task", {"description": "work", "prompt": prompt, "agent_type": kind}, "t1")


def make(tmp_path: Path, outside: AcpAgent, *lines: Any, tools: Any = TOOLS, **settings: Any) -> Agent:
    kind = AgentType(outside=outside, tools=tools, limits=settings.pop("limits", Limits(seconds=60)))
    settings.setdefault("policy", ALLOW)
    settings.setdefault("labels", False)
    return Agent(
        Scripted(task(*lines), lambda request: request.messages[-1].text),
        tools=[FileRead(), FileWrite(), Bash(sandbox="off")],
        agents={"theirs": kind},
        scope=Scope(workspace=tmp_path),
        **settings,
    )


async def test_its_files_and_commands_are_calls_of_ours(tmp_path):
    (tmp_path / "a.txt").write_text("one\n  two\nthree\n")
    agent = make(
        tmp_path,
        program("worker"),
        ["read", "a.txt"],
        ["read", "a.txt", {"line": 2, "limit": 1}],
        ["write", "b.txt", "new"],
        ["run", "echo hi; exit 3"],
    )
    calls: list[tuple[str, bool]] = []
    agent.activity.subscribe(lambda event: calls.append((event.call.name, event.success)), ToolFinished)
    result = await agent.run("Go")
    assert "read: one\n  two\nthree\n" in result.text
    assert "read:   two\n" in result.text
    assert "run: 3 hi" in result.text
    assert (tmp_path / "b.txt").read_text() == "new"
    inner = [("file_read", True), ("file_read", True), ("file_write", True), ("bash", True)]
    assert calls == [*inner, ("task", True)]


async def test_rules_refuse_what_it_asks_for_and_allow_the_rest(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "secret.txt").write_text("hidden words")
    policy = rules("allow read", "deny read secret.txt", "allow write", "deny write *.sh", "allow execute")
    lines = (["read", "secret.txt"], ["read", "a.txt"], ["write", "x.sh", "x"], ["write", "x.txt", "x"])
    result = await make(tmp_path, program("worker"), *lines, policy=policy).run("Go")
    assert "hidden words" not in result.text
    assert result.text.count("failed") == 2
    assert "read: one" in result.text
    assert not (tmp_path / "x.sh").exists()
    assert (tmp_path / "x.txt").exists()


async def test_a_path_outside_of_the_workspace_is_refused(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "outside.txt").write_text("hidden words")
    result = await make(tmp_path / "work", program("worker"), ["read", "../outside.txt"]).run("Go")
    assert "hidden words" not in result.text
    assert "failed" in result.text


async def test_a_person_is_asked_about_its_calls_with_their_diff(tmp_path):
    asked: list[Any] = []

    async def ask(request: Any) -> Answer:
        asked.append(request)
        return Answer.no("Not there.") if request.target.endswith("no.txt") else Answer.ONCE

    policy = rules("allow execute", "ask write")
    agent = make(
        tmp_path, program("worker"), ["write", "no.txt", "x"], ["write", "yes.txt", "y"], policy=policy, approve=ask
    )
    result = await agent.run("Go")
    assert [one.call.name for one in asked] == ["file_write", "file_write"]
    assert "+y" in asked[1].preview
    assert "Not there." in result.text
    assert not (tmp_path / "no.txt").exists()
    assert (tmp_path / "yes.txt").exists()


async def test_it_has_only_the_tools_of_its_type(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    lines = (["read", "a.txt"], ["write", "b.txt", "x"], ["run", "touch c.txt"])
    result = await make(tmp_path, program("worker"), *lines, tools=()).run("Go")
    assert "read: one" in result.text
    assert not (tmp_path / "b.txt").exists()
    assert not (tmp_path / "c.txt").exists()


async def test_a_permission_that_it_asks_for_is_given_once_or_refused(tmp_path):
    policy = rules("allow execute", "deny execute git push *")
    lines = (["may", "execute", "git push"], ["may", "execute", "git status"], ["may", "edit", "somewhere"])
    result = await make(tmp_path, program("worker"), *lines, policy=policy).run("Go")
    assert result.text.splitlines()[:2] == ["may: no", "may: yes"]  # never "forever"


async def test_its_words_are_untrusted(tmp_path):
    agent = make(tmp_path, program("worker"), ["env"], labels=True)
    labels: list[Any] = []
    agent.activity.subscribe(lambda event: labels.extend(event.result.labels), ToolFinished)
    await agent.run("Go")
    assert ("untrusted", "agent theirs") in [tuple(one) for one in labels]


async def test_a_call_with_its_words_is_asked_about_where_labels_are_on(tmp_path):
    asked: list[Any] = []

    async def ask(request: Any) -> Answer:
        asked.append(request)
        return Answer.ONCE if request.call.name == "task" else Answer.NO

    agent = make(tmp_path, program("worker"), ["run", "touch made.txt"], labels=True, approve=ask)
    await agent.run("Go")
    assert [one.call.name for one in asked] == ["bash"]  # though a rule allows it
    assert [one.origin for one in asked[0].traces] == ["agent theirs"]
    assert asked[0].personal
    assert not (tmp_path / "made.txt").exists()


async def test_it_does_not_get_our_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-ours")
    outside = program("worker", env={"THEIR_KEY": "x"})
    result = await make(tmp_path, outside, ["env"]).run("Go")
    assert "ANTHROPIC_API_KEY" not in result.text
    assert "THEIR_KEY" in result.text


async def test_in_its_sandbox_it_sees_no_files_but_those_it_asks_for(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    places = {Path(sys.prefix), Path(sys.base_prefix), PROGRAM.parent}
    roots = [Root(place) for place in places]
    outside = program("worker", sandbox="required", roots=roots)
    result = await make(tmp_path, outside, ["list"], ["read", "a.txt"]).run("Go")
    assert "read: one" in result.text, result.text
    listed = next(line for line in result.text.splitlines() if line.startswith("list: "))
    assert "a.txt" not in listed
    outside = program("worker", sandbox="required", roots=roots, workspace="read")
    assert "list: " in (text := (await make(tmp_path, outside, ["list"]).run("Go")).text)
    assert "a.txt" in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("silent", "in time"), ("exits", "no key is set"), ("flood", "without a line break"), ("missing", "ended")],
)
async def test_a_program_that_does_not_work_is_an_error_of_the_call(tmp_path, kind, words, monkeypatch):
    monkeypatch.setattr(acp_agent, "GREETING", 30.0 if kind != "silent" else 0.5)
    result = await make(tmp_path, program(kind)).run("Go")
    assert words in result.text, result.text


async def test_lines_that_are_no_messages_are_left_out(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    result = await make(tmp_path, program("noise"), ["read", "a.txt"]).run("Go")
    assert "read: one" in result.text, result.text


async def test_calls_and_seconds_are_limited(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    lines = [["read", "a.txt"]] * 5
    result = await make(tmp_path, program("worker"), *lines, limits=Limits(calls=2, seconds=60)).run("Go")
    assert result.text.count("read: one") == 2
    result = await make(tmp_path, program("worker"), ["wait"], limits=Limits(seconds=3)).run("Go")
    assert "in time" in result.text


async def test_cancelling_the_run_ends_its_program(tmp_path):
    agent = make(tmp_path, program("worker"), ["run", "touch begun.txt"], ["wait"])
    begun = asyncio.Event()
    agent.activity.subscribe(lambda event: begun.set() if event.call.name == "bash" else None, ToolFinished)
    run = agent.start("Go")
    listening = asyncio.create_task(_hear(run, begun))
    async with asyncio.timeout(60):
        await begun.wait()
        result = await run.cancel()
    await listening
    assert result.reason == "cancelled"


async def _hear(run: Any, begun: asyncio.Event) -> None:
    async for event in run.events():
        if isinstance(event, ToolFinished) and event.call.name == "bash":
            begun.set()


async def test_a_task_of_it_cannot_be_continued(tmp_path):
    agent = make(tmp_path, program("worker"))
    arguments = {"description": "x", "prompt": "y", "agent_type": "theirs", "task_id": "task-1"}
    result = await agent.call("task", arguments)
    assert not result.success


CONFIG = """
agents:
  theirs:
    acp: {command: their-agent, args: [--acp], env: {THEIR_KEY: "${DOCS_TOKEN}"}, network: true}
    tools: [file_read, file_write]
"""


def test_a_project_configures_it_and_trust_shows_its_program(tmp_path, monkeypatch):
    from forge.project.assemble.agents import agent_types
    from forge.project.assemble.secrets import project_secrets
    from forge.project.config import load_configuration
    from forge.project.trust_summary import trust_summary

    monkeypatch.setenv("DOCS_TOKEN", "a-value-that-is-secret")
    (tmp_path / "forge.yaml").write_text(CONFIG)
    configuration = load_configuration(str(tmp_path / "forge.yaml"))
    made = agent_types(configuration)["theirs"]
    assert isinstance(made.outside, AcpAgent)
    assert (made.outside.command, list(made.outside.args)) == ("their-agent", ["--acp"])
    assert (made.outside.sandbox, made.outside.workspace) == ("required", "none")
    assert made.tools == ("file_read", "file_write")
    assert "a-value-that-is-secret" not in project_secrets(configuration).mask("a-value-that-is-secret")
    told = [f"{one.kind}: {one.detail}" for one in trust_summary(CONFIG, "forge.yaml")]
    assert any("starts a program: sub-agent theirs: their-agent --acp (sets THEIR_KEY)" in one for one in told)
    assert any(one.startswith("network: sub-agent theirs") for one in told)


@pytest.mark.parametrize("more", ["model: scripted:x", "quarantine: true"])
def test_a_project_gives_it_no_model_and_no_quarantine(tmp_path, more):
    from forge.core.errors import ToolError
    from forge.project.config import load_configuration

    (tmp_path / "forge.yaml").write_text(f"agents: {{theirs: {{acp: {{command: x}}, {more}}}}}")
    with pytest.raises(ToolError, match="an agent of others"):
        load_configuration(str(tmp_path / "forge.yaml"))


def test_a_type_has_an_own_model_or_is_of_others():
    with pytest.raises(DefinitionError):
        AgentType(outside=program("worker"), model=Scripted("x"))
    with pytest.raises(DefinitionError):
        AcpAgent("")
    assert AgentType(outside=program("worker")).outside is not None


async def test_forge_itself_works_for_another_agent(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    (tmp_path / "theirs").mkdir()
    script = [{"call": "task_completion", "arguments": {"result": "Reviewed."}}]
    (tmp_path / "theirs" / "model.json").write_text(json.dumps(script))
    model = f"scripted:{tmp_path / 'theirs' / 'model.json'}"
    outside = AcpAgent(sys.executable, ["-m", "forge", "acp", "--model", model], sandbox="off")
    result = await make(tmp_path / "work", outside).run("Go")
    assert "Reviewed." in result.text, result.text


async def test_it_may_use_the_tools_of_a_group(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    lines = (["read", "a.txt"], ["write", "b.txt", "x"], ["run", "touch c.txt"])
    result = await make(tmp_path, program("worker"), *lines, tools=("read", "write")).run("Go")
    assert "read: one" in result.text
    assert (tmp_path / "b.txt").exists()
    assert not (tmp_path / "c.txt").exists()


async def test_it_gets_nothing_that_is_private(tmp_path):
    from forge.permissions.labels.settings import LabelSettings

    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "private.txt").write_text("hidden words")
    labels = LabelSettings(private=["path:private.txt"])
    agent = make(tmp_path, program("worker"), ["read", "private.txt"], ["read", "a.txt"], labels=labels)
    result = await agent.run("Go")
    assert "hidden words" not in result.text
    assert "read: one" in result.text
