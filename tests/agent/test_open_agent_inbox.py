"""A person speaks to a run in progress, and the model hears it before its next turn."""

from __future__ import annotations

import asyncio
import threading

import pytest

from forge import Agent, Limits, Scripted, ToolCall, ToolError, tool
from forge.events import MessageReceived


def said(request) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


@pytest.fixture
def seen():
    return []


def listening(agent: Agent, seen: list) -> Agent:
    agent.activity.subscribe(lambda event: seen.append(event.text), MessageReceived)
    return agent


async def test_a_message_is_heard_before_the_next_turn(seen):
    @tool
    async def work() -> str:
        """Work."""
        agent.send("Use tabs.")
        return "done"

    model = Scripted(ToolCall("work"), lambda request: f"I heard: {said(request)[-1]}")
    agent = listening(Agent(model, tools=[work]), seen)
    result = await agent.run("Format it.")
    assert (result.text, result.turns, seen) == ("I heard: Use tabs.", 2, ["Use tabs."])
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_message_during_the_last_answer_gets_an_answer_too():
    def answers(request):
        agent.send("And in French?")
        return "Hello."

    agent = Agent(Scripted(answers, lambda request: f"Bonjour, {said(request)[-1]}"))
    result = await agent.run("Greet.")
    assert (result.text, result.turns) == ("Bonjour, And in French?", 2)


async def test_a_message_from_another_thread_to_a_named_session():
    begun, heard = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        await heard.wait()
        return "done"

    model = Scripted(ToolCall("work"), lambda request: said(request)[-1])
    agent = Agent(model, tools=[work])
    running = asyncio.create_task(agent.run("Go.", session="alice"))
    await begun.wait()
    thread = threading.Thread(target=agent.send, args=("Faster!",), kwargs={"session": "alice"})
    thread.start()
    await asyncio.to_thread(thread.join)
    heard.set()
    assert (await running).text == "Faster!"


async def test_a_message_that_comes_too_late_is_in_the_history():
    def answers(request):
        agent.send("Wait!")
        return [ToolCall("nothing")]

    agent = Agent(Scripted(answers), limits=Limits(turns=1))
    result = await agent.run("Go.")
    assert result.reason == "max_turns"
    assert (result.messages[-1].role, result.messages[-1].text) == ("user", "Wait!")


async def test_without_a_run_a_message_is_refused():
    agent = Agent(Scripted("Hello."))
    with pytest.raises(ToolError, match="no run in progress"):
        agent.send("Anybody?")
    await agent.run("Hi")
    with pytest.raises(ToolError, match="'bob' has no run"):
        agent.send("Anybody?", session="bob")


async def test_an_empty_session_reaches_nobody():
    @tool
    async def work() -> str:
        """Work."""
        agent.send("From alice.")
        for reach in (agent.send, agent.withdraw):
            with pytest.raises(ValueError, match="names no session"):
                reach("From alice.", session="")
        agent.send("Taken back.", session="alice")
        assert agent.withdraw("Taken back.")
        return "done"

    agent = Agent(Scripted(ToolCall("work"), lambda request: said(request)[-1]), tools=[work])
    assert (await agent.run("Go.", session="alice")).text == "From alice."  # the twin


async def test_with_several_runs_the_session_must_be_named():
    both = asyncio.Event()
    count = 0

    @tool
    async def work() -> str:
        """Work."""
        nonlocal count
        count += 1
        if count == 2:
            with pytest.raises(ToolError, match="2 runs are in progress"):
                agent.send("Which?")
            agent.send("You.", session="a")
            both.set()
        await both.wait()
        return "done"

    class Model:
        async def stream(self, request):
            script = Scripted(ToolCall("work")) if len(request.messages) == 1 else Scripted(said(request)[-1])
            async for part in script.stream(request):
                yield part

    agent = Agent(Model(), tools=[work])
    first, second = await asyncio.gather(agent.run("A", session="a"), agent.run("B", session="b"))
    assert (first.text, second.text) == ("You.", "B")
