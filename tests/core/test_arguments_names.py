"""No key is lost in silence: known, renamed where one name can be meant, passed on, or refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from forge.core.result import ToolResult
from forge.core.tool import Tool, tool
from tests.core.calling import at_most, call

OBJECT = {"type": "object"}
NAMED = {"name": {"type": "string"}}
AGED = {"age": {"type": "integer"}}


def taking(schema: dict[str, Any], **traits: Any) -> tuple[Tool, list[dict[str, Any]]]:
    """A tool that takes whatever it is given, and what it was given."""
    got: list[dict[str, Any]] = []

    def take(**arguments: Any) -> str:
        got.append(arguments)
        return "taken"

    return Tool.from_schema("take", "Take.", schema, take, **traits), got


def refusal(result: ToolResult) -> str:
    assert result.failure is not None, f"it was taken: {result}"
    assert result.failure.kind == "validation_error"
    return result.for_llm


ELSEWHERE: dict[str, Any] = {
    "oneOf": {
        **OBJECT,
        "oneOf": [{"properties": NAMED, "required": ["name"]}, {"properties": AGED, "required": ["age"]}],
    },
    "anyOf": {"anyOf": [{"properties": NAMED, "required": ["name"]}, {"properties": AGED}]},
    "allOf": {**OBJECT, "allOf": [{"properties": NAMED, "required": ["name"]}, {"properties": {"more": {}}}]},
    "$ref": {"$ref": "#/$defs/A", "$defs": {"A": {**OBJECT, "properties": NAMED, "required": ["name"]}}},
    "definitions": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/A",
        "definitions": {"A": {**OBJECT, "properties": NAMED, "required": ["name"]}},
    },
    "if and then": {
        **OBJECT,
        "properties": {"kind": {}},
        "if": {"properties": {"kind": {"const": "x"}}},
        "then": {"properties": NAMED},
    },
    "only required": {**OBJECT, "required": ["name"]},
    "nothing": OBJECT,
    "nothing at all": {},
    "a reference to itself": {**OBJECT, "properties": NAMED, "allOf": [{"$ref": "#"}]},
}


@pytest.mark.parametrize("schema", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_key_that_the_root_does_not_list_itself_arrives(schema):
    made, got = taking(schema)
    result = call(made, {"name": "ada"})
    assert result.success, result.for_llm
    assert got == [{"name": "ada"}]
    assert "repaired" not in result.data


@pytest.mark.parametrize(
    "schema",
    [schema for name, schema in ELSEWHERE.items() if "nothing" not in name],
    ids=[n for n in ELSEWHERE if "nothing" not in n],
)
def test_a_key_that_the_root_does_not_list_itself_is_renamed_too(schema):
    made, got = taking(schema)
    assert call(made, {"Name": "ada"}).data["repaired"] == ["Name → name"]
    assert got == [{"name": "ada"}]


def test_the_example_of_a_composed_schema_holds_what_its_first_branch_requires():
    made, _ = taking(ELSEWHERE["oneOf"])
    assert refusal(call(made, {})).endswith('Example: take(name="text")')
    made, _ = taking(ELSEWHERE["$ref"])
    assert refusal(call(made, {})).endswith('Example: take(name="text")')


def delete_orders(customer: str, order_status: str = "", order_limit: int = 0) -> str:
    """Delete orders."""
    return f"deleted {order_status or 'all'} of {customer}"


def orders(**more: Any) -> list[Tool]:
    """The same tool three times: typed, of a raw schema with its function, and of one that takes anything."""
    typed = tool(delete_orders)
    schema = {key: value for key, value in typed.spec.parameters.items() if key != "additionalProperties"} | more
    local = Tool.from_schema("delete_orders", "Delete.", schema, delete_orders)
    anything = Tool.from_schema(
        "delete_orders", "Delete.", schema, lambda **sent: f"deleted {sent.get('order_status') or 'all'} of ada"
    )
    return [typed, local, anything]


@pytest.mark.parametrize("key", ["orderStatus", "OrderStatus", "order-status", "ORDER_STATUS", "orderstatus"])
@pytest.mark.parametrize("more", [{}, {"additionalProperties": True}, {"additionalProperties": False}], ids=str)
def test_another_spelling_of_one_name_is_that_name(key, more):
    for made in orders(**more):
        result = call(made, {"customer": "ada", key: "old"})
        assert result.for_llm == "deleted old of ada"
        assert result.data["repaired"] == [f"{key} → order_status"]


@pytest.mark.parametrize("key", ["order_state", "order_statuss", "oder_status", "status", "order", "orderStatuses"])
def test_a_name_that_is_only_close_is_refused_with_the_nearest(key):
    for made in orders():
        words = refusal(call(made, {"customer": "ada", key: "old"}))
        assert f"{key}: unknown argument" in words
        assert "order_status" in words
    assert call(made, {"customer": "ada", "order_status": "old"}).success


def test_a_close_name_is_passed_on_once_the_name_itself_was_sent():
    schema = {**OBJECT, "properties": {"label": {}}}
    made, got = taking(schema)
    assert call(made, {"label": "a", "labels": ["b"], "Label": "c"}).success
    assert got == [{"label": "a", "labels": ["b"], "Label": "c"}]


def test_a_name_that_is_close_to_none_is_passed_on_where_the_schema_allows_it():
    typed, local, anything = orders()
    assert call(anything, {"customer": "ada", "colour": "red"}).success
    assert "colour: unknown argument" in refusal(call(typed, {"customer": "ada", "colour": "red"}))
    assert "colour: unknown argument" in refusal(call(local, {"customer": "ada", "colour": "red"}))
    (_, _, closed) = orders(additionalProperties=False)
    assert "colour: unknown argument" in refusal(call(closed, {"customer": "ada", "colour": "red"}))


def test_a_schema_that_declares_further_keys_only_refuses_slips():
    made, got = taking({**OBJECT, "properties": {"order_status": {}}, "additionalProperties": {"type": "string"}})
    assert call(made, {"order_state": "a", "order": "b"}).success
    assert got == [{"order_state": "a", "order": "b"}]
    refusal(call(made, {"order_statuz": "a"}))


def test_a_key_that_fits_a_pattern_is_known():
    made, got = taking({**OBJECT, "properties": {"value": {}}, "patternProperties": {"^val": {}}})
    assert call(made, {"valu": 1}).success
    assert call(made, {"valu": 1, "Value": 2}).data["repaired"] == ["Value → value"]
    assert got == [{"valu": 1}, {"valu": 1, "value": 2}]


def required(name: str, other: str = "") -> Tool:
    properties = {name: {"type": "string"}} | ({other: {"type": "string"}} if other else {})
    return taking({**OBJECT, "properties": properties, "required": [name]})[0]


@pytest.mark.parametrize("key", ["contnt", "contents", "contant", "cotnent", "Contnt"])
def test_one_slip_in_a_long_required_name_is_repaired(key):
    made = required("content")
    assert call(made, {key: "a"}).data["repaired"] == [f"{key} → content"]
    assert 'did you mean "content"?' in refusal(call(required("other_one", "content"), {"other_one": "", key: "a"}))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("path", "pathh"),
        ("size", "sizes"),
        ("content", "cnotnet"),
        ("content", "cont"),
        ("page1", "page2"),
        ("value", ""),
    ],
)
def test_a_short_name_two_slips_or_a_digit_are_not(name, key):
    refusal(call(required(name), {key: "a"}))
    assert call(required(name), {name: "a"}).success


def test_a_key_that_may_mean_two_names_is_refused():
    made, got = taking({**OBJECT, "properties": {"user_id": {}, "userId": {}}})
    assert "unknown argument" in refusal(call(made, {"USERID": 1}))
    assert call(made, {"userId": 1, "user_id": 2}).success
    assert got == [{"userId": 1, "user_id": 2}]
    made, _ = taking({**OBJECT, "properties": {"color": {}, "colon": {}}, "required": ["color", "colon"]})
    refusal(call(made, {"colox": 1}))


def test_two_keys_that_may_mean_one_name_are_refused():
    for made in orders():
        words = refusal(call(made, {"customer": "ada", "orderStatus": "old", "order-status": "new"}))
        assert "orderStatus: unknown argument" in words
        assert "order-status: unknown argument" in words


def test_an_alias_in_another_spelling_is_understood():
    made, got = taking({**OBJECT, "properties": {"path": {}}}, argument_aliases={"file_path": "path"})
    assert call(made, {"filePath": "a"}).success
    assert got == [{"path": "a"}]
    assert "file_path: unknown argument" in refusal(call(made, {"file_path": "a", "path": "b"}))


def test_a_strict_tool_renames_nothing():
    made, got = taking({**OBJECT, "properties": {"order_status": {}}}, strict=True)
    assert 'did you mean "order_status"?' in refusal(call(made, {"orderStatus": "old"}))
    assert call(made, {"order_status": "old", "colour": "red"}).success
    assert got == [{"order_status": "old", "colour": "red"}]


def test_a_function_that_cannot_take_a_key_never_gets_it():
    schema = {**OBJECT, "properties": {"a": {}}}
    made = Tool.from_schema("take", "Take.", schema, lambda a=1: f"took {a}")
    assert "zzz: unknown argument; known: a" in refusal(call(made, {"a": 2, "zzz": 3}))
    assert call(made, {"a": 2}).for_llm == "took 2"


def test_defaults_of_a_schema_are_filled_in_for_a_local_function():
    properties = {
        "limit": {"type": "integer", "default": 10},
        "wrong": {"type": "integer", "default": "many"},
        "tags": {"type": "array", "default": []},
    }
    made, got = taking({**OBJECT, "properties": properties})
    assert "repaired" not in call(made, {}).data
    got[0]["tags"].append("changed by the function")
    assert call(made, {"limit": None}).data["repaired"] == ["limit: null → the default"]
    assert call(made, {"limit": 3, "tags": ["a"]}).success
    assert got[1:] == [{"limit": 10, "tags": []}, {"limit": 3, "tags": ["a"]}]


def test_a_default_that_would_break_another_rule_is_left_out():
    schema = {**OBJECT, "properties": {"a": {"default": 1}, "b": {"default": 2}}, "dependentRequired": {"a": ["c"]}}
    made, got = taking(schema)
    assert call(made, {}).success
    assert call(made, {"c": 3}).success
    assert got == [{"b": 2}, {"c": 3, "a": 1, "b": 2}]


def take(order_status_of_x: str = "") -> str:
    """Take."""
    return "taken"


@pytest.mark.slow
def test_very_many_spellings_of_one_name_are_refused_quickly():
    spelt = {"".join(pair) for pair in itertools.product(*[(letter, f"{letter}_") for letter in "order_status_of_x"])}
    arguments = dict.fromkeys(sorted(spelt - {"order_status_of_x"})[:20_000], 1)
    raw, _ = taking({**OBJECT, "properties": {"order_status_of_x": {}}})
    for made in (tool(take), raw):
        with at_most(8):
            refusal(call(made, arguments))
        assert call(made, {"orderStatusOfX": "a"}).success


def test_a_large_schema_and_many_unknown_keys_are_judged_quickly():
    made, got = taking({**OBJECT, "properties": {f"parameter_number_{n}": {} for n in range(3_000)}})
    with at_most(12):
        assert call(made, {f"something_else_{n}": n for n in range(1_000)}).success
    assert len(got[0]) == 1_000


def test_very_many_unknown_keys_are_judged_quickly():
    made, got = taking({**OBJECT, "properties": {f"parameter_{letter}": {} for letter in "abcdefghij"}})
    with at_most(8):
        assert call(made, {f"key{n}": n for n in range(5_000)}).success
        assert call(made, {f"paramter_{n}": n for n in range(5_000)}).is_error
    assert len(got) == 1
    assert len(got[0]) == 5_000
