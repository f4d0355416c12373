"""A call from JSON text to result, with arguments that never repeat: good, nested and bad ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import count
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
def plain_add(a: int, b: int) -> int:
    """Add two numbers, in a thread.

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


Write = Callable[[int], str]
"""The arguments of the call of this number, as JSON text."""


def addition(number: int) -> str:
    return f'{{"a": {number}, "b": 3}}'


def almost(number: int) -> str:
    return f'{{"A": {number}, "b": "3"}}'


def almost_json(number: int) -> str:
    return f"{{'a': {number}, 'b': 3,}}"


ITEMS = json.dumps([{"id": i, "name": f"item {i}", "price": i * 1.5, "tags": ["x", "y"]} for i in range(20)])


def order(number: int) -> str:
    return f'{{"items": {ITEMS}, "discount": {number / 2}}}'


def mistake(number: int) -> str:
    return f'{{"a": "two {number}", "c": 3}}'


async def _against_pydantic(
    chosen: Any,
    write: Write,
    fields: dict[str, Any],
    calls: int,
    in_thread: bool = False,
    floor: Write | None = None,
) -> tuple[float, float]:
    """Measures calls against validation and the bare function. `floor`: what the bare function gets instead."""
    write_right = floor if floor is not None else write
    adapter = TypeAdapter(create_model("Arguments", **fields))
    executor = standard_executor([chosen], policy=rules("allow read"))
    scope = Scope()
    here, there = count(), count()

    async def bare() -> str:
        arguments = adapter.validate_json(write_right(next(there))).__dict__
        return str(await (asyncio.to_thread(chosen.run, **arguments) if in_thread else chosen.run(**arguments)))

    async def ours() -> str:
        return (await executor.execute(ToolCall(chosen.spec.name, write(next(here))), scope)).for_llm

    assert await ours() == await bare()
    return await side_by_side_async(_times(bare, calls), _times(ours, calls))


def _times(function: Callable[[], Awaitable[object]], number: int) -> Callable[[], Awaitable[float]]:
    async def measured() -> float:
        return await per_await(function, number)

    return measured


async def measures() -> list[Measure]:
    numbers: dict[str, Any] = {"a": (int, ...), "b": (int, ...)}
    small = await _against_pydantic(add, addition, numbers, CALLS)
    plain = await _against_pydantic(plain_add, addition, numbers, CALLS // 10, in_thread=True)
    fields: dict[str, Any] = {"items": (list[Item], ...), "discount": (float, ...)}
    nested = await _against_pydantic(total, order, fields, CALLS // 10)
    bad = await _invalid()
    repaired = await _against_pydantic(add, almost, numbers, CALLS // 3, floor=addition)
    repaired_text = await _against_pydantic(add, almost_json, numbers, CALLS // 3, floor=addition)
    return [
        Measure("call: add(a, b) from JSON text", "validate_json + await", *small, "µs", 7.0),
        Measure("call: a plain function, in a thread", "validate_json + to_thread", *plain, "µs", 1.3),
        Measure("call: 20 nested objects", "validate_json + await", *nested, "µs", 2.0),
        Measure("call: a name and a value repaired", "a right call: validate_json + await", *repaired, "µs", 30.0),
        Measure("call: text repaired", "a right call: validate_json + await", *repaired_text, "µs", 28.0),
        Measure("call: invalid arguments to text", "pydantic's error text", *bad, "µs", 10.0),
    ]


async def _invalid() -> tuple[float, float]:
    adapter = TypeAdapter(create_model("Arguments", a=(int, ...), b=(int, ...)))
    executor = standard_executor([add], policy=rules("allow read"))
    scope = Scope()
    here, there = count(), count()

    def bare() -> str:
        try:
            adapter.validate_json(mistake(next(there)))
        except ValidationError as error:
            return str(error)
        raise AssertionError

    async def ours() -> str:
        return (await executor.execute(ToolCall("add", mistake(next(here))), scope)).for_llm

    assert "expected integer" in await ours()

    async def measured_floor() -> float:
        return per_call(bare, CALLS // 3)

    return await side_by_side_async(measured_floor, _times(ours, CALLS // 3))
