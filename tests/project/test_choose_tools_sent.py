"""A project that lists no tools sends few definitions; the others are found by search, and what it lists is sent."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from forge import Scripted, ToolCall, load_project, text_calls
from forge.agent.tokens import estimate
from forge.core.arguments.tool_formats import DIALECTS
from forge.memory import embedders
from forge.project.assemble.choose_tools import CORE

MOST_TOKENS = 1_000


def sent_by(project: Path, *turns: str | ToolCall, config: str = "") -> tuple[list[list[str]], Scripted]:
    """The names of the tools in each request of a run."""
    model = Scripted(*turns)
    if config:
        (project / "other.yaml").write_text(config)
    loaded = load_project(project, config=project / "other.yaml" if config else None)
    loaded.agent(model).run_sync("hello")
    return [[spec.name for spec in request.tools] for request in model.requests], model


@pytest.mark.parametrize("dialect", ["openai", "openai-strict", "anthropic"])
def test_a_project_without_settings_sends_at_most_a_thousand_tokens_of_definitions(tmp_path, dialect):
    _, model = sent_by(tmp_path, "Hi.")
    definitions = model.requests[0].definitions(dialect)
    assert estimate(json.dumps(definitions, separators=(",", ":"))) <= MOST_TOKENS
    assert {"file_read", "file_edit", "bash", "ask_question", "tool_search"} <= {
        s.name for s in model.requests[0].tools
    }


def test_all_other_built_ins_are_registered_can_be_called_and_are_found(tmp_path):
    turns: list[str | ToolCall] = [
        ToolCall("math_calculate", {"expression": "6 * 7"}),
        ToolCall("tool_search", {"query": "search file contents with a regular expression"}),
        ToolCall("tool_search", {"query": "fetch a web page"}),
        "done",
    ]
    requests, model = sent_by(tmp_path, *turns)
    assert set(requests[0]) == CORE
    assert "42" in [message.text for message in model.requests[1].messages if message.role == "tool"]
    assert "grep_search" in requests[2]
    for before, after in pairwise(requests):
        assert after[: len(before)] == before, "what was sent before keeps its place"


def test_what_a_project_lists_is_sent(tmp_path):
    requests, _ = sent_by(tmp_path, "Hi.", config="tools: [math_calculate, grep_search]\n")
    assert {"math_calculate", "grep_search", "task_completion"} <= set(requests[0])
    assert "bash" not in requests[0]


def test_the_tools_of_a_section_that_is_turned_on_are_sent(tmp_path):
    requests, _ = sent_by(
        tmp_path, "Hi.", config="memory: {enabled: true}\nagents: {reader: {tools: [{group: read}]}}\n"
    )
    assert {"memory_search", "memory_write", "task"} <= set(requests[0])
    assert "web_fetch" not in requests[0]


def test_a_model_that_ends_by_a_call_is_sent_that_tool(tmp_path):
    project = load_project(tmp_path)
    ends = project.agent(text_calls(Scripted("x"))).registry
    assert "task_completion" in [spec.name for spec in ends.specs()]
    assert "task_completion" not in [spec.name for spec in project.agent(Scripted("x")).registry.specs()]


def test_without_a_model_every_tool_is_shown(tmp_path):
    shown = [spec.name for spec in load_project(tmp_path).agent(with_model=False).registry.specs()]
    assert {"math_calculate", "grep_search", "file_read"} <= set(shown)


def test_the_local_embedder_ranks_tools_where_it_is_installed_and_is_not_needed(tmp_path, monkeypatch, caplog):
    packages, turns = tmp_path / "packages", (ToolCall("tool_search", {"query": "fetch a web page"}), "done")
    (packages / embedders.MINILM_PACKAGE).mkdir(parents=True)
    (packages / embedders.MINILM_PACKAGE / "__init__.py").touch()
    monkeypatch.syspath_prepend(packages)
    assert embedders.is_minilm_installed()
    requests, _ = sent_by(tmp_path, *turns)
    assert "web_fetch" in requests[1]
    assert "words alone" in caplog.text, "the package has no weights, which the search reports"
    caplog.clear()
    requests, _ = sent_by(tmp_path, *turns, config="agent: {tool_search: words}\n")
    assert "web_fetch" in requests[1]
    assert caplog.text == ""


def test_found_definitions_are_appended_to_what_was_sent(tmp_path):
    """Providers cache a request's beginning, byte by byte."""
    _, model = sent_by(
        tmp_path, *(ToolCall("tool_search", {"query": one}) for one in ("glob", "todo list", "undo")), "x"
    )
    sent = [json.dumps([DIALECTS["anthropic"](spec) for spec in request.tools]) for request in model.requests]
    assert sent[0] != sent[-1]
    for before, after in pairwise(sent):
        assert after.startswith(before.removesuffix("]"))
