"""A configuration and wishes make an executor whose calls pass the gate."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from forge.agent.agent import Agent
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.permissions.gate import approve_all
from forge.permissions.rules import PolicyError
from forge.project.project import Project, RunOptions

WRITES = "tools: [{name: uuid_generate, config: {permissions: [write]}}]\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    (tmp_path / "forge.yaml").write_text(WRITES)
    return str(tmp_path / "forge.yaml")


def call(made: Agent, name: str = "uuid_generate", **arguments: Any) -> ToolResult:
    return asyncio.run(made.executor.execute(ToolCall(name, json.dumps(arguments)), made.scope))


def test_calls_pass_the_gate(config):
    assert call(Project(RunOptions(config=config)).agent(with_model=False)).failure is not None
    assert call(Project(RunOptions(config=config)).agent(with_model=False, approve=approve_all)).success


def test_rules_of_the_project_and_of_the_call_decide(config, tmp_path):
    (tmp_path / "p.rules").write_text("allow write\n")
    assert call(Project(RunOptions(config=config, policy=str(tmp_path / "p.rules"))).agent(with_model=False)).success
    (tmp_path / "forge.yaml").write_text(WRITES + "permissions: {rules: [deny write]}\n")
    refused = call(
        Project(RunOptions(config=config, policy=str(tmp_path / "p.rules"))).agent(
            with_model=False, approve=approve_all
        )
    )
    assert refused.failure is not None
    assert "forge.yaml, line 2" in refused.failure.message


def test_a_dry_run_asks_nobody_and_does_nothing(config):
    async def unasked(request: object) -> Any:
        raise AssertionError

    result = call(Project(RunOptions(config=config, dry_run=True)).agent(with_model=False, approve=unasked))
    assert result.data["dry_run"] is True


def test_a_recording_holds_what_the_model_would_see(config, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "correct horse battery")
    record = str(tmp_path / "calls.ndjson")
    call(Project(RunOptions(record=record)).agent(with_model=False), "converse", message="it is correct horse battery")
    assert "it is [secret]" in Path(record).read_text()


def test_a_replayed_call_needs_no_permission_and_runs_nothing(config, tmp_path):
    record = str(tmp_path / "calls.ndjson")
    first = call(Project(RunOptions(config=config, record=record)).agent(with_model=False, approve=approve_all))
    assert call(Project(RunOptions(config=config, replay=record)).agent(with_model=False)).for_llm == first.for_llm


def test_what_cannot_be_used_is_refused_before_anything_runs(config, tmp_path):
    (tmp_path / "p.rules").write_text("alow read\n")
    (tmp_path / "bad.ndjson").write_text("{}\n")
    for wishes, error in (
        (RunOptions(policy=str(tmp_path / "p.rules")), PolicyError),
        (RunOptions(replay=str(tmp_path / "bad.ndjson")), ToolError),
        (RunOptions(replay=str(tmp_path / "none.ndjson")), ToolError),
        (RunOptions(record=str(tmp_path / "no" / "file")), ToolError),
        (RunOptions(workspace=str(tmp_path / "no")), ToolError),
    ):
        with pytest.raises(error):
            Project(wishes).agent(with_model=False)


def test_the_scope_is_the_session_and_the_workspace(config, tmp_path):
    made = Project(RunOptions(session="s")).agent(with_model=False)
    assert (made.scope.session_id, made.scope.workspace) == ("s", tmp_path)
