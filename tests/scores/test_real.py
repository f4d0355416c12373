"""The readers of the answers of a real model, with answers of our own."""

from __future__ import annotations

import pytest

from forge import Scripted, ToolCall
from scores import real
from scores.bfcl import Case

CASE = Case(
    "one",
    "What is the weather in Rome?",
    [
        {
            "name": "get_weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "dict",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        }
    ],
    [],
)
SENT = {"city": "Rome", "days": 2}


@pytest.mark.parametrize("name", [*real.DIALECTS])
async def test_a_call_in_the_form_of_its_dialect_is_valid_as_written(name):
    pytest.importorskip("jsonschema")
    dialect, tool = real.DIALECTS[name], real.make_tool(CASE)
    right = dialect.write("get_weather", SENT)
    assert await real.read_text(right, name, dialect, tool) == (True, True)
    unknown = dialect.write("get_time", SENT)
    assert await real.read_text(unknown, name, dialect, tool) == (False, False)
    wrong = dialect.write("get_weather", {"days": 2})
    assert await real.read_text(wrong, name, dialect, tool) == (False, False)
    assert await real.read_text("It is sunny.", name, dialect, tool) == (False, False)


@pytest.mark.parametrize("name", ["hermes", "mistral", "llama", "react"])
async def test_a_call_that_is_almost_valid_is_so_with_repair(name):
    pytest.importorskip("jsonschema")
    dialect = real.DIALECTS[name]
    damaged = dialect.write("get_weather", SENT).replace(": 2", ': "2"')
    assert await real.read_text(damaged, name, dialect, real.make_tool(CASE)) == (False, True)


async def test_a_native_call_is_judged_as_it_is_and_with_repair():
    pytest.importorskip("jsonschema")
    tool = real.make_tool(CASE)
    assert await real.read_calls([ToolCall("get_weather", '{"city": "Rome"}')], tool) == (True, True)
    assert await real.read_calls([ToolCall("get_weather", '{"city": "Rome", "days": "2"}')], tool) == (False, True)
    assert await real.read_calls([ToolCall("get_weather", '{"city": ["Ro')], tool) == (False, False)
    assert await real.read_calls([], tool) == (False, False)


async def test_every_way_has_a_row_as_written_and_one_with_repair():
    pytest.importorskip("jsonschema")
    answers = [dialect.write("get_weather", SENT) for dialect in real.DIALECTS.values()]
    hermes = answers[0].replace("tool_call", "tool").replace('"name"', '"tool_name"')
    model = Scripted(*answers, "No.", "No.", hermes)
    rows = await real.measure(model, [CASE])
    found = {row.measure: row.passed for row in rows}
    assert len(rows) == 2 * (len(real.DIALECTS) + 3)
    assert found["native calls: valid as written"] == 0
    assert found["gemma: valid as written"] == found["calls in text: valid with repair"] == 1
