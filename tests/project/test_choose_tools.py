"""A configuration chooses tools and gives them settings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from forge.core.context import Scope
from forge.core.errors import ToolError
from forge.core.executor import ToolExecutor
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.core.spec import Category, Permission, Rate
from forge.project.assemble.choose_tools import choose_tools
from forge.project.config import Configuration, load_configuration
from forge.tools import built_ins
from forge.tools.conversation import CONVERSATION


@pytest.fixture
def chosen(tmp_path: Path) -> Any:
    def choose(*entries: Any, dev: bool = False) -> ToolRegistry:
        path = tmp_path / "forge.yaml"
        path.write_text(yaml.safe_dump({"tools": list(entries)}))
        return choose_tools(load_configuration(str(path)), dev=dev)

    return choose


def call(registry: ToolRegistry, name: str, **arguments: Any) -> ToolResult:
    return asyncio.run(ToolExecutor(registry, []).execute(ToolCall(name, json.dumps(arguments)), Scope()))


def test_without_configuration_every_built_in_is_there_but_the_one_of_code_mode():
    everything = [tool for tool in built_ins(ToolRegistry()) if "code-mode" not in tool.spec.groups]
    assert set(choose_tools(Configuration(), dev=True)) == {tool.spec.name for tool in everything}
    products = {tool.spec.name for tool in everything if tool.spec.category is not Category.DEV}
    assert set(choose_tools(Configuration())) == products


def test_a_list_means_exactly_these_and_the_conversation(chosen):
    assert set(chosen("math_calculate", {"name": "uuid_*"})) == {"math_calculate", "uuid_generate", *CONVERSATION}
    assert set(chosen()) == CONVERSATION


def test_development_tools_are_added_to_a_list_on_request(chosen):
    added = {tool.spec.name for tool in built_ins(ToolRegistry()) if tool.spec.category is Category.DEV}
    assert set(chosen("math_calculate", dev=True)) == {"math_calculate", *CONVERSATION, *added}
    configured = chosen({"name": "test_runner", "config": {"timeout": 5}}, dev=True)
    assert configured["test_runner"].spec.timeout == 5
    assert set(configured) == {*CONVERSATION, *added}


def test_bash_brings_the_tools_that_look_after_its_jobs(chosen):
    assert set(chosen({"name": "bash", "config": {"timeout": 5}})) == {
        *("bash", "bash_jobs", "bash_kill", "bash_output"),
        *CONVERSATION,
    }
    assert set(chosen("bash_jobs")) == {"bash_jobs", *CONVERSATION}


def test_an_unknown_name_is_refused_with_a_near_one(chosen):
    with pytest.raises(ToolError, match=r"tools\[1\].name: there is no tool 'math_calculat'") as caught:
        chosen("uuid_generate", "math_calculat")
    assert caught.value.suggestion == "Did you mean 'math_calculate'?"


def test_a_pattern_may_wait_for_tools_that_come_later(chosen):
    assert set(chosen({"name": "git__*"})) == CONVERSATION


def test_a_group_is_known_or_refused(chosen):
    assert set(chosen({"group": "read"})) >= CONVERSATION
    with pytest.raises(ToolError, match=r"tools\[0\].group: there is no group 'raed'") as caught:
        chosen({"group": "raed"})
    assert caught.value.suggestion == "Did you mean 'read'?"


def test_settings_that_every_tool_has_are_applied_to_a_copy(chosen):
    config = {"timeout": 2, "rate": {"calls": 1}, "confirm": True, "permissions": ["execute"]}
    registry = chosen({"name": "math_calculate", "config": config}, "uuid_generate")
    spec = registry["math_calculate"].spec
    assert (spec.timeout, spec.rate, spec.confirm) == (2, Rate(calls=1), True)
    assert spec.permissions == {Permission.EXECUTE}
    untouched = choose_tools(Configuration())["math_calculate"].spec
    assert (untouched.rate, untouched.permissions) == (None, frozenset())
    assert call(registry, "math_calculate", expression="1 + 1").for_llm == "2"


def test_the_later_of_two_entries_decides(chosen):
    registry = chosen({"name": "*", "config": {"timeout": 9}}, {"name": "math_*", "config": {"timeout": None}})
    assert registry["math_calculate"].spec.timeout is None
    assert registry["uuid_generate"].spec.timeout == 9


def test_a_tools_own_settings_go_to_its_constructor(chosen):
    registry = chosen({"name": "csv_parse", "config": {"max_bytes": 10}})
    assert getattr(registry["csv_parse"], "max_bytes", 0) == 10
    assert getattr(choose_tools(Configuration())["csv_parse"], "max_bytes", 0) > 10


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("csv_parse", {"max_byte": 10}, "csv_parse has no setting 'max_byte'"),
        ("csv_parse", {"max_bytes": "many"}, "expected int"),
        ("csv_parse", {"max_bytes": True}, "expected int"),
        ("math_calculate", {"timeot": 1}, "math_calculate has no setting 'timeot'"),
        ("tool_search", {"registry": 1}, "tool_search has no setting 'registry'"),
    ],
)
def test_a_setting_that_a_tool_does_not_have_is_refused(chosen, name, config, words):
    with pytest.raises(ToolError, match=words) as caught:
        chosen({"name": name, "config": config})
    assert f"tools[0].config.{next(iter(config))}" in caught.value.message


def test_a_near_setting_is_suggested(chosen):
    with pytest.raises(ToolError) as caught:
        chosen({"name": "csv_parse", "config": {"timeot": 1}})
    assert caught.value.suggestion == "Did you mean 'timeout'?"


def test_the_search_tool_searches_the_chosen_ones(chosen):
    registry = chosen("tool_search", "math_calculate")
    assert "math_calculate" in call(registry, "tool_search", query="arithmetic expression").for_llm
    assert "csv_parse" not in call(registry, "tool_search", query="CSV records").for_llm


def test_a_project_chooses_the_kinds_of_repair_for_all_tools_and_for_one(tmp_path):
    path = tmp_path / "forge.yaml"
    path.write_text(
        "repairs: [names]\ntools: [math_calculate, {name: uuid_generate, config: {repairs: [values, commas]}}]\n"
    )
    registry = choose_tools(load_configuration(str(path)))
    runs = ToolExecutor(registry, [])

    def send(name: str, text: str) -> ToolResult:
        return asyncio.run(runs.execute(ToolCall(name, text), Scope()))

    assert send("math_calculate", '{"Expression": "6 * 7"}').data["repaired"] == ["Expression → expression"]
    assert send("math_calculate", '{"expression": "6 * 7",}').is_error
    assert send("uuid_generate", '{"count": "2",}').success
    assert send("uuid_generate", '{"Count": 2}').is_error


def test_an_unknown_kind_of_repair_is_refused(tmp_path):
    path = tmp_path / "forge.yaml"
    path.write_text("repairs: [spelling]\n")
    with pytest.raises(ToolError, match="fence, prose, quotes"):
        load_configuration(str(path))


def test_calls_at_once_are_limited_for_any_tool(chosen: Any) -> None:
    config = {"max_concurrency": 2, "concurrency_key": "expression"}
    registry = chosen({"name": "math_calculate", "config": config}, "uuid_generate")
    spec = registry["math_calculate"].spec
    assert (spec.max_concurrency, spec.concurrency_key) == (2, "expression")
    assert registry["uuid_generate"].spec.max_concurrency == 0
    assert call(registry, "math_calculate", expression="1 + 1").for_llm == "2"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"max_concurrency": 1, "concurrency_key": "expresion"}, "no parameter 'expresion'"),
        ({"concurrency_key": "expression"}, "counts nothing without max_concurrency"),
        ({"max_concurrency": -1}, "max_concurrency"),
        ({"max_concurrency": "many"}, "max_concurrency"),
    ],
)
def test_a_limit_that_counts_nothing_is_told(chosen: Any, config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError) as error:
        chosen({"name": "math_calculate", "config": config})
    assert problem in error.value.message
    assert "forge.yaml" in error.value.message
