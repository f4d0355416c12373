"""Whatever is sent, a call ends in one short result, and typed and raw tools judge it alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from pydantic import BaseModel

from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.core.tool import Tool, tool
from tests.core.calling import SCOPE, Heard, all_told, executor


class Item(BaseModel):
    name: str
    count: int = 1


def takes(
    text: str,
    number: int = 0,
    ratio: float | None = None,
    flag: bool = False,
    labels: list[str] | None = None,
    level: Literal["low", "high"] = "low",
    items: list[Item] = [],  # noqa: B006 - only looked at
    limits: Annotated[int, Ge(1)] = 1,
    extra: dict[str, int] | None = None,
    either: int | list[int] = 1,
) -> str:
    """Take."""
    return "taken"


TYPED = tool(takes)
RAW = Tool.from_schema("raw", "Take.", TYPED.spec.parameters, takes)
WRITES: list[Tool] = [tool(name="takes_writes", permissions={"write"})(takes)]
WRITES.append(Tool.from_schema("raw_writes", "Take.", TYPED.spec.parameters, takes, permissions={"write"}))
NAMES = [*TYPED.spec.parameters["properties"], "Text", "numbr", "unknown"]

LEAVES = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(max_size=10)
    | some.sampled_from(["5", "3.0", "true", '["a"]', '{"a": 1}', "low", "[1", "-1e5", "nan", "", "1e999"])
)
VALUES = some.recursive(
    LEAVES,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(some.sampled_from(["name", "count", "a"]) | some.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
ARGUMENTS = some.dictionaries(some.sampled_from(NAMES), VALUES, max_size=6)

many = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


def send(runner: asyncio.Runner, name: str, arguments: Any) -> ToolResult:
    heard = Heard()
    runs = executor(TYPED, RAW, *WRITES, heard=heard)
    result = runner.run(runs.execute(ToolCall(name, arguments), SCOPE))
    runner.run(all_told(runs))
    assert heard.balanced
    json.dumps([event.to_dict() for event in heard], allow_nan=False).encode()
    if result.failure is None:
        assert result.for_llm == "taken"
    else:
        assert result.failure.kind == "validation_error", result.for_llm
        assert len(result.for_llm.encode()) < 2_048
    return result


@many
@given(arguments=ARGUMENTS)
def test_any_object_ends_in_a_result_that_typed_and_raw_tools_agree_on(runner, arguments):
    typed, raw = send(runner, "takes", arguments), send(runner, "raw", arguments)
    assert typed.success == raw.success, f"{typed.for_llm}\n{raw.for_llm}"


@many
@given(arguments=ARGUMENTS)
def test_an_object_and_its_text_are_judged_alike(runner, arguments):
    text = json.dumps(arguments)
    for name in ("takes", "raw"):
        assert send(runner, name, arguments).success == send(runner, name, text).success


@many
@given(text=some.text(alphabet='{}[]":,0123456789.eE-+ntrufalse \\\n', max_size=40))
def test_any_text_ends_in_a_result(runner, text):
    for name in ("takes", "raw"):
        send(runner, name, text)


@many
@given(arguments=ARGUMENTS, cut=some.integers(1, 30))
def test_a_text_that_was_cut_off_is_refused_unless_only_a_brace_is_missing_and_the_tool_only_reads(
    runner, arguments, cut
):
    text = json.dumps({"text": "a", **arguments})
    short = text[: max(1, len(text) - cut)]
    for name in ("takes", "raw"):
        assert send(runner, f"{name}_writes", short).is_error
        completed = send(runner, name, short)
        if completed.success:
            assert completed.data["repaired"][0] == "added the missing closing brace"
            assert isinstance(json.loads(short + "}"), dict)


@many
@given(
    value=some.recursive(
        LEAVES | some.binary() | some.dates(),
        lambda inner: some.lists(inner) | some.dictionaries(LEAVES, inner),
        max_leaves=8,
    )
)
def test_any_value_that_is_returned_becomes_a_result(value):
    result = ToolResult.of(value)
    assert result.success
    result.for_llm.encode()
    json.dumps(result.to_dict(), allow_nan=False).encode()
    assert ToolResult.from_dict(json.loads(json.dumps(result.to_dict()))).for_llm == result.for_llm
