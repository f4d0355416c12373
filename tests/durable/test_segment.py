"""Runs that wait, go on, are stopped, and have others work for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

from forge.agent.agent import Agent
from forge.agent.limits import Limits
from forge.agent.subagent import AgentType
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import ToolResult
from forge.core.tool import tool
from forge.durable.engine import attempt
from forge.durable.engine.agents import find_agent
from forge.durable.engine.follow_up import resume_run
from forge.durable.store.find import RunFilter
from forge.models.scripted import Scripted
from forge.permissions.questions import approve_all
from tests.durable.working import answered, begun, ended, rested, script, told, working


@tool
def add(a: int, b: int) -> int:
    """Add two numbers, which harms nobody."""
    return a + b


@tool(permissions={"write"})
def pay(name: str, sum: int) -> str:
    """Pay a sum of money to somebody by name."""
    return f"paid {name} {sum}"


PAY = ToolCall("pay", {"name": "Ada", "sum": 5}, "p1")


async def test_a_call_that_asks_is_stored_and_runs_once_it_is_approved(shared_first: str, tmp_path: Path) -> None:
    agent = Agent(script([ToolCall("add", {"a": 1, "b": 2}, "a1"), PAY], "done"), tools=[add, pay])
    async with working(shared_first, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert run.status == "waiting"
        assert [wait.kind for wait in run.waits] == ["approval"]
        assert told(worker) == ["3"]  # what could be done was done
        assert not worker.attempts  # nobody holds it
        run = await answered(worker, {"kind": "once"})
        assert run.status == "finished"
        assert told(worker) == ["3", "paid Ada 5"]
        assert run.spent["calls"] == 2


async def test_a_no_reaches_the_model_with_what_was_said(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(PAY, "as you like"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        run = await answered(worker, {"kind": "no", "feedback": "ask Bob first"})
        assert run.status == "finished"
        assert "ask Bob first" in told(worker)[0]


async def test_edited_arguments_are_what_runs(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(PAY, "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        await answered(worker, {"kind": "once", "arguments": {"name": "Ada", "sum": 1}})
        assert told(worker)[0].startswith("paid Ada 1")


async def test_an_approval_is_for_the_exact_call(sqlite: str, tmp_path: Path) -> None:
    other = ToolCall("pay", {"name": "Eve", "sum": 5}, "p2")
    agent = Agent(script(PAY, other, "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        run = await answered(worker, {"kind": "once"})
        assert run.status == "waiting"  # the other call is another question
        run = await answered(worker, {"kind": "no"})
        assert told(worker)[0] == "paid Ada 5"
        assert "refused" in told(worker)[1]


async def test_always_holds_for_the_same_call_later_in_the_run(sqlite: str, tmp_path: Path) -> None:
    again = ToolCall("pay", {"name": "Ada", "sum": 5}, "p2")
    agent = Agent(script(PAY, again, "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        agent.gate.forget()  # as on another worker
        run = await answered(worker, {"kind": "always"})
        assert run.status == "finished"
        assert told(worker) == ["paid Ada 5", "paid Ada 5"]


async def test_a_question_of_the_model_is_answered_with_words(sqlite: str, tmp_path: Path) -> None:
    agent = Agent(script(ToolCall("ask_question", {"question": "Which one?"}, "q"), "the red one, then"))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert (run.status, run.waits[0].kind) == ("waiting", "question")
        assert "Which one?" in run.waits[0].detail["text"]
        queued = worker.store.advance("r", say=[Message("user", "the red one")])
        assert queued is not None
        await worker.engine.context.start_segment(queued)
        run = await rested(worker, segment=2)
        assert run.result is not None
        assert run.result["text"] == "the red one, then"


async def test_a_long_run_is_many_segments_and_one_conversation(
    sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "MOST_RECORDED_STEPS", 6)
    turns = [ToolCall("add", {"a": number, "b": 0}, f"c{number}") for number in range(20)]
    agent = Agent(script(*turns, "done"), tools=[add], limits=Limits(turns=50))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert run.status == "finished"
        assert run.segment > 5
        assert told(worker) == [str(number) for number in range(20)]
        assert run.spent["turns"] == 21


async def test_limits_hold_over_all_segments(sqlite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "MOST_RECORDED_STEPS", 4)
    turns = [ToolCall("add", {"a": number, "b": 0}, f"c{number}") for number in range(20)]
    agent = Agent(script(*turns, "done"), tools=[add], limits=Limits(turns=7))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert run.result is not None
        assert (run.result["reason"], run.result["turns"]) == ("max_turns", 7)


async def test_who_takes_a_run_up_again_allows_it_as_much_anew(sqlite: str, tmp_path: Path) -> None:
    turns = [ToolCall("add", {"a": number, "b": 0}, f"c{number}") for number in range(20)]
    agent = Agent(script(*turns), tools=[add], limits=Limits(turns=3))
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        for revive, turned in ((False, 3), (True, 6), (True, 9)):  # not revived: as when background work has ended
            queued = worker.store.advance("r", revive=revive)
            assert queued is not None
            await worker.engine.context.start_segment(queued)
            run = await rested(worker, segment=queued.segment)
            assert run.result is not None
            assert (run.result["reason"], run.result["turns"]) == ("max_turns", turned)


async def test_a_run_asks_the_model_that_it_was_begun_with_and_so_do_those_it_starts(
    sqlite: str, tmp_path: Path
) -> None:
    def named(name: str) -> Scripted:
        if name == "unknown":
            raise ToolError("there is no such model here", ErrorKind.CONFIG, "Give this worker its key.")
        task = ToolCall("task", {"description": "look", "prompt": "look", "agent_type": "general"}, "t")
        return script(lambda request: name if request.messages[-1].text == "look" else task, f"{name} has it done")

    own = AgentType(model=Scripted("I have my own"))
    agent = Agent(script("the agent's"), agents={"general": AgentType(), "own": own}, approve=approve_all)
    async with working(sqlite, agent, tmp_path, models=named) as worker:
        for name in ("", "other", "unknown"):
            await begun(worker, run_id=f"r-{name}", scope={"model": name} if name else {})
        results = {name: (await ended(worker, f"r-{name}")).result or {} for name in ("", "other", "unknown")}
        texts = {name: result["text"] for name, result in results.items()}
        assert texts[""] == "the agent's"
        assert texts["other"] == "other has it done"
        assert "other" in told(worker, "r-other")[0]
        assert "there is no such model here" in results["unknown"]["error"]["message"]
        assert texts["unknown"] == "", "an error is never the answer"
        assert "Give this worker its key" in results["unknown"]["error"]["suggestion"]
        assert find_agent(worker.agents, "main/own", "other", named).provider is own.model


async def test_a_sub_agent_is_a_run_of_its_own(shared_first: str, tmp_path: Path) -> None:
    def turn(request: ModelRequest) -> object:
        if request.messages[0].text.startswith("You research"):
            done = ToolCall("task_completion", {"result": "the sky is blue"}, "t")
            return done if told_of(request) else ToolCall("add", {"a": 1, "b": 1}, "s1")
        if any(message.role == "tool" for message in request.messages):
            return "heard: " + next(message.text for message in request.messages if message.role == "tool")
        order = {"description": "look up", "prompt": "the colour of the sky", "agent_type": "researcher"}
        return [ToolCall("task", order, "t1"), ToolCall("task", {**order, "prompt": "again"}, "t2")]

    def told_of(request: ModelRequest) -> bool:
        return any(message.role == "tool" for message in request.messages)

    kinds = {"researcher": AgentType(prompt="You research.", tools=("add",))}
    agent = Agent(script(*[turn] * 5), tools=[add], agents=kinds, approve=approve_all)
    async with working(shared_first, agent, tmp_path) as worker:
        await begun(worker)
        run = await ended(worker)
        assert run.status == "finished"
        assert run.result is not None
        assert "the sky is blue" in run.result["text"]
        children = worker.store.list(RunFilter(parent="r"))
        assert {child.agent for child in children} == {"main/researcher"}
        assert [child.status for child in children] == ["finished", "finished"]
        tasks = {child.parent_call: {wire["task"] for _, wire in worker.store.events(child.id)} for child in children}
        assert tasks == {"t1": {"t1"}, "t2": {"t2"}}
        assert not any("task" in wire for _, wire in worker.store.events("r"))


async def test_a_sub_agent_that_needs_a_yes_waits_and_its_parent_with_it(sqlite: str, tmp_path: Path) -> None:
    def turn(request: ModelRequest) -> object:
        if request.messages[0].role == "system":
            done = ToolCall("task_completion", {"result": "paid"}, "t")
            return done if any(message.role == "tool" for message in request.messages) else PAY
        if any(message.role == "tool" for message in request.messages):
            return "all done"
        return ToolCall("task", {"description": "pay", "prompt": "pay Ada", "agent_type": "payer"}, "t1")

    kinds = {"payer": AgentType(prompt="You pay.", tools=("pay",))}
    agent = Agent(script(*[turn] * 5), tools=[pay], agents=kinds)
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        await answered(worker, {"kind": "once"})  # the sub-agent itself
        run = worker.store.get("r")
        assert run.status == "waiting"
        assert run.waits[0].kind == "run"
        child = await rested(worker, run.waits[0].detail["run"])
        await answered(worker, {"kind": "once"}, child.id)
        run = await ended(worker)
        assert run.result is not None
        assert run.result["text"] == "all done"


async def test_background_work_is_waited_for_without_holding_the_run(sqlite: str, tmp_path: Path) -> None:
    ready = asyncio.Event()

    @tool
    async def long(ctx: ToolContext) -> ToolResult:
        """Begin something that takes its time."""

        async def work() -> str:
            await ready.wait()
            return "the long work is done"

        return ctx.background(work(), "it goes on")

    agent = Agent(script(ToolCall("long", {}, "l"), "I wait for it", "it is there"), tools=[long])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert (run.status, run.waits[0].kind) == ("waiting", "background")
        ready.set()
        run = await rested(worker, segment=2)
        assert run.result is not None
        assert run.result["text"] == "it is there"
        assert any("the long work is done" in message.text for message in worker.store.messages("r"))


async def test_a_run_that_is_cancelled_stops_what_is_under_way(sqlite: str, tmp_path: Path) -> None:
    stopped, started = asyncio.Event(), asyncio.Event()

    @tool
    async def forever() -> str:
        """Take all the time there is."""
        started.set()
        try:
            await asyncio.sleep(3_600)
        finally:
            stopped.set()
        return "never"

    agent = Agent(script(ToolCall("forever", {}, "f"), "done"), tools=[forever])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        await asyncio.wait_for(started.wait(), 30)
        worker.store.request_cancel("r")
        run = await rested(worker)
        assert run.status == "cancelled"
        assert stopped.is_set()
        assert "cancelled" in told(worker)[0]  # the history stays whole: it can be gone on with


async def test_a_model_that_fails_ends_the_run_with_its_words(sqlite: str, tmp_path: Path) -> None:
    def turn(request: ModelRequest) -> object:
        raise ProviderError("the key is not valid", suggestion="Set another.")

    async with working(sqlite, Agent(script(turn)), tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert run.status == "failed"
        assert run.result is not None
        assert run.result["error"]["message"] == "the key is not valid"
        assert run.result["error"]["suggestion"] == "Set another."


async def test_a_structured_answer_is_kept(sqlite: str, tmp_path: Path) -> None:
    class City(BaseModel):
        name: str
        people: int

    agent = Agent(script(ToolCall("final_answer", {"name": "Bern", "people": 1}, "f")), output=City)
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert run.result is not None
        assert run.result["output"] == {"name": "Bern", "people": 1}


async def test_what_was_too_long_is_kept_for_whoever_asked(sqlite: str, tmp_path: Path) -> None:
    @tool
    def talk() -> str:
        """Say very much at once."""
        return "word " * 100_000

    async with working(sqlite, Agent(script(ToolCall("talk", {}, "t"), "ok"), tools=[talk]), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        ((name, size),) = worker.store.files("r")
        assert size > 400_000
        assert worker.store.file("r", name).startswith(b"word word")


async def test_a_turn_that_waits_twice_says_its_results_in_order(sqlite: str, tmp_path: Path) -> None:
    second = ToolCall("pay", {"name": "Bob", "sum": 7}, "p2")
    agent = Agent(script([PAY, second], "done"), tools=[pay])
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await rested(worker)
        assert {wait.call for wait in run.waits} == {"p1", "p2"}
        for question in worker.store.questions("r"):
            worker.store.answer(question.id, {"kind": "once"}, "me")
        await resume_run(worker.engine.context, run)
        run = await rested(worker, segment=2)
        assert run.status == "finished"
        assert told(worker) == ["paid Ada 5", "paid Bob 7"]


async def test_a_tool_that_cancels_its_own_task_fails_and_the_run_goes_on(sqlite: str, tmp_path: Path) -> None:
    ran = 0

    @tool(permissions={"write"})
    async def leave() -> str:
        """End the task that this very call runs in."""
        nonlocal ran
        ran += 1
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(3_600)
        return ""

    agent = Agent(script(ToolCall("leave", {}, "l"), "so be it"), tools=[leave], approve=approve_all)
    async with working(sqlite, agent, tmp_path) as worker:
        await begun(worker)
        run = await ended(worker)
        assert (run.status, run.segment, ran) == ("finished", 1, 1)
        assert "it cancelled itself" in told(worker)[0]
        steps = await asyncio.to_thread(worker.engine.context.starter.client.list_workflow_steps, "r.1")
        assert len(steps) == 3  # two turns and a call: nothing was begun twice


async def test_a_stored_run_keeps_results_that_the_model_is_not_sent_again(sqlite: str, tmp_path: Path) -> None:
    text = "A line that everybody wants to read.\n" * 40

    @tool
    def page(name: str) -> str:
        """Read a page by its name."""
        return text

    seen: list[list[str]] = []

    def end(request: ModelRequest) -> str:
        seen.append([message.text for message in request.messages if message.role == "tool"])
        return "done"

    first, second = (ToolCall("page", {"name": name}, name) for name in "ab")
    model = Scripted(first, second, ToolCall("pay", {"name": "Ada", "sum": 5}, "p1"), end)
    async with working(sqlite, Agent(model, tools=[page, pay]), tmp_path) as worker:
        await begun(worker)
        await rested(worker)
        run = await answered(worker, {"kind": "once"})  # another segment, whose messages are loaded again
        assert run.status == "finished"
        assert told(worker)[:2] == [text, text]
    assert seen[0][0] == text
    assert seen[0][1].startswith('[the same 1480 characters as the result of your call "a" above')
