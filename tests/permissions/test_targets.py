"""What a call names: texts, lists of them, defaults, and values that nobody can read."""

from __future__ import annotations

import enum
from datetime import date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyHttpUrl, BaseModel, Field

from forge import Agent, ToolContext
from forge.core.spec import Permission
from forge.core.tool import Tool, tool
from forge.permissions.gate import Answer, PolicyGate
from forge.permissions.policy import PolicyError, load_rules, rules
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
        [7, {"path": "secret/x"}],
        [["public/x"]],
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


@pytest.mark.parametrize("permission", [*Permission, None])
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
    for other in (7.5, 77, -7, True, [[7]], {"a": 7}):
        await refusal(PolicyGate(only_seven), context(refund, path=other))


SCALARS: list[tuple[Any, str, Any, str]] = [  # a value, rules that name it, another value, rules that name that one
    (7, "7", 9, "9"),
    (-7, "-7", 7, "7"),
    (7.5, "7.5", 7, "7"),
    (7.0, "7", 7.5, "7.5"),  # one number to JSON, and to a parameter of type float
    (7, "7.0", 8, "8.0"),
    (1000.0, "1e3", 10000, "1e4"),
    (1e20, "1e+20", 1e21, "1e+21"),
    (10**30, str(10**30), 10**30 + 1, str(10**30 + 1)),
    (-0.5, "-0.5", 0.5, "0.5"),
    (True, "true", False, "false"),
    (False, "false", 0, "0"),
    (1, "1", True, "true"),
    (Decimal("7.50"), "7.5", Decimal("7.51"), "7.51"),
]


@pytest.mark.parametrize("permission", [*Permission])
@pytest.mark.parametrize(("value", "named", "other", "named_other"), SCALARS)
async def test_every_scalar_is_a_target_by_its_text(permission, value, named, other, named_other):
    made = of_schema({"path": {}}, permissions={permission})
    one, both = (context(made).replace(arguments={"path": path}) for path in (value, [value, other]))
    await PolicyGate(rules(f"deny {permission}", f"allow {permission} {named}")).authorize(one)
    await PolicyGate(rules(f"allow {permission}", f"deny {permission} {named_other}")).authorize(one)
    await refusal(PolicyGate(rules(f"allow {permission}", f"deny {permission} {named}")), one)
    await refusal(PolicyGate(rules(f"deny {permission}", f"allow {permission} {named_other}")), one)
    for line in (named, named_other):  # each of a list on its own
        await refusal(PolicyGate(rules(f"deny {permission}", f"allow {permission} {line}")), both)
        await refusal(PolicyGate(rules(f"allow {permission}", f"deny {permission} {line}")), both)
    every = rules(f"deny {permission}", f"allow {permission} {named}", f"allow {permission} {named_other}")
    await PolicyGate(every).authorize(both)


async def test_null_is_named_in_a_list_and_where_a_value_is_missing():
    made = of_schema({"path": {}}, permissions={"write"})
    await PolicyGate(rules("deny write", "allow write null")).authorize(context(made, path=[None]))
    await refusal(PolicyGate(rules("allow write", "deny write null")), context(made, path=[None]))
    for missing in (context(made, path=None), context(made)):
        await refusal(PolicyGate(rules("allow write", "deny write null")), missing)
        await refusal(PolicyGate(rules("deny write", "allow write null")), missing)  # it could be a file of that name
        await PolicyGate(rules("allow write", "deny write 9", "deny write nul*")).authorize(missing)
        await PolicyGate(rules("deny write null", "allow write")).authorize(missing)
    await PolicyGate(rules("allow write", "deny write null")).authorize(context(made, path="nullable"))


async def test_a_number_that_is_an_address_is_denied_with_that_address():
    fetch = of_schema({"path": {}}, permissions={"network"})
    await refusal(PolicyGate(rules("allow network", "deny network 127.0.0.1")), context(fetch, path=2130706433))
    await PolicyGate(rules("allow network", "deny network 127.0.0.1")).authorize(context(fetch, path=167772167))


async def test_a_number_that_is_the_name_of_a_file_is_denied_with_that_file(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "7").symlink_to("secret")
    put = of_schema({"path": {"type": "integer"}}, permissions={"write"})
    await refusal(PolicyGate(rules("allow write", "deny write secret")), context(put, tmp_path, path=7))
    await refusal(PolicyGate(rules("allow write", f"deny write {tmp_path}/**")), context(put, tmp_path, path=8))
    await PolicyGate(rules("allow write", "deny write secret")).authorize(context(put, tmp_path, path=8))


class Size(enum.IntEnum):
    SMALL = 7
    LARGE = 9


OBJECTS: list[tuple[Any, str, Any, str, str]] = [  # a type, a permission, what the model sends, and two rules
    (int, "write", "7", "7", "9"),  # repaired
    (int, "write", 7.0, "7", "9"),
    (float, "write", 7, "7", "9"),
    (float, "write", "1e3", "1000", "9"),
    (bool, "execute", "true", "true", "false"),
    (Size, "write", 7, "7", "9"),
    (Literal[7, 9], "write", 7, "7", "9"),
    (list[int], "write", 7, "7", "9"),
    (set[int], "execute", [7], "7", "9"),
    (Decimal, "write", "7.0", "7", "9"),
    (UUID, "write", "12345678-1234-5678-1234-567812345678", "12345678-*", "9*"),
    (date, "write", "2026-01-07", "2026-01-*", "2026-02-*"),
    (datetime, "write", "2026-01-07T08:00:00Z", "2026-01-07T*", "2026-02-*"),
    (bytes, "write", "docs/a", "docs/**", "secret/**"),
    (AnyHttpUrl, "network", "https://api.example.com/x", "api.example.com", "evil.example"),
    (IPv4Address, "network", "10.0.0.7", "10.0.0.7", "10.0.0.9"),
]


@pytest.mark.parametrize(("kind", "permission", "sent", "named", "other"), OBJECTS)
async def test_rules_name_what_a_typed_parameter_receives(kind, permission, sent, named, other):
    def act(value: Any) -> str:
        """Act on it."""
        return "done"

    act.__annotations__["value"] = kind
    made = tool(permissions={permission}, target="value")(act)
    for lines, runs in (
        ((f"deny {permission}", f"allow {permission} {named}"), True),
        ((f"allow {permission}", f"deny {permission} {other}"), True),
        ((f"deny {permission}", f"allow {permission} {other}"), False),
        ((f"allow {permission}", f"deny {permission} {named}"), False),
    ):
        result = await Agent(None, tools=[made], policy=rules(*lines)).call("act", {"value": sent})
        assert (result.for_llm == "done") is runs, (lines, result.for_llm)


class Order(BaseModel):
    number: int = Field(alias="orderNumber", default=3)


async def test_the_alias_of_a_field_is_the_name_of_the_target():
    """The model sends `orderNumber`, the parsed arguments have `number`: the value counts, not the default."""

    def cancel(order: Order) -> str:
        return f"cancelled {order.number}"

    for options in ({}, {"deferred": True}):
        made = Tool.from_schema("cancel", "Cancel.", Order, cancel, permissions={"write"}, target="orderNumber")
        if options:
            inner = made
            made = Tool.define("cancel", lambda inner=inner: inner, permissions={"write"})
        only_seven = Agent(None, tools=[made], policy=rules("deny write", "allow write 7"))
        assert (await only_seven.call("cancel", {"orderNumber": 7})).for_llm == "cancelled 7"
        assert "denied" in (await only_seven.call("cancel", {"orderNumber": 9})).for_llm
        assert "denied" in (await only_seven.call("cancel", {})).for_llm


async def test_a_running_tool_asks_for_a_number_by_its_text():
    @tool(optional_permissions={"write"})
    async def cancel(number: int, ctx: ToolContext) -> str:
        """Cancel it."""
        await ctx.require("write", number)  # type: ignore[arg-type]
        return "cancelled"

    agent = Agent(None, tools=[cancel], policy=rules("deny write", "allow write 7"))
    assert (await agent.call("cancel", {"number": 7})).for_llm == "cancelled"
    assert "denied" in (await agent.call("cancel", {"number": 9})).for_llm


def test_a_rule_of_yaml_names_a_number(tmp_path):
    """YAML reads `target: 7` as a number."""
    file = tmp_path / "my.rules.yaml"
    file.write_text("- {action: deny, permission: network, target: 7, match: [7, 7.0], not_match: [9, true]}\n")
    (rule,) = load_rules(file).rules
    assert (rule.target, rule.text) == ("7", "deny network 7")
    with pytest.raises(PolicyError, match="matches its not_match example"):
        rules({"action": "deny", "permission": "write", "target": True, "not_match": [True]})
