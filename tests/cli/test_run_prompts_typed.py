"""Lines that are typed during a run reach the run; commands and late lines wait for the prompt."""

from __future__ import annotations

import asyncio

import pytest

from forge import Agent, Scripted, ToolCall, ToolError, tool
from forge.cli.running import run_prompts
from forge.cli.running.run_prompts import TypedMessages


@pytest.fixture
def keyboard(monkeypatch):
    """What is typed; reading it can be cancelled."""
    typed: asyncio.Queue[bytes] = asyncio.Queue()
    monkeypatch.setattr(run_prompts, "read_typed", typed.get)
    return typed


async def test_a_typed_line_reaches_the_run_and_a_command_waits(keyboard):
    heard = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        keyboard.put_nowait(b"/tools\nUse t")
        keyboard.put_nowait("abs, bitte ä.\n\n".encode())
        await heard.wait()
        return "done"

    def send(text: str) -> None:
        agent.send(text)
        heard.set()

    agent = Agent(Scripted(ToolCall("work"), lambda request: request.messages[-1].text), tools=[work])
    typed = TypedMessages(send)
    async with typed.during_run():
        result = await agent.run("Go.")
    assert result.text == "Use tabs, bitte ä."
    assert list(typed.waiting) == ["/tools"]


async def test_a_question_has_the_keyboard_for_itself(keyboard):
    sent: list[str] = []
    arrived = asyncio.Event()

    def send(text: str) -> None:
        sent.append(text)
        arrived.set()

    typed = TypedMessages(send)
    async with typed.during_run():
        async with typed.paused():
            keyboard.put_nowait(b"y\n")
            assert await keyboard.get() == b"y\n"  # the question reads it
        keyboard.put_nowait(b"go on\n")
        await arrived.wait()
    keyboard.put_nowait(b"later\n")
    await asyncio.sleep(0)
    assert sent == ["go on"]
    assert keyboard.qsize() == 1


async def test_a_line_that_comes_too_late_waits_for_the_prompt(keyboard):
    refused = asyncio.Event()

    def send(text: str) -> None:
        refused.set()
        raise ToolError("no run in progress")

    typed = TypedMessages(send)
    async with typed.during_run():
        keyboard.put_nowait(b"hello\n")
        await refused.wait()
        keyboard.put_nowait(b"")  # the end of the input
    assert list(typed.waiting) == ["hello"]
