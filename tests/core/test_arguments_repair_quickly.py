"""The quick way for common mistakes repairs as the general way does."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from pydantic import BeforeValidator

from forge.core.arguments.repair_typed import SecondReading
from forge.core.errors import ToolError
from forge.core.tool import Tool, tool


def plain(count: int, name: str, deep: bool = False, size: int = 1) -> str:
    """Take."""
    return "taken"


def mixed(count: int, name: str, most: int | None = None, ratio: float = 0.5, tags: list[str] | None = None) -> str:
    """Take."""
    return "taken"


def checked(count: Annotated[int, BeforeValidator(lambda value: 7 if value == "seven" else value)], name: str) -> str:
    """Take."""
    return "taken"


def _read_hex(value: object) -> object:
    return int(value, 16) if isinstance(value, str) and value.isdecimal() and value.isascii() else value


def in_hex(mask: Annotated[int, BeforeValidator(_read_hex)], name: str) -> str:
    """Take."""
    return "taken"


def none() -> str:
    """Take."""
    return "taken"


ALIASES = {"number": "count", "title": "name", "action": "size", "Size": "deep"}  # Size also spells another parameter
TOOLS: dict[str, Tool] = {one.__name__: tool(one) for one in (plain, mixed, checked, in_hex, none)}
TOOLS["aliased"] = tool(argument_aliases=ALIASES)(plain)
TOOLS["values"] = tool(repairs={"values"})(plain)
NAMES = (
    "count Count COUNT name Name deep Deep size Size SIZE number Number title action most ratio tags other mask".split()
)
NAMES += ["input", "arguments"]
VALUES = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False)
VALUES |= some.sampled_from(
    [
        "5",
        " 5 ",
        "+3",
        "3.0",
        "1.5",
        "two",
        "two 2",
        "true",
        "seven",
        "",
        "٣",
        "1e999",
        ["a"],
        {},
        {"count": 1, "name": "x"},
        {"title": "x", "Count": 1},
    ]
)
CALLS = some.dictionaries(some.sampled_from(NAMES), VALUES, max_size=5)


def read(one: Tool, sent: dict[str, Any]) -> Any:
    try:
        values = one.parse(json.dumps(sent))
    except ToolError as error:
        return error.message, error.kind, error.suggestion
    return dict(values), sorted(getattr(values, "repaired", []))


@pytest.mark.parametrize("name", TOOLS)
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sent=CALLS)
@example(sent={"mask": "10", "Name": "x"})
@example(sent={"action": "plain", "arguments": {"count": 1, "name": "x"}})
def test_the_quick_way_repairs_as_the_general_way_does(name, sent):
    quickly = read(TOOLS[name], sent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecondReading, "_repair_quickly", lambda self, sent: None)
        assert read(TOOLS[name], sent) == quickly
