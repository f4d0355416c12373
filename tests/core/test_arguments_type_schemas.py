"""The schema of what a tool returns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
from pydantic import BaseModel

from forge.core.result import ToolResult
from forge.core.tool import Tool, tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Weather(BaseModel):
    place: str
    degrees: float = 0.0


class Sky(TypedDict):
    clouds: int


@dataclass
class Wind:
    speed: int


def as_model() -> Weather:
    """Say it."""
    return Weather(place="Oslo")


async def as_list() -> list[Sky]:
    """Say it."""
    return [Sky(clouds=1)]


def as_number() -> int:
    """Say it."""
    return 3


def as_text() -> str:
    """Say it."""
    return ""


def as_nothing() -> None:
    """Say it."""


def as_result() -> ToolResult:
    """Say it."""
    return ToolResult.text("")


def as_anything() -> Any:
    """Say it."""


def as_pieces() -> Iterator[str]:
    """Say it."""
    yield ""


async def as_late_pieces() -> AsyncIterator[str]:
    """Say it."""
    yield ""


def as_unknown_name() -> OnlyForCheckers:
    """Say it."""
    raise NotImplementedError


def as_unreadable_type() -> subprocess.Popen[bytes]:
    """Say it."""
    raise NotImplementedError


def as_silent():
    """Say it."""


def test_a_model_and_a_dictionary_are_objects_with_their_fields() -> None:
    schema = tool(as_model).spec.returns
    assert schema is not None
    assert schema["properties"] == {"place": {"type": "string"}, "degrees": {"default": 0.0, "type": "number"}}
    assert "place" in schema["required"]


def test_lists_and_numbers_have_their_own_schema() -> None:
    schema = tool(as_list).spec.returns
    assert schema is not None
    assert (schema["type"], schema["items"]) == ("array", {"$ref": "#/$defs/Sky"})
    assert tool(as_number).spec.returns == {"type": "integer"}


@pytest.mark.parametrize(
    "function",
    [
        as_text,
        as_nothing,
        as_result,
        as_anything,
        as_pieces,
        as_late_pieces,
        as_unknown_name,
        as_unreadable_type,
        as_silent,
    ],
)
def test_what_is_no_data_has_no_schema_and_makes_no_trouble(function: Any) -> None:
    made = tool(function)
    assert made.spec.returns is None
    assert made.spec.parameters["type"] == "object"


def test_a_class_is_read_from_its_run_and_a_changed_spec_keeps_it() -> None:
    class Blow(Tool):
        """Say how the wind blows."""

        def run(self) -> Wind:
            return Wind(3)

    assert Blow().spec.returns == Blow.spec.changed(timeout=1.0).returns
    assert (Blow().spec.returns or {})["properties"] == {"speed": {"type": "integer"}}


def test_a_tool_of_a_raw_schema_says_nothing() -> None:
    assert Tool.from_schema("ask", "Ask.", {"type": "object"}, as_number).spec.returns is None


def test_defining_tools_reads_no_return_type() -> None:
    program = (
        "import sys\nfrom forge import tool\n"
        "@tool\ndef add(a: int) -> dict[str, int]:\n    'Add.'\n    return {}\n"
        "add.spec.changed(timeout=3.0).name\n"
        "print('pydantic' in sys.modules, add.spec.returns is not None, 'pydantic' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True", "True"]
