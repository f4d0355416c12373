"""`local_shell`, and that no development tool is there without `--dev`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forge.cli import perform as run_command
from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.spec import Category
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.project.project import Project, RunOptions
from forge.tools.local_shell import LocalShell
from tests.patience import longer

DEV = ["debug_console", "local_file_browser", "local_shell", "test_runner"]


@pytest.fixture
def shell(tmp_path):
    def call(command: str, *policy: str, **arguments: Any) -> ToolResult:
        executor = standard_executor([LocalShell()], policy=rules(*(policy or ("allow execute",))))
        given = {"command": command, **arguments}
        return asyncio.run(executor.execute(ToolCall("local_shell", given), Scope(workspace=tmp_path)))

    return call


def test_output_and_exit_code_come_back_as_from_bash(shell, tmp_path):
    result = shell("echo out; pwd; exit 3")
    assert result.success
    assert result.for_llm == f"out\n{tmp_path}\n[exit code 3]"
    assert result.data["exit_code"] == 3
    assert result.data["sandbox"]


def test_it_has_half_a_minute_unless_the_call_or_the_project_says_otherwise():
    assert LocalShell().parse({"command": "ls"})["timeout"] == 30
    assert LocalShell().parse({"cmd": "ls", "timeout": 5})["timeout"] == 5
    configured = LocalShell()
    configured.spec = configured.spec.changed(timeout=7.0)
    assert configured.parse({"command": "ls"})["timeout"] == 7


def test_time_that_runs_out_is_told_with_the_output_until_then(shell):
    for seconds in longer(0.5):
        result = shell("echo begun; sleep 60", timeout=seconds)
        if "begun" in result.for_llm:
            break
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert "begun" in result.for_llm
    assert "background" not in result.for_llm  # which it does not have
    assert "Give it more time, or do less at once." in result.for_llm


def test_what_destroys_is_refused_even_where_all_is_allowed(shell):
    result = shell("rm -rf /")
    assert result.failure is not None
    assert result.failure.kind == "security_error"
    assert shell('echo "rm -rf /"').success


def test_a_line_that_only_reads_needs_no_permission_to_execute_and_others_do(shell, tmp_path):
    (tmp_path / "a.txt").write_text("here")
    assert shell("cat a.txt", "allow read").for_llm == "here"
    refused = shell("touch b.txt", "allow read")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"
    assert not (tmp_path / "b.txt").exists()


def test_a_rule_against_executing_it_counts_for_reading_lines_too(shell):
    refused = shell("ls", "allow read", "deny execute ls *", "deny execute ls")
    assert refused.failure is not None
    assert refused.failure.kind == "permission_error"


@pytest.mark.parametrize("name", DEV)
def test_without_dev_a_development_tool_is_nowhere(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    made = Project(RunOptions(workspace=str(tmp_path))).agent(with_model=False)
    assert name not in made.registry
    assert name not in [one["function"]["name"] for one in made.registry.definitions()]
    result = asyncio.run(made.executor.execute(ToolCall(name, {}), made.scope))
    assert result.failure is not None
    assert result.failure.message == "no such tool"
    with_dev = Project(RunOptions(workspace=str(tmp_path), dev=True)).agent(with_model=False)
    assert with_dev.registry[name].spec.category is Category.DEV
    assert name in [one["function"]["name"] for one in with_dev.registry.definitions()]


def test_the_command_line_lists_and_calls_them_only_with_dev(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("here.txt").write_text("hello")

    def command(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run_command(arguments)
        return code, capfd.readouterr().out

    def listed(*flags: str) -> list[str]:
        return [tool["name"] for tool in json.loads(command("tool", "list", "--json", *flags)[1])["tools"]]

    assert not set(DEV) & set(listed())
    assert sorted(set(DEV) & set(listed("--dev"))) == DEV
    assert listed("--dev", "--category", "dev") == DEV
    browse = ("tool", "call", "local_file_browser", '{"path": "here.txt"}')
    assert command(*browse)[0] != 0
    code, out = command(*browse, "--dev")
    assert (code, "hello" in out) == (0, True)


def test_a_configuration_cannot_bring_one_back_without_dev(tmp_path):
    (tmp_path / "forge.yaml").write_text("tools: [{name: '*'}]\n")
    wishes: dict[str, Any] = {"workspace": str(tmp_path), "config": str(tmp_path / "forge.yaml")}
    assert not set(DEV) & set(Project(RunOptions(**wishes)).agent(with_model=False).registry)
    assert set(DEV) <= set(Project(RunOptions(**wishes, dev=True)).agent(with_model=False).registry)
