"""A started run: its events, messages to it, its end, and what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from forge import Agent, Limits, Message, Scope, Scripted, SessionStore, ToolCall, ToolError, rules, tool
from forge.agent import StartedRun, run_control
from forge.core.messages import unanswered_calls
from forge.events import EventsMissed, MessageReceived, RunFinished, RunStarted, TextDelta, ToolFinished, ToolOutput
from forge.tools.bash import Bash


class Door:
    """A tool that waits until the test opens it, and tells that it has begun."""

    def __init__(self) -> None:
        self.begun, self.open, self.ended = asyncio.Event(), asyncio.Event(), ""

        @tool
        async def wait() -> str:
            """Wait at a door."""
            self.begun.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.ended = "cancelled"
                raise
            self.ended = "open"
            return "through"

        self.tool = wait


async def test_a_started_run_has_events_and_a_result():
    run = Agent(Scripted("Hello!")).start("Hi")
    assert isinstance(run, StartedRun)
    assert not run.is_over
    events = [event async for event in run.events()]
    result = await run
    assert (result.text, result.reason) == ("Hello!", "answer")
    assert (type(events[0]), type(events[-1])) == (RunStarted, RunFinished)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert run.is_over
    assert (await run) is result  # as often as one likes


async def test_several_listeners_and_a_late_one_get_every_event():
    door = Door()
    run = Agent(Scripted(ToolCall("wait"), "Done."), tools=[door.tool]).start("Go")

    async def listen() -> list[Any]:
        return [event async for event in run.events()]

    first, second = asyncio.create_task(listen()), asyncio.create_task(listen())
    await door.begun.wait()
    third = asyncio.create_task(listen())
    door.open.set()
    await run
    late = await listen()
    assert await first == await second == await third == late
    assert isinstance(late[0], RunStarted)
    assert isinstance(late[-1], RunFinished)


async def test_a_listener_is_told_what_it_missed(monkeypatch):
    monkeypatch.setattr(run_control, "MOST_KEPT", 5)
    run = Agent(Scripted("one two three four five six seven eight nine")).start("Count")
    await run
    events = [event async for event in run.events()]
    assert isinstance(events[0], EventsMissed)
    assert len(events) == 6
    assert events[0].count + 1 == events[1].seq
    assert isinstance(events[-1], RunFinished)


async def test_a_message_steers_the_run_before_its_first_turn_and_later():
    door = Door()
    heard = Scripted(ToolCall("wait"), lambda request: " ".join(m.text for m in request.messages if m.role == "user"))
    run = Agent(heard, tools=[door.tool]).start("One.")
    run.send("Two.")
    await door.begun.wait()
    await run.send("Three.")
    door.open.set()
    result = await run
    assert result.text == "One. Two. Three."
    received = [event.text async for event in run.events() if isinstance(event, MessageReceived)]
    assert received == ["Two.", "Three."]


@pytest.mark.parametrize("text", ["", "  ", 7, None])
async def test_what_is_no_message_is_refused(text):
    run = Agent(Scripted("Hello!")).start("Hi")
    with pytest.raises(ToolError, match="is no text"):
        run.send(text)
    assert (await run).text == "Hello!"


async def test_a_message_to_a_run_that_is_over_is_refused():
    run = Agent(Scripted("Hello!")).start("Hi")
    await run
    with pytest.raises(ToolError, match="it is over"):
        run.send("Still there?")


async def test_two_runs_of_one_session_get_their_own_messages():
    door = Door()
    model = Scripted(ToolCall("wait"), ToolCall("wait"), *[lambda request: request.messages[-1].text] * 2)
    agent = Agent(model, tools=[door.tool])
    first, second = agent.start("A", session="ada"), agent.start("B", session="ada")
    first.send("for the first")
    with pytest.raises(ToolError, match="2 runs are in progress in the session 'ada'") as refused:
        agent.send("for whom?", session="ada")
    assert "run.send(text)" in refused.value.suggestion
    door.open.set()
    results = await asyncio.gather(first, second)
    said = [[message.text for message in one.messages if message.role == "user"] for one in results]
    assert said == [["A", "for the first"], ["B"]]


async def test_a_cancelled_run_has_a_result_and_its_tool_ends():
    door = Door()
    run = Agent(Scripted(["I begin.", ToolCall("wait")]), tools=[door.tool]).start("Go")
    await door.begun.wait()
    result = await run.cancel()
    assert (result.reason, result.text, result.turns, door.ended) == ("cancelled", "I begin.", 1, "cancelled")
    assert not unanswered_calls(result.messages)
    assert run.cancel() is run  # it is over, and stays so
    assert (await run) is result
    events = [event async for event in run.events()]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].reason == "cancelled"


async def test_a_run_is_cancelled_before_its_first_step():
    history = [Message("user", "Hello"), Message("assistant", "Hi")]
    run = Agent(Scripted("never")).start("And now?", history=history)
    result = await run.cancel()
    assert (result.reason, result.turns, result.messages) == ("cancelled", 0, history)


async def test_a_cancelled_run_goes_on_with_its_messages():
    door = Door()
    agent = Agent(Scripted(ToolCall("wait"), "Now it is done."), tools=[door.tool])
    run = agent.start("Go")
    await door.begun.wait()
    result = await agent.run("Again.", history=(await run.cancel()).messages)
    assert (result.reason, result.text) == ("answer", "Now it is done.")


def count_sleeping(seconds: str) -> int:
    """Counts the processes of this machine that sleep for so long."""
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += file.read_bytes() == f"sleep\0{seconds}\0".encode()
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_cancelling_kills_the_programs_of_the_run(tmp_path: Path):
    seconds = f"600.{os.getpid()}"
    command = f"sleep {seconds} & echo begun; sleep {seconds}"
    agent = Agent(Scripted(ToolCall("bash", {"command": command})), tools=[Bash()], policy=rules("allow *"))
    run = agent.start("Go", scope=Scope(workspace=tmp_path))
    async for event in run.events():
        if isinstance(event, ToolOutput) and "begun" in event.text:
            break
    assert count_sleeping(seconds) >= 1
    assert (await run.cancel()).reason == "cancelled"
    assert count_sleeping(seconds) == 0


async def test_a_stored_session_is_consistent_after_a_cancelled_run(tmp_path: Path):
    door = Door()
    agent = Agent(Scripted(["Let me see.", ToolCall("wait")], "You said: go."), tools=[door.tool])
    with SessionStore(tmp_path / "sessions.db") as store:
        run = agent.start("Go", session="ada", store=store)
        await door.begun.wait()
        result = await run.cancel()
        stored = store.show("ada").messages
        assert stored == result.messages
        assert not unanswered_calls(stored)
        again = await agent.run("What did I say?", session="ada", store=store)
        assert (again.reason, again.text) == ("answer", "You said: go.")


async def test_an_agent_cancels_the_runs_of_a_session_from_any_thread():
    doors = Door(), Door()
    agents = Agent(Scripted(ToolCall("wait"), "over"), tools=[doors[0].tool])
    other = Agent(Scripted(ToolCall("wait"), "over"), tools=[doors[1].tool])
    waiting = asyncio.create_task(agents.run("Go", session="ada"))  # not a started one
    untouched = other.start("Go", session="ada")
    await doors[0].begun.wait()
    await doors[1].begun.wait()
    assert not agents.cancel("bob")
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(agents.cancel("ada")))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert answers == [True]
    result = await waiting  # the task itself is not cancelled
    assert (result.reason, doors[0].ended) == ("cancelled", "cancelled")
    assert not waiting.cancelled()
    doors[1].open.set()
    assert (await untouched).text == "over"
    with pytest.raises(ValueError, match="name of a session"):
        agents.cancel("")


async def test_a_tool_that_keeps_the_cancellation_to_itself_does_not_keep_the_run_going():
    begun = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Go on."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I go on."
        return ""

    run = Agent(Scripted(ToolCall("stubborn"), "never said"), tools=[stubborn]).start("Go")
    await begun.wait()
    result = await run.cancel()
    assert (result.reason, result.turns) == ("cancelled", 1)


async def test_a_tool_may_stop_its_own_run():
    @tool
    def stop() -> str:
        """Stop everything."""
        agent.cancel("ada")
        return "stopped"

    agent = Agent(Scripted(ToolCall("stop"), "never said"), tools=[stop])
    result = await agent.run("Go", session="ada")
    assert (result.reason, result.turns) == ("cancelled", 1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing is left of the cancellation


async def test_cancelling_a_task_that_waits_leaves_the_run_alone():
    door = Door()
    run = Agent(Scripted(ToolCall("wait"), "Done."), tools=[door.tool]).start("Go")
    await door.begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await run
    assert not run.is_over
    door.open.set()
    assert (await run).text == "Done."


async def test_cancelling_the_task_of_a_plain_run_still_raises():
    door = Door()
    agent = Agent(Scripted(ToolCall("wait")), tools=[door.tool])
    task = asyncio.create_task(agent.run("Go", session="ada"))
    await door.begun.wait()
    agent.cancel("ada")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_run_that_nobody_keeps_goes_on():
    begun, answered = asyncio.Event(), asyncio.Event()
    waiting: list[weakref.ref[asyncio.Future[str]]] = []

    @tool(timeout=None)
    async def wait() -> str:
        """Wait for something that nobody else knows."""
        future = asyncio.get_running_loop().create_future()
        waiting.append(weakref.ref(future))
        begun.set()
        return str(await future)

    def answer(request: Any) -> str:
        answered.set()
        return "Done."

    Agent(Scripted(ToolCall("wait"), answer), tools=[wait]).start("Go")
    await begun.wait()
    gc.collect()
    future = waiting[0]()
    assert future is not None
    future.set_result("through")
    async with asyncio.timeout(60):
        await answered.wait()


async def test_the_exception_of_a_run_that_nobody_awaits_is_reported():
    seen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))

    def broken() -> str:
        raise RuntimeError("no instructions today")

    Agent(Scripted("x"), instructions=broken).start("Go")
    async with asyncio.timeout(60):
        while not seen:
            await asyncio.sleep(0)
            gc.collect()
    assert "no instructions today" in str(seen[0])


async def test_both_ways_to_wait_raise_the_exception_of_a_run():
    def broken() -> str:
        raise RuntimeError("no instructions today")

    run = Agent(Scripted("x"), instructions=broken).start("Go")
    with pytest.raises(Exception, match="no instructions today"):
        [event async for event in run.events()]
    with pytest.raises(Exception, match="no instructions today"):
        await run


async def test_leaving_the_agent_cancels_its_started_runs(caplog):
    door = Door()
    agent = Agent(Scripted(ToolCall("wait")), tools=[door.tool])
    with caplog.at_level(logging.WARNING):
        async with agent:
            run = agent.start("Go")
            await door.begun.wait()
    assert run.is_over
    assert ((await run).reason, door.ended) == ("cancelled", "cancelled")
    assert "1 of its runs are in progress" in caplog.text


async def test_other_uses_of_the_agent_leave_a_started_run_alone():
    door = Door()
    agent = Agent(Scripted(ToolCall("wait"), "other", "another", "Done."), tools=[door.tool])
    run = agent.start("Go")  # in no `async with`
    await door.begun.wait()
    assert (await asyncio.to_thread(agent.run_sync, "Hi")).text == "other"
    async with agent:
        async with agent:
            inner = agent.start("Hi")
        assert not run.is_over
        assert (await inner).text == "another"
    assert not run.is_over
    door.open.set()
    assert (await run).text == "Done."


async def test_a_run_is_awaited_where_it_was_started_and_cancelled_from_everywhere():
    door = Door()
    run = Agent(Scripted(ToolCall("wait")), tools=[door.tool]).start("Go")
    await door.begun.wait()

    async def wait() -> None:
        await run

    async def listen() -> None:
        async for _ in run.events():
            pass

    for work in (wait, listen):
        with pytest.raises(RuntimeError, match="in another event loop"):
            await asyncio.to_thread(asyncio.run, work())
    await asyncio.to_thread(run.cancel)
    assert (await run).reason == "cancelled"


def test_a_run_is_started_where_a_loop_runs():
    agent = Agent(Scripted("Hello!"))
    with pytest.raises(RuntimeError, match=r"agent\.run_sync\(prompt\)"):
        agent.start("Hi")
    assert agent.run_sync("Hi").text == "Hello!"


async def test_a_started_run_takes_the_settings_of_a_run_and_an_override():
    agent = Agent("anthropic:claude-sonnet-5")
    with agent.override(model=Scripted([ToolCall("nothing")], [ToolCall("nothing")], "x")):
        run = agent.start("Hi", limits=Limits(turns=2))
    assert (await run).reason == "max_turns"
    with pytest.raises(TypeError, match="sesion"):
        agent.start("Hi", sesion="ada")  # type: ignore[call-arg]


async def test_a_stream_ends_with_the_result_of_a_cancelled_run():
    door = Door()
    agent = Agent(Scripted(ToolCall("wait")), tools=[door.tool])
    last: Any = None
    async for event in agent.stream("Go", session="ada"):
        last = event
        if door.begun.is_set():
            agent.cancel("ada")
    assert last.reason == "cancelled"


async def test_text_and_results_come_as_events():
    door = Door()
    door.open.set()
    run = Agent(Scripted(ToolCall("wait"), "Done."), tools=[door.tool]).start("Go")
    events = [event async for event in run.events()]
    assert [event.result.for_llm for event in events if isinstance(event, ToolFinished)] == ["through"]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Done."
