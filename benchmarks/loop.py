"""What an agent costs beside its model and its tools, a turn, and whether that grows with the turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from benchmarks.calls import add
from benchmarks.peer_floor import PAIR
from benchmarks.timing import Measure, per_await, side_by_side_async
from forge import Limits, Message, Scope, ToolCall, rules
from forge.agent import run_loop
from forge.events import TextDelta
from forge.models import ModelRequest
from forge.pipeline import standard_executor


class Counting:
    """A model that calls `add` with another number every turn."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        self.left -= 1
        if self.left < 0:
            yield Message("assistant", "done")
        else:
            call = ToolCall("add", f'{{"a": {self.left}, "b": 3}}', f"c{self.left}")
            yield Message("assistant", tool_calls=(call,))


async def turns(number: int, history: list[Message] | None = None) -> None:
    executor = standard_executor([add], policy=rules("allow read"))
    limits = Limits(turns=number + 1, calls=0)
    result = await run_loop(Counting(number), executor, [Message("user", "go")], Scope(), limits)
    assert result.reason == "answer"
    assert result.calls == number


async def per_turn(number: int) -> float:
    """Microseconds of CPU a turn."""
    return await per_await(lambda: turns(number), max(1, 1_000 // number)) / number


async def bare_turns(number: int) -> None:
    """The same calls and messages in a loop that somebody writes in five lines."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for left in reversed(range(number)):
        text = f'{{"a": {left}, "b": 3}}'
        messages.append({"role": "assistant", "calls": [{"id": f"c{left}", "name": "add", "arguments": text}]})
        result = await add.run(**PAIR.validate_json(text).__dict__)
        messages.append({"role": "tool", "id": f"c{left}", "content": str(result)})
    assert len(messages) == 2 * number + 1


async def per_bare_turn(number: int) -> float:
    return await per_await(lambda: bare_turns(number), max(1, 1_000 // number)) / number


async def measures() -> list[Measure]:
    overhead = await side_by_side_async(lambda: per_bare_turn(100), lambda: per_turn(100))
    flat = await side_by_side_async(lambda: per_turn(100), lambda: per_turn(1_000))
    long = await side_by_side_async(lambda: per_turn(1_000), lambda: per_turn(10_000))
    return [
        Measure("loop: a turn with one call", "validate_json + await + two appends", *overhead, "µs", 20.0),
        Measure("loop: a turn at 1,000 turns", "a turn at 100", *flat, "µs", 1.2),
        Measure("loop: a turn at 10,000 turns", "a turn at 1,000", *long, "µs", 1.2),
    ]
