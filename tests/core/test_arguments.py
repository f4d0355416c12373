"""What a model sent: repaired where nothing is lost, explained where something is wrong."""

from __future__ import annotations

import json
from collections import ChainMap
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from annotated_types import Ge, Gt, Le, MinLen
from pydantic import BaseModel, model_validator

from forge.core.arguments.example import example_arguments
from forge.core.errors import ErrorKind
from forge.core.plain_values import plain
from forge.core.result import ToolResult
from forge.core.tool import Tool, tool
from tests.core.calling import call


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: float = 0.0


def twins(annotation: Any, got: list[Any], *, strict: bool = False, **default: Any) -> list[Tool]:
    """The same tool twice: typed, and of the typed one's raw schema."""

    def made(x):
        """Take something."""
        got.append(x)
        return "taken"

    made.__annotations__ = {"x": annotation}
    if default:
        made.__defaults__ = (default["default"],)
    typed = tool(strict=strict)(made)
    return [typed, Tool.from_schema("made", "Take something.", typed.spec.parameters, made, strict=strict)]


def refusal(made: Any, arguments: Any) -> ToolResult:
    result = call(made, arguments)
    assert result.failure is not None, f"{arguments} was taken: {result}"
    assert result.failure.kind is ErrorKind.VALIDATION
    return result


MENDED = [
    (int, "5", 5),
    (int, "-12", -12),
    (int, " 7 ", 7),
    (int, 3.0, 3),
    (int, "3.0", 3),
    (float, "2.5", 2.5),
    (float, "3", 3.0),
    (float, "-1e3", -1000.0),
    (bool, "true", True),
    (bool, "false", False),
    (list[str], '["a", "b"]', ["a", "b"]),
    (list[str], "a", ["a"]),
    (list[str], "['a', 'b']", ["a", "b"]),
    (list[str], """[ 'it\\'s', "b", ]""", ["it's", "b"]),
    (list[str], "a [b]", ["a [b]"]),
    (dict[str, bool | None], "{'a': True, 'b': None}", {"a": True, "b": None}),
    (list[int], "[1, 2]", [1, 2]),
    (Literal["it's", "red"], "RED", "red"),
    (Literal["it's", "red"], "It's", "it's"),
    (Literal["yes or no", "maybe"], "Yes or no", "yes or no"),
    (list[int], ["1", 2], [1, 2]),
    (list[int], "5", [5]),
    (list[int], 5, [5]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[str, int], {"a": "1"}, {"a": 1}),
    (int | None, "5", 5),
    (list[str] | None, "a", ["a"]),
    (list[int] | None, ["1", 2], [1, 2]),
    (dict[str, int] | None, {"a": "1"}, {"a": 1}),
    (list[int] | str, ["1", 2], [1, 2]),
    (list[dict[str, int]], [{"a": "1"}], [{"a": 1}]),
]


@pytest.mark.parametrize(("annotation", "sent", "received"), MENDED, ids=[f"{row[0]} {row[1]!r}" for row in MENDED])
@pytest.mark.parametrize("as_text", [False, True], ids=["object", "text"])
def test_a_lossless_repair_is_made_and_said(annotation, sent, received, as_text):
    got: list[Any] = []
    arguments = {"x": sent}
    for made in twins(annotation, got):
        result = call(made, json.dumps(arguments) if as_text else arguments)
        assert result.success, result.for_llm
        value = got.pop()
        assert value == received
        assert type(value) is type(received) or sent == 3.0
        assert sent == 3.0 or any("x" in note for note in result.data["repaired"])
    assert arguments == {"x": sent}, "what was sent was changed"


@pytest.mark.parametrize(("annotation", "sent", "received"), MENDED, ids=[f"{row[0]} {row[1]!r}" for row in MENDED])
def test_a_strict_tool_refuses_instead(annotation, sent, received):
    got: list[Any] = []
    for made in twins(annotation, got, strict=True):
        if sent != 3.0:
            refusal(made, {"x": sent})
        assert call(made, {"x": received}).success


NOT_MENDED = [
    (int, True),
    (int, False),
    (int, 3.5),
    (int, "3.5"),
    (int, "five"),
    (int, ""),
    (int, "0x10"),
    (int, "1_000"),
    (int, "５"),
    (int, [5]),
    (int, None),
    (int, {"x": 5}),
    (float, True),
    (float, "nan"),
    (float, "inf"),
    (float, "1e999"),
    (float, "1,5"),
    (bool, 1),
    (bool, 0),
    (bool, "yes"),
    (bool, "1"),
    (bool, None),
    (str, None),
    (str, ["a"]),
    (list[str], {"a": 1}),
    (list[str], None),
    (list[int], "a"),
    (list[int], True),
    (list[str], "[a"),
    (list[str], "[a-z]+"),
    (list[str], "['a' 'b']"),
    (list[str], "['a', b'c']"),
    (list[str], "['a'] + ['b']"),
    (list[str], "['\\q']"),
    (list[str], "['a',,]"),
    (list[str], '{"a": 1}'),
    (list[str], "{'a', 'b'}"),
    (list[int], "[0x10]"),
    (list[int], "[__import__('os').getpid()]"),
    (dict[str, int], "{1: 2}"),
    (dict[str, int], "a"),
    (dict[str, int], "[1]"),
    (dict[str, int], ["a"]),
    (Literal["a", "b"], "c"),
    (Item, "a"),
    (Item, {"price": 1.0}),
]


@pytest.mark.parametrize(("annotation", "sent"), NOT_MENDED, ids=[f"{row[0]} {row[1]!r}" for row in NOT_MENDED])
def test_what_would_lose_something_is_refused(annotation, sent):
    got: list[Any] = []
    for made in twins(annotation, got):
        for arguments in ({"x": sent}, json.dumps({"x": sent})):
            assert "x" in refusal(made, arguments).for_llm
    assert got == []


def test_a_number_too_large_for_a_float_is_never_taken_for_nothing():
    got: list[Any] = []
    for made in twins(float | None, got):
        for sent in ('{"x": "1e999"}', '{"x": 1e999}', '{"x": "-1e999"}'):
            refusal(made, sent)
    assert got == []


def test_a_text_that_fits_two_branches_is_refused_with_both_readings():
    got: list[Any] = []
    for made in twins(int | list[str], got):
        assert 'x: "5" has two readings: 5 or ["5"]' in refusal(made, {"x": "5"}).for_llm
        assert call(made, {"x": "a"}).success
        assert got.pop() == ["a"]
    for made in twins(int | list[int], got):
        assert call(made, {"x": "5"}).success
        assert got.pop() == 5


DEFAULTS = [
    (int, 7),
    (str, "a"),
    (bool, True),
    (float, 1.5),
    (list[str], ["a"]),
    (dict[str, int], {"a": 1}),
    (Literal["a", "b"], "b"),
    (Color, Color.RED),
    (datetime, datetime(2024, 1, 1)),
    (date, date(2024, 1, 1)),
    (UUID, UUID(int=1)),
    (Path, Path("a")),
    (Item, Item(name="a")),
    (int | str, 7),
    (tuple[int, int], (1, 2)),
]


@pytest.mark.parametrize(("annotation", "default"), DEFAULTS, ids=[str(row[0]) for row in DEFAULTS])
def test_null_means_the_default(annotation, default):
    got: list[Any] = []
    for made in twins(annotation, got, default=default):
        result = call(made, {"x": None})
        assert result.success, result.for_llm
        assert got.pop() in (default, plain(default))  # a schema's default is JSON
        assert any("x" in note for note in result.data["repaired"])


def test_null_stays_null_where_it_is_a_value():
    got: list[Any] = []
    for made in twins(int | None, got, default=7):
        assert "repaired" not in call(made, {"x": None}).data
    assert got == [None, None]


def test_a_key_in_the_wrong_case_is_mended():
    got: list[Any] = []
    for made in twins(int, got):
        result = call(made, {"X": "5"})
        assert result.success, result.for_llm
        assert "X → x" in result.data["repaired"]
        assert len(result.data["repaired"]) == 2
    assert got == [5, 5]
    for made in twins(int, got, strict=True):
        refusal(made, {"X": 5})


def test_a_key_in_the_wrong_case_never_overwrites_the_right_one():
    got: list[Any] = []
    typed, _ = twins(int, got)
    assert "X: unknown argument" in refusal(typed, {"X": 1, "x": 2}).for_llm
    assert got == []


def test_right_arguments_are_not_called_repaired():
    got: list[Any] = []
    for made in twins(int, got):
        assert "repaired" not in call(made, {"x": 5}).data


def test_the_data_of_a_result_names_the_repairs():
    got: list[Any] = []
    for made in twins(int, got):
        assert call(made, {"x": "5"}).data["repaired"] == ['x: "5" → 5']


def test_null_is_named_once_in_an_error():
    got: list[Any] = []
    for made in twins(str, got):
        assert "x: expected string, got null\n" in refusal(made, {"x": None}).for_llm


def test_mending_is_said_even_when_the_tool_fails_afterwards():
    def made(x: int) -> str:
        """Fail."""
        raise ValueError("broken")

    result = call(made, {"x": "5"})
    assert "broken" in result.for_llm
    assert len(result.data["repaired"]) == 1


@tool(aliases=["read"], argument_aliases={"file_path": "path", "filename": "path"})
def file_read(path: str, limit: int = 10) -> str:
    """Read a file."""
    return f"{path}:{limit}"


def test_the_other_names_of_an_argument_are_understood():
    assert call(file_read, {"file_path": "a", "limit": 1}).for_llm == "a:1"
    assert call(file_read, '{"filename": "b"}').for_llm == "b:10"
    assert "file_path" not in json.dumps(dict(file_read.spec.parameters))


def test_an_argument_given_twice_under_two_names_is_refused():
    assert "file_path" in refusal(file_read, {"file_path": "a", "path": "b"}).for_llm
    refusal(file_read, {"file_path": "a", "filename": "b"})


def order(
    items: list[Item], size: Literal["small", "medium", "large"], tags: list[str] | None = None, amount: int = 1
) -> str:
    """Order."""
    return "ordered"


def both(arguments: Any) -> tuple[str, str]:
    """What the typed and the raw tool say."""
    typed = tool(order)
    raw = Tool.from_schema("order", "Order.", typed.spec.parameters, order)
    return refusal(typed, arguments).for_llm, refusal(raw, arguments).for_llm


RIGHT = {"items": [{"name": "a"}], "size": "small"}

WRONG: dict[str, Any] = {
    "a nested place": ({**RIGHT, "tags": ["a", 5.5]}, ["tags[1]: expected string, got number 5.5"]),
    "deeper": ({**RIGHT, "items": [{"name": "a"}, {"name": 1.5}]}, ["items[1].name: expected string, got number 1.5"]),
    "missing": ({"items": []}, ["size: required, but missing"]),
    "missing inside": ({**RIGHT, "items": [{}]}, ["items[0].name: required, but missing"]),
    "a choice": (
        {**RIGHT, "size": "lage"},
        ["""size: "lage" is not one of 'small', 'medium', 'large'; did you mean "large"?"""],
    ),
    "no choice at all": ({**RIGHT, "size": 5.5}, ["size: 5.5 is not one of 'small', 'medium', 'large'"]),
    "unknown": ({**RIGHT, "amuont": 2}, ['amuont: unknown argument; did you mean "amount"?']),
    "unknown and far": ({**RIGHT, "zzz": 2}, ["zzz: unknown argument; known: items, size, tags, amount"]),
    "several": (
        {"items": "", "amount": True, "amuont": 2},
        ["size: required, but missing", "amount: expected integer, got boolean true", "amuont: unknown argument"],
    ),
}


@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG)
def test_every_wrong_field_is_named_the_same_way_by_typed_and_raw_tools(arguments, expected):
    typed, raw = both(arguments)
    for words in expected:
        assert words in typed
        assert words in raw


@pytest.mark.parametrize("arguments", [row[0] for row in WRONG.values()], ids=WRONG)
def test_an_error_ends_with_a_call_that_holds_every_required_parameter(arguments):
    for text in both(arguments):
        last = text.splitlines()[-1]
        assert last.startswith("Example: order(items=[")
        assert 'size="small"' in last
        assert "amount" not in last


def test_an_error_begins_with_what_was_sent():
    typed, raw = both({"items": [], "size": "huge"})
    assert typed.startswith('order(items=[], size="huge"): size: ')
    assert raw.startswith('order(items=[], size="huge"): size: ')


def test_a_constraint_is_explained_at_its_place():
    got: list[Any] = []
    for made in twins(Annotated[int, Ge(10), Le(20)], got):
        words = refusal(made, {"x": 5}).for_llm
        assert "x: " in words
        assert "10" in words
        refusal(made, {"x": "5"})
        assert call(made, {"x": "15"}).success


RICH = {
    "plain": dict[str, Any](a=int, b=str, c=float, d=bool, e=list[int], f=dict[str, int]),
    "choices": dict[str, Any](a=Literal["x", "y"], b=Literal[1, 2], c=Color),
    "nested": dict[str, Any](a=Item, b=list[Item], c=tuple[int, str], d=int | str),
    "limits": dict[str, Any](a=Annotated[int, Ge(10)], b=Annotated[int, Le(-5)], c=Annotated[float, Gt(3)]),
    "lengths": dict[str, Any](a=Annotated[str, MinLen(3)], b=Annotated[list[int], MinLen(2)]),
    "formats": dict[str, Any](a=datetime, b=date, c=UUID, d=Path),
}


@pytest.mark.parametrize("parameters", RICH.values(), ids=RICH)
def test_the_example_is_itself_a_right_call(parameters):
    namespace: dict[str, Any] = {}
    exec(f"def made({', '.join(parameters)}):\n    'Take.'\n    return 'taken'", namespace)
    namespace["made"].__annotations__ = parameters
    made = tool(namespace["made"])
    example = example_arguments(made.spec.parameters)
    assert set(example) == set(parameters)
    assert call(made, example).for_llm == "taken"


def test_an_example_is_written_as_a_person_would():
    assert "\\u" not in refusal(file_read, {}).for_llm


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"path": }', "line 1 column 10"),
        ('{"path": "a', "line 1 column 11"),
        ('{"path": "a"}, "limit": 1}', "line 1 column 14"),
        ('{"path": "a" "limit": 1}', "line 1 column 14"),
        ("nonsense", "line 1 column 2"),
    ],
)
def test_broken_json_is_reported_with_its_position_and_never_run(text, place):
    for made in (file_read, Tool.from_schema("file_read", "Read.", {}, lambda **_: "ran")):
        words = refusal(made, text).for_llm
        assert "not valid JSON" in words
        assert place in words


@pytest.mark.parametrize("text", ["[]", "5", '"path"', "null", "true", '["path"]'])
def test_json_that_is_no_object_is_refused(text):
    for made in (file_read, Tool.from_schema("file_read", "Read.", {}, lambda **_: "ran")):
        assert "object" in refusal(made, text).for_llm


@pytest.mark.parametrize("arguments", [None, [], 5, [["path", "a"]]])
def test_arguments_that_are_no_object_at_all_are_refused_like_any_others(arguments):
    for made in (file_read, Tool.from_schema("file_read", "Read.", {}, lambda **_: "ran")):
        assert "object" in refusal(made, arguments).for_llm


def test_any_mapping_will_do():
    assert call(file_read, MappingProxyType({"path": "a"})).for_llm == "a:10"
    assert call(file_read, ChainMap({"path": "a"}, {"limit": 3})).for_llm == "a:3"
    assert "limit: expected integer" in refusal(file_read, MappingProxyType({"path": "a", "limit": "x"})).for_llm


def test_unusual_text_arrives_unchanged():
    for text in ("NaN", "Infinity", "\x00", "é\u2028", "\U0001f98a", '"', "\\"):
        assert call(file_read, {"path": text}).for_llm == f"{text}:10"
        assert call(file_read, json.dumps({"path": text})).for_llm == f"{text}:10"


def test_text_and_object_arguments_are_checked_alike():
    got: list[Any] = []
    for made in twins(list[int], got):
        values: list[Any] = [[1], ["x"], "x", {}, [1.5]]
        for value in values:
            as_object = call(made, {"x": value})
            as_text = call(made, json.dumps({"x": value}))
            assert as_object.is_error == as_text.is_error
            if as_object.failure is not None and as_text.failure is not None:
                assert as_object.failure.message == as_text.failure.message


def test_a_choice_with_an_or_inside_is_shown_as_it_is():
    for made in twins(Literal["yes or no", "maybe"], []):
        message = refusal(made, {"x": "yes or not"}).for_llm
        assert "is not one of 'yes or no', 'maybe'" in message
        assert 'did you mean "yes or no"?' in message


class Paint(Enum):
    RED = "red"
    SEVEN = 7


def test_the_choices_of_an_enum_are_shown_as_json_has_them():
    @tool
    def paint(one: Literal[Paint.RED, "none"] = "none", other: Paint = Paint.RED) -> str:
        """Paint."""
        return f"{one} {other}"

    assert "one: \"blue\" is not one of 'red', 'none'" in refusal(paint, {"one": "blue"}).for_llm
    assert "other: \"blue\" is not one of 'red', 7" in refusal(paint, {"other": "blue"}).for_llm
    assert call(paint, {"other": "7"}).for_llm == "none Paint.SEVEN"


@pytest.mark.parametrize("length", [10, 5_000])
def test_a_refused_choice_is_shown_however_long_it_is(length):
    choice = "a" * length
    schema = {"type": "object", "properties": {"x": {"enum": [choice, "b"]}}}
    made = Tool.from_schema("choose", "Choose.", schema, lambda x: x)
    assert f'x: "c" is not one of \'{choice[:100]}' in refusal(made, {"x": "c"}).for_llm
    assert call(made, {"x": choice}).for_llm.startswith("aaa")


class Span(BaseModel):
    start: int
    end: int

    @model_validator(mode="after")
    def check_order(self) -> Span:
        if self.end < self.start:
            raise ValueError("end is before start")
        return self


def test_a_mistake_that_the_validator_of_a_model_finds_is_explained_as_others_are():
    def measure(span: Span) -> int:
        return span.end - span.start

    made = Tool.from_schema("measure", "Measure.", Span, measure)
    refused = refusal(made, {"start": 5, "end": 3}).for_llm
    assert 'end is before start, got {"start": 5, "end": 3}' in refused
    assert "Example: measure(start=1, end=1)" in refused
    assert call(made, {"start": 3, "end": 5}).for_llm == "2"
