"""Hostile arguments cost little time, give a short error, and leave everything else alone."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from forge.core.events import ToolFinished
from forge.core.messages import ToolCall
from forge.core.tool import Tool, tool
from tests.core.calling import SCOPE, Heard, at_most, call, executor


class Tree(BaseModel):
    name: str = ""
    children: list[Tree] = []


def takes(
    text: str = "",
    number: int = 0,
    numbers: list[int] | None = None,
    choices: list[Literal["alpha", "beta"]] | None = None,
    either: list[int | bool] | None = None,
    tree: Tree | None = None,
    slow: Annotated[str, Field(pattern="^(a+)+$")] = "a",
) -> str:
    """Take anything."""
    return f"{len(text)} characters"


TYPED = tool(takes)
RAW = Tool.from_schema("takes", "Take anything.", TYPED.spec.parameters, takes)
OPEN = Tool.from_schema("takes", "Take anything.", {"type": "object"}, lambda **_: "taken")
BOTH = pytest.mark.parametrize("made", [TYPED, RAW], ids=["typed", "raw"])


@pytest.fixture(autouse=True)
def _no_log():
    """A captured log of lone surrogates cannot be sent between the processes that run the tests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"tree": value}
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {"number": 1}
    value["tree"] = value
    return value


MANY = 20_000
LONG = "x" * 10_000_000

HOSTILE: dict[str, Any] = {
    "brackets 100,000 deep": lambda: "[" * 100_000,
    "objects 100,000 deep": lambda: '{"tree":' * 100_000,
    "closed objects 100,000 deep": lambda: '{"tree":' * 100_000 + "1" + "}" * 100_000,
    "a mapping 100,000 deep": lambda: deep(100_000),
    "a recursive model 5,000 deep": lambda: '{"tree":' + '{"children":[' * 5_000 + "]}" * 5_000 + "}",
    "10 MB for a number": lambda: {"number": LONG},
    "10 MB for a number, as text": lambda: json.dumps({"number": LONG}),
    "10 MB of digits": lambda: {"number": "9" * 10_000_000},
    "10 MB of a name": lambda: {LONG: 1},
    "10 MB of a name, as text": lambda: json.dumps({LONG: 1}),
    "10 MB of no JSON": lambda: LONG,
    "10 MB of JSON in a text": lambda: {"numbers": "[" + "1," * 5_000_000},
    "10 MB for a choice": lambda: {"choices": [LONG]},
    "a pattern that explodes": lambda: {"slow": "a" * 100_000 + "!"},
    "5,000 digits": lambda: '{"number": ' + "9" * 5_000 + "}",
    "5,000 digits in a text": lambda: {"number": "9" * 5_000},
    "5,000 digits as a number": lambda: {"number": 10**5_000},
    "NaN": lambda: '{"number": NaN}',
    "NaN as a number": lambda: {"number": float("nan")},
    "infinity": lambda: '{"number": 1e999}',
    "infinity as a number": lambda: {"number": float("-inf")},
    "a lone surrogate, escaped": lambda: '{"text": "\\ud800"}',
    "a lone surrogate in a text": lambda: '{"text": "\ud800"}',
    "a lone surrogate in a value": lambda: {"text": "\ud800"},
    "a lone surrogate in a name": lambda: {"\udfff": 1},
    "a cycle": cyclic,
    "a set": lambda: {"numbers": {1, 2}, "number": object()},
    "names that are no texts": lambda: {1: 2, None: 3},
    "20,000 wrong items": lambda: json.dumps({"numbers": ["x"] * MANY}),
    "20,000 wrong choices": lambda: json.dumps({"choices": ["alpa"] * MANY}),
    "20,000 items wrong in two ways": lambda: json.dumps({"either": ["x"] * MANY}),
    "20,000 wrong trees": lambda: json.dumps({"tree": {"children": [{"name": 1.5}] * MANY}}),
    "20,000 near misses": lambda: {f"numbr{n}": 1 for n in range(20_000)} | {"number": "x"},
    "a long list of long texts": lambda: {f"unknown{n}": "é" * 1_000 for n in range(100)} | {"number": "x"},
}
SLOW = {"20,000 near misses", "20,000 items wrong in two ways", "20,000 wrong trees"}


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(one, marks=[pytest.mark.slow] * (name in SLOW), id=name) for name, one in HOSTILE.items()],
)
@pytest.mark.parametrize("made", [TYPED, pytest.param(RAW, marks=pytest.mark.slow)], ids=["typed", "raw"])
def test_hostile_arguments_are_refused_quickly_and_briefly(made, arguments):
    sent = arguments()
    with at_most(12):
        result = call(made, sent)
    if result.success:  # a set is a list to some
        assert sent.keys() & {"numbers", LONG, "\udfff", 1}
        return
    assert result.failure is not None
    assert result.failure.kind == "validation_error", result.for_llm[:500]
    assert len(result.for_llm.encode()) < 2_048
    json.dumps(result.to_dict(), allow_nan=False).encode()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
def test_hostile_arguments_harm_no_listener(arguments):
    heard = Heard()
    with at_most(18):
        result = call(TYPED, arguments(), heard=heard)
    assert result.is_error or result.success
    assert heard.balanced
    for event in heard:
        json.dumps(event.to_dict(), allow_nan=False).encode()


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.slow
def test_hostile_arguments_of_a_tool_that_takes_anything_end_in_a_result(arguments):
    with at_most(12):
        result = call(OPEN, arguments())
    assert result.for_llm == "taken" or result.is_error
    result.for_llm.encode()
    assert result.failure is None or result.failure.kind == "validation_error"


@BOTH
def test_ten_megabytes_where_they_belong_are_fine(made):
    with at_most(6):
        assert call(made, {"text": LONG}).for_llm == "10000000 characters"
        assert call(made, json.dumps({"text": LONG})).for_llm == "10000000 characters"


@BOTH
def test_the_last_of_two_equal_keys_counts_mended_or_not(made):
    seen: list[Any] = []

    async def step(ctx, proceed):
        seen.append(ctx.arguments["number"])
        return await proceed(ctx)

    call(made, '{"number": 1, "number": 2}', steps=[step])
    call(made, '{"number": "1", "number": "2"}', steps=[step])
    call(made, '{"number": "x", "number": 2}', steps=[step])
    assert seen == [2, 2, 2]


@BOTH
def test_the_pattern_that_explodes_still_matches_what_it_should(made):
    assert call(made, {"slow": "a" * 1_000}).success


def test_a_pattern_with_look_around_is_bounded_too():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=a)(a+)+$"}}}
    made = Tool.from_schema("picky", "Is picky.", schema, lambda a: a)
    assert call(made, {"a": "aaa"}).for_llm == "aaa"
    with at_most(6):
        result = call(made, {"a": "a" * 50_000 + "!"})
    assert result.failure is not None
    assert result.failure.kind == "validation_error"
    assert len(result.for_llm.encode()) < 2_048


@BOTH
def test_a_thousand_repairs_are_made_and_briefly_said(made):
    with at_most(12):
        result = call(made, {"numbers": ["1"] * MANY})
    assert result.success
    assert len(json.dumps(result.data["repaired"])) < 10_000


def test_an_error_stays_under_2_kb_however_long_the_examples_are():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "é" * 5_000},
            "b": {"enum": ["z" * 3_000, "y"]},
            "c" * 300: {"type": "integer"},
        },
        "required": ["a", "b", "c" * 300],
        "additionalProperties": False,
    }
    made = Tool.from_schema("talks", "Talk.", schema, lambda **_: "")
    result = call(made, {**{f"{'ü' * 500}{n}": "ß" * 500 for n in range(50)}, "b": 1})
    assert result.is_error
    assert len(result.for_llm.encode()) < 2_048


def test_an_example_of_a_recursive_schema_ends():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "$defs": {
            "A": {
                "type": "object",
                "properties": {f"p{n}": {"$ref": "#/$defs/A"} for n in range(20)},
                "required": [f"p{n}" for n in range(20)],
            }
        },
    }
    made = Tool.from_schema("recurses", "Recurse.", schema, lambda **_: "")
    with at_most(6):
        result = call(made, {})
    assert len(result.for_llm.encode()) < 2_048


@pytest.mark.parametrize(
    "name", ["", " ", "a___b", "日本語", "no such tool", "\ud800", "x" * 1_000_000, "../etc", "a\nb", "9", "__init__"]
)
def test_any_unknown_name_is_a_short_refusal(name):
    heard = Heard()
    runs = executor(TYPED, heard=heard)
    with at_most(6):
        result = asyncio.run(runs.execute(ToolCall(name, {}), SCOPE))
    assert result.failure is not None
    assert result.failure.kind == "not_found"
    assert "no such tool" in result.for_llm
    assert len(result.for_llm.encode()) < 2_048
    assert heard.balanced
    assert len(heard.of(ToolFinished)) == 1
    assert len(asyncio.run(runs.execute_all([ToolCall(name, {})] * 2, SCOPE))) == 2


@BOTH
@pytest.mark.slow
@pytest.mark.parametrize("parsed", [False, True], ids=["text", "data"])
def test_a_million_nested_lists_are_refused_before_anyone_waits(made, parsed):
    text = '{"numbers": [' + ",".join(["[" * 90 + "]" * 90] * 11_000) + "]}"
    arguments = json.loads(text) if parsed else text
    with at_most(4.0):
        result = call(made, arguments)
    assert "990,002 lists and objects" in result.for_llm
    assert "name the file" in result.for_llm


@BOTH
def test_brackets_inside_a_text_are_no_lists(made):
    assert call(made, {"text": '[{"\\" ' * 200_000}).success
