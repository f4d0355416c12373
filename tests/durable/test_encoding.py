"""Results and waits as JSON: what comes back is what was written, whatever it was."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forge.core.errors import ErrorKind, Waiting
from forge.core.result import Attachment, Failure, ToolResult
from forge.durable.store.encoding import result_from_json, result_to_json, wait_from_json, wait_to_json
from forge.durable.store.waits import Wait

OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

whole = st.text(st.characters(codec="utf-8"), max_size=30)
any_text = st.text(st.characters(), max_size=30) | st.sampled_from(["\0", "\ud800", "\udfff\ud800", "\x01", "\u2028"])
scalars = (
    st.none() | st.booleans() | whole | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
)
data = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(whole, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(whole, data, max_size=3)
odd = st.recursive(
    scalars | any_text | st.floats() | st.binary(max_size=5) | st.just(10**4200) | st.just(object()) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text | st.integers(), inner, max_size=3),
    max_leaves=8,
)
attachments = st.lists(st.builds(Attachment, whole, st.binary(max_size=20), whole), max_size=2).map(tuple)
failures = st.builds(Failure, whole, st.sampled_from(ErrorKind), whole, st.booleans())
results = st.builds(
    ToolResult,
    for_llm=whole,
    for_user=whole,
    silent=st.booleans(),
    title=whole,
    data=objects,
    attachments=attachments,
    failure=st.none() | failures,
    pending=st.booleans(),
)
waits = st.builds(Wait, kind=whole, call=whole, detail=objects)


@OFTEN
@given(results)
def test_a_result_comes_back_as_it_was(result: ToolResult) -> None:
    assert result_from_json(travelled(result_to_json(result))) == result


@OFTEN
@given(waits)
def test_a_wait_comes_back_as_it_was(wait: Wait) -> None:
    assert wait_from_json(travelled(wait_to_json(wait))) == wait


@OFTEN
@given(any_text, st.dictionaries(any_text, odd, max_size=3))
def test_whatever_a_tool_returned_can_be_stored(text: str, content: dict[str, Any]) -> None:
    failure = Failure(text, ErrorKind.USER, text)
    result = ToolResult(
        for_llm=text, for_user=text, title=text, data=content, failure=failure,
        attachments=(Attachment(text, b"\0", text),),
    )  # fmt: skip
    once = result_from_json(travelled(result_to_json(result)))
    assert len(once.data) <= len(content)
    assert result_from_json(travelled(result_to_json(once))) == once, "and nothing changes the second time"
    wait = wait_from_json(travelled(wait_to_json(Wait(kind="time", call=text, detail=content))))
    assert wait_from_json(travelled(wait_to_json(wait))) == wait


def test_a_result_without_anything_special_is_small() -> None:
    assert result_to_json(ToolResult(for_llm="ok")) == {"for_llm": "ok"}


def test_what_json_cannot_hold_is_described() -> None:
    deep: Any = 1
    for _ in range(3_000):
        deep = [deep]
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    content = {
        "nan": math.nan,
        "infinite": -math.inf,
        "huge": 10**6000,
        "deep": deep,
        "circle": circle,
        "bytes": b"\xff",
        "nul": "\0",
        "surrogate": "\ud800",
    }
    found = result_from_json(travelled(result_to_json(ToolResult(for_llm="x", data=content)))).data
    assert set(found) == set(content)
    assert (found["nan"], found["infinite"], found["nul"], found["surrogate"]) == ("NaN", "-Infinity", "\0", "?")
    assert str(found["huge"]).startswith("0x")


@pytest.mark.parametrize("content", [MappingProxyType({"a": 1}), OrderedDict(a=1)])
def test_a_mapping_of_another_kind_is_an_object_too(content: Any) -> None:
    assert result_from_json(result_to_json(ToolResult(for_llm="", data=content))).data == {"a": 1}


def test_a_failure_keeps_all_but_its_cause() -> None:
    failure = Failure("no", ErrorKind.RATE_LIMITED, "later", passing=True, cause=ValueError("secret"))
    wire = result_to_json(ToolResult(for_llm="", failure=failure))
    assert "secret" not in json.dumps(wire)
    back = result_from_json(wire)
    assert back.failure == failure
    assert back.for_llm == "no\nlater"


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        {"for_llm": 1},
        {"for_llm": "x", "data": []},
        {"for_llm": "x", "silent": 1},
        {"for_llm": "x", "failure": {"message": "m", "kind": "nothing"}},
        {"for_llm": "x", "attachments": {}},
        {"for_llm": "x", "attachments": [{"media_type": "a", "data": "%"}]},
    ],
)
def test_what_is_no_result_is_refused_in_words(wire: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|missing|not a valid|base64"):
        result_from_json(wire)


@pytest.mark.parametrize("wire", [None, {}, {"kind": 1}, {"kind": "time", "call": 1}, {"kind": "time", "detail": []}])
def test_what_is_no_wait_is_refused_in_words(wire: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|missing"):
        wait_from_json(wire)


def travelled(wire: dict[str, Any]) -> Any:
    """As any JSON reader takes it."""
    text = json.dumps(wire, ensure_ascii=False, allow_nan=False)
    text.encode()
    assert "\0" not in text
    return json.loads(text)


@pytest.mark.parametrize(
    ("wait", "stored"),
    [
        (Wait.for_approval("q1"), {"kind": "approval", "call": "", "detail": {"question": "q1"}}),
        (Wait.for_words("Which?"), {"kind": "question", "call": "", "detail": {"text": "Which?"}}),
        (Wait.for_background("w1"), {"kind": "background", "call": "", "detail": {"worker": "w1"}}),
        (Wait.for_run("r1"), {"kind": "run", "call": "", "detail": {"run": "r1"}}),
        (Wait.for_time(5, 2, "k"), {"kind": "time", "call": "", "detail": {"until": 5, "since": 2, "key": "k"}}),
        (
            Wait.of_call("c", Waiting("it waits", kind="payment", order=7).what),
            {"kind": "payment", "call": "c", "detail": {"order": 7}},
        ),
    ],
    ids=lambda one: one.kind if isinstance(one, Wait) else "",
)
def test_a_wait_is_stored_in_the_form_that_other_versions_read(wait: Wait, stored: dict[str, Any]) -> None:
    assert wait_to_json(wait) == stored
    assert wait_from_json(stored) == wait
    assert Wait.of_call(wait.call, wait.as_error("it waits").what) == wait


def test_the_details_of_a_wait_are_read_from_its_own_kind_alone() -> None:
    def read(wait: Wait) -> tuple[object, ...]:
        return wait.question_id, wait.text, wait.worker, wait.run_id, wait.until

    assert read(Wait.for_approval("q1")) == ("q1", "", "", "", None)
    assert read(Wait.for_words("Which?")) == ("", "Which?", "", "", None)
    assert read(Wait.for_background("w1")) == ("", "", "w1", "", None)
    assert read(Wait.for_run("r1")) == ("", "", "", "r1", None)
    assert read(Wait.for_time(5, 2, "k")) == ("", "", "", "", 5.0)
    everything = {"question": "q", "text": "t", "worker": "w", "run": "r", "until": 5}
    assert read(Wait(kind="payment", detail=everything)) == ("", "", "", "", None)
    for kind in ("approval", "question", "background", "run", "time"):  # somebody left its details out
        assert read(Wait(kind=kind)) == ("", "", "", "", None)
    assert Wait(kind="time", detail={"until": "tomorrow"}).until is None
