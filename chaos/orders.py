"""What the runs are asked to do, made by chance from a seed; the prompt of a run is its order as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

# how often each is asked for: `look` may be repeated, `wait` lets time pass, all others must not be repeated;
# `sign` needs somebody's yes, `press` a worker that has a press, and `task` is a sub-agent with calls of its own
TOOLS = {"look": 35, "pay": 40, "sign": 8, "press": 6, "task": 7, "wait": 4}
ONCE = frozenset({"pay", "sign", "press"})
REFUSED = 5  # every fifth signature is refused


@dataclass(frozen=True, slots=True)
class Call:
    """`name` is unlike that of every other call."""

    tool: str
    name: str
    seconds: float
    turns: tuple[tuple[Call, ...], ...] = ()  # what a sub-agent does

    @property
    def is_refused(self) -> bool:
        return self.tool == "sign" and sum(self.name.encode()) % REFUSED == 0

    def arguments(self) -> dict[str, Any]:
        if self.tool == "task":
            return {"description": self.name, "prompt": prompt(self.turns), "agent_type": "helper"}
        return {"seconds": self.seconds} if self.tool == "wait" else {"name": self.name, "seconds": self.seconds}


Turns = tuple[tuple[Call, ...], ...]


def orders(seed: int, runs: int, calls: int, longest: float = 0.8) -> dict[str, Turns]:
    """By the id of the run. Some calls of a run are made in one turn, so that they run side by side."""
    chance = Random(seed)
    return {f"run-{number:03}": _turns(chance, f"run-{number:03}", calls, longest, TOOLS) for number in range(runs)}


def _turns(chance: Random, place: str, calls: int, longest: float, tools: dict[str, int]) -> Turns:
    made: list[Call] = []
    for number in range(calls):
        tool = chance.choices(list(tools), list(tools.values()))[0]
        name, seconds = f"{place}:{number}", round(chance.uniform(0.02, longest), 3)
        within = {"look": 1, "pay": 1}
        made.append(Call(tool, name, seconds, _turns(chance, name, 2, longest, within) if tool == "task" else ()))
    turns: list[tuple[Call, ...]] = []
    while made:
        width = min(len(made), chance.choice([1, 1, 1, 2, 3]))
        turns.append(tuple(made[:width]))
        del made[:width]
    return tuple(turns)


def each(turns: Turns) -> Iterator[Call]:
    """All calls, those of sub-agents too."""
    for turn in turns:
        for call in turn:
            yield call
            yield from each(call.turns)


def prompt(turns: Turns) -> str:
    return json.dumps([[[call.tool, call.name, call.arguments()] for call in turn] for turn in turns])
