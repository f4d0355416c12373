"""JSON and its path language."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.tools.json_parse import pretty, read_json, read_path, render_path, select

DOCUMENT = json.dumps(
    {
        "users": [{"name": "Ada", "tags": ["x", "y"]}, {"name": "Bob", "tags": []}],
        "x.y": {"deep": 1},
        "codes": {"0": "zero"},
        "é": "accent",
        "empty": [],
    }
)


def test_json_comes_back_with_two_spaces_of_indentation(value):
    assert value("json_parse", data='{"a":[1,{"b":null}],"c":{},"d":true}') == (
        '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ],\n  "c": {},\n  "d": true\n}'
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("users[0].name", "Ada"),
        ("users.1.name", "Bob"),
        ("users[-1].name", "Bob"),
        (".users[0].name", "Ada"),
        ("$.users[0].name", "Ada"),
        ("$", json.loads(DOCUMENT)),
        ("", json.loads(DOCUMENT)),
        ("users[*].name", ["Ada", "Bob"]),
        ("users.*.name", ["Ada", "Bob"]),
        ("users[*].tags[*]", ["x", "y"]),
        ("users[*].tags", [["x", "y"], []]),
        ('["x.y"].deep', 1),
        ("['x.y'].deep", 1),
        ('["x\\u002ey"]["deep"]', 1),
        ("codes.0", "zero"),
        ("é", "accent"),
        ("empty[*].anything", []),
    ],
)
def test_a_query_picks_a_part(value, query, found):
    assert json.loads(value("json_parse", data=DOCUMENT, query=query)) == found


@pytest.mark.parametrize(
    ("query", "words", "suggestion"),
    [
        ("users[0].nam", 'users[0] has the keys "name", "tags"', "users[0].name"),
        ("users[7]", "users is a list with the indices 0 to 1", ""),
        ("users.name", "users is a list", "users[*].name"),
        ("users[0].name.first", "users[0].name is a string", ""),
        ("empty[0]", "empty is an empty list", ""),
        ("nothing", "the document has the keys", ""),
        ("users[*].age", "users[*] has the keys", ""),
    ],
)
def test_a_missing_path_names_the_deepest_part_that_exists(refusal, query, words, suggestion):
    failure = refusal("json_parse", data=DOCUMENT, query=query)
    assert failure.kind == "not_found"
    assert words in failure.message
    assert suggestion in failure.suggestion


def test_items_without_the_key_are_left_out_with_a_warning(shared_bench):
    result = shared_bench.call("json_parse", data='[{"a": 1}, {"b": 2}, 3]', query="[*].a")
    assert result.data["value"] == [1]
    assert "left out: 2" in result.data["warning"]


@pytest.mark.parametrize("query", ["a.", "a..b", "a[", "a[]", "a[b]", "a[0]b", 'a["b]', "a['b", "[", "]", "a" * 1_001])
def test_a_query_that_cannot_be_read_is_refused(refusal, query):
    failure = refusal("json_parse", data="{}", query=query)
    assert failure.kind == "validation_error"
    assert "users[0].name" in failure.suggestion


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"a": 1,}', "line 1, column", "⟨here⟩"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3", "b"),
        ("{'a': 1}", "line 1, column 2", "double quotes"),
        ("[1, 2", "line 1, column 6", "⟨here⟩"),
        ("nope", "line 1, column 1", "nope"),
        ('{"a": NaN}', "line 1, column 7", "NaN is not JSON"),
        (r'["\"NaN\\", "\\\"", NaN]', "line 1, column 21", "NaN is not JSON"),
        ('["NaN", -Infinity]', "line 1, column 9", "-Infinity is not JSON"),
        ('"a\nb"', "line 1, column 3", "control character"),
        ("x" * 1_000_000, "line 1, column 1", "…"),
    ],
)
def test_a_syntax_error_is_shown_with_its_place(refusal, text, place, words):
    message = refusal("json_parse", data=text).message
    assert place in message
    assert words in message
    assert len(message) < 300


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_text_is_refused(refusal, text):
    assert refusal("json_parse", data=text).kind == "validation_error"


@pytest.mark.parametrize(
    "number",
    [
        str(2**64 + 1),
        "9" * 4_000,
        "9" * 6_000,
        "-" + "8" * 6_000,
        "1e400",
        "1e-400",
        "0.12345678901234567890123",
        "-1.5",
    ],
)
def test_numbers_stay_exactly_as_they_were(value, number):
    assert value("json_parse", data=f"[{number}]", query="[0]") == number


def test_a_repeated_key_is_said_out_loud(shared_bench):
    result = shared_bench.call("json_parse", data='{"a": 1, "a": 2, "b": {"c": 1, "c": 2}}')
    assert result.data["value"] == {"a": 2, "b": {"c": 2}}
    assert "'a'" in result.data["warning"]
    assert "'c'" in result.data["warning"]


def test_keys_that_occur_once_give_no_warning(shared_bench):
    assert "warning" not in shared_bench.call("json_parse", data='[{"a": 1}, {"a": 2}]').data


def test_a_byte_order_mark_is_no_obstacle(value):
    assert value("json_parse", data="\ufeff[]") == "[]"


def test_half_a_surrogate_pair_stays_an_escape(value):
    assert value("json_parse", data='"\\ud800 \\ud83d\\ude00"') == '"\\ud800 😀"'


@pytest.mark.parametrize("depth", [201, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_that_is_too_deep_is_refused(refusal, depth, opening, closing):
    failure = refusal("json_parse", data=opening * depth + "1" + closing * depth)
    assert "levels deep" in failure.message


def test_json_that_is_just_deep_enough_is_read(value):
    assert value("json_parse", data="[" * 200 + "]" * 200).count("[") == 200


@pytest.mark.slow
def test_indentation_that_would_grow_out_of_hand_is_left_out():
    text = pretty(read_json("[" * 199 + ",".join("1" * 400_000) + "]" * 199)[0])
    assert "\n" not in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_reads_back_the_same(document):
    text = pretty(document)
    assert json.loads(text) == document
    assert pretty(read_json(text)[0]) == text


@given(json_values, st.data())
def test_every_place_in_a_document_has_a_path(document, data):
    steps, here = [], document
    while isinstance(here, dict | list) and here and data.draw(st.booleans()):
        step = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        steps.append(step)
        here = here[step]
    path = render_path(steps)
    if len(path) <= 1_000:
        assert read_path(path) == steps
    assert select(document, steps) == (here, 0)


@pytest.mark.parametrize("key", ["*", "$", "", ".", "0", "-1", " a ", '"', "'", "[0]", "a.b", "\\", "\n", "é"])
def test_a_key_of_any_spelling_can_be_named(key):
    assert read_path(render_path([key])) == [key]


@given(st.text(max_size=50) | st.text('ab.[]0*"$\\ ', max_size=20), json_values)
def test_any_query_is_answered_or_explained(query, document):
    with suppress(ToolError):
        select(document, read_path(query))
