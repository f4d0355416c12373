"""A call that is almost right runs where it has one reading, and is refused with the readings where it has two."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from forge import Answer, PermissionRequest, Scope, ToolCall
from forge.core.errors import DefinitionError, ToolError
from forge.core.result import ToolResult
from forge.core.spec import REPAIRS
from forge.core.tool import Tool, tool
from forge.pipeline import standard_executor
from tests.core.calling import call

RIGHT: dict[str, Any] = {"file_path": 'it\'s "a" {b}\n', "max_lines": 3, "tags": ["x"], "deep": {"a": True, "b": None}}


def twins(got: list[Any], **traits: Any) -> list[Tool]:
    """The same tool twice: typed, and of the typed one's raw schema, which allows further keys."""

    def look(
        file_path: str, max_lines: int = 0, tags: list[str] | None = None, deep: dict[str, bool | None] | None = None
    ) -> str:
        """Look."""
        got.append({"file_path": file_path, "max_lines": max_lines, "tags": tags, "deep": deep})
        return "looked"

    typed = tool(**traits)(look)
    schema = {key: value for key, value in typed.spec.parameters.items() if key != "additionalProperties"}

    def take(**arguments: Any) -> str:
        got.append(arguments)
        return "looked"

    return [typed, Tool.from_schema("look", "Look.", schema, take, **traits)]


def refusal(result: ToolResult) -> str:
    assert result.failure is not None, f"it was taken: {result}"
    assert result.failure.kind == "validation_error"
    assert "repaired" not in result.data
    return result.for_llm


JSON = json.dumps(RIGHT)
REPAIRED: dict[str, tuple[str, str]] = {
    "a fence": ("fence", f"```json\n{JSON}\n```"),
    "a fence without a language": ("fence", f"```\n{JSON}\n```\n"),
    "text after it": ("prose", f'{JSON}\n\nThis reads the "file", as you asked.'),
    "text before it": ("prose", f"Here are the arguments: {JSON}"),
    "a label": ("prose", f"Action Input: {JSON}"),
    "the object twice": ("prose", f"{JSON}\n{JSON}"),
    "Python's spelling": ("quotes", repr(RIGHT)),
    "names without quotes": ("quotes", JSON.replace('"file_path"', "file_path").replace('"tags"', "tags")),
    "a line break in a text": ("quotes", JSON.replace("\\n", "\n")),
    "a comma after the last item": ("commas", JSON[:-1] + ",}"),
    "commas inside": ("commas", JSON.replace('["x"]', '["x", ]')),
    "JSON in a JSON string": ("encoding", json.dumps(JSON)),
    "JSON in a JSON string twice": ("encoding", json.dumps(json.dumps(JSON))),
    "escaped quotes": ("encoding", json.dumps(JSON)[1:-1]),
    "a missing brace": ("closing", JSON[:-1]),
    "a brace too many": ("closing", JSON + "}"),
    "arguments": ("wrapping", json.dumps({"arguments": RIGHT})),
    "parameters": ("wrapping", json.dumps({"parameters": RIGHT})),
    "input": ("wrapping", json.dumps({"input": RIGHT})),
    "args": ("wrapping", json.dumps({"args": RIGHT})),
    "a whole call": ("wrapping", json.dumps({"name": "look", "arguments": RIGHT})),
    "camelCase": ("names", JSON.replace("file_path", "filePath").replace("max_lines", "maxLines")),
    "kebab-case": ("names", JSON.replace("file_path", "file-path").replace("max_lines", "max-lines")),
    "upper case": ("names", JSON.replace("file_path", "FILE_PATH")),
    "another type": ("values", json.dumps({**RIGHT, "max_lines": "3", "tags": '["x"]'})),
}


@pytest.mark.parametrize(("kind", "text"), REPAIRED.values(), ids=REPAIRED)
def test_a_call_with_one_reading_runs_with_it_and_says_so(kind, text):
    got: list[Any] = []
    for made in twins(got):
        result = call(made, text)
        assert result.success, result.for_llm
        assert result.for_llm == "looked"
        assert got.pop() == RIGHT
        assert 0 < len(result.data["repaired"]) <= 4


@pytest.mark.parametrize(("kind", "text"), REPAIRED.values(), ids=REPAIRED)
def test_every_kind_of_repair_can_be_turned_off_and_the_others_stay(kind, text):
    got: list[Any] = []
    for made in twins(got, repairs=REPAIRS - {kind}):
        refusal(call(made, text))
    for made in twins(got, strict=True):
        refusal(call(made, text))
    assert got == []
    for made in twins(got, repairs={kind}):
        assert call(made, text).success


def test_several_kinds_of_damage_in_one_call_are_all_repaired():
    text = "Sure!\n```json\n{'arguments': {'filePath': 'a', 'max_lines': '3', 'tags': 'x',}}\n```\nDone."
    got: list[Any] = []
    for made in twins(got):
        assert call(made, text).success
        assert {key: got[-1][key] for key in ("file_path", "max_lines", "tags")} == {
            "file_path": "a",
            "max_lines": 3,
            "tags": ["x"],
        }
    assert len(got) == 2


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"a": "two", "b": 3}, 'a: expected integer, got string "two"'),
        ({"A": "two", "b": 3}, 'a: expected integer, got string "two"'),
        ({"a": "two", "B": 3}, 'a: expected integer, got string "two"; b: required, but missing; B: unknown argument'),
        ({"a": "two", "b": "3"}, 'a: expected integer, got string "two"; b: expected integer, got string "3"'),
    ],
)
def test_a_value_that_nothing_can_repair_is_explained_under_its_right_name(sent, told):
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert told in refusal(call(add, sent))
    assert call(add, {"A": "2", "b": 3}).for_llm == "5"


def test_an_unknown_kind_of_repair_is_refused_when_the_tool_is_defined():
    with pytest.raises(DefinitionError, match="unknown value 'typos' in repairs"):
        twins([], repairs={"typos"})
    assert len(twins([], repairs={"names"})) == 2


@pytest.mark.parametrize("permissions", [{"write"}, {"execute"}, {"network"}, {"read", "write"}])
def test_a_call_that_was_cut_is_completed_only_for_a_tool_that_reads(permissions):
    got: list[Any] = []
    for traits in ({"permissions": permissions}, {"optional_permissions": permissions}, {"confirm": True}):
        for made in twins(got, **traits):
            assert "the call was cut" in refusal(call(made, '{"file_path": "a"'))
    assert got == []
    for made in twins(got, permissions={"read"}):
        assert call(made, '{"file_path": "a"').data["repaired"] == ["added the missing closing brace"]
    assert len(got) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"file_path": "a',
        '{"file_path": "a",',
        '{"file_path": "a", "max_lines"',
        '{"file_path": "a", "max_lines":',
        '{"file_path": "a", "tags": ["x"',
        '{"file_path": "a", "tags": ["x"], "deep": {"a": true',
    ],
)
def test_a_call_of_which_more_than_the_last_brace_is_missing_is_refused_as_cut(text):
    got: list[Any] = []
    for made in twins(got):
        assert "the call was cut" in refusal(call(made, text))
    assert got == []


TWO = '{"file_path": "a"}\n{"file_path": "b"}'


def test_two_objects_are_two_readings_and_both_are_shown():
    got: list[Any] = []
    for made in twins(got):
        words = refusal(call(made, TWO))
        assert 'two readings: {"file_path": "a"} or {"file_path": "b"}' in words
        assert "two calls" in words
    assert got == []


@pytest.mark.parametrize(
    "text",
    [
        '{"file_path": "a"}, "max_lines": 3}',
        '"file_path": "a", "deep": {"a": true}}',
        '{"file_path": "a"} "max_lines": 3',
        "{'file_path': 'it's'}",
        '{"file_path": "a" "max_lines": 3}',
        '[{"file_path": "a"}]',
        'other_tool({"file_path": "a"})',
        '{"file_path": "\\q"}',
        '{"file_path": "a"} and {more',
        '"{\\"file_path\\": \\"a\\"} {\\"file_path\\": \\"b\\"}"',
    ],
)
def test_a_text_that_may_mean_something_else_is_refused(text):
    got: list[Any] = []
    for made in twins(got):
        refusal(call(made, text))
    assert got == []


def test_a_wrapper_that_is_a_parameter_of_the_tool_stays():
    got: list[Any] = []

    @tool
    def run_tool(name: str, arguments: dict[str, Any], input: str = "") -> str:
        """Run another tool."""
        got.append((name, arguments))
        return "ran"

    raw = Tool.from_schema("run_tool", "Run.", run_tool.spec.parameters, run_tool.run)
    for made in (run_tool, raw):
        assert "repaired" not in call(made, {"name": "a", "arguments": {"name": "b", "arguments": {}}}).data
        assert "name: required" in refusal(call(made, {"arguments": {"name": "b", "arguments": {}}}))
    assert got == [("a", {"name": "b", "arguments": {}})] * 2


@pytest.mark.parametrize(
    "sent",
    [
        {"arguments": {"file_path": "a"}, "max_lines": 3},
        {"arguments": {"file_path": "a"}, "input": {"file_path": "b"}},
        {"name": "other_tool", "arguments": {"file_path": "a"}},
    ],
)
def test_a_wrapper_with_something_beside_it_is_refused(sent):
    got: list[Any] = []
    for made in twins(got):
        assert "arguments" in refusal(call(made, sent))
    assert got == []


def test_a_wrapper_that_the_schema_allows_is_passed_on():
    got: list[Any] = []
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": True}
    made = Tool.from_schema("take", "Take.", schema, lambda **sent: got.append(sent))
    assert call(made, {"input": {"a": 1}}).success
    assert got == [{"input": {"a": 1}}]
    got.clear()
    made = Tool.from_schema(
        "take", "Take.", {"type": "object", "properties": {"a": {}}}, lambda **sent: got.append(sent)
    )
    for value in ("text", {"b": 1}, ["a"]):
        assert call(made, {"a": 1, "input": value}).success
    assert len(got) == 3


def test_what_is_wrong_inside_a_wrapper_is_named_there():
    got: list[Any] = []
    for made in twins(got):
        assert "max_lines: expected integer" in refusal(call(made, {"args": {"file_path": "a", "max_lines": "many"}}))
    assert got == []


def choose(colour: Literal["red", "dark_blue", "Blue", "BLUE"], flag: Literal["True", "False"] = "True") -> str:
    """Choose."""
    return f"{colour} {flag}"


@pytest.mark.parametrize(
    ("sent", "received"),
    [("RED", "red"), ("Dark-Blue", "dark_blue"), (" red ", "red"), ("blue", ""), ("reed", ""), (1, "")],
)
def test_a_choice_in_another_spelling_is_that_choice_unless_there_are_two(sent, received):
    for made in (tool(choose), Tool.from_schema("choose", "C.", tool(choose).spec.parameters, choose)):
        result = call(made, {"colour": sent, "flag": True})
        assert result.for_llm == f"{received} True" if received else refusal(result)


def test_the_person_is_asked_about_the_repaired_arguments():
    asked: list[Any] = []

    async def approve(request: PermissionRequest) -> Answer:
        asked.append(dict(request.arguments))
        return Answer.ONCE

    got: list[Any] = []
    for made in twins(got, permissions={"write"}):
        executor = standard_executor([made], approve=approve)
        result = asyncio.run(executor.execute(ToolCall("look", '{"filePath": "a", "max_lines": "3",}'), Scope()))
        assert result.success, result.for_llm
        assert {key: asked[-1][key] for key in ("file_path", "max_lines")} == {"file_path": "a", "max_lines": 3}
    assert len(asked) == 2


def test_quotes_inside_single_quotes_may_be_of_either_kind_and_are_refused():
    got: list[Any] = []
    for made in twins(got):
        refusal(call(made, r"{'file_path': 'say \'hi\''}"))
        assert got == []
        assert call(made, r"{'file_path': 'it\'s'}").success
        assert got.pop()["file_path"] == "it's"


def test_an_empty_wrapper_means_no_arguments():
    got: list[Any] = []
    made = Tool.from_schema("take", "Take.", {"type": "object"}, lambda **sent: got.append(sent))
    assert call(made, {"arguments": {}}).success
    assert call(made, {"arguments": {"a": 1}}).success
    assert got == [{}, {"arguments": {"a": 1}}]


class Pair(BaseModel):
    x: int
    y: int = 0


@tool
def move(pairs: list[Pair], names: list[str] | None = None, anything: list[Any] | None = None) -> str:
    """Move."""
    return f"{[(one.x, one.y) for one in pairs]} {names} {anything}"


@tool
def label(text: str, other: str | None = None, either: str | int = 0, many: list[str] | None = None) -> str:
    """Label."""
    return f"{text!r} {other!r} {either!r} {many!r}"


def test_one_object_for_a_list_of_objects_is_repaired():
    result = call(move, {"pairs": {"x": 1}})
    assert result.for_llm == "[(1, 0)] None None"
    assert result.data["repaired"] == ['pairs: {"x": 1} → [{"x": 1}]']
    raw = Tool.from_schema(
        "raw", "Raw.", {"type": "object", "properties": {"rows": {"type": "array"}}}, lambda rows: str(rows)
    )
    assert call(raw, {"rows": {"a": 1}}).for_llm == "[{'a': 1}]"


@pytest.mark.parametrize("arguments", [{"pairs": {}}, {"pairs": {"z": 1}}, {"pairs": [], "names": {"a": "b"}}])
def test_an_object_that_has_two_readings_or_none_is_not_repaired(arguments):
    assert call(move, arguments).is_error


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ({"text": 5}, "'5' None 0 None"),
        ({"text": -12345678901234567890}, "'-12345678901234567890' None 0 None"),
        ({"text": "a", "other": 7}, "'a' '7' 0 None"),
        ({"text": "a", "either": 7}, "'a' None 7 None"),
        ({"text": "a", "many": [1, "b"]}, "'a' None 0 ['1', 'b']"),
    ],
)
def test_a_whole_number_for_a_text_is_repaired(arguments, seen):
    assert call(label, arguments).for_llm == seen


@pytest.mark.parametrize("value", [1.5, 1.0, 1e30, True, None, [5], {"a": 5}])
def test_a_value_of_which_the_text_is_unknown_is_not_repaired(value):
    """1.5 may have been written 1.50, a version or an amount."""
    assert call(label, {"text": value}).is_error


def test_a_strict_tool_repairs_no_number():
    @tool(strict=True)
    def exact(text: str) -> str:
        """Take it."""
        return text

    assert call(exact, {"text": 5}).is_error
    assert call(exact, {"text": "5"}).for_llm == "5"


def test_numbers_that_json_does_not_have_stay_refused_inside_a_text():
    @tool
    def weigh(grams: float) -> str:
        """Weigh."""
        return f"{grams} g"

    refused = call(weigh, json.dumps('{"grams": NaN}').replace("NaN", "\\u004eaN"))
    assert refused.failure is not None
    assert isinstance(refused.failure.cause, ToolError)
    assert call(weigh, json.dumps('{"grams": 2.5}')).for_llm == "2.5 g"


def test_a_wrapper_around_nothing_calls_a_tool_without_parameters():
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    for text in ('{"arguments": {}}', '"{}"', "```json\n{}\n```"):
        result = call(ping, text)
        assert result.for_llm == "pong"
        assert result.data["repaired"]
