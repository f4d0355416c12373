"""Skills in a project: told of in the prompt, active where a person says so, and their guardrails around everything."""

from __future__ import annotations

from typing import Any

import pytest

from forge.agent.conversation import Conversation
from forge.core.errors import ToolError
from forge.core.events import TextDelta
from forge.core.messages import Message, ToolCall
from forge.core.registry import ToolRegistry
from forge.project.assemble.choose_tools import MADE_FOR_PROJECTS
from forge.project.assemble.knowledge import remember
from forge.project.project import Project, RunOptions
from forge.tools import built_ins
from tests.cli.scripts import call, script

RELEASE = """---
name: release
description: How a release is made.
metadata:
  forge:
    denied_tools: [web_fetch]
    egress_domains: [api.example.com]
    guardrails:
      deny_commands: [{pattern: "git push.*--force", message: "history is never rewritten"}]
---
Tag it, then push it.

## Tool: next_version
Say which version comes next.
**Input:**
- part ("major"|"minor"): Which part goes up.
"""


@pytest.fixture
def project(tmp_path):
    def made(text: str = "") -> RunOptions:
        folder = tmp_path / "skills" / "release"
        (folder / "scripts").mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(RELEASE)
        (folder / "scripts" / "next_version.py").write_text("print('2.0.0')\n")
        (tmp_path / "forge.yaml").write_text(text or "{}")
        return RunOptions(workspace=str(tmp_path), config=str(tmp_path / "forge.yaml"))

    return made


def test_a_skill_that_nobody_named_brings_no_tool_and_one_that_is_active_does(project):
    assert "next_version" not in Project(project()).agent(with_model=False).registry
    made = Project(project("skills: {active: [release, code-agent]}\ntools: [datetime_now]")).agent(with_model=False)
    assert "next_version" in made.registry
    assert "file_edit" in made.registry  # the group of code-agent
    assert "web_search" not in made.registry


def test_a_name_that_no_skill_has_is_a_mistake(project):
    with pytest.raises(ToolError, match="there is no skill 'relese'"):
        Project(project("skills: {active: [relese]}")).agent(with_model=False)


async def test_what_a_skill_denies_is_denied_once_it_was_read(project):
    made = Project(project('permissions: {rules: ["allow *"]}')).agent(with_model=False)
    push = ToolCall("bash", {"command": "git push  --force"})
    before = await made.executor.execute(push, made.scope)
    assert "skill guardrail" not in before.for_llm
    read = await made.executor.execute(ToolCall("read_skill", {"name": "release"}), made.scope)
    assert "Tag it" in read.for_llm
    after = await made.executor.execute(push, made.scope)
    assert "history is never rewritten" in after.for_llm
    fetched = await made.executor.execute(ToolCall("web_fetch", {"url": "http://127.0.0.1:9/"}), made.scope)
    assert "release" in fetched.for_llm
    fine = await made.executor.execute(ToolCall("bash", {"command": "echo fine"}), made.scope)
    assert fine.success, fine.for_llm


async def test_the_prompt_tells_of_skills_by_a_line_each(project, tmp_path):
    wishes = project()
    agent = Project(wishes).agent(script(tmp_path, "Hello."))
    conversation = Conversation([])
    await agent.run("Hi", history=conversation)
    told = conversation.messages[0].text
    assert "- release: How a release is made." in told or "release" in told
    assert "Tag it" not in told


async def test_a_denied_prompt_never_reaches_the_model(project, tmp_path):
    wishes = project("guardrails: {deny_prompts: [{pattern: '(?i)launch codes', message: 'no launch codes'}]}")
    agent = Project(wishes).agent(script(tmp_path, "Hello."))
    conversation = Conversation([])
    with pytest.raises(ToolError, match="no launch codes"):
        await agent.run("What are the LAUNCH  codes?", history=conversation)
    assert conversation.messages == []
    assert (await agent.run("What time is it?", history=conversation)).text == "Hello."


async def test_a_denied_answer_is_seen_by_nobody_not_even_while_it_streams(project, tmp_path):
    wishes = project("guardrails: {deny_responses: [{pattern: 'tulip'}]}")
    agent = Project(wishes).agent(script(tmp_path, "The word is tulip.", "The word is rose."))
    seen: list[str] = []
    agent.activity.subscribe(lambda event: seen.append(event.text), TextDelta)
    conversation = Conversation([])
    blocked = await agent.run("The word?", history=conversation)
    assert blocked.text == "[BLOCKED BY POLICY]"
    assert "tulip" not in "".join(seen)
    assert not any("tulip" in message.text for message in conversation.messages)
    assert (await agent.run("Another?", history=conversation)).text == "The word is rose."


async def test_an_answer_by_a_tool_is_looked_at_too(project, tmp_path):
    wishes = project("guardrails: {deny_responses: [{pattern: 'tulip'}]}")
    agent = Project(wishes).agent(script(tmp_path, call("task_completion", result="It is tulip.")))
    assert (await agent.run("The word?")).text == "[BLOCKED BY POLICY]"


def test_a_bad_pattern_is_an_error_at_the_start(project):
    with pytest.raises(ToolError) as caught:
        Project(project("guardrails: {deny_commands: [{pattern: '('}]}")).agent(with_model=False)
    assert "guardrails" in caught.value.message
    assert "forge.yaml" in caught.value.message


async def test_what_a_skill_denies_cli_execute_does_not_run_either(project):
    made = Project(
        project(
            "permissions: {rules: ['allow *']}\nskills: {active: [release]}\n"
            "tools: [{name: cli_execute, config: {allowed_binaries: [git]}}]"
        )
    ).agent(with_model=False)
    denied = ToolCall("cli_execute", {"binary": "git", "args": ["push", "origin", "--force"]})
    assert "skill guardrail: history is never rewritten" in (await made.executor.execute(denied, made.scope)).for_llm
    fine = ToolCall("cli_execute", {"binary": "git", "args": ["--version"]})
    assert (await made.executor.execute(fine, made.scope)).success


def test_no_script_may_pass_for_a_tool_that_is_made_for_projects(project):
    made = Project(project("memory: {enabled: true}\nwebhooks: {notify: 'https://example.com/'}")).agent(
        with_model=False
    )
    plain = {tool.spec.name for tool in built_ins(ToolRegistry())}
    assert set(made.registry) - plain - {"notify"} <= MADE_FOR_PROJECTS


def test_a_schedule_is_not_set_for_a_skill_that_is_not_there(project):
    made = Project(project()).agent(with_model=False)
    tool: Any = made.registry["schedule_set"]
    for name, there in (("relase", False), ("release", True)):
        if there:
            tool._check_names("", name)
        else:
            with pytest.raises(ToolError, match="there is no skill") as caught:
                tool._check_names("", name)
            assert "release" in caught.value.suggestion


async def test_what_may_not_be_answered_is_not_remembered_either(project, tmp_path):
    wishes = project("guardrails: {deny_responses: [{pattern: swordfish, message: never say it}]}\n")
    messages = [Message("user", "What is the word?"), Message("assistant", "I do not say.")]
    with pytest.raises(ToolError, match="never say it"):
        await remember(wishes, "s", messages, script(tmp_path, "The word is swordfish."))
    assert list(tmp_path.glob(".forge/memory/*.md")) == []
    written = await remember(wishes, "s", messages, script(tmp_path, "They asked for a word."))
    assert written is not None
