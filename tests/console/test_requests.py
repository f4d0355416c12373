"""What is asked for is bounded, and what is saved cannot choose its type or write headers."""

from __future__ import annotations

import json

import pytest

from forge.console.api.requests import ApiRequest, Download, _response, json_response
from forge.core.errors import ToolError


@pytest.mark.parametrize(
    "name",
    ['a".html\r\nset-cookie: x=1', "../../x.html", "ü\u202eexe.png", "", "\0", "x" * 1_000, "a;b,c", "\ud800.txt"],
)
def test_a_download_has_a_name_that_is_harmless(name):
    answer = _response(Download(name.encode("utf-8", "replace").decode(), b"<script>"))
    assert answer.headers["content-type"] == "application/octet-stream"
    said = answer.headers["content-disposition"]
    assert said.startswith('attachment; filename="')
    assert said.isprintable()
    plain = said.partition('filename="')[2].partition('"')[0]
    assert plain
    assert not set(plain) & set('/\\"\r\n;')
    assert answer.body == b"<script>"


def test_what_json_cannot_hold_is_written_all_the_same():
    odd = {"a": float("nan"), "b": float("inf"), "d": {"e": {1, 2}}}
    for value in (odd, {**odd, "c": "\ud800"}):
        found = json.loads(bytes(json_response(value).body), parse_constant=pytest.fail)
        assert found["d"] == {"e": [1, 2]}


def test_numbers_and_texts_are_bounded():
    asked = ApiRequest(
        {}, {"limit": "999999999", "after": "-5", "bad": "1e9", "text": "x" * 3_000}, {"prompt": "x" * 300_000}
    )
    assert asked.number("limit", 50, 1, 200) == 200
    assert asked.number("after", 0, 0, 10) == 0
    assert asked.number("none", 7, 0, 10) == 7
    for look in (
        lambda: asked.number("bad", 0, 0, 1),
        lambda: asked.text("text"),
        lambda: asked.body_text("prompt"),
        lambda: asked.body_text("nothing"),
        lambda: asked.body_object("prompt"),
    ):
        with pytest.raises(ToolError):
            look()
    assert asked.body_text("nothing", needed=False) == ""
