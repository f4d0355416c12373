"""Work that goes on while its run is a row: waited for, stopped with its run, and not forgotten when it is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, ToolCall, ToolContext, ToolResult, tool
from forge.core.errors import ErrorKind
from forge.core.events import ToolCompleted
from forge.durable.engine import held_work
from forge.durable.engine.held_work import LOST_WORK_MESSAGE, report_lost
from forge.durable.engine.reconcile import find_completed
from forge.durable.engine.record_events import key_of
from forge.durable.store import RunStore
from forge.durable.store.heartbeats import Heartbeat
from forge.durable.store.rows import NewRun, Outcome, RunInfo
from forge.durable.store.waits import Wait
from forge.workspace.state.store import StoreError
from tests.durable.working import begun, ended, engine_of, rested, script, working


@pytest.mark.parametrize("handed", [True, False])
async def test_background_work_of_a_worker_that_has_gone_is_unknown(sqlite: str, handed: bool) -> None:
    async with engine_of(sqlite, version="1", listen=False) as engine:
        store = engine.store
        dead, living = Heartbeat(sqlite, "dead"), Heartbeat(sqlite, engine.worker)
        dead.start()
        living.start()
        background, approval = Wait(kind="background", detail={"worker": "dead"}), Wait(kind="approval", call="c")
        cases = (("orphan", "dead", background), ("child", engine.worker, background), ("asks", "dead", approval))
        for name, worker, wait in cases:
            store.create(NewRun(id=name, version="1"))
            store.begin(name, 1, worker)
            left = Outcome(status="waiting", messages=(), spent={}, waits=(wait,), held=worker)
            store.close_segment(name, 1, left)
        dead.leave(handed=handed)
        await report_lost(engine.store, engine.context.starter)
        assert [store.get(name).status for name in ("orphan", "child", "asks")] == ["queued", "waiting", "waiting"]
        assert "unknown" in store.messages("orphan")[-1].text
        store.advance("asks")  # as if it was answered
        store.begin("asks", 2, engine.worker)
        await report_lost(engine.store, engine.context.starter)
        assert store.get("asks").status == "running"
        left = Outcome(status="waiting", messages=(), spent={}, waits=(Wait(kind="question"),))
        store.close_segment("asks", 2, left)
        await report_lost(engine.store, engine.context.starter)
        await report_lost(engine.store, engine.context.starter)
        assert [message.text for message in store.messages("asks")] == [LOST_WORK_MESSAGE], (
            "it is told when it can be, and once"
        )
        assert [store.get(name).segment for name in ("orphan", "child", "asks")] == [2, 1, 3]
        living.leave(handed=True)


async def test_a_worker_that_leaves_waits_for_background_work_and_stops_what_takes_too_long(
    sqlite: str, tmp_path: Path
) -> None:
    ready, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def long(ctx: ToolContext) -> ToolResult:
        """Begin something that takes its time."""

        async def work() -> str:
            try:
                await ready.wait()
            except asyncio.CancelledError:
                stopped.set()
                raise
            return "the long work is done"

        return ctx.background(work(), "it goes on")

    def agent() -> Agent:
        return Agent(script(ToolCall("long", {}, "l"), "I wait for it", "so it is"), tools=[long])

    async with working(sqlite, agent(), tmp_path) as worker:
        await begun(worker, run_id="kept")
        await rested(worker, "kept")
        assert not await worker.drain(0.2)
        ready.set()
        assert await worker.drain(20)
        assert "the long work is done" in worker.store.messages("kept")[-1].text
        assert worker.store.get("kept").status == "queued"
    ready.clear()
    async with working(sqlite, agent(), tmp_path) as worker:
        await begun(worker, run_id="lost")
        await rested(worker, "lost")
    assert stopped.is_set()
    async with working(sqlite, agent(), tmp_path) as worker:
        run = await ended(worker, "lost")
        assert run.status == "finished"
        assert LOST_WORK_MESSAGE in [message.text for message in worker.store.messages("lost")]


async def test_background_work_of_a_run_that_is_cancelled_is_stopped(sqlite: str, tmp_path: Path) -> None:
    stopped = asyncio.Event()

    @tool
    async def long(ctx: ToolContext) -> ToolResult:
        """Begin something that takes its time."""

        async def work() -> str:
            try:
                await asyncio.sleep(3_600)
            finally:
                stopped.set()
            return ""

        return ctx.background(work(), "it goes on")

    agent = Agent(script(ToolCall("long", {}, "l"), "I wait"), tools=[long])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        assert not stopped.is_set()
        worker.store.request_cancel("r")
        await asyncio.wait_for(stopped.wait(), 60)
        assert worker.store.get("r").status == "cancelled"


@pytest.mark.parametrize("taken", [False, True], ids=["refused", "taken"])
async def test_a_database_that_is_away_when_background_work_ends_only_delays_the_news(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """Also where it took them, and could not say so: they are told once."""
    ready, tries = asyncio.Event(), 0

    @tool
    async def long(ctx: ToolContext) -> ToolResult:
        """Begin something that takes its time."""

        async def work() -> str:
            await ready.wait()
            return "the long work is done"

        return ctx.background(work(), "it goes on")

    advance = RunStore.advance

    def away(store: RunStore, run_id: str, **how: Any) -> RunInfo | None:
        nonlocal tries
        tries += 1
        if tries > 3:
            return advance(store, run_id, **how)
        if taken and tries == 1:
            advance(store, run_id, **how)
        raise StoreError("the disk is full", ErrorKind.SYSTEM)

    agent = Agent(script(ToolCall("long", {}, "l"), "I wait for it", "so it is"), tools=[long])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        monkeypatch.setattr(RunStore, "advance", away)
        monkeypatch.setattr(held_work, "SHORTEST_PAUSE", 0.01)
        ready.set()
        run = await ended(worker)
        assert run.status == "finished"
        assert tries >= 3
        said = [message.text for message in worker.store.messages("r") if "the long work is done" in message.text]
        assert len(said) == 1


def test_what_another_try_told_of_the_end_of_its_background_work_is_known(store: RunStore) -> None:
    call = ToolCall("long", {}, "l")
    store.create(NewRun(id="r"))
    assert "its state is unknown" in find_completed(store, "r", 1, call).for_llm
    told = ToolCompleted(call, ToolResult.of("it went well")).to_dict()
    store.add_events("r", [(key_of(1, ToolCompleted.type, "l"), told)])
    assert find_completed(store, "r", 1, call).for_llm == "it went well"
    assert "its state is unknown" in find_completed(store, "r", 2, call).for_llm
