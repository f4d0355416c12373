"""Definitions as model APIs take them."""

from __future__ import annotations

import re
import sys
from importlib import import_module

import pytest

from forge import ToolRegistry
from forge.core.extras import install_command
from forge.frameworks.definitions import to_anthropic, to_gemini, to_openai
from forge.pipeline import standard_executor
from tests.frameworks.tools_for_export import all_tools


def test_each_api_gets_its_own_spelling():
    registry = ToolRegistry(all_tools())
    openai, anthropic, gemini = to_openai(registry)[0], to_anthropic(registry)[0], to_gemini(registry)[0]
    assert openai["type"] == "function"
    assert openai["function"]["name"] == anthropic["name"] == gemini["name"] == "add"
    assert openai["function"]["parameters"] == anthropic["input_schema"]
    assert gemini["parameters"]["properties"]["a"] == {"type": "integer"}


def test_strict_definitions_where_they_fit():
    strict = {one["function"]["name"]: one["function"].get("strict") for one in to_openai(all_tools(), strict=True)}
    assert strict["add"] is True
    assert strict["describe"] is None


def test_an_executor_and_a_list_will_do():
    assert to_openai(standard_executor(all_tools())) == to_openai(all_tools()) == to_openai(ToolRegistry(all_tools()))


def test_hidden_tools_are_shown_to_the_session_that_found_them():
    registry = ToolRegistry(all_tools())
    registry.reveal(["secret_door"], "ada")
    assert "secret_door" in [one["name"] for one in to_anthropic(registry, session_id="ada")]
    assert "secret_door" not in [one["name"] for one in to_anthropic(registry)]


def test_changing_a_definition_changes_nothing_here():
    registry = ToolRegistry(all_tools())
    to_anthropic(registry)[0]["input_schema"]["properties"].clear()
    assert to_anthropic(registry)[0]["input_schema"]["properties"]
    assert registry.definitions("anthropic")[0]["input_schema"]["properties"]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_an_export_whose_framework_is_missing_says_what_to_install(module, package, extra, monkeypatch):
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"forge.frameworks.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=re.escape(install_command(extra))):
        import_module(f"forge.frameworks.{module}")
