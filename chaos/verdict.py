"""What must hold when the storm is over, run by run and call by call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.orders import ONCE, Call, Turns, each
from chaos.worker import LEDGER, SEEN
from forge.core.messages import Message
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import RunInfo

DONE = {"look": "saw", "pay": "paid", "sign": "signed", "press": "pressed"}


class Verdict:
    """`problems` is empty where all is well; `unknown` are the calls whose state nobody can tell."""

    def __init__(self, store: RunStore, asked: Mapping[str, Turns], place: Path) -> None:
        self.store = store
        self.asked = asked
        self.written = lines(place / LEDGER)
        self.happened = Counter(line["name"] for line in self.written)
        self.looks = len(lines(place / SEEN))
        self.calls = 0
        self.unknown: list[str] = []
        self.problems = [
            *self._ledger(),
            *(problem for run, turns in asked.items() for problem in self._run(run, turns)),
        ]

    def _ledger(self) -> Iterator[str]:
        keys = Counter(line["key"] for line in self.written)
        for key, times in keys.items():
            if times > 1:
                yield f"{key} happened {times} times: {[line for line in self.written if line['key'] == key]}"
        known = {call.name for turns in self.asked.values() for call in each(turns)}
        for name, times in self.happened.items():
            if times > 1:
                yield f"{name} happened {times} times, under several keys"
            if name not in known:
                yield f"{name} happened, and nobody asked for it"

    def _run(self, run_id: str, turns: Turns) -> Iterator[str]:
        run = self.store.get(run_id)
        if run.status != "finished":
            yield f"{run_id} is {run.status}: {_short(run)}"
            return
        yield from self._history(run, turns)
        children = {child.parent_call: child for child in self.store.list(RunFilter(parent=run_id), limit=1_000)}
        for call in (call for turn in turns for call in turn if call.turns):
            if call.name not in children:
                yield f"{call.name} has no run of its sub-agent"
            else:
                yield from self._run(children[call.name].id, call.turns)

    def _history(self, run: RunInfo, turns: Turns) -> Iterator[str]:
        messages = self.store.messages(run.id)
        expected = [[call.name for call in turn] for turn in turns]
        if spoken(messages) != expected:
            yield f"{run.id} has calls {spoken(messages)} and not {expected}"
        for turn in answers(messages):
            if turn[0] != turn[1]:
                yield f"{run.id}: the calls {turn[0]} have the results {turn[1]}"
        told = {message.call_id: message.text for message in messages if message.role == "tool"}
        for call in (call for turn in turns for call in turn):
            self.calls += 1
            yield from self._call(call, told.get(call.name, ""))
        if run.result is None or not str(run.result["text"]).startswith("heard of "):
            yield f"{run.id} ended with {_short(run)}"
        ends = sum(event.get("event") == "run_finished" for _, event in self.store.events(run.id, limit=10_000))
        if ends != 1:
            yield f"{run.id} told {ends} times that it ended"

    def _call(self, call: Call, told: str) -> Iterator[str]:
        times = self.happened[call.name]
        if "its state is unknown" in told:
            self.unknown.append(call.name)
            if call.tool not in ONCE:
                yield f"{call.name} ({call.tool}) may be repeated, and its state is unknown"
        elif call.is_refused:
            if times or "saw" in told or "signed" in told:
                yield f"{call.name} was refused, and happened {times} times: {told[:200]}"
        elif call.tool in DONE:
            if not told.startswith(f"{DONE[call.tool]} {call.name}"):
                yield f"{call.name} ({call.tool}) was told: {told[:300]!r}"
            if call.tool in ONCE and times != 1:
                yield f"{call.name} was told as done, and happened {times} times"
        elif call.tool == "task" and f"heard of {sum(map(len, call.turns))} calls" not in told:
            yield f"{call.name} (task) was told: {told[:300]!r}"
        elif call.tool == "wait" and "the wait began at" not in told:
            yield f"{call.name} (wait) was told: {told[:300]!r}"


def spoken(messages: Sequence[Message]) -> list[list[str]]:
    return [[call.id for call in message.tool_calls] for message in messages if message.tool_calls]


def answers(messages: Sequence[Message]) -> Iterator[tuple[list[str], list[str]]]:
    """The calls of every turn, and the calls that the results right after it answer."""
    for place, message in enumerate(messages):
        if message.tool_calls:
            results = []
            for after in messages[place + 1 :]:
                if after.role != "tool":
                    break
                results.append(after.call_id)
            yield sorted(call.id for call in message.tool_calls), sorted(results)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _short(run: RunInfo) -> str:
    result = run.result or {}
    return f"segment {run.segment} on {run.worker}, waits {run.waits}, {str(result.get('text'))[:300]!r}"
