"""`forge tool list`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import environment

HEAVY = ("asyncio", "pydantic", "pydantic_core", "jsonschema_rs", "rich", "yaml", "docstring_parser")


def test_programs_get_every_tool_sorted_by_name(here):
    tools = here("tool", "list", "--json").json["tools"]
    names = [tool["name"] for tool in tools]
    assert names == sorted(names)
    assert {"ask_question", "csv_parse", "math_calculate"} <= set(names)
    for tool in tools:
        assert set(tool) == {"name", "category", "description", "permissions", "aliases", "origin"}
        assert tool["description"]


def test_people_get_an_aligned_table(here):
    lines = here("tool", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "ORIGIN", "NEEDS", "DESCRIPTION"]
    column = lines[0].index("ORIGIN")
    assert all(line[column:].startswith(("builtin", "adapter")) for line in lines[1:])


@pytest.mark.parametrize(
    ("flags", "there", "absent"),
    [
        (["--permission", "read"], "csv_parse", "math_calculate"),
        (["--permission", "none"], "math_calculate", "csv_parse"),
        (["--category", "builtin"], "csv_parse", "webhook_call"),
        (["--category", "adapter"], "webhook_call", "csv_parse"),
        (["--dev"], "debug_console", None),
        ([], "bash", "debug_console"),
    ],
)
def test_the_list_can_be_narrowed(here, flags, there, absent):
    names = [tool["name"] for tool in here("tool", "list", "--json", *flags).json["tools"]]
    assert there in names
    assert absent not in names


def test_nothing_that_matches_is_no_error(here):
    ended = here("tool", "list", "--category", "dev")
    assert (ended.code, ended.out) == (0, "No tool matches.\n")


def test_an_unknown_category_is_a_usage_error(here):
    ended = here("tool", "list", "--category", "bultin")
    assert ended.code == 2
    assert "builtin" in ended.err


def test_a_configuration_chooses_the_tools(here, workspace):
    (workspace / "mine.yaml").write_text("tools: [{name: 'math_*'}]\n")
    names = [tool["name"] for tool in here("tool", "list", "--json", "--config", "mine.yaml").json["tools"]]
    assert names == ["ask_question", "converse", "math_calculate", "task_completion"]


def test_a_configuration_that_nobody_named_is_not_loaded(here, workspace):
    (workspace / "forge.yaml").write_text("tools: []\n")
    assert "math_calculate" in here("tool", "list").out


def test_listing_loads_nothing_heavy(workspace):
    code = f"""
import sys
from forge.cli import perform as run
assert run(["tool", "list", "--json"]) == 0
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
