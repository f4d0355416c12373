"""A call from JSON text to result: good, nested and bad arguments."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from benchmarks.timing import Measure, per_await, per_call, side_by_side_async
from forge import Scope, ToolCall, rules, tool
from forge.pipeline import standard_executor

CALLS = 3_000


class Item(BaseModel):
    id: int
    name: str
    price: float
    tags: list[str]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


@tool
async def total(items: list[Item], discount: float) -> float:
    """Total price of the items.

    Args:
        items: the items to add up
        discount: taken from the sum
    """
    return sum(item.price for item in items) - discount


def additions() -> list[str]:
    """Different ones: the same call over and over would rightly be stopped as a loop."""
    return [json.dumps({"a": number, "b": 3}) for number in range(500)]


def orders() -> list[str]:
    items = [{"id": i, "name": f"item {i}", "price": i * 1.5, "tags": ["x", "y"]} for i in range(20)]
    return [json.dumps({"items": items, "discount": number / 2}) for number in range(100)]


async def _against_pydantic(chosen: Any, texts: list[str], fields: dict[str, Any]) -> tuple[float, float]:
    adapter = TypeAdapter(create_model("Arguments", **fields))
    executor = standard_executor([chosen], policy=rules("allow read"))
    scope = Scope()
    calls = cycle([ToolCall(chosen.spec.name, text) for text in texts])
    pool = cycle(texts)

    async def bare() -> str:
        return str(await chosen.run(**adapter.validate_json(next(pool)).__dict__))

    async def ours() -> str:
        return (await executor.execute(next(calls), scope)).for_llm

    assert await ours() == str(await bare())
    number = CALLS if len(texts) > 100 else CALLS // 10
    return await side_by_side_async(_times(bare, number), _times(ours, number))


def _times(function: Callable[[], Awaitable[object]], number: int) -> Callable[[], Awaitable[float]]:
    async def measured() -> float:
        return await per_await(function, number)

    return measured


async def measures() -> list[Measure]:
    small = await _against_pydantic(add, additions(), {"a": (int, ...), "b": (int, ...)})
    nested = await _against_pydantic(total, orders(), {"items": (list[Item], ...), "discount": (float, ...)})
    bad = await _invalid()
    return [
        Measure("call: add(a, b) from JSON text", "validate_json + await", *small, "µs", 4.0),
        Measure("call: 20 nested objects", "validate_json + await", *nested, "µs", 1.5),
        Measure("call: invalid arguments to text", "pydantic's error text", *bad, "µs", 4.0),
    ]


async def _invalid() -> tuple[float, float]:
    texts = [json.dumps({"a": f"two {number}", "c": 3}) for number in range(500)]
    adapter = TypeAdapter(create_model("Arguments", a=(int, ...), b=(int, ...)))
    executor = standard_executor([add], policy=rules("allow read"))
    scope = Scope()
    pool, calls = cycle(texts), cycle([ToolCall("add", text) for text in texts])

    def bare() -> str:
        try:
            adapter.validate_json(next(pool))
        except ValidationError as error:
            return str(error)
        raise AssertionError

    async def ours() -> str:
        return (await executor.execute(next(calls), scope)).for_llm

    assert "expected integer" in await ours()

    async def measured_floor() -> float:
        return per_call(bare, CALLS // 3)

    return await side_by_side_async(measured_floor, _times(ours, CALLS // 3))
