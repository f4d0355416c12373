"""The defaults that a model is told are the configured ones, and calls get them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import forge.tools
from forge.core.context import Scope
from forge.core.messages import ToolCall
from forge.core.registry import ToolRegistry
from forge.core.tool import Tool
from forge.pipeline import standard_executor
from forge.project.assemble import choose_tools as choose
from forge.tools.bash import Bash
from forge.tools.cli_execute import CliExecute
from forge.tools.directory_list import DirectoryList
from forge.tools.directory_tree import DirectoryTree
from forge.tools.file_read import FileRead
from forge.tools.glob_search import GlobSearch
from forge.tools.grep_search import GrepSearch
from forge.tools.local_shell import LocalShell
from forge.tools.test_runner import TestRunner

CONFIGURED: dict[str, tuple[Tool, dict[str, Any], str, Any]] = {
    "bash": (Bash(timeout=300), {"command": "ls"}, "timeout", 300),
    "bash as it is": (Bash(), {"command": "ls"}, "timeout", 120),
    "bash with a low limit": (Bash(max_timeout=60), {"command": "ls"}, "timeout", 60),
    "bash with both": (Bash(timeout=5, max_timeout=60), {"command": "ls"}, "timeout", 5),
    "grep_search": (GrepSearch(max_results=10), {"pattern": "a"}, "max_results", 10),
    "glob_search": (GlobSearch(max_results=11), {"pattern": "*"}, "max_results", 11),
    "directory_list": (DirectoryList(max_entries=12), {}, "max_entries", 12),
    "directory_tree": (DirectoryTree(max_depth=2), {}, "max_depth", 2),
    "directory_tree's entries": (DirectoryTree(max_entries=13), {}, "max_entries", 13),
    "file_read": (FileRead(max_lines=14), {"path": "a"}, "limit", 14),
}


@pytest.mark.parametrize(("made", "arguments", "parameter", "value"), CONFIGURED.values(), ids=CONFIGURED)
def test_what_is_told_is_what_a_call_gets(made, arguments, parameter, value):
    assert made.spec.parameters["properties"][parameter]["default"] == value
    assert made.parse(arguments)[parameter] == value
    assert made.parse({**arguments, parameter: 7})[parameter] == 7


@pytest.mark.parametrize("made", [Bash, LocalShell, TestRunner])
def test_a_time_out_that_a_project_sets_is_told(made):
    own = choose.change_traits(made(), {"timeout": 45.0})
    assert own.spec.parameters["properties"]["timeout"]["default"] == 45
    assert own.parse({"command": "ls"} if made is not TestRunner else {})["timeout"] == 45
    assert made().spec.parameters["properties"]["timeout"]["default"] != 45


def test_the_standard_can_be_asked_for_where_another_default_is_set():
    standard = type(CONFIGURED["grep_search"][0]).spec.parameters["properties"]["max_results"]["default"]
    assert GrepSearch(max_results=10).parse({"pattern": "a", "max_results": standard})["max_results"] == standard


async def test_a_limit_is_told_and_kept(tmp_path: Path):
    made = Bash(timeout=5, max_timeout=60)
    assert made.spec.parameters["properties"]["timeout"]["maximum"] == 60
    executor = standard_executor(ToolRegistry([made]))
    refused = await executor.execute(ToolCall("bash", {"command": "ls", "timeout": 120}), Scope(workspace=tmp_path))
    assert "the limit is 60 s" in refused.for_llm
    assert made.parse({"command": "ls", "timeout": 60})["timeout"] == 60


def tools_with_settings() -> list[tuple[type[Tool], str]]:
    """Every built-in whose constructor and whose calls have a number of the same name."""
    found = []
    for module in pkgutil.iter_modules(forge.tools.__path__, "forge.tools."):
        for made in vars(importlib.import_module(module.name)).values():
            if isinstance(made, type) and made.__module__ == module.name and issubclass(made, Tool):
                settings, parameters = (inspect.signature(one).parameters for one in (made, made.run))
                numbers = {name for name, one in settings.items() if isinstance(one.default, int | float | None)}
                shown = made.spec.parameters["properties"] if made is not CliExecute else ()  # it hides its time-out
                found += [(made, name) for name in sorted(numbers) if name in parameters and name in shown]
    return found


@pytest.mark.parametrize(("made", "name"), tools_with_settings(), ids=str)
def test_a_setting_named_like_a_parameter_is_its_default(made, name):
    assert made(**{name: 3}).spec.parameters["properties"][name]["default"] == 3
