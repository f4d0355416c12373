"""What a call names: texts, lists of them, defaults, and values that nobody can read."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest

from forge.core.tool import Tool, tool
from forge.permissions.gate import Answer, PolicyGate
from forge.permissions.policy import rules
from forge.permissions.targets import Opaque, find_requests, targets_of
from tests.permissions.test_gate import Person, context, merge, plain, refusal, save

KEEP_OUT = rules("allow write", "deny write secret/**")


class Place(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    SECRET = "secret/x"
    PUBLIC = "public/x"


@tool(permissions={"write"}, target="edits")
def edit_all(edits: list[dict[str, str]]) -> str:
    """Edit files."""
    return str(edits)


@tool(permissions={"write"}, target="place")
def put(place: Place) -> str:
    """Put it there."""
    return place.value


def of_schema(schema: dict[str, Any], target: str = "path", **traits: Any) -> Tool:
    properties = {"path": {"type": "string"}, "other": {"type": "string"}, **schema}
    parameters = {"type": "object", "properties": properties}
    return Tool.from_schema("raw", "Raw.", parameters, lambda **given: str(given), target=target, **traits)


@pytest.mark.parametrize(
    "value",
    [
        [{"path": "secret/x"}],
        {"path": "secret/x"},
        [["secret/x"]],
        ["public/x", {"path": "secret/x"}],
        7,
        True,
        [None],
        {"a": {1: 2}},
    ],
)
async def test_what_is_no_text_may_be_anything_that_is_denied(value):
    made = of_schema({"path": {}}, permissions={"write"})
    assert "`deny write secret/**`" in (await refusal(PolicyGate(KEEP_OUT), context(made, path=value))).message
    await PolicyGate(rules("allow write")).authorize(context(made, path=value))
    await PolicyGate(KEEP_OUT).authorize(context(made, path=["public/x"]))


async def test_a_list_of_objects_is_judged_by_every_targeted_rule():
    ctx = context(edit_all, edits=[{"path": "secret/x"}])
    await refusal(PolicyGate(KEEP_OUT), ctx)
    person = Person(Answer.ONCE)
    await PolicyGate(rules("allow write", "ask write secret/**"), person).authorize(ctx)
    await PolicyGate(rules("allow write public/**"), person).authorize(ctx)
    assert len(person.asked) == 2
    await PolicyGate(rules("deny write secret/**", "allow write")).authorize(ctx)


async def test_a_later_ask_does_not_soften_a_deny_of_what_cannot_be_read():
    ctx = context(edit_all, edits=[{"path": "secret/x"}])
    policy = rules("allow write", "deny write secret/**", "ask write public/**", "ask write docs/**")
    await refusal(PolicyGate(policy, Person(Answer.ONCE)), ctx)
    await PolicyGate(policy, Person(Answer.ONCE)).authorize(context(save, path="public/x"))


async def test_what_cannot_be_read_is_remembered_with_exactly_these_arguments():
    person = Person(Answer.ALWAYS)
    gate = PolicyGate(approve=person)
    for path, expected in (("a", 1), ("a", 1), ("b", 2)):
        await gate.authorize(context(edit_all, edits=[{"path": path}]))
        assert len(person.asked) == expected
    assert gate.remembered("s")[0] == "allow tool:edit_all with exactly these arguments"


async def test_a_refusal_of_what_cannot_be_read_names_a_rule_that_would_help():
    error = await refusal(PolicyGate(KEEP_OUT), context(edit_all, edits=[{"path": "secret/x"}]))
    assert "`allow write` after that rule" in error.suggestion


async def test_a_target_that_was_left_out_is_judged_by_its_default():
    made = of_schema({"path": {"type": "string", "default": "secret/x"}}, permissions={"write"})
    await refusal(PolicyGate(KEEP_OUT), context(made))
    await PolicyGate(KEEP_OUT).authorize(context(made, path="public/x"))
    nullable = of_schema({"path": {"type": ["string", "null"], "default": "secret/x"}}, permissions={"write"})
    await refusal(PolicyGate(KEEP_OUT), context(nullable, path=None))
    listed = of_schema({"path": {"type": "array", "default": [{"path": "secret/x"}]}}, permissions={"write"})
    await refusal(PolicyGate(KEEP_OUT), context(listed))
    harmless = of_schema({"path": {"type": "string", "default": "public/x"}}, permissions={"write"})
    await PolicyGate(KEEP_OUT).authorize(context(harmless))


async def test_a_choice_is_judged_by_its_value():
    await refusal(PolicyGate(KEEP_OUT), context(put, place="secret/x"))
    await PolicyGate(KEEP_OUT).authorize(context(put, place="public/x"))


def test_a_text_that_looks_like_a_value_does_not_hide_it():
    made = of_schema({"path": {}}, target="other path", permissions={"write"})
    found = targets_of(made.spec, {"other": '{"a": 1}', "path": {"a": 1}})
    assert [isinstance(target, Opaque) for target in found] == [False, True]


def test_a_value_without_a_json_is_named_by_its_type():
    cyclic: list[Any] = []
    cyclic.append([cyclic])
    made = of_schema({"path": {}}, permissions={"write"})
    assert targets_of(made.spec, {"path": {"a": cyclic}}) == ["a value of type dict"]
    assert targets_of(made.spec, {"path": Path("a")}) == ["a"]
    assert targets_of(made.spec, {}) == [""]


def test_a_target_belongs_to_optional_permissions_where_none_is_declared():
    peek = of_schema({}, optional_permissions={"read"})
    assert find_requests(peek.spec, {"path": "a"}) == [("read", "a")]
    assert find_requests(peek.spec, {"path": ""}) == find_requests(peek.spec, {}) == [(None, "")]
    both = of_schema({}, permissions={"network"}, optional_permissions={"write"})
    assert find_requests(both.spec, {"path": "a"}) == [("network", "a")]
    assert find_requests(plain.spec, {}) == [(None, "")]
    assert len(find_requests(merge.spec, {"sources": ["a", "b"], "destination": "c"})) == 6


@pytest.mark.parametrize("permission", ["execute", None])
async def test_a_rule_names_a_whole_number(permission):
    """Such as the number of an order. Text and number are judged alike."""
    refund = of_schema({"path": {}}, permissions={permission} if permission else ())
    what = permission or "tool:*"
    only_seven = rules(f"deny {what}", f"allow {what} 7")
    await PolicyGate(only_seven).authorize(context(refund, path=7))
    refused = await refusal(PolicyGate(only_seven), context(refund, path=8))
    assert (f"`allow {permission} 8`" in refused.suggestion) == (permission is not None)
    await refusal(PolicyGate(rules(f"allow {what}", f"deny {what} 7")), context(refund, path=7))
    await PolicyGate(rules(f"allow {what}", f"deny {what} 7")).authorize(context(refund, path=8))
    for other in (7.0, True, [[7]], {"a": 7}):
        await refusal(PolicyGate(only_seven), context(refund, path=other))


async def test_a_number_is_no_path():
    """It may be a descriptor of a file anywhere, so no pattern of paths allows it."""
    put = of_schema({"path": {"type": "integer"}}, permissions={"write"})
    await refusal(PolicyGate(rules("allow write 7")), context(put, path=7))
    await PolicyGate(rules("allow write")).authorize(context(put, path=7))
