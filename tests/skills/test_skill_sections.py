"""What a skill's `## Tool:` sections say."""

from __future__ import annotations

import time

import pytest

from forge.skills.skill import read_sections

LISTED = """\
# Weather

## Tool: weather_now
Tells the weather
of a city.

**Input:**
- city (str): Where.
- `days` (int) = 3: How many.
- units ("metric" | "imperial", optional): Of the answer.

**Output:** JSON with `days`.

## Notes
Nothing.
"""


def only(body: str):
    (found,) = read_sections(body)
    assert not found.problem, found.problem
    return found


def test_a_list_of_inputs():
    found = only(LISTED)
    assert found.name == "weather_now"
    assert found.description == "Tells the weather of a city.\n\nOutput: JSON with `days`."
    assert found.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "default": 3, "description": "How many."},
            "units": {"type": "string", "enum": ["metric", "imperial"], "description": "Of the answer."},
        },
        "required": ["city"],
    }
    assert found.defaults == {"days": 3}


def test_a_table_of_inputs():
    found = only(
        "## Tool: a\nA.\n\n**Input:**\n\n| Parameter | Type | Required | Default | Description |\n"
        "|---|:--|---|---|---|\n| `city` | string | yes | | Where. |\n| days | integer | no | 3 | How many. |\n"
        "| units | string | no | - | Of it. |\n"
    )
    assert found.parameters["required"] == ["city"]
    assert found.defaults == {"days": 3}
    assert found.parameters["properties"]["units"] == {"type": "string", "description": "Of it."}


def test_inputs_on_one_line():
    for line in (
        "**Input:** query (string): What, to find. max_results stays out, limit (int, optional): Most.",
        "**Input:** query (string) - What to find, limit (integer, optional) — Most.",
        "**Input:** `query` (string), `limit` (integer, optional)",
        "**Inputs:** query: string, limit (integer, default 5): Most.",
        "**Parameters**: query (str, required): What. \n\n- limit (int, default: 5): Most.",
    ):
        found = only(f"## Tool: search\nSearches.\n{line}\n")
        assert list(found.parameters["properties"]) == ["query", "limit"], line
        assert found.parameters["required"] == ["query"], line
        assert found.parameters["properties"]["limit"]["type"] == "integer"


def test_no_inputs():
    for line in ("", "**Input:** none", "**Input:**\n\n"):
        assert only(f"## Tool: a\nA.\n{line}").parameters == {"type": "object", "properties": {}}


def test_where_some_are_marked_as_required_the_others_are_optional():
    found = only("## Tool: a\nA.\n**Input:** a (integer, required): One, b (integer): Two, c (integer) = 3: Three\n")
    assert found.parameters["required"] == ["a"]
    assert list(found.parameters["properties"]) == ["a", "b", "c"]
    found = only("## Tool: a\nA.\n**Input:**\n- a (integer, Required)\n- b (integer)\n")
    assert found.parameters["required"] == ["a"]
    table = "| Name | Type | Required |\n|---|---|---|\n| a | integer | yes |\n| b | integer | |\n"
    assert only(f"## Tool: a\nA.\n**Input:**\n\n{table}").parameters["required"] == ["a"]


def test_where_none_is_marked_all_are_required_but_the_optional_ones():
    found = only("## Tool: a\nA.\n**Input:** a (integer): One, b (integer, optional): Two\n")
    assert found.parameters["required"] == ["a"]
    table = "| Name | Type |\n|---|---|\n| a | integer |\n| b | integer |\n"
    assert only(f"## Tool: a\nA.\n**Input:**\n\n{table}").parameters["required"] == ["a", "b"]


def test_the_script_may_be_named():
    assert only("## Tool: a\nA.\n**Script:** `bin/run.sh`\n**Input:** x (str): y").script == "bin/run.sh"


def test_code_blocks_hold_no_sections():
    assert read_sections("```md\n## Tool: a\nA.\n```\n\n~~~\n## Tool: b\n~~~\n") == []
    assert [one.name for one in read_sections("## Tool: a\nA.\n```\n# comment\n## Tool: b\n```\n## Tool: c\nC.\n")] == [
        "a",
        "c",
    ]


def test_mistakes_are_told_with_their_line():
    (found,) = read_sections("\n## Tool: a\nA.\n\n**Input:**\n- x (strng): y\n", 10)
    assert found.problem.startswith("line 15: x: the type 'strng'")
    (found,) = read_sections("## Tool: a\nA.\n**Input:**\n- x (str): y\n- x (str): z\n")
    assert found.problem == "line 5: x is declared twice"


def test_a_section_without_words_has_a_description_all_the_same():
    assert only("## Tool: a\n").description == "a, a tool of a skill."


@pytest.mark.parametrize(
    "line",
    [
        f"- a (str{' ' * 100_000}x): b",
        f"- a (str) {' ' * 100_000}x",
        f"- {'a (str), ' * 100_000}",
        f"|{' ' * 100_000}|\n|{'-' * 100_000}|\n|{' ' * 100_000}x|",
        f"- a ({'|'.join(['str'] * 50_000)}): x",
    ],
    ids=["type", "text", "many", "table", "union"],
)
def test_a_line_without_end_is_read_at_once(line):
    began = time.process_time()
    assert read_sections(f"## Tool: one\n**Input:**\n{line}\n")[0].problem
    assert time.process_time() - began < 2


def test_wide_gaps_mean_nothing():
    (one,) = read_sections(f"## Tool: one\n**Input:**\n-{' ' * 50}a (str){' ' * 50}: What.\n\n{'And more. ' * 2_000}\n")
    assert (one.problem, one.parameters["properties"]["a"]["description"]) == ("", "What.")
