"""Unknown keys inside the models, dataclasses and TypedDicts of a call: renamed, refused, or as the class says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from forge.core.result import ToolResult
from forge.core.tool import Tool, tool
from tests.core.calling import call


class Order(BaseModel):
    order_status: int = 1


class Strict(BaseModel):
    order_status: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    inner: Order = Order()


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore")

    number: int = 1


@dataclass
class Point:
    x_value: int = 1


class Row(TypedDict, total=False):
    y_value: int


class Holder(BaseModel):
    row: Row = {}
    point: Point = Field(default_factory=Point)
    orders: dict[str, Order] = {}


class Several(BaseModel):
    first: int = Field(1, validation_alias=AliasChoices("one", "uno"))

    @model_validator(mode="after")
    def stays(self) -> Several:
        return self


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    bones: int = 1


class Everything(BaseModel):
    order: Order | None = None
    strict: Strict | None = None
    orders: list[Order] = []
    open: Open | None = None
    ignoring: Ignoring | None = None
    point: Point | None = None
    row: Row | None = None
    holder: Holder | None = None
    several: Several | None = None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    either: Order | Point | None = None


def typed(got: list[dict[str, Any]]) -> Tool:
    @tool
    def take(
        order: Order | None = None,
        strict: Strict | None = None,
        orders: list[Order] = [],  # noqa: B006
        open: Open | None = None,
        ignoring: Ignoring | None = None,
        point: Point | None = None,
        row: Row | None = None,
        holder: Holder | None = None,
        several: Several | None = None,
        pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None,
        either: Order | Point | None = None,
    ) -> str:
        """Take."""
        got.append(dict(locals()))
        return "taken"

    return take


def modelled(got: list[dict[str, Any]]) -> Tool:
    def take(**arguments: Any) -> str:
        got.append(arguments)
        return "taken"

    return Tool.from_schema("take", "Take.", Everything, take)


def send(make: Any, arguments: dict[str, Any]) -> tuple[ToolResult, Any]:
    """The result, and what the function got for the one argument that was sent."""
    got: list[dict[str, Any]] = []
    result = call(make(got), arguments)
    (name,) = arguments
    return result, got[0][name] if got else None


BOTH = pytest.mark.parametrize("make", [typed, modelled])


@BOTH
@pytest.mark.parametrize(
    ("arguments", "received", "note"),
    [
        ({"order": {"orderStatus": 5}}, Order(order_status=5), "order.orderStatus → order_status"),
        ({"strict": {"oder_status": 5}}, Strict(order_status=5), "strict.oder_status → order_status"),
        (
            {"orders": [{}, {"Order-Status": 5}]},
            [Order(), Order(order_status=5)],
            "orders[1].Order-Status → order_status",
        ),
        (
            {"open": {"inner": {"orderStatus": 7}}},
            Open(inner=Order(order_status=7)),
            "open.inner.orderStatus → order_status",
        ),
        ({"point": {"xValue": 2}}, Point(x_value=2), "point.xValue → x_value"),
        ({"row": {"yValue": 2}}, {"y_value": 2}, "row.yValue → y_value"),
        (
            {"holder": {"orders": {"k": {"orderStatus": 2}}}},
            Holder(orders={"k": Order(order_status=2)}),
            "holder.orders.k.orderStatus → order_status",
        ),
        ({"either": {"xValue": 3}}, Point(x_value=3), "either.xValue → x_value"),
    ],
)
def test_another_spelling_inside_an_object_is_renamed_and_told(make, arguments, received, note):
    result, got = send(make, arguments)
    assert got == received, result
    assert result.data["repaired"] == [note]


def test_another_spelling_in_the_chosen_branch_of_a_union_is_renamed():
    result, got = send(typed, {"pet": {"kind": "cat", "Lives": 2}})
    assert got == Cat(kind="cat", lives=2), result


@BOTH
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"order": {"order_state": 5}}, 'order.order_state: unknown argument; did you mean "order_status"?'),
        ({"order": {"oder_status": 5}}, 'did you mean "order_status"?'),  # it has a default: nobody can say
        ({"order": {"xyz": 5}}, "order.xyz: unknown argument; known: order_status"),
        ({"order": {"orderStatus": 1, "order-status": 2}}, 'did you mean "order_status"?'),
        ({"orders": [{}, {"xyz": 5}]}, "orders[1].xyz: unknown argument"),
        ({"open": {"inner": {"xyz": 1}}}, "open.inner.xyz: unknown argument"),
        ({"point": {"z": 1}}, "point.z: unknown argument; known: x_value"),
        ({"row": {"z": 1}}, "row.z: unknown argument; known: y_value"),
        ({"holder": {"row": {"z": 1}}}, "holder.row.z: unknown argument; known: y_value"),
        ({"holder": {"point": {"z": 1}}}, "holder.point.z: unknown argument; known: x_value"),
        ({"holder": {"orders": {"k": {"z": 1}}}}, "holder.orders.k.z: unknown argument; known: order_status"),
        ({"several": {"z": 4}}, "several.z: "),
        ({"pet": {"kind": "dog", "lives": 4}}, "pet.lives: unknown argument"),
    ],
)
def test_a_key_that_a_class_inside_does_not_know_is_refused_with_the_nearest_name(make, arguments, words):
    result, got = send(make, arguments)
    assert result.failure is not None, got
    assert result.failure.kind == "validation_error"
    assert words in result.for_llm


@BOTH
@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        ({"order": {"order_status": 5}}, Order(order_status=5)),
        ({"open": {"xyz": 1}}, Open.model_validate({"xyz": 1})),
        ({"ignoring": {"xyz": 1}}, Ignoring()),
        ({"several": {"uno": 4}}, Several.model_validate({"uno": 4})),
        ({"pet": {"kind": "dog", "bones": 4}}, Dog(kind="dog", bones=4)),
        ({"either": {"x_value": 3}}, Point(x_value=3)),
        ({"either": {"order_status": 3}}, Order(order_status=3)),
    ],
)
def test_what_a_class_takes_or_says_of_other_keys_itself_holds(make, arguments, received):
    result, got = send(make, arguments)
    assert got == received, result
    assert type(got) is type(received)
    assert "repaired" not in result.data


def test_the_classes_themselves_stay_as_they_were():
    send(typed, {"order": {"order_status": 5}})
    assert Order.model_validate({"other": 1}) == Order(), "elsewhere the program's own rule holds"
    assert "additionalProperties" not in Order.model_json_schema()


def test_a_model_is_told_which_objects_take_no_other_keys():
    shown = typed([]).spec.parameters["$defs"]
    assert shown["Order"]["additionalProperties"] is False
    assert shown["Row"]["additionalProperties"] is False
    assert shown["Open"]["additionalProperties"] is True
    assert "additionalProperties" not in shown["Ignoring"]


@pytest.mark.parametrize(("sent", "taken"), [({"cityName": "x"}, True), ({"town": "x"}, False)])
def test_a_closed_object_inside_a_raw_schema_is_treated_alike(sent, taken):
    got: list[dict[str, Any]] = []
    place = {"type": "object", "properties": {"city_name": {"type": "string"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/Place"}}, "$defs": {"Place": place}}
    result = call(Tool.from_schema("go", "Go.", schema, lambda to: got.append(to)), {"to": sent})
    if taken:
        assert got == [{"city_name": "x"}]
        return
    assert not got
    assert "to.town: unknown argument; known: city_name" in result.for_llm
