"""What the tests of runs share: a worker in this process, and looking at a run until it comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forge.agent.agent import Agent
from forge.core.context import Scope
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest
from forge.durable.engine.agents import prepare_for_worker
from forge.durable.engine.engine import Engine, make_context
from forge.durable.engine.follow_up import resume_run
from forge.durable.engine.segment import segment_workflow
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import Heartbeat
from forge.durable.store.rows import NewRun, RunInfo
from forge.durable.worker import Worker, WorkerSettings
from forge.models.scripted import Scripted

LONGEST = 120.0  # seconds that a run may take to come to rest on a busy machine

Turn = str | ToolCall | list[Any] | Callable[[ModelRequest], Any]


def script(*turns: Turn) -> Scripted:
    """A model that says what the conversation has not heard yet, whichever process asks it."""

    def turn(request: ModelRequest) -> Any:
        said = turns[sum(message.role == "assistant" for message in request.messages)]
        return said(request) if callable(said) else said

    return Scripted(*[turn] * 100)


@asynccontextmanager
async def working(database: str, agent: Agent, workspace: Path, **settings: Any) -> AsyncIterator[Worker]:
    async with agent:
        subjects = [prepare_for_worker(agent, Scope(workspace=workspace))]
        more = {name: settings.pop(name, None) for name in ("models", "watch")}
        async with Worker(database, subjects, WorkerSettings(version="0", **settings), **more) as worker:
            yield worker


def engine_of(
    database: str, *agents: Agent, worker: str = "", version: str = "", offers: Sequence[str] = (), **settings: Any
) -> Engine:
    """An engine without a worker: nobody sends its heartbeats."""
    context = make_context(RunStore(database), agents, worker=worker, version=version, offers=offers)
    return Engine(context, segment_workflow, **settings)


async def begun(worker: Worker, prompt: str = "go", run_id: str = "r", **more: Any) -> RunInfo:
    new = NewRun(id=run_id, version="0", prompt=prompt, messages=(Message("user", prompt),), **more)
    run = await asyncio.to_thread(worker.store.create, new)
    await worker.engine.context.start_segment(run)
    return run


async def rested(worker: Worker, run_id: str = "r", segment: int = 0) -> RunInfo:
    """The run once it is over or waits for somebody, in that segment or a later one, and the worker let go of it."""
    return await _seen(
        worker,
        run_id,
        lambda run: (
            run.status not in ("queued", "running") and run.segment >= segment and run_id not in worker.attempts
        ),
    )


async def ended(worker: Worker, run_id: str = "r") -> RunInfo:
    return await _seen(worker, run_id, lambda run: run.is_over)


async def _seen(worker: Worker, run_id: str, as_wanted: Callable[[RunInfo], bool]) -> RunInfo:
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST
    while loop.time() < until:
        run = await asyncio.to_thread(worker.store.get, run_id)
        if as_wanted(run):
            return run
        await asyncio.sleep(0.02)
    raise AssertionError(f"{run} did not come to rest")


async def answered(worker: Worker, answer: dict[str, Any], run_id: str = "r") -> RunInfo:
    """Answer the run's open question, and see where it comes to rest."""
    (question,) = await asyncio.to_thread(worker.store.questions, run_id)
    assert await asyncio.to_thread(worker.store.answer, question.id, answer, "me")
    run = await asyncio.to_thread(worker.store.get, run_id)
    await resume_run(worker.engine.context, run)
    return await rested(worker, run_id, run.segment + 1)


def told(worker: Worker, run_id: str = "r") -> list[str]:
    """What tools said to the model."""
    return [message.text for message in worker.store.messages(run_id) if message.role == "tool"]


class Clock:
    """The database's clock, which tests put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        real = RunStore.now
        monkeypatch.setattr(RunStore, "now", lambda store: real(store) + self.ahead)
        look_around = Heartbeat.look_around

        def look_ahead(beats: Heartbeat) -> tuple[float, int]:
            now, sharing = look_around(beats)
            return now + self.ahead, sharing

        monkeypatch.setattr(Heartbeat, "look_around", look_ahead)
