"""The model that runs the person's message as a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from forge import Agent, Scope, rules
from forge.models.vendors import provider_for
from forge.tools.bash import Bash


def agent(workspace: Path, *lines: str, tools: bool = True) -> Agent:
    return Agent(
        provider_for("command:bash"),
        tools=[Bash()] if tools else [],
        policy=rules(*lines),
        scope=Scope(workspace=workspace),
    )


async def test_the_command_runs_and_its_output_is_the_answer(tmp_path):
    result = await agent(tmp_path, "allow execute").run("echo one; echo two > file")
    assert (result.text.strip(), result.reason, result.turns) == ("one", "answer", 2)
    assert (tmp_path / "file").read_text() == "two\n"


@pytest.mark.parametrize(
    ("lines", "command", "said"),
    [
        (["allow execute"], "exit 3", "exit code 3"),
        (["deny execute touch *"], "touch file", "denied"),
        ([], "touch file", "need a person's approval"),
    ],
)
async def test_a_command_that_fails_or_is_not_allowed_is_an_error_of_the_run(tmp_path, lines, command, said):
    result = await agent(tmp_path, *lines).run(command)
    assert result.reason == "error"
    assert result.error is not None
    assert "the command failed" in result.error.message
    assert said in result.error.message
    assert not (tmp_path / "file").exists()


async def test_without_the_tool_the_run_says_how_to_add_it(tmp_path):
    result = await agent(tmp_path, tools=False).run("ls")
    assert result.error is not None
    assert "the agent has no tool bash" in result.error.message
    assert "tools of forge.yaml" in result.error.suggestion
