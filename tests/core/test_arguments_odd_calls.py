"""Odd calls of models: each is repaired because it has one reading, or explained. None is lost or taken wrongly."""

from __future__ import annotations

import asyncio
from datetime import date, datetime
from typing import Any, Literal

import pytest

from forge import Scope, ToolCall, rules, tool
from forge.core.errors import ErrorKind
from forge.core.registry import ToolRegistry
from forge.core.result import ToolResult
from forge.pipeline import standard_executor

received: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _nothing_received() -> None:
    received.clear()


@tool(permissions={"read"})
async def look(
    city: str,
    count: int = 1,
    tags: list[str] = [],  # noqa: B006
    price: float = 0.0,
    exact: bool = False,
    mode: Literal["fast", "slow"] = "fast",
    options: dict[str, Any] = {},  # noqa: B006
    day: date | None = None,
    at: datetime | None = None,
) -> str:
    """Look something up in a city, for the tests of odd calls."""
    given = {"city": city, "count": count, "tags": tags, "price": price, "exact": exact, "mode": mode}
    received.append({**given, "options": options, "day": day, "at": at})
    return "looked"


@tool(permissions={"write"}, target="path")
async def put(path: str, text: str = "") -> str:
    """Put a text into a file, for the tests of odd calls."""
    received.append({"path": path, "text": text})
    return "put"


DEFAULTS: dict[str, dict[str, Any]] = {
    "look": {
        "count": 1,
        "tags": [],
        "price": 0.0,
        "exact": False,
        "mode": "fast",
        "options": {},
        "day": None,
        "at": None,
    },
    "put": {"text": ""},
}


def call(name: str, text: str) -> ToolResult:
    executor = standard_executor(ToolRegistry([look, put]), policy=rules("allow read", "allow write"))
    return asyncio.run(executor.execute(ToolCall(name, text), Scope()))


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("look", "```json\n{'city': 'Oslo', 'count': '3',}\n```", {"city": "Oslo", "count": 3}),
        (
            "look",
            'Sure! ```\n{"City": "Oslo", "tags": "[\'a\', \'b\']"}\n``` done',
            {"city": "Oslo", "tags": ["a", "b"]},
        ),
        ("look", '"{\\"arguments\\": {\\"city\\": \\"Oslo\\", \\"count\\": \\"2\\"}}"', {"city": "Oslo", "count": 2}),
        ("look", '{"arguments": "{\\"city\\": \\"Oslo\\", \\"exact\\": \\"True\\"}"}', {"city": "Oslo", "exact": True}),
        ("look", "{'arguments': {'City': 'Oslo', 'Exact': True}}", {"city": "Oslo", "exact": True}),
        ("look", '{"input": {"arguments": {"city": "Oslo"}}}', {"city": "Oslo"}),
        ("look", '{"name": "look", "arguments": {"city": "Oslo"}}', {"city": "Oslo"}),
        ("look", '{"type": "function", "function": {"name": "look", "arguments": {"city": "Oslo"}}}', {"city": "Oslo"}),
        ("look", '{"function": {"name": "look", "arguments": "{\\"city\\": \\"Oslo\\"}"}}', {"city": "Oslo"}),
        ("look", '{"tool": "look", "parameters": {"city": "Oslo"}}', {"city": "Oslo"}),
        ("look", '{"action": "look", "action_input": {"city": "Oslo"}}', {"city": "Oslo"}),
        ("look", "{\u201ccity\u201d: \u201cOslo\u201d}", {"city": "Oslo"}),
        ("look", "{\u201ccity\u201d: \u201cOslo\u201d, \u201ccount\u201d: 2}", {"city": "Oslo", "count": 2}),
        ("look", '{"city": \u201cOslo\u201d}', {"city": "Oslo"}),
        ("look", "{\u2018city\u2019: \u2018Oslo\u2019}", {"city": "Oslo"}),
        ("look", '{"city": "the \u201cold\u201d Oslo"}', {"city": "the “old” Oslo"}),
        ("look", '{"city": "Oslo", // the capital\n "count": 2}', {"city": "Oslo", "count": 2}),
        ("look", '{"city": "Oslo" /* capital */, "count": 2}', {"city": "Oslo", "count": 2}),
        ("look", '{"city": "http://a//b", # c\n "count": 2}', {"city": "http://a//b", "count": 2}),
        ("look", '{"city": "Oslo // not a comment"}', {"city": "Oslo // not a comment"}),
        ("look", '{"city": "Oslo", "count": 1e2}', {"city": "Oslo", "count": 100}),
        ("look", '{"city": "Oslo", "count": 2.0}', {"city": "Oslo", "count": 2}),
        ("look", '{"city": "Oslo", "count": +3}', {"city": "Oslo", "count": 3}),
        ("look", '{"city": "Oslo", "price": .5}', {"city": "Oslo", "price": 0.5}),
        ("look", '{"city": "Oslo", "price": 5.}', {"city": "Oslo", "price": 5.0}),
        ("look", '{"city": "Oslo", "city": "Rome"}', {"city": "Rome"}),
        ("look", '{"city": "Oslo"}{"city": "Oslo"}', {"city": "Oslo"}),
        ("look", '{"city": "Oslo", "tags": "a"}', {"city": "Oslo", "tags": ["a"]}),
        ("look", '<tool_call>{"name": "look", "arguments": {"city": "Oslo"}}</tool_call>', {"city": "Oslo"}),
        ("look", '<arguments>{"city": "Oslo"}</arguments>', {"city": "Oslo"}),
        ("look", '{"city": "Oslo", "count": 1_000}', {"city": "Oslo", "count": 1000}),
        ("look", '{"city": "Oslo", "day": "2026-11-16"}', {"city": "Oslo", "day": date(2026, 11, 16)}),
        ("look", '{"city": "Oslo", "at": "2026-11-16 10:00"}', {"city": "Oslo", "at": datetime(2026, 11, 16, 10, 0)}),
        ("look", '{"city": "Oslo", "mode": "FAST"}', {"city": "Oslo"}),
        ("put", '{"path": "a", "text": "line\nline"}', {"path": "a", "text": "line\nline"}),
        ("put", '{"path": "a", "text": "tab\there"}', {"path": "a", "text": "tab\there"}),
        ("put", '{"path": "a", "text": "C:\\new"}', {"path": "a", "text": "C:\new"}),
        ("put", '{path: "a", text: "x"}', {"path": "a", "text": "x"}),
        ("put", '{"path": "a", "text": null}', {"path": "a"}),
        ("put", '\ufeff{"path": "a"}', {"path": "a"}),
        ("put", '{"path": "a"}\x00', {"path": "a"}),
        ("put", '{"path": " a ", "text": "x"}', {"path": " a ", "text": "x"}),
    ],
)
def test_a_call_with_one_reading_gets_the_arguments_that_were_meant(name: str, text: str, meant: dict[str, Any]):
    result = call(name, text)
    assert result.success, result.for_llm
    assert received == [{**DEFAULTS[name], **meant}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("look", '{"name": "put", "arguments": {"city": "Oslo"}}'),
        ("look", "{\xabcity\xbb: \xabOslo\xbb}"),
        ("look", "{`city`: `Oslo`}"),
        ("look", '{\u201ccity\u201d: \u201cHe said "no" to Oslo\u201d}'),
        ("look", '{"city": "Oslo", "price": NaN}'),
        ("look", '{"city": "Oslo", "price": Infinity}'),
        ("look", '{"city": "Oslo", "price": "NaN"}'),
        ("look", '{"city": "Oslo", "count": 2.5}'),
        ("look", '{"city": "Oslo", "count": 0x10}'),
        ("look", '{"city": "Oslo", "count": 007}'),
        ("look", '{"city": "Oslo", "City": "Rome"}'),
        ("look", '{"city": "Oslo", "count": 1, "Count": 1}'),
        ("look", '{"city": "Oslo"}{"city": "Rome"}'),
        ("look", '{"city": "Oslo"}\n{"count": 2}'),
        ("look", '[{"city": "Oslo"}]'),
        ("look", '[{"city": "Oslo"}, {"city": "Rome"}]'),
        ("look", '["Oslo", 2]'),
        ("look", '"Oslo"'),
        ("look", '{"city": ["Oslo"]}'),
        ("look", '{"city": ["Oslo", "Rome"]}'),
        ("look", '{"city": "Oslo", "tags": "a, b"}'),
        ("look", '{"city": "Oslo", "tags": {"0": "a"}}'),
        ("look", '{"city": "Oslo", "options": [{"a": 1}]}'),
        ("look", "<city>Oslo</city>"),
        ("look", '<parameter name="city">Oslo</parameter>'),
        ("look", 'look(city="Oslo", count=2)'),
        ("look", 'look("Oslo")'),
        ("look", "city=Oslo&count=2"),
        ("look", "city: Oslo\ncount: 2"),
        ("look", '{"city": "Oslo", "count": "1,000"}'),
        ("look", '{"city": "Oslo", "count": 1,000}'),
        ("look", '{"city": "Oslo", "count": "1_000"}'),
        ("look", '{"city": "Oslo", "count": "1.000"}'),
        ("look", '{"city": "Oslo", "price": "1,5"}'),
        ("look", '{"city": "Oslo", "price": "$5"}'),
        ("look", '{"city": "Oslo", "price": "50%"}'),
        ("look", '{"city": "Oslo", "count": "three"}'),
        ("look", '{"city": "Oslo", "count": true}'),
        ("look", '{"city": 5.5}'),
        ("look", '{"city": "Oslo", "day": "16.11.2026"}'),
        ("look", '{"city": "Oslo", "day": "11/12/2026"}'),
        ("look", '{"city": "Oslo", "day": "2026/11/16"}'),
        ("look", '{"city": "Oslo", "day": "20261116"}'),
        ("look", '{"city": "Oslo", "day": "2026-11-16T00:00:00"}'),
        ("look", '{"city": "Oslo", "day": "2026-11-16T10:00:00"}'),
        ("look", '{"city": "Oslo", "day": 1763251200}'),
        ("look", '{"city": "Oslo", "at": "2026-11-16"}'),
        ("look", '{"city": "Oslo", "at": "tomorrow"}'),
        ("look", '{"city": "Oslo", "mode": "fst"}'),
        ("look", '{"city": "Oslo", "exact": "yes"}'),
        ("look", '{"city": "Oslo", "exact": 1}'),
        ("look", '{"city": "Oslo", "exact": "1"}'),
        ("look", '{"city": "Oslo", "exact": ""}'),
        ("put", '{"path": "a", "text": "hel'),
        ("put", '{"path": "a", "text": "hello"'),
        ("put", "{'path': 'a', 'text': 'it''s'}"),
        ("put", '{"path": "a", "text": "\\d+"}'),
        ("put", '{"path": "a", "text": "say "hi" now"}'),
        ("put", '{"path": "a", "text": """x"""}'),
        ("put", "{path: a}"),
        ("put", '{"path" = "a"}'),
        ("put", '{"path": "a" "text": "x"}'),
        ("put", '{"path": "a"; "text": "x"}'),
        ("put", '{"path": "a", "text": ["x"]}'),
        ("put", '{"path": "a", "text": {"x": 1}}'),
        ("put", '{"path": "a", "text": undefined}'),
        ("put", '{"path": "a", "...": "..."}'),
        ("put", '{"path": "a", ...}'),
        ("put", '{"file_path": "a", "text": "x"}'),
    ],
)
def test_a_call_that_may_mean_something_else_is_explained_and_not_run(name: str, text: str):
    result = call(name, text)
    assert received == []
    assert result.failure is not None
    assert result.failure.kind == ErrorKind.VALIDATION
    assert result.failure.suggestion
    names = (*DEFAULTS[name], "city", "path", "arguments")
    assert any(one in result.failure.message for one in names), result.for_llm
