"""Every keyword of JSON Schema through a tool, as a parameter and as the root, in the form of the public suite.

The public suite is not copied here: `make scores SUITE=json_schema` runs it, or this file with
`FORGE_JSON_SCHEMA_SUITE=path`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from scores.json_schema import DRAFTS, PLACES, Case, cases, decided, outcome

BOTH = tuple(DRAFTS)
OLD, NEW = BOTH

# the schema, instances that are valid, instances that are not, and the drafts that know it
GROUPS: list[tuple[dict[str, Any], list[Any], list[Any], tuple[str, ...]]] = [
    ({}, [{}, {"a": None}, {"a": {"b": [1, 1.0, True, "1"]}}], [], BOTH),
    ({"type": "object"}, [{}, {"foo": 1}], [], BOTH),
    ({"properties": {"foo": {"type": "integer"}}}, [{}, {"foo": 1}, {"quux": []}], [{"foo": []}, {"foo": True}], BOTH),
    ({"required": ["foo"]}, [{"foo": None}, {"foo": 1, "x": 2}], [{}, {"x": 1}], BOTH),
    ({"additionalProperties": False, "properties": {"foo": {}}}, [{}, {"foo": 1}], [{"quux": 1}], BOTH),
    ({"additionalProperties": {"type": "boolean"}}, [{"a": True}], [{"a": 1}], BOTH),
    ({"patternProperties": {"f.*o": {"type": "integer"}}}, [{"foo": 1, "bar": ""}], [{"foo": "x"}], BOTH),
    ({"propertyNames": {"maxLength": 3}}, [{"foo": 1}], [{"foobar": 1}], BOTH),
    ({"minProperties": 1, "maxProperties": 2}, [{"a": 1}], [{}, {"a": 1, "b": 2, "c": 3}], BOTH),
    ({"oneOf": [{"required": ["foo"]}, {"required": ["bar"]}]}, [{"foo": 1}], [{}, {"foo": 1, "bar": 2}], BOTH),
    ({"anyOf": [{"required": ["foo"]}, {"required": ["bar"]}]}, [{"foo": 1, "bar": 2}], [{"x": 1}], BOTH),
    ({"allOf": [{"required": ["foo"]}, {"required": ["bar"]}]}, [{"foo": 1, "bar": 2}], [{"foo": 1}], BOTH),
    ({"not": {"required": ["foo"]}}, [{"bar": 1}], [{"foo": 1}], BOTH),
    (
        {"if": {"required": ["foo"]}, "then": {"required": ["bar"]}, "else": {"required": ["baz"]}},
        [{"foo": 1, "bar": 2}, {"baz": 3}],
        [{"foo": 1}, {"bar": 1}],
        BOTH,
    ),
    ({"dependencies": {"foo": ["bar"], "baz": {"required": ["x"]}}}, [{"bar": 1}], [{"foo": 1}, {"baz": 1}], (OLD,)),
    ({"dependentRequired": {"foo": ["bar"]}}, [{"foo": 1, "bar": 2}], [{"foo": 1}], (NEW,)),
    ({"dependentSchemas": {"foo": {"required": ["bar"]}}}, [{"foo": 1, "bar": 2}], [{"foo": 1}], (NEW,)),
    (
        {"$ref": "#/definitions/a", "definitions": {"a": {"required": ["foo"]}}},
        [{"foo": 1, "bar": 2}],
        [{"bar": 2}],
        (OLD,),
    ),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"required": ["foo"]}}}, [{"foo": 1}], [{"bar": 2}], (NEW,)),
    (
        {"properties": {"foo": {"$ref": "#"}}, "additionalProperties": False},
        [{"foo": {"foo": {}}}],
        [{"foo": {"b": 1}}],
        BOTH,
    ),
    ({"unevaluatedProperties": False, "allOf": [{"properties": {"foo": {}}}]}, [{"foo": 1}], [{"quux": 1}], (NEW,)),
    ({"properties": {"foo": {"items": [{"type": "integer"}, {}]}}}, [{"foo": [1, "x"]}], [{"foo": ["x"]}], (OLD,)),
    ({"properties": {"foo": {"prefixItems": [{"type": "integer"}]}}}, [{"foo": [1, "x"]}], [{"foo": ["x"]}], (NEW,)),
    ({"properties": {"foo": {"const": {"a": False}}}}, [{"foo": {"a": False}}], [{"foo": {"a": 0}}], BOTH),
    ({"properties": {"foo": {"enum": [1, "x", None]}}}, [{"foo": None}], [{"foo": True}, {"foo": "y"}], BOTH),
    ({"properties": {"foo": {"uniqueItems": True}}}, [{"foo": [1, True]}], [{"foo": [1, 1.0]}], BOTH),
    ({"properties": {"foo": {"maxLength": 2.0}}}, [{"foo": "💩💩"}], [{"foo": "abc"}], BOTH),
    ({"properties": {"foo": {"multipleOf": 0.01}}}, [{"foo": 0.07}], [{"foo": 0.075}], BOTH),
    (
        {"properties": {"foo": {"type": "integer"}}},
        [{"foo": 1.0}, {"foo": 98249283749234923498293171823948729348710298301928331}],
        [{"foo": 1.1}],
        BOTH,
    ),
    ({"properties": {"foo": {"type": ["string", "null"]}}}, [{"foo": None}, {"foo": "null"}], [{"foo": 1}], BOTH),
    ({"properties": {"foo": {"format": "ipv4"}}}, [{"foo": "127.0.0.1"}, {"foo": 1}], [{"foo": "127.0.0.256"}], BOTH),
    ({"properties": {"foo": {"default": 7}}}, [{}, {"foo": 8}], [], BOTH),
]
CASES = [
    Case(draft, "own", json.dumps(schema), schema, "", data, valid)
    for schema, right, wrong, drafts in GROUPS
    for draft in drafts
    for valid, instances in ((True, right), (False, wrong))
    for data in instances
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.draft}-{case.group[:60]}-{json.dumps(case.data)[:40]}")
def test_no_valid_instance_is_changed_and_no_invalid_one_accepted(case, place):
    strict, lenient = outcome(case, place, strict=True), outcome(case, place)
    assert strict is not None
    assert strict.kind == "right", strict
    assert lenient is not None
    assert lenient.kind in ("right", "repaired"), lenient


def test_the_runner_sees_a_change_and_a_wrong_acceptance():
    """It must be able to fail: a case that says the opposite of the truth."""
    lie = Case(NEW, "own", "", {"required": ["foo"]}, "", {"foo": 1}, False)
    found = outcome(lie, "root")
    assert found is not None
    assert found.kind == "accepted"
    lie = lie._replace(data={}, valid=True)
    found = outcome(lie, "root")
    assert found is not None
    assert found.kind == "refused"
    assert decided(lie, found) == ""


@pytest.mark.skipif(
    "FORGE_JSON_SCHEMA_SUITE" not in os.environ, reason="the public suite is run by `make scores SUITE=json_schema`"
)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_public_suite_differs_only_where_that_is_decided(draft, place):
    source = Path(os.environ["FORGE_JSON_SCHEMA_SUITE"])
    for case in cases(source, draft):
        for strict in (True, False):
            found = outcome(case, place, strict=strict)
            if found is not None and found.kind not in ("right", "repaired"):
                assert decided(case, found), f"{case.label}: {found}"
