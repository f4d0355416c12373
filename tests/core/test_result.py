"""What a tool gives back, for its three readers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import threading
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from forge import Agent, Scope, Scripted, ToolCall, tool
from forge.core.activity import ActivityStream
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolFailed, ToolFinished
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.core.result import Attachment, Failure, ToolResult
from forge.pipeline import standard_executor
from tests.core.calling import SCOPE, Heard, at_most


class Person(BaseModel):
    name: str


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Color(StrEnum):
    RED = "red"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


def test_text_is_for_the_model():
    result = ToolResult.text("fine")
    assert (result.for_llm, result.for_user, result.silent, result.pending) == ("fine", "", False, False)
    assert result.success
    assert not result.is_error


def test_quiet_is_for_the_model_alone():
    assert ToolResult.quiet("fine").silent
    assert ToolResult.quiet("fine").for_llm == "fine"


def test_started_says_that_work_goes_on():
    assert ToolResult.started("began").pending
    assert ToolResult.started("began").to_dict()["async"] is True


def test_for_both_is_the_same_text_twice():
    result = ToolResult.for_both("fine")
    assert result.for_llm == result.for_user == "fine"


def test_an_error_has_a_kind_and_a_suggestion_and_reaches_the_model():
    result = ToolResult.error("no such file", "not_found", 'Did you mean "b"?')
    assert result.is_error
    assert not result.success
    assert result.failure == Failure("no such file", ErrorKind.NOT_FOUND, 'Did you mean "b"?')
    assert result.for_llm == 'no such file\nDid you mean "b"?'
    assert ToolResult.error("no").failure == Failure("no", ErrorKind.USER)


def test_an_unknown_kind_of_error_is_a_mistake():
    with pytest.raises(ValueError, match="oops"):
        ToolResult.error("no", "oops")
    with pytest.raises(ValueError, match="oops"):
        ToolError("no", "oops")


def test_a_failure_without_text_gives_its_own_to_the_model():
    assert ToolResult(for_llm="", failure=Failure("broken", suggestion="Mend it.")).for_llm == "broken\nMend it."
    assert ToolResult(for_llm="mine", failure=Failure("broken")).for_llm == "mine"


def test_with_error_keeps_the_text_and_the_cause():
    cause = ValueError("why")
    result = ToolResult.text("half of it").with_error(cause)
    assert result.for_llm == "half of it"
    assert result.failure is not None
    assert result.failure.cause is cause
    assert "why" not in json.dumps(result.to_dict())


def test_failed_says_what_was_tried_what_went_wrong_and_what_to_do():
    error = ToolError("no such file", "not_found", "Look again.", passing=True)
    result = ToolResult.failed(error, during='read(path="a")')
    assert result.for_llm == 'read(path="a"): no such file\nLook again.'
    assert result.failure is not None
    assert result.failure.passing
    assert result.failure.cause is error
    unexpected = ToolResult.failed(ValueError("odd"), during="read()")
    assert unexpected.for_llm == "read(): ValueError: odd"
    assert unexpected.failure is not None
    assert unexpected.failure.kind is ErrorKind.SYSTEM


def test_with_data_adds_entries_and_changes_nothing_else():
    result = ToolResult(for_llm="a", data={"x": 1})
    assert result.with_data(y=2).data == {"x": 1, "y": 2}
    assert result.data == {"x": 1}


VALUES: list[tuple[Any, str]] = [
    ("text", "text"),
    ("", "Done."),
    (None, "Done."),
    (5, "5"),
    (True, "true"),
    (2.5, "2.5"),
    ([1, "a", None], '[1,"a",null]'),
    ({"a": [1]}, '{"a":[1]}'),
    ((1, 2), "[1,2]"),
    (Person(name="Ada"), '{"name":"Ada"}'),
    (Point(1, 2), '{"x":1,"y":2}'),
    ({"when": date(2024, 1, 2)}, '{"when":"2024-01-02"}'),
    ({"price": Decimal("1.50")}, '{"price":"1.50"}'),
    (Color.RED, "red"),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=[repr(row[0])[:30] for row in VALUES])
def test_any_value_becomes_text_for_the_model(value, text):
    result = ToolResult.of(value)
    assert result.success
    assert result.for_llm == text


def test_an_object_is_data_for_programs_too():
    assert ToolResult.of({"a": 1}).data == {"a": 1}
    assert ToolResult.of(Person(name="Ada")).data == {"name": "Ada"}


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (6, 6),
        (2.5, 2.5),
        (True, True),
        ([1, "a", None], [1, "a", None]),
        ((1, 2), [1, 2]),
        (Color.RED, "red"),
        (date(2024, 1, 2), "2024-01-02"),
        (float("nan"), "NaN"),
        (10**5000, hex(10**5000)),  # more digits than Python writes
    ],
    ids=["int", "float", "bool", "list", "tuple", "enum", "date", "nan", "huge"],
)
def test_a_value_that_is_no_object_is_data_under_one_key(value, data):
    result = ToolResult.of(value)
    assert result.data == {"result": data}
    assert json.loads(json.dumps(result.to_dict()))["data"] == {"result": data}


@pytest.mark.parametrize("value", ["a text", None, b"bytes"])
def test_text_and_files_are_not_data(value):
    assert ToolResult.of(value).data == {}


def test_a_program_gets_the_number_of_a_tool_that_returns_one():
    @tool
    async def word_count(text: str) -> int:
        """Count the words in a text."""
        return len(text.split())

    result = asyncio.run(standard_executor([word_count]).execute(ToolCall("word_count", {"text": "a b"}), Scope()))
    assert (result.for_llm, result.data) == ("2", {"result": 2})


def test_a_result_stays_itself():
    result = ToolResult.text("a")
    assert ToolResult.of(result) is result


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_become_an_attachment_and_never_reach_the_model(value):
    result = ToolResult.of(value)
    assert result.attachments == (Attachment("application/octet-stream", b"\x00\xff"),)
    assert result.for_llm == "[application/octet-stream, 2 bytes]"


def test_an_attachment_is_described_to_the_model():
    result = ToolResult.of(Attachment("image/png", b"123", "a.png"))
    assert result.for_llm == "[image/png, 3 bytes] a.png"


def cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def abyss() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "NaN": math.nan,
    "infinity inside": {"x": [math.inf]},
    "a cycle": cycle(),
    "100,000 levels": abyss(),
    "an object": object(),
    "an object without repr": Broken(),
    "one inside": {"x": Broken()},
    "10,000 digits": 10**10_000,
    "10,000 digits inside": [10**10_000],
    "a lone surrogate": "\ud800",
    "one inside a list": ["\ud800"],
    "one as a key": {"\ud800": 1},
    "odd keys": {1: 2, None: 3, (4, 5): 6},
    "bytes inside": {"x": b"\xff"},
    "a function": lambda: None,
    "an exception": ValueError("x"),
    "a set of sets": {frozenset({1})},
}


@pytest.mark.parametrize(("name", "value"), HOSTILE.items(), ids=HOSTILE)
def test_any_hostile_value_becomes_a_result_that_can_be_sent(name, value):
    with at_most(2.0):
        result = ToolResult.of(value)
        wire = json.dumps(result.to_dict(), allow_nan=False)
    assert result.for_llm
    assert result.success or name in ("a function", "an object")  # which say nothing to a model
    assert len(wire) < 50_000
    result.for_llm.encode()


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_hostile_data_can_be_sent_too(value):
    result = ToolResult(for_llm="fine", data={"value": value}, title="\ud800", for_user="\udfff")
    with at_most(2.0):
        json.dumps(result.to_dict(id="1", name="x"), allow_nan=False).encode()


def test_not_a_number_is_shown_as_such():
    assert "NaN" in ToolResult.of(math.nan).for_llm
    assert ToolResult.of({"x": math.nan}).to_dict()["data"] == {"x": "NaN"}


class LiesAboutItself(Exception):
    def __str__(self) -> str:
        raise SystemExit("in __str__")


def test_an_exception_whose_text_cannot_be_read_is_still_described():
    result = ToolResult.failed(LiesAboutItself(), during="x()")
    assert "LiesAboutItself" in result.for_llm


def test_a_very_long_exception_is_cut():
    result = ToolResult.failed(ValueError("x" * 1_000_000), during="x()")
    assert len(result.for_llm) < 3_000
    assert "…" in result.for_llm


def test_an_exception_with_a_lone_surrogate_can_be_sent():
    ToolResult.failed(ValueError("\ud800"), during="x()").for_llm.encode()
    ToolResult.failed(ToolError("\ud800", suggestion="\ud800"), during="\ud800").for_llm.encode()


FULL = ToolResult(
    for_llm="model",
    for_user="person",
    silent=True,
    title="Title",
    data={"nested": {"a": [1, 2]}},
    attachments=(Attachment("image/png", b"\x89PNG", "a.png"),),
    failure=Failure("broken", ErrorKind.TIMEOUT, "Try again.", cause=ValueError("secret cause")),
    pending=True,
)


def test_the_wire_form_has_the_names_of_the_interface():
    assert FULL.to_dict(id="c1", name="draw") == {
        "id": "c1",
        "name": "draw",
        "success": False,
        "is_error": True,
        "for_llm": "model",
        "for_user": "person",
        "silent": True,
        "async": True,
        "title": "Title",
        "data": {"nested": {"a": [1, 2]}},
        "attachments": [{"name": "a.png", "media_type": "image/png", "data": "iVBORw=="}],
        "error": "broken",
        "error_type": "timeout",
        "suggestion": "Try again.",
    }


def test_what_is_empty_is_left_out_where_the_interface_says_so():
    wire = ToolResult.text("a").to_dict()
    assert wire.keys() >= {"id", "name", "success", "is_error", "for_llm", "silent", "async", "title", "data"}
    assert wire.keys() >= {"attachments", "error"}
    assert not wire.keys() & {"for_user", "error_type", "suggestion"}
    assert wire["data"] == {}


def test_the_cause_is_never_sent():
    assert "secret cause" not in json.dumps(FULL.to_dict())
    assert "secret cause" not in repr(FULL)


@pytest.mark.parametrize(
    "result",
    [FULL, ToolResult.text("a"), ToolResult.error("no", "not_found"), ToolResult.started("b"), ToolResult.of({"a": 1})],
)
def test_a_result_survives_the_wire(result):
    assert ToolResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_preview_is_the_first_lines():
    result = ToolResult.text("1\n2\n3\n4\n5")
    assert result.preview() == ["1", "2", "3", "…"]
    assert result.preview(2) == ["1", "2", "…"]
    assert result.preview(5) == ["1", "2", "3", "4", "5"]
    assert ToolResult.text("").preview() == []


def test_a_preview_shows_what_the_person_is_told():
    assert ToolResult(for_llm="model", for_user="person").preview() == ["person"]


def test_a_preview_shows_nothing_of_a_silent_result_but_its_error():
    assert ToolResult.quiet("for the model alone").preview() == []
    assert ToolResult(for_llm="model", for_user="person", silent=True).preview() == []
    failed = ToolResult(for_llm="", silent=True, failure=Failure("no such file"))
    assert failed.preview() == ["Error: no such file"]


def test_a_preview_of_a_failure_is_the_error_and_the_suggestion():
    assert ToolResult.error("no such file", "not_found", "Look again.").preview() == [
        "Error: no such file",
        "Suggestion: Look again.",
    ]
    assert ToolResult.error("no").preview() == ["Error: no"]


def test_a_preview_never_grows_with_the_result():
    with at_most(1.0):
        lines = ToolResult.text("x" * 10_000_000 + "\ny\nz\na\nb").preview(3)
    assert lines[-1] == "…"
    failure = ToolResult.error("\n".join("line" for _ in range(1_000)))
    assert len(failure.preview(3)) <= 5
    assert all("\n" not in line for line in failure.preview(3))


def test_a_result_is_shown_briefly_where_it_is_only_looked_at():
    result = ToolResult(
        for_llm="x" * 1_000_000, data={"y": "y" * 1_000_000}, attachments=(Attachment("a/b", b"z" * 1_000_000),)
    )
    assert len(repr(result)) < 5_000


def test_large_attachments_are_named_on_the_wire_and_small_ones_carried():
    small, large = Attachment("image/png", b"x" * 10, "a.png"), Attachment("a/b", b"y" * 9_000_000, "b.bin", "/f/b.bin")
    result = ToolResult(for_llm="", attachments=(large, small))
    wire = result.to_dict()
    assert wire["attachments"][1] == {"name": "a.png", "media_type": "image/png", "data": "eHh4eHh4eHh4eA=="}
    assert wire["attachments"][0]["data"] == ""
    assert wire["attachments"][0]["bytes"] == 9_000_000
    assert "the content is in /f/b.bin" in wire["attachments"][0]["left_out"]
    assert len(json.dumps(wire)) < 2_000
    read = ToolResult.from_dict(wire).attachments
    assert [(one.left_out, one.path, len(one.data)) for one in read] == [(9_000_000, "/f/b.bin", 0), (0, "", 10)]


def test_attachments_are_bounded_together_and_whole_where_that_is_asked():
    parts = tuple(Attachment("a/b", b"y" * 1_000_000, str(number)) for number in range(20))
    result = ToolResult(for_llm="", attachments=parts)
    carried = [one for one in result.to_dict()["attachments"] if one["data"]]
    assert len(carried) == 8
    assert ToolResult.from_dict(result.to_dict(whole=True)).attachments == parts


@pytest.mark.parametrize("name", ["x" * 1_000_000, "\x1b[31m\x00\u202e\n" * 100])
def test_a_long_or_harmful_name_or_id_is_cut_and_made_visible(name):
    wire = ToolResult.text("fine").to_dict(id=name, name=name)
    for told in (wire["id"], wire["name"]):
        assert len(told) <= 200
        assert told.isprintable()
        assert f"{len(name):,} characters" in told
    assert ToolResult.text("").to_dict(id=wire["id"])["id"] == wire["id"], "cut twice"
    assert ToolResult.text("").to_dict(id=name + "y")["id"] != wire["id"], "two long ids cannot be told apart"
    assert ToolResult.text("").to_dict(id="call_1", name="Größe")["name"] == "Größe"


def test_control_characters_of_a_call_are_visible_in_its_refusal():
    failed = ToolResult.failed(ToolError("no such tool"), during="\x1b[31mred\x00\u202e()")
    assert failed.for_llm == "⟨U+001B⟩[31mred⟨U+0000⟩⟨U+202E⟩(): no such tool"
    assert ToolResult.failed(ToolError("zwei\nZeilen\tÄ"), during="f()").for_llm == "f(): zwei\nZeilen\tÄ"


class Mute:
    """Says nothing of itself."""

    def __init__(self, x: int, inner: object = None) -> None:
        self.x = x
        self.inner = inner
        self._private = "hidden"


class Slotted:
    __slots__ = ("name", "unset")

    def __init__(self) -> None:
        self.name = "slotted"


class Speaks:
    def __str__(self) -> str:
        return "in my own words"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Mute(1), {"x": 1, "inner": None}),
        (Mute(1, Mute(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Slotted(), {"name": "slotted"}),
        ([Mute(1)], [{"x": 1, "inner": None}]),
        ({"lock": object(), "n": 1}, {"lock": "[object object]", "n": 1}),
    ],
)
def test_an_object_is_shown_by_its_public_attributes(value, shown):
    result = ToolResult.of(value)
    assert result.success
    assert json.loads(result.for_llm) == shown


def test_an_object_that_speaks_for_itself_does():
    assert ToolResult.of(Speaks()).for_llm == "in my own words"
    assert ToolResult.of(ValueError("in words")).for_llm == "in words"


@pytest.mark.parametrize("value", [object(), lambda: 1, threading.Lock(), (i for i in [1]).__next__])
def test_what_has_no_words_is_an_error_that_says_what_to_return(value):
    result = ToolResult.of(value)
    assert result.failure is not None
    assert "0x" not in result.for_llm
    assert "list(…)" in result.failure.suggestion
    assert ToolResult.of(["1"]).success


def test_objects_that_hold_themselves_and_crowds_of_them_come_to_an_end():
    mute = Mute(1)
    mute.inner = [mute, mute]
    result = ToolResult.of(mute)
    assert json.loads(result.for_llm)["x"] == 1
    assert "[the Mute above]" in result.for_llm
    assert len(result.for_llm) < 1_000
    crowd = ToolResult.of([Mute(number) for number in range(5_000)])
    assert crowd.success
    assert "[Mute object]" in crowd.for_llm


FAILED = {"success": False, "error": "no such city", "error_type": "not_found", "suggestion": "List the cities."}


def test_a_value_that_reports_a_failure_is_one_with_its_events():
    @tool
    def find(city: str) -> dict[str, Any]:
        """Find a city."""
        return FAILED

    heard = Heard()
    activity = ActivityStream()
    activity.subscribe(heard)
    runs = ToolExecutor(ToolRegistry([find]), [], activity)
    result = asyncio.run(runs.execute(ToolCall("find", {"city": "x"}), SCOPE))
    assert result.failure is not None
    assert (result.failure.message, result.failure.kind) == ("no such city", "not_found")
    assert result.for_llm == "no such city\nList the cities."
    assert result.data == FAILED
    assert [one.error_type for one in heard.of(ToolFailed)] == ["not_found"]
    assert [one.success for one in heard.of(ToolFinished)] == [False]


def test_a_failure_keeps_its_other_fields_for_the_model():
    result = ToolResult.of({"success": False, "error": "2 tests fail", "output": "a, b", "error_type": "other"})
    assert result.for_llm == '2 tests fail\n{"output":"a, b"}'
    assert result.failure is not None
    assert result.failure.kind == "user_error"


@pytest.mark.parametrize(
    "value",
    [
        {"success": False},
        {"success": False, "error": ""},
        {"success": False, "error": "  "},
        {"success": False, "error": None},
        {"success": False, "error": {"code": 3}},
        {"success": True, "error": "none"},
        {"success": 0, "error": "a number"},
        {"success": "false", "error": "a text"},
        {"error": "a column"},
    ],
)
def test_a_value_that_only_resembles_a_failure_is_data(value):
    result = ToolResult.of(value)
    assert result.success
    assert result.data == value


def test_nothing_to_read_is_done():
    assert ToolResult.of("").for_llm == ToolResult.of(None).for_llm == "Done."
    assert ToolResult.of("").data == {"result": ""}
    assert ToolResult.of(" ").for_llm == " "


def test_the_model_never_gets_an_empty_result():
    @tool
    def store() -> ToolResult:
        """Store it."""
        return ToolResult(for_llm="", for_user="stored")

    model = Scripted([ToolCall("store", {})], "ok")
    result = Agent(model, tools=[store]).run_sync("go")
    assert [one.text for one in result.messages if one.role == "tool"] == ["Done."]
