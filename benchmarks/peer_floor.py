"""The least that each measurement needs: pydantic and a coroutine, measured in every system's own process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Literal, Optional

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from benchmarks.peer_functions import add
from benchmarks.peer_systems import Call, Script

MANY = 100


class Item(BaseModel):
    id: int
    name: str
    price: float
    tags: list[str]


async def total(items: list[Item], discount: float) -> float:
    """Total price of the items.

    Args:
        items: the items to add up
        discount: taken from the sum
    """
    # some systems hand over what the model sent
    return sum(item.price if isinstance(item, Item) else item["price"] for item in items) - discount


def plain_total(items: list[dict[str, Any]], discount: float) -> float:
    """Total price of the items.

    Args:
        items: the items to add up
        discount: taken from the sum
    """
    return sum(float(item["price"]) for item in items) - discount


total.__annotations__ = {"items": list[Item], "discount": float, "return": float}
plain_total.__annotations__ = {"items": list[dict[str, Any]], "discount": float, "return": float}

PAIR = TypeAdapter(create_model("Pair", a=(int, ...), b=(int, ...)))
ORDER = TypeAdapter(create_model("Order", items=(list[Item], ...), discount=(float, ...)))
ITEMS = json.dumps([{"id": i, "name": f"item {i}", "price": i * 1.5, "tags": ["x", "y"]} for i in range(20)])

_new = count(1_000)  # never the same arguments twice


def addition() -> str:
    return f'{{"a": {next(_new)}, "b": 3}}'


def order() -> str:
    return f'{{"items": {ITEMS}, "discount": {next(_new) / 2}}}'


def mistake() -> str:
    return f'{{"a": "two {next(_new)}", "c": 3}}'


def additions(turns: int, name: str) -> list[Sequence[Call]]:
    """One call a turn."""
    return [(Call(f"c{number}", name, addition()),) for number in range(turns)]


def call(adapter: TypeAdapter[Any], function: Callable[..., Any]) -> Callable[[str], Awaitable[str]]:
    async def validated(text: str) -> str:
        return str(await function(**adapter.validate_json(text).__dict__))

    return validated


def plain_call(adapter: TypeAdapter[Any], function: Callable[..., Any]) -> Callable[[str], Awaitable[str]]:
    async def validated(text: str) -> str:
        return str(function(**adapter.validate_json(text).__dict__))

    return validated


async def refusal(text: str) -> str:
    try:
        PAIR.validate_json(text)
    except ValidationError as error:
        return str(error)
    raise AssertionError


def bare_definition() -> object:
    fields: dict[str, Any] = {
        "pattern": (str, ...),
        "path": (str, ...),
        "limit": (int, 100),
        "mode": (Literal["content", "files", "count"], "content"),
        "globs": (Optional[list[str]], None),  # noqa: UP045
    }
    return TypeAdapter(create_model("Five", **fields)).json_schema()


async def loop(script: Script) -> None:
    validated = call(PAIR, add)
    messages: list[Any] = [{"role": "user", "content": "go"}]

    async def model() -> Any:
        return {"role": "assistant", "calls": script.next(messages)}

    while True:
        messages.append(await model())
        if not messages[-1]["calls"]:
            return
        for made in messages[-1]["calls"]:
            messages.append({"role": "tool", "id": made.id, "content": await validated(made.text)})


async def naps() -> None:
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(MANY)))


async def plain_naps() -> None:
    running = asyncio.get_running_loop()
    with ThreadPoolExecutor(MANY) as pool:
        await asyncio.gather(*(running.run_in_executor(pool, time.sleep, 0.01) for _ in range(MANY)))
