"""Tools that want to run on a worker of a kind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge import Agent, ToolCall, ToolContext, ToolResult, tool
from tests import programs
from tests.durable._placed import agent
from tests.durable.working import answered, begun, ended, rested, script, told, working

ROOT = Path(__file__).parents[2]


@contextmanager
def another_worker(database: str, place: Path, *offers: str) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.durable._placed", database, str(place), *offers]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with programs.Popen(
        command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process.pid
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


async def test_a_call_runs_where_its_tool_wants_to_and_its_result_comes_back(local_first: str, tmp_path: Path) -> None:
    async with working(local_first, agent(), tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        child = run.waits[0].detail["run"]
        assert told(worker) == [str(os.getpid())]  # the other call of the turn did not wait for it
        assert worker.store.get(child).status == "queued"  # nobody offers a gpu yet
        with another_worker(local_first, tmp_path, "gpu") as pid:
            await rested(worker, child)
            await answered(worker, {"kind": "once"}, child)  # judged where it runs
            run = await ended(worker)
            assert run.status == "finished"
            assert told(worker)[1] == f"cat by {pid}"
            assert (tmp_path / "rendered").read_text() == f"cat {pid}\n"


async def test_a_worker_that_offers_the_place_runs_it_itself(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with working(sqlite, agent(), tmp_path, offers=["gpu"]) as worker:
        await begun(worker)
        child = (await rested(worker)).waits[0].detail["run"]  # the next try may be on a worker without that place
        await rested(worker, child)
        await answered(worker, {"kind": "once"}, child)
        run = await ended(worker)
        assert run.status == "finished"
        assert f"cat by {os.getpid()}" in told(worker)


async def test_a_call_that_was_placed_is_not_done_again_by_a_worker_that_could_do_it(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with working(sqlite, agent(), tmp_path) as worker:  # this one must give the call away
        await begun(worker)
        child = (await rested(worker)).waits[0].detail["run"]
    async with working(sqlite, agent(), tmp_path, offers=["gpu"]) as worker:  # and this one goes on with both
        await rested(worker, child)
        await answered(worker, {"kind": "once"}, child)
        run = await ended(worker)
        assert run.status == "finished"
        assert (tmp_path / "rendered").read_text() == f"cat {os.getpid()}\n"


@pytest.mark.parametrize("goes_on", [True, False], ids=["in the background", "at once"])
async def test_a_placed_call_that_goes_on_in_the_background_brings_back_its_result(
    sqlite: str, tmp_path: Path, goes_on: bool
) -> None:
    ready = asyncio.Event()

    @tool(runs_on="gpu")
    async def render(ctx: ToolContext) -> ToolResult:
        """Render a picture."""

        async def work() -> str:
            await ready.wait()
            return "the picture is done"

        return ctx.background(work(), "it goes on") if goes_on else ToolResult.of("the picture is done")

    subject = Agent(script(ToolCall("render", {}, "r1"), "thanks"), tools=[render])
    async with working(sqlite, subject, tmp_path, offers=["gpu"]) as worker:
        await begun(worker)
        await rested(worker)
        ready.set()
        run = await ended(worker)
        assert run.status == "finished"
        assert told(worker) == ["the picture is done"]


async def test_a_placed_call_in_the_background_ends_when_its_run_is_cancelled(sqlite: str, tmp_path: Path) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool(runs_on="gpu")
    async def render(ctx: ToolContext) -> ToolResult:
        """Render a picture."""

        async def work() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return ""

        return ctx.background(work(), "it goes on")

    subject = Agent(script(ToolCall("render", {}, "r1"), "thanks"), tools=[render])
    async with working(sqlite, subject, tmp_path, offers=["gpu"]) as worker:
        await begun(worker)
        child = (await rested(worker)).waits[0].detail["run"]
        await asyncio.wait_for(started.wait(), 60)
        worker.store.request_cancel(child)
        await asyncio.wait_for(stopped.wait(), 60)
        assert (await ended(worker, child)).status == "cancelled"
        await ended(worker)
        assert "ended without a result: cancelled" in told(worker)[0]
