"""Text of others, before it is shown to anybody."""

from __future__ import annotations

import time

import pytest

from forge.core.untrusted import clean, clean_schema, one_line


def test_words_lines_and_other_scripts_stay_as_they_are():
    text = "Résumé of\n\tthe 日本 repository – ok ✅."
    assert clean(text) == text


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[31mred\x1b[0m",
        "\x9b31mred",
        "\x1b]0;a new title\x07red",
        "\x1b]8;;https://evil.example\x1b\\red\x1b]8;;\x1b\\",
        "\x1bcred",
        "r\u200be\u2060d",
        "\u202ered\u202c",
        "red\U000e0041\U000e0042",
        "r\x00e\x07d\x08",
        "\ufe0fred\u3164",
        "red\ud800",
    ],
)
def test_what_steers_a_terminal_or_is_not_seen_is_gone(hostile):
    assert clean(hostile) == "red"


def test_what_is_long_is_cut_and_says_so():
    assert clean("x" * 10, 10) == "x" * 10
    assert clean("x" * 11, 10) == "x" * 9 + "…"


def test_nothing_is_what_is_left_of_what_is_no_text():
    assert clean(None) == clean(["a"]) == clean(7) == ""


def test_a_flood_costs_no_time():
    began = time.process_time()
    for flood in ("\u200b" * 5_000_000, "\x1b]" * 5_000_000, "\n" * 5_000_000, "a\u0301" * 5_000_000):
        assert len(clean(flood, 2_000)) <= 2_000
    assert time.process_time() - began < 2


def test_a_name_is_one_line():
    assert one_line(" a\n\n b\tc\r\nd ") == "a b c d"


def test_only_the_texts_of_a_schema_are_cleaned():
    schema = {
        "description": "\x1b[1mBold",
        "properties": {"description": {"type": "string", "enum": ["a\u200bb"], "title": "A\u200b"}},
        "required": ["description"],
        "allOf": [{"description": "x\x07"}],
    }
    assert clean_schema(schema) == {
        "description": "Bold",
        "properties": {"description": {"type": "string", "enum": ["a\u200bb"], "title": "A"}},
        "required": ["description"],
        "allOf": [{"description": "x"}],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a\x1b[2J": {}}},
        {"enum": ["\x1b[31m"]},
        {"properties": {"a": {"default": {"x": ["\x9b1m"]}}}},
        {"properties": {"a": {"const": "\ud800"}}},
    ],
)
def test_a_name_or_value_that_would_steer_a_terminal_is_refused(schema):
    with pytest.raises(ValueError, match="control characters"):
        clean_schema(schema)


def test_a_value_with_lines_and_tabs_is_fine():
    assert clean_schema({"enum": ["a\nb\t", "\r\n"]}) == {"enum": ["a\nb\t", "\r\n"]}


def test_a_number_that_json_has_not_is_refused_and_as_a_default_left_out():
    assert clean_schema({"type": "number", "default": float("inf")}) == {"type": "number"}
    assert clean_schema({"properties": {"default": {"default": 1.5}}}) == {"properties": {"default": {"default": 1.5}}}
    for bad in ({"maximum": float("inf")}, {"enum": [1, float("nan")]}, {"default": [float("inf")]}):
        with pytest.raises(ValueError, match="is not a valid JSON number"):
            clean_schema(bad)
