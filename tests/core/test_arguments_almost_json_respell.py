"""The quick way to read a text that is almost JSON never reads another call than the thorough way."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from forge.core.arguments.almost_json import _respell, load, scan
from forge.core.errors import ToolError
from forge.core.tool import tool
from tests.core.calling import call

VALUES: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": "x,}", "b": [1, {"c": None}]},
    {"a": "it's", "b": True},
    {"a": "None, True", "b": False, "None": None},
    {"a": "{", "b": "}"},
    {"a": 'say "yes"', "b": "back\\slash"},
    {"a": "```json", "b": "'"},
    {"True": "True"},
]
SPELLINGS = [
    json.dumps,
    repr,
    lambda value: json.dumps(value).replace('"', "'"),
    lambda value: json.dumps(value)[:-1] + ",}",
    lambda value: json.dumps(value)[:-1] + " , }",
    lambda value: repr(value)[:-1] + ",}",
    lambda value: json.dumps(value)[:-1],
    lambda value: json.dumps(value) + "}",
    lambda value: json.dumps(value)[:-1] + ",,}",
]
FRAMES = ["{}", "```json\n{}\n```", "{}\n\nThat is the call.", "Call: {}", " {}\n", "[{}]", "{} {{", "{} and {{}}"]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_text_that_is_respelt_is_the_object_that_its_tokens_spell(frame):
    respelt = 0
    for value, spell in product(VALUES, SPELLINGS):
        text = frame.format(spell(value)).strip()
        start = text.index("{")
        quickly = _respell(text, start)
        if quickly is None:
            continue
        respelt += 1
        found = scan(text, start)
        assert found is not None, text
        assert (load(quickly.json), quickly.end) == (load(found.json), found.end), text
        assert (quickly.kinds, quickly.missing) == (found.kinds, found.missing), text
    assert respelt or "{{" in frame or frame == "[{}]", frame


@pytest.mark.parametrize("text", ["{", "{,}", "{ , }", "{'", "```json\n{,}\n```", '"{"', '"\\u004eaN {}"', '["{}"]'])
def test_a_text_without_an_object_is_not_respelt(text):
    assert _respell(text, text.index("{")) is None


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
