"""Finding a tool among 10,000: with the index at hand, and after one more tool was added."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import count

from benchmarks.timing import Measure
from forge import Scope, Tool, ToolCall, ToolRegistry
from forge.pipeline import standard_executor
from forge.tools.tool_search import ToolSearch

TOOLS = 10_000
DIMENSIONS = 384
VERBS = "create delete list update send fetch convert count merge export import search verify plan draw".split()
THINGS = "invoice customer branch issue payment message report contact route image ticket order city stock song".split()
QUERIES = (
    "send the customer a message about the unpaid invoice of last week",
    "I would like to know which route a ticket to the city has, and plan another one",
    "export a report of all orders as a table, then count the payments",
    "merge branch",
)
ROUNDS = 15


async def measures() -> list[Measure]:
    pick = random.Random(8)
    registry = ToolRegistry([make_tool(number, pick) for number in range(TOOLS)])
    search = ToolSearch(registry)
    executor, turns = standard_executor([search]), count()

    async def milliseconds(before: Sequence[Tool] = ()) -> float:
        """The CPU time of one search, the best of some."""
        times = []
        for number in range(ROUNDS):
            registry.add(*before[number : number + 1])
            turn = next(turns)
            call = ToolCall("tool_search", {"query": QUERIES[number % len(QUERIES)]}, id=str(turn))
            started = time.process_time()
            found = await executor.execute(call, Scope(session_id=f"search {turn}"))
            times.append((time.process_time() - started) * 1e3)
            assert found.data["total"] > 500, found.for_llm
        return sorted(times)[len(times) // 2]

    started = time.process_time()
    await executor.execute(ToolCall("tool_search", {"query": "first"}), Scope(session_id="first"))
    first = (time.process_time() - started) * 1e3
    by_words = await milliseconds()
    after_change = await milliseconds([make_tool(TOOLS + number, pick) for number in range(ROUNDS)])
    search.rank_by_meaning(embed_nothing)
    await milliseconds()
    by_meaning = await milliseconds()
    name = f"tool_search among {TOOLS:,} tools"
    return [
        Measure(name, "", 0, by_words, "ms", 20.0, absolute=True),
        Measure(f"{name}, one more each time", "", 0, after_change, "ms", 30.0, absolute=True),
        Measure(f"{name}, by meaning, without the embedder's time", "", 0, by_meaning, "ms", 20.0, absolute=True),
        Measure(f"{name}, the first: it builds the index", "", 0, first, "ms", None),
    ]


def make_tool(number: int, pick: random.Random) -> Tool:
    """A tool with the words of a customer system, and some of its own."""
    verb, thing, other = pick.choice(VERBS), pick.choice(THINGS), pick.choice(THINGS)
    about = f"{verb.capitalize()} the {thing} of a {other}, as system {number % 97} keeps it, and return its fields."
    keys = {f"{one}_id": {"type": "string", "description": f"The {one} to {verb}."} for one in (thing, other)}
    return Tool.from_schema(
        f"{verb}_{thing}_{other}_{number}", about, {"type": "object", "properties": keys}, lambda **given: ""
    )


def embed_nothing(texts: Sequence[str]) -> list[list[float]]:
    """Vectors that take no time."""
    return [[float(len(text) % 7 + place % 3) for place in range(DIMENSIONS)] for text in texts]
