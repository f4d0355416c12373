"""Observes what a system does by default when a model errs, a tool fails or a result is large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peer_functions import GOT, doze, dump, label, move, save
from benchmarks.peer_systems import Call, RunEndedError, Script, System

REASONS = ("approv", "permission")  # words of a result that says why a call did not run
BY_ADAPTER = "up to the model adapter"  # which reads the JSON before the system sees it


@dataclass
class Observed:
    """A run with the system's own limits: what reached the function, what the model saw, and how it ended."""

    got: list[Any]
    seen: list[str]
    ended: str  # "" with the model's answer

    @property
    def text(self) -> str:
        return "\n".join(self.seen)


async def observe(
    system: System, function: Callable[..., Any], *turns: Sequence[tuple[str, str]], tool: Any = None
) -> Observed:
    """Gives the system one tool, made of the function unless there is one already, and a model that calls it."""
    script = Script(
        [[Call(f"c{turn}_{at}", *call) for at, call in enumerate(calls)] for turn, calls in enumerate(turns)]
    )
    tools = [tool or system.define(function)]
    GOT.clear()
    ended = ""
    try:
        await system.run(tools, script)
    except Exception as error:
        ended = str(error) if isinstance(error, RunEndedError) else type(error).__name__
    return Observed(list(GOT), system.results(script.messages), ended)


async def observe_behaviour(system: System) -> dict[str, str]:
    saves = [("save", f'{{"count": {number}}}') for number in (1, 13, 2)]
    dozes = [("doze", f'{{"number": {number}}}') for number in (1, 2, 3)]
    return {
        "unknown tool": describe_unknown(await observe(system, save, [("safe", '{"count": 1}')])),
        "malformed JSON": await observe_malformed(system),
        "wrong type": describe_wrong(await observe(system, save, [("save", '{"count": "many"}')])),
        "a tool raises": describe_raised(await observe(system, save, [("save", '{"count": 13}')])),
        "three calls, one raises": describe_three(await observe(system, save, saves)),
        "three plain sleeps of 0.3 s": describe_sleeps(await observe(system, doze, dozes)),
        "a result of 1 MB": describe_large(await observe(system, dump, [("dump", '{"table": "orders"}')])),
        "a tool that a person must approve, nobody there": await observe_unapproved(system),
        "twelve identical calls": describe_repeated(await observe(system, save, *[[("save", '{"count": 1}')]] * 12)),
    }


def describe_unknown(observed: Observed) -> str:
    if observed.ended:
        return f"run ends: {observed.ended}"
    if not observed.seen:
        return "nothing is said"
    return "explained, with the names there are" if "save" in observed.text else "explained"


async def observe_malformed(system: System) -> str:
    if not system.takes_text:
        return BY_ADAPTER
    observed = await observe(system, save, [("save", '{"count": ')])
    if observed.ended:
        return f"run ends: {observed.ended}"
    if observed.got:
        return f"function gets {observed.got[0]!r}"
    if not observed.seen:
        return "dropped, run ends"
    return "explained" if "json" in observed.text.lower() else "an error that does not name the JSON"


def describe_wrong(observed: Observed) -> str:
    if observed.got:
        return f"function gets {observed.got[0]!r}"
    if observed.ended:
        return f"run ends: {observed.ended}"
    named = "count" in observed.text and "int" in observed.text.lower()
    return "explained, with name and type" if named else "refused"


def describe_raised(observed: Observed) -> str:
    if observed.ended:
        return f"run ends: {observed.ended}"
    return "model gets the message" if "the disk is full" in observed.text else "model gets an error, not the message"


def describe_three(observed: Observed) -> str:
    if observed.ended:
        return f"run ends: {observed.ended}; {len(observed.got)} of 3 ran"
    failure = len(observed.seen) == 3 or "the disk is full" in observed.text
    answered = sum(part in observed.text for part in ("saved 1", "saved 2")) + failure
    return f"model gets {answered} of 3"


def describe_sleeps(observed: Observed) -> str:
    if observed.ended:
        return f"run ends: {observed.ended}"
    starts, ends = zip(*observed.got, strict=True)
    overlap = max(starts) < min(ends)
    return f"{max(ends) - min(starts):.1f} s, {'side by side' if overlap else 'one after another'}"


def describe_large(observed: Observed) -> str:
    if observed.ended:
        return f"run ends: {observed.ended}"
    size = len(observed.text)
    return "whole" if size >= 1_000_000 else f"{size / 1000:,.0f} kB of it"


async def observe_unapproved(system: System) -> str:
    """The author marks the tool as one that a person must approve, with the system's own mark; nobody is there."""
    guarded = system.define_guarded(save)
    if guarded is None:
        return "no such mark: it ran" if (await observe(system, save, [("save", '{"count": 1}')])).got else "not run"
    observed = await observe(system, save, [("save", '{"count": 1}')], tool=guarded)
    if observed.got:
        return "it ran"
    if observed.ended:
        return f"not run, run ends: {observed.ended}"
    told = any(word in observed.text for word in REASONS)
    return "not run, model gets the reason" if told else "not run"


def describe_repeated(observed: Observed) -> str:
    ran = len(observed.got)
    if observed.ended:
        return f"{ran} ran, then run ends: {observed.ended}"
    return "all ran" if ran == 12 else f"{ran} ran"


async def observe_repairs(system: System) -> dict[str, str]:
    comma = await observe_repair(system, save, '{"count": 5,}', 5) if system.takes_text else BY_ADAPTER
    return {
        '`"5"` for an integer': await observe_repair(system, save, '{"count": "5"}', 5),
        "`'[\"a\"]'` for a list": await observe_repair(system, label, '{"tags": "[\\"a\\"]"}', ["a"]),
        "`filePath` for `file_path`": await observe_repair(system, move, '{"filePath": "a.txt"}', "a.txt"),
        "a trailing comma": comma,
    }


async def observe_repair(system: System, function: Callable[..., Any], text: str, meant: object) -> str:
    observed = await observe(system, function, [(function.__name__, text)])
    if observed.got:
        right = observed.got[0] == meant and type(observed.got[0]) is type(meant)
        return "repaired" if right else f"passed wrong: {observed.got[0]!r}"
    if observed.ended:
        return f"run ends: {observed.ended}"
    return "refused" if observed.seen else "dropped, run ends"
