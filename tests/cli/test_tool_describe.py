"""`forge tool describe`."""

from __future__ import annotations

import json
import shlex

import pytest

from forge.cli.commands.tool.describe import _page
from forge.core.registry import ToolRegistry
from forge.core.spec import Category
from forge.core.tool import tool
from forge.tools import built_ins

BUILT_INS = {tool.spec.name: tool for tool in built_ins(ToolRegistry()) if tool.spec.category is not Category.DEV}


def test_programs_get_schema_and_example(here):
    described = here("tool", "describe", "csv_parse", "--json").json
    assert described["parameters"]["properties"]["path"]["type"] == "string"
    assert described["optional_permissions"] == ["read"]
    assert described["returns"] is None
    assert described["origin"] == "forge.tools.csv_parse"
    assert isinstance(described["example"], dict)
    assert described["tokens"] > 20


def test_the_page_shows_the_schema_of_the_data_where_there_is_one():
    @tool
    def ages() -> dict[str, int]:
        """Tell the ages."""
        return {}

    shown = _page(ages.spec).partition("returns:")[2]
    assert json.loads(shown) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert "returns:" not in _page(BUILT_INS["math_calculate"].spec)


@pytest.mark.parametrize("name", sorted(BUILT_INS))
def test_the_example_is_a_command_with_valid_arguments(here, workspace, name):
    (workspace / "forge.yaml").write_text(f"tools: [{{name: {name}}}]\n")  # some are there only where they are named
    assert here("trust", "--yes").code == 0
    page = here("tool", "describe", name).out
    line = next(line for line in page.splitlines() if line.startswith("example:"))
    program, *command = shlex.split(line.partition(":")[2])
    assert (program, *command[:3]) == ("forge", "tool", "call", name)
    BUILT_INS[name].parse(command[3])
    assert here(*command, "--no-audit").json["name"] == name


def test_people_get_everything_on_one_page(here):
    page = here("tool", "describe", "math_calculate").out
    assert page.startswith("math_calculate\n")
    for label in ("category:", "needs:", "aliases:", "origin:", "example:", "parameters:"):
        assert label in page
    assert json.loads(page.partition("parameters:")[2])["required"] == ["expression"]


def test_a_near_name_is_suggested(here):
    ended = here("tool", "describe", "math_calculat")
    assert ended.code == 2
    assert "Did you mean 'math_calculate'?" in ended.err


def test_a_name_like_no_other_is_sent_to_the_list(here):
    ended = here("tool", "describe", "zzzzzzzz")
    assert ended.code == 2
    assert "forge tool list" in ended.err
