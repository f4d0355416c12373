"""Types as people write them."""

from __future__ import annotations

import re

import pytest

from forge.process.run_script.types import schema_of


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("str", {"type": "string"}),
        ("string", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("number", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array"}),
        ("dict", {"type": "object"}),
        ("any", {}),
        ("Any", {}),
        ("list[str]", {"type": "array", "items": {"type": "string"}}),
        ("string[]", {"type": "array", "items": {"type": "string"}}),
        ("Array<number>", {"type": "array", "items": {"type": "number"}}),
        ("dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("list[list[int]]", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        ("str | None", {"type": ["string", "null"]}),
        ("int | str | null", {"type": ["integer", "string", "null"]}),
        ("Optional[int]", {"type": ["integer", "null"]}),
        ('"a" | "b"', {"type": "string", "enum": ["a", "b"]}),
        ("('a' | 'b')", {"type": "string", "enum": ["a", "b"]}),
        ('Literal["a", 3]', {"enum": ["a", 3]}),
        ('"a" | None', {"enum": ["a", None]}),
        ('list["a" | "b"]', {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("int | list[int]", {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
        ("str | any", {}),
    ],
)
def test_what_is_written_becomes_a_schema(written, schema):
    assert schema_of(written) == schema


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "missing"),
        ("strng", "unknown type 'strng'; known types: str, int"),
        ("list[", "missing"),
        ("list[str", "']' is missing"),
        ("str]", "not expected"),
        ("str |", "missing"),
        ("int[str]", "does not take 1 types"),
        ("dict[str]", "does not take 1 types"),
        ("str; import os", "cannot be read"),
        ("list[" * 50 + "str" + "]" * 50, "nested"),
    ],
)
def test_what_is_no_type_is_refused_with_the_reason(written, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        schema_of(written)
