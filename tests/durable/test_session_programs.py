"""Programs that a stored run left running end with it: finished, cancelled, deleted, or left behind by its worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, AgentType, ToolCall, rules
from forge.core.execution import session_programs
from forge.durable.client import Runs
from forge.durable.engine.session_programs import SessionPrograms
from forge.durable.store import NewRun, RunStore
from forge.tools.bash import Bash, BashJobs
from tests.durable.working import answered, begun, ended, rested, script, told, working
from tests.process.planting import found, mark, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

ASKING = ToolCall("ask_question", {"question": "which?"}, "q")


def start(word: str, id: str = "s") -> ToolCall:
    return ToolCall("bash", {"command": f"sleep {word}", "background": True}, id)


def left(word: str) -> ToolCall:
    """A line that ends at once and leaves a program running."""
    return ToolCall("bash", {"command": f"setsid sleep {word} >/dev/null 2>&1 & sleep 0.1"}, "l")


def agent(*turns: Any, policy: str = "allow execute", **more: Any) -> Agent:
    tools = [Bash(sandbox="off"), BashJobs()]
    return Agent(script(*turns), tools=tools, policy=rules(policy), **more)


async def seen(condition: Callable[[], object]) -> bool:
    """Beside the loop, on which the worker must go on."""
    return await asyncio.to_thread(until, condition)


@pytest.mark.parametrize("leave", [start, left])
async def test_they_end_with_a_run_that_is_over_and_not_before(
    sqlite: str, tmp_path: Path, leave: Callable[[str], ToolCall]
) -> None:
    word = mark()
    async with working(sqlite, agent(leave(word), ASKING, ToolCall("bash_jobs", {}, "j"), "done"), tmp_path) as worker:
        await begun(worker)
        assert (await rested(worker)).status == "waiting"
        await (
            worker.engine.context.programs.end_finished()
        )  # in a round of the worker, a run that waits keeps its programs
        assert await seen(lambda: found(word))
        await asyncio.to_thread(lambda: Runs(sqlite).answer("r", "the first"))
        assert (await ended(worker)).status == "finished"
        if leave is start:
            assert "running" in told(worker)[-1], "the next segment has the job"
        assert await seen(lambda: not found(word))


@asynccontextmanager
async def waiting(sqlite: str, tmp_path: Path, word: str) -> AsyncIterator[None]:
    """A worker whose run started a program and waits for an answer."""
    async with working(sqlite, agent(start(word), ASKING), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        assert await seen(lambda: found(word))
        yield


async def test_they_end_with_a_run_that_is_cancelled_while_it_waits(sqlite: str, tmp_path: Path) -> None:
    word = mark()
    async with waiting(sqlite, tmp_path, word):
        await asyncio.to_thread(lambda: Runs(sqlite).cancel("r"))
        assert await seen(lambda: not found(word))


async def test_they_end_with_their_worker(sqlite: str, tmp_path: Path) -> None:
    word = mark()
    async with waiting(sqlite, tmp_path, word):
        pass
    assert await seen(lambda: not found(word))


async def test_runs_side_by_side_end_only_their_own(sqlite: str, tmp_path: Path) -> None:
    words = {name: mark() for name in ("waits", "ends")}

    def first(request: Any) -> ToolCall:
        return start(words[request.messages[0].text])

    def then(request: Any) -> Any:
        return ASKING if request.messages[0].text == "waits" else "done"

    async with working(sqlite, agent(first, then), tmp_path) as worker:
        for name in words:
            await begun(worker, name, name)
        await rested(worker, "waits")
        await ended(worker, "ends")
        assert await seen(lambda: not found(words["ends"]))
        assert found(words["waits"])


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.slow
async def test_a_conversation_keeps_them_for_its_next_run_where_a_person_talks(
    sqlite: str, tmp_path: Path, keeps: bool
) -> None:
    word = mark()

    def first(request: Any) -> ToolCall:
        return start(word) if request.messages[0].text == "begin" else ToolCall("bash_jobs", {}, "j")

    async with working(sqlite, agent(first, "done"), tmp_path, keep_conversations=keeps) as worker:
        await begun(worker, "begin", "one", session="talk")
        await ended(worker, "one")
        if not keeps:
            assert await seen(lambda: not found(word))
            return
        await worker.engine.context.programs.end_finished(keep_conversations=True)
        await begun(worker, "and now", "two", session="talk")
        await ended(worker, "two")
        assert "running" in told(worker, "two")[-1]
        await begun(worker, "begin", "nightly-1", session="nightly-1", scope={"schedule": "nightly"})
        await ended(worker, "nightly-1")
        assert await seen(lambda: len(found(word)) == 1), "nobody goes on talking with a scheduled run"
    assert await seen(lambda: not found(word))


@pytest.mark.slow
async def test_a_sub_agents_programs_belong_to_the_run_that_it_serves(sqlite: str, tmp_path: Path) -> None:
    word = mark()
    kind = AgentType(model=script(start(word), "begun"), tools=("bash",))
    task = ToolCall("task", {"description": "serve", "prompt": "start the server"}, "t")
    main = agent(task, ToolCall("bash_jobs", {}, "j"), ASKING, agents={"general": kind})
    async with working(sqlite, main, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        while [wait.kind for wait in run.waits] == ["run"]:
            run = await rested(worker, segment=run.segment + 1)
        assert "running" in told(worker)[-2]
        await asyncio.to_thread(lambda: Runs(sqlite).cancel("r"))
        assert await seen(lambda: not found(word))


async def test_a_call_that_was_approved_may_leave_a_program_running(sqlite: str, tmp_path: Path) -> None:
    word = mark()
    async with working(sqlite, agent(start(word), "done", policy="ask execute"), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        assert (await answered(worker, {"kind": "once"})).status == "finished"
        assert "job_1" in told(worker)[0]
        assert await seen(lambda: not found(word))


@pytest.mark.parametrize("ends", ["nothing", "all"])
async def test_a_program_that_starts_during_a_round_is_not_forgotten(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Nor does a round fail beside a worker that leaves."""
    programs, over = {"one"}, list[str]()
    monkeypatch.setattr(session_programs, "_ends", [(over.append, lambda: programs)])
    subject = SessionPrograms(store, list)
    for name in ("one", "two"):
        run = store.create(NewRun(id=name, version="0"))
        subject.note_run(run, name)
    asked, get = list[str](), store.get

    def get_late(run_id: str) -> Any:
        if not asked and ends == "all":
            subject.end_all()
        asked.append(run_id)
        programs.add("two")
        return get(run_id)

    monkeypatch.setattr(store, "get", get_late)
    await subject.end_finished()
    if ends == "all":
        assert (asked, over) == (["one"], ["one"])
        return
    assert over == [], "both runs are still queued"
    for name in ("one", "two"):
        store.request_cancel(name)
        assert get(name).is_over
    await subject.end_finished()
    assert over == ["one", "two"]
