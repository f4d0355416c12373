"""One script through every door of an agent: the same events, the same prompt, the same end of what it started."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from forge import load_project
from forge.core.provider import ModelRequest
from forge.models.scripted import Scripted
from forge.project.runs.scheduled_runs import make_runner
from tests.cli.conftest import here, workspace
from tests.cli.scripts import call, script
from tests.process.planting import found, mark, until

pytest.importorskip("dbos")
from forge import DurableAgent
from tests.console.conftest import running_console

__all__ = ["here", "workspace"]  # fixtures

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

PROMPT = "Do it."
ANSWER = "The file says hello, and the other one is not there."
DELEGATED = "You do what another agent asks."  # the prompt of the sub-agents

TAKEN_OUT: Mapping[str, frozenset[str]] = {
    "schedule": frozenset({"text_delta"}),  # it tells the audit log, which keeps no pieces of text
    "sub-agent": frozenset({"run_started", "run_finished"}),  # it is a part of its parent's run
    "sub-agent of a stored run": frozenset({"run_started", "run_finished"}),
}
"""All events that a driver need not tell. (Names of sessions and runs, ids of calls and times are never compared.)"""

STORED_ONLY = frozenset({"wait"})
"""Tools that stored runs have and others have not."""

OWN_PROMPT = frozenset({"sub-agent", "sub-agent of a stored run"})
"""Drivers whose agent has the instructions and the tools of its type, and not the project's."""


class Request(NamedTuple):
    """What a model was shown."""

    prompt: str
    tools: set[str]
    alive: list[int]  # processes of the program that the script starts


@dataclass
class Seen:
    """What came of a run, as somebody outside of it sees it."""

    events: list[tuple[Any, ...]]
    text: str
    prompts: set[str]  # system prompts that the model was shown
    tools: set[str]
    alive: list[int]  # processes of its program when the model was asked for its answer


class Play:
    """A project with a script, and what its model was shown."""

    def __init__(self, workspace: Path, here: Callable[..., Any]) -> None:
        self.workspace, self.here = workspace, here
        self.config = str(workspace / "forge.yaml")
        self.word = ""
        self.requests: list[Request] = []
        (workspace / "a.txt").write_text("hello\n")

    def ready(self, *, delegates: bool = False) -> str:
        """Write the project anew, with a program that nobody else has. Returns what the project's agent is asked."""
        self.word, self.requests = mark(), []
        turns = [
            call("file_read", "Let me look. ", path="a.txt"),
            call("bash", command=f"sleep {self.word}", background=True),
            call("file_read", path="not-there.txt"),
            ANSWER,
        ]
        own = script(self.workspace, *turns, name="own.json")
        order = call("task", description="All of it", prompt=PROMPT, agent_type="doer")
        model = script(self.workspace, order, "It was done.", name="parent.json") if delegates else own
        Path(self.config).write_text(
            json.dumps(
                {
                    "agent": {"model": model, "prompt": "Be brief."},
                    "agents": {"doer": {"prompt": DELEGATED, "model": own, "tools": ["file_read", "bash"]}},
                    "permissions": {"rules": ["allow execute"]},
                    "sandbox": "off",
                    "schedules": [{"id": "it", "cron": "@daily", "task": PROMPT}],
                }
            )
        )
        return PROMPT

    def seen(self, events: Iterable[Mapping[str, Any]], text: str, agent: str = "main") -> Seen:
        own = [one for one in self.requests if (one.prompt == DELEGATED) == (agent != "main")]
        return Seen(
            events=comparable(one for one in events if one["agent"] == agent),
            text=text,
            prompts={one.prompt for one in own},
            tools=set().union(*(one.tools for one in own)),
            alive=own[-1].alive,
        )


def comparable(events: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Type, call and outcome of each. How a text was cut into pieces is nobody's business."""
    made: list[tuple[Any, ...]] = []
    for one in events:
        kind, called = one["event"], one.get("call") or {}
        if kind == "text_delta" and made and made[-1][0] == kind:
            made[-1] = (kind, made[-1][1] + one["text"])
        elif kind == "text_delta":
            made.append((kind, one["text"]))
        elif kind == "turn_finished":
            made.append((kind, one["turn"]))
        elif kind == "run_finished":
            made.append((kind, one["text"], one["reason"], one["turns"], one["calls"], one["error"]))
        elif kind == "error":
            made.append((kind, called["name"], one["error_type"]))
        else:
            made.append((kind, called.get("name"), one.get("success")))
    return made


def by_agent(play: Play) -> Seen:
    prompt = play.ready()
    events: list[dict[str, Any]] = []

    async def main() -> str:
        agent = load_project(play.workspace, config=play.config).agent()
        agent.activity.subscribe(lambda event: events.append(event.to_dict()))
        async with agent:
            return (await agent.run(prompt)).text

    text = asyncio.run(main())
    return play.seen(events, text)


def by_stream(play: Play) -> Seen:
    prompt = play.ready()

    async def main() -> list[Any]:
        async with load_project(play.workspace, config=play.config).agent() as agent:
            return [one async for one in agent.stream(prompt)]

    *events, result = asyncio.run(main())
    return play.seen([event.to_dict() for event in events], result.text)


def by_command(play: Play, *more: str) -> Seen:
    prompt = play.ready()
    ended = play.here("run", prompt, "--json", "--config", play.config, *more)
    assert ended.code == 0, ended.err
    return play.seen(ended.lines, ended.lines[-1]["text"])


def by_durable_command(play: Play) -> Seen:
    return by_command(play, "--durable")


def by_schedule(play: Play) -> Seen:
    play.ready()
    asked = SimpleNamespace(workspace=str(play.workspace), config=play.config, policy=None)
    log = play.workspace / ".forge" / "audit.ndjson"
    before = log.read_text() if log.exists() else ""
    run = asyncio.run(make_runner(asked).now("it"))
    assert run.error == ""
    return play.seen(map(json.loads, log.read_text()[len(before) :].splitlines()), run.result)


def by_durable_agent(play: Play) -> Seen:
    prompt = play.ready()

    async def main() -> tuple[list[Any], str]:
        agent = load_project(play.workspace, config=play.config).agent()
        async with DurableAgent(agent, f"sqlite:///{play.workspace}/runs.db") as durable:
            result = await durable.run(prompt)
            return [event.to_dict() async for event in durable.runs.follow(result.run_id)], result.text

    return play.seen(*asyncio.run(main()))


def by_console(play: Play) -> Seen:
    prompt = play.ready()

    async def main() -> tuple[list[Any], str]:
        async with running_console(play.workspace, config=play.config) as console:
            run = (await console.post("/api/runs", {"prompt": prompt}, 201))["run"]
            ended = await console.run_is(run["id"], "finished", "failed", "waiting")
            events = (await console.get(f"/api/runs/{run['id']}/events"))["events"]
            return [one["event"] for one in events], ended["text"]

    return play.seen(*asyncio.run(main()))


def by_task(play: Play) -> Seen:
    prompt = play.ready(delegates=True)
    events: list[dict[str, Any]] = []

    async def main() -> None:
        agent = load_project(play.workspace, config=play.config).agent()
        agent.activity.subscribe(lambda event: events.append(event.to_dict()))
        async with agent:
            await agent.run(prompt)

    asyncio.run(main())
    return play.seen(events, report(events), "main/doer")


def by_stored_task(play: Play) -> Seen:
    prompt = play.ready(delegates=True)

    async def main() -> list[Any]:
        agent = load_project(play.workspace, config=play.config).agent()
        async with DurableAgent(agent, f"sqlite:///{play.workspace}/runs.db") as durable:
            result = await durable.run(prompt)
            assert result.reason == "answer", result
            return [event.to_dict() async for event in durable.runs.follow(result.run_id)]

    events = asyncio.run(main())
    return play.seen(events, report(events), "main/doer")


def report(events: Iterable[Mapping[str, Any]]) -> str:
    """What the sub-agent's parent was told."""
    ends = [one for one in events if one["event"] == "tool_call_end" and one["call"]["name"] == "task"]
    told: str = ends[-1]["result"]["for_llm"]
    return told.partition("\n\n[task_id")[0]


DRIVERS: Mapping[str, Callable[[Play], Seen]] = {
    "Agent.stream": by_stream,
    "forge run": by_command,
    "forge run --durable": by_durable_command,
    "schedule": by_schedule,
    "DurableAgent": by_durable_agent,
    "console": by_console,
    "sub-agent": by_task,
    "sub-agent of a stored run": by_stored_task,
}


@pytest.fixture
def play(workspace: Path, here: Any, monkeypatch: pytest.MonkeyPatch) -> Play:
    made = Play(workspace, here)
    answer = Scripted.stream

    async def stream(self: Scripted, request: ModelRequest) -> AsyncGenerator[Any, None]:
        if any(one.name == "bash" for message in request.messages for one in message.tool_calls):
            await asyncio.to_thread(until, lambda: found(made.word))  # it was started, but may not have its name yet
        offered = {spec.name for spec in request.tools}
        made.requests.append(Request(request.messages[0].text, offered, found(made.word)))
        async for one in answer(self, request):
            yield one

    monkeypatch.setattr(Scripted, "stream", stream)
    return made


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_script_is_played_alike_by(driver: str, play: Play) -> None:
    expected = by_agent(play)
    assert expected.text == ANSWER
    assert [one[1:] for one in expected.events if one[0] == "tool_call_end"] == [
        ("file_read", True),
        ("bash", True),
        ("file_read", False),
    ]
    assert expected.alive, "the program was never there: nothing is shown by its end"
    assert until(lambda: not found(play.word)), "the agent left its program running"

    seen = DRIVERS[driver](play)
    assert seen.alive
    assert until(lambda: not found(play.word)), f"{driver} left the agent's program running"
    out = TAKEN_OUT.get(driver, frozenset())
    assert seen.events == [one for one in expected.events if one[0] not in out]
    assert seen.text == expected.text
    if driver in OWN_PROMPT:
        assert seen.prompts == {DELEGATED}
        assert seen.tools - STORED_ONLY == {"file_read", "bash", "task_completion"}
    else:
        assert seen.prompts == expected.prompts
        assert len(seen.prompts) == 1
        assert seen.tools - STORED_ONLY == expected.tools
