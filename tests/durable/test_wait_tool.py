"""Runs that let time pass: stored meanwhile, and gone on with when it is time, once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from forge.agent.agent import Agent
from forge.agent.subagent import AgentType
from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.core.provider import ModelRequest
from forge.core.time_zones import zone_of
from forge.core.tool import tool
from forge.durable.engine.agents import OfferedTools, prepare_for_worker
from forge.durable.engine.follow_up import resume_run
from forge.durable.engine.wait_tool import _end_of_wait, wait
from forge.permissions.questions import approve_all
from tests.durable.working import Clock, answered, begun, ended, rested, script, told, working

DAY = 86_400.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@tool(permissions={"write"})
def pay(name: str) -> str:
    """Pay something to somebody by name."""
    return f"paid {name}"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def test_a_run_that_waits_is_a_row_and_goes_on_when_it_is_time(
    shared_first: str, tmp_path: Path, clock: Clock
) -> None:
    agent = Agent(script(ToolCall("wait", {"seconds": 3 * DAY, "reason": "the mail"}, "w"), "done"))
    async with working(shared_first, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert (run.status, run.waits[0].kind, run.waits[0].detail["reason"]) == ("waiting", "time", "the mail")
        assert not worker.attempts  # nobody holds it
        assert worker.store.due(worker.store.now()) == []
        clock.ahead = 3 * DAY + 1
        run = await ended(worker)
        assert (run.status, run.segment) == ("finished", 2)
        (text,) = told(worker)
        assert text.startswith("It is now ")
        assert "; the wait began at " in text
        assert run.spent["seconds"] < DAY  # the time that went by is not the run's own


@pytest.mark.slow
async def test_gone_on_with_too_early_it_waits_for_the_same_time(sqlite: str, tmp_path: Path, clock: Clock) -> None:
    agent = Agent(script(ToolCall("wait", {"seconds": DAY}, "w"), "done"))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        first = await rested(worker)
        clock.ahead = DAY / 2
        await resume_run(worker.engine.context, first)
        second = await rested(worker, segment=2)
        assert second.status == "waiting"
        assert second.waits == first.waits
        clock.ahead = DAY + 1
        assert (await ended(worker)).status == "finished"


async def test_the_same_call_a_turn_later_waits_anew(sqlite: str, tmp_path: Path, clock: Clock) -> None:
    again = ToolCall("wait", {"seconds": DAY}, "w")  # models may repeat ids from turn to turn
    agent = Agent(script(again, again, "done"))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        first = await rested(worker)
        clock.ahead = DAY + 1
        second = await rested(worker, segment=2)
        assert second.status == "waiting"
        assert second.waits[0].detail["until"] > first.waits[0].detail["until"] + DAY / 2
        clock.ahead = 2 * DAY + 2
        assert (await ended(worker)).status == "finished"
        assert len(told(worker)) == 2


async def test_of_two_waits_in_one_turn_each_has_its_time(sqlite: str, tmp_path: Path, clock: Clock) -> None:
    calls = [ToolCall("wait", {"seconds": days * DAY}, f"w{days}") for days in (2, 1)]
    agent = Agent(script(calls, "done"))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        clock.ahead = DAY + 1
        run = await rested(worker, segment=2)
        assert [wait.call for wait in run.waits] == ["w2"]
        clock.ahead = 2 * DAY + 1
        assert (await ended(worker)).status == "finished"
        assert len(told(worker)) == 2


@pytest.mark.slow
async def test_an_answer_that_comes_meanwhile_does_not_begin_the_wait_again(
    sqlite: str, tmp_path: Path, clock: Clock
) -> None:
    agent = Agent(
        script([ToolCall("wait", {"seconds": DAY}, "w"), ToolCall("pay", {"name": "Ada"}, "p")], "done"), tools=[pay]
    )
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        first = await rested(worker)
        until = next(wait.detail["until"] for wait in first.waits if wait.kind == "time")
        clock.ahead = 100.0
        run = await answered(worker, {"kind": "once"})
        assert [wait.detail["until"] for wait in run.waits] == [until]
        assert told(worker) == ["paid Ada"]
        clock.ahead = DAY + 1
        assert (await ended(worker)).status == "finished"


async def test_a_sub_agent_can_wait_too(sqlite: str, tmp_path: Path, clock: Clock) -> None:
    def turn(request: ModelRequest) -> Any:
        heard = any(message.role == "tool" for message in request.messages)
        if request.messages[0].text.startswith("You watch"):
            return (
                ToolCall("task_completion", {"result": "seen"}, "t")
                if heard
                else ToolCall("wait", {"seconds": 60}, "w")
            )
        order = {"description": "watch", "prompt": "watch it", "agent_type": "watcher"}
        return "done" if heard else ToolCall("task", order, "t1")

    kinds = {"watcher": AgentType(prompt="You watch.", tools=())}
    agent = Agent(script(*[turn] * 4), agents=kinds, approve=approve_all)
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        parent = await rested(worker)
        child = await rested(worker, parent.waits[0].detail["run"])
        assert child.waits[0].kind == "time"
        clock.ahead = 61.0
        assert (await ended(worker)).status == "finished"


async def test_a_bad_wait_is_an_error_for_the_model_and_the_run_goes_on(sqlite: str, tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"seconds": 5, "until": "18:00"},
        {},
        {"seconds": -1},
        {"seconds": "nan"},
        {"until": "25:00"},
    ]
    calls = [ToolCall("wait", arguments, f"w{number}") for number, arguments in enumerate(bad)]
    async with working(sqlite, Agent(script(calls, "done")), tmp_path) as worker:
        await begun(worker)
        run = await ended(worker)
        assert (run.status, run.segment) == ("finished", 1)
        assert all("It is now" not in text for text in told(worker))
        assert "both given" in told(worker)[0]


async def test_only_stored_runs_are_offered_it(tmp_path: Path) -> None:
    agent = Agent(script("hi"), tools=[pay])
    subject = prepare_for_worker(agent)
    assert "wait" in OfferedTools().of(subject)
    assert "wait" not in agent.registry
    with pytest.raises(ToolError, match="not stored"):
        await wait(ToolContext(ToolCall("wait", {}, "w"), wait), seconds=1)


def test_tools_that_come_and_go_are_seen_and_an_agents_own_wait_is_kept() -> None:
    agent = Agent(script("hi"))
    subject = prepare_for_worker(agent)
    offered = OfferedTools()
    assert offered.of(subject) is offered.of(subject)
    assert "pay" not in offered.of(subject)
    agent.registry.add(pay)
    assert "pay" in offered.of(subject)

    @tool(name="wait")
    def own() -> str:
        """Wait in a way of our own."""
        return "waited"

    agent.registry.add(own)
    assert offered.of(subject)["wait"].spec.description.startswith("Wait in a way")


@pytest.mark.parametrize(
    ("now", "until", "zone", "expected"),
    [
        ("2026-11-15T12:00Z", "18:00", "UTC", "2026-11-15T18:00Z"),
        ("2026-11-15T12:00Z", "12:00", "UTC", "2026-11-16T12:00Z"),  # not this very moment
        ("2026-11-15T12:00Z", "9:05:30", "UTC", "2026-11-16T09:05:30Z"),
        ("2026-11-15T12:00Z", "12:30", "Europe/Berlin", "2026-11-16T11:30Z"),
        ("2026-11-15T23:30Z", "00:15", "Europe/Berlin", "2026-11-16T23:15Z"),
        ("2026-11-15T12:00Z", "2026-12-24T18:00", "Europe/Berlin", "2026-12-24T17:00Z"),
        ("2026-11-15T12:00Z", "2026-12-24T18:00+05:00", "Europe/Berlin", "2026-12-24T13:00Z"),
        ("2026-11-15T12:00Z", "2026-12-24T18:00:00Z", "Europe/Berlin", "2026-12-24T18:00Z"),
        ("2026-11-15T12:00Z", "2026-12-24", "-05:00", "2026-12-24T05:00Z"),
        ("2026-03-28T12:00Z", "02:30", "Europe/Berlin", "2026-03-29T01:30Z"),  # a time that the clock skips
        ("2026-10-25T00:10Z", "02:30", "Europe/Berlin", "2026-10-25T00:30Z"),  # a time that comes twice: the first
        ("2026-10-25T00:40Z", "02:30", "Europe/Berlin", "2026-10-26T01:30Z"),
    ],
)
def test_times_are_read_in_their_zone(now: str, until: str, zone: str, expected: str) -> None:
    end = _end_of_wait(at(now), None, until, zone_of(zone))
    assert datetime.fromtimestamp(end, UTC) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("2026-11-15T11:59:59Z", "is in the past: the time is 2026-11-15T12:00:00Z"),
        ("2027-11-17", "366 days"),
        ("9999-12-31T23:59:59Z", "366 days"),
        ("tomorrow", "is not a time"),
        ("25:00", "is not a time"),
        ("12:60", "is not a time"),
        ("0001-01-01T00:00+14:00", "is"),
        ("18:00 o'clock", "is not a time"),
        ("\0", "is not a time"),
    ],
)
def test_what_is_no_time_to_wait_for_is_said_so(until: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        _end_of_wait(at("2026-11-15T12:00Z"), None, until, zone_of("UTC"))
