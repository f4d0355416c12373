"""A configuration and wishes make an agent at work: with the project's tools, in a session that is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import forge.agent.agent
import forge.models.vendors
from forge.agent.agent import Agent
from forge.agent.session import SessionStore
from forge.core.context import ToolContext
from forge.core.errors import ToolError
from forge.core.events import Event, TextDelta
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import ToolResult
from forge.core.tool import tool
from forge.permissions.gate import approve_all
from forge.project.project import Project, RunOptions
from forge.project.runs.sessions import (
    StoredConversation,
    new_name,
    open_conversation,
    session_store,
    unstored_conversation,
)


class Says:
    """A model that says what it is told, and remembers what it was shown."""

    window = 0

    def __init__(self, *replies: Message | str) -> None:
        self.replies = list(replies)
        self.shown: list[list[Message]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Message]:
        self.shown.append(list(request.messages))
        if not self.replies:
            raise ProviderError("there is nothing left to say")
        reply = self.replies.pop(0)
        yield Message("assistant", reply) if isinstance(reply, str) else reply


def calls(*made: ToolCall, text: str = "") -> Message:
    return Message("assistant", text, made, finish="calls")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENT_WORKSPACE_ROOT", raising=False)
    return tmp_path


@pytest.fixture
def made(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`made(model)`: an assistant whose model is this one."""

    def make(model: Says, **more: Any) -> Agent:
        return Project(RunOptions(session="s")).agent(model, approve=approve_all, **more)

    return make


def run(made: Agent, kept: StoredConversation, prompt: str | None, *, wait: bool = False) -> Any:
    async def main() -> Any:
        async with made:
            return await made.run(prompt, history=kept.conversation, prepare=kept.shortening, wait_for_background=wait)

    return asyncio.run(main())


def test_the_agent_has_the_projects_tools_and_can_delegate(made):
    model = Says(
        calls(ToolCall("task", json.dumps({"description": "look", "prompt": "look"}))),
        calls(ToolCall("task_completion", {"result": "found"})),
        "It is found.",
    )
    agent = made(model)
    assert {"csv_parse", "task", "task_completion", "ask_question", "converse"} <= set(agent.registry)
    result = run(agent, unstored_conversation(agent), "find it")
    assert (result.text, result.reason) == ("It is found.", "answer")
    assert "found\n\n[task_id: " in result.messages[-2].text
    assert model.shown[1][-1].text == "look"


def test_the_model_is_told_where_it_works_once(made, workspace):
    model = Says("one", "two")
    agent = made(model)
    kept = unstored_conversation(agent)
    run(agent, kept, "first")
    run(agent, kept, "second")
    assert [message.role for message in model.shown[1]] == ["system", "user", "assistant", "user"]
    assert str(workspace) in model.shown[1][0].text


def test_turns_are_limited(made):
    model = Says(*(calls(ToolCall("uuid_generate", {}, str(number))) for number in range(9)))
    agent = made(model, turns=2)
    assert run(agent, unstored_conversation(agent), "go").reason == "max_turns"


def test_without_a_model_it_says_what_to_set(workspace, monkeypatch):
    monkeypatch.setattr(forge.models.vendors, "default_model", lambda: None)
    with pytest.raises(ToolError) as refused:
        Project(RunOptions()).agent()
    assert "ANTHROPIC_API_KEY" in refused.value.message
    assert "forge demo" in refused.value.message


def test_the_model_whose_key_is_set_is_taken_unless_another_is_named(workspace, monkeypatch):
    monkeypatch.setattr(forge.models.vendors, "default_model", lambda: "says:default")
    monkeypatch.setattr(forge.agent.agent, "find_model", lambda name: Says())
    assert Project(RunOptions()).agent().model == "says:default"
    assert Project(RunOptions()).agent("says:named").model == "says:named"


def test_a_session_goes_on_where_it_ended(made, workspace):
    model = Says("one", "two")
    agent = made(model)
    with session_store(workspace) as store:
        run(agent, open_conversation(store, "s", agent), "first")
        run(agent, open_conversation(store, "s", agent), "second")
        assert [message.text for message in store.show("s").messages[1:]] == ["first", "one", "second", "two"]


def test_what_another_process_said_meanwhile_is_heard(made, workspace):
    model = Says("one", "two")
    agent = made(model)
    with session_store(workspace) as store, session_store(workspace) as other:
        kept = open_conversation(store, "s", agent)
        run(agent, kept, "first")
        other.open("s").append(Message("user", "from elsewhere"), Message("assistant", "heard"))
        kept.refresh()
        run(agent, kept, "second")
    assert [message.text for message in model.shown[1][1:]] == ["first", "one", "from elsewhere", "heard", "second"]


def test_a_new_question_answers_the_calls_that_were_interrupted(made, workspace):
    model = Says("fine")
    agent = made(model)
    kept = unstored_conversation(agent)
    kept.conversation.append(Message("system", "…"), Message("user", "go"), calls(ToolCall("uuid_generate", {}, "7")))
    run(agent, kept, "what happened?")
    roles = [(message.role, message.call_id) for message in model.shown[0][2:]]
    assert roles == [("assistant", ""), ("tool", "7"), ("user", "")]
    assert "unknown" in model.shown[0][3].text


def test_without_a_question_the_open_calls_are_run(made, workspace):
    model = Says("fine")
    agent = made(model)
    kept = unstored_conversation(agent)
    kept.conversation.append(Message("user", "go"), calls(ToolCall("math_calculate", {"expression": "6 * 7"}, "7")))
    run(agent, kept, None)
    assert model.shown[0][-1].text == "42"


def test_background_work_of_one_run_is_heard_of_in_the_next(made):
    over = asyncio.Event()

    @tool
    async def index(ctx: ToolContext) -> ToolResult:
        """Index."""

        async def work() -> str:
            await over.wait()
            return "indexed 42 files"

        return ctx.background(work(), "Started.")

    async def both() -> None:
        async with agent:
            await agent.run("go", history=kept.conversation)
            over.set()
            await agent.executor.background.settled()
            await agent.run("and?", history=kept.conversation)

    model = Says(calls(ToolCall("index")), "It runs.", "It is done.")
    agent = made(model)
    kept = unstored_conversation(agent)
    agent.registry.add(index)
    asyncio.run(both())
    assert "indexed 42 files" in model.shown[-1][-1].text


def test_a_run_may_wait_for_background_work(made):
    @tool
    async def index(ctx: ToolContext) -> ToolResult:
        """Index."""
        return ctx.background(asyncio.sleep(0, "indexed"), "Started.")

    model = Says(calls(ToolCall("index")), "It runs.", "It is done.")
    agent = made(model)
    agent.registry.add(index)
    assert run(agent, unstored_conversation(agent), "go", wait=True).text == "It is done."


def test_every_run_begins_and_ends_with_its_event(made):
    model = Says("one")
    agent = made(model)
    events: list[Event] = []
    agent.activity.subscribe(events.append)
    run(agent, unstored_conversation(agent), "go")
    assert [event.type for event in events] == ["run_started", "turn_finished", "run_finished"]
    assert {(event.session, event.agent) for event in events} == {("s", "main")}


def test_a_workspace_that_cannot_be_written_keeps_no_session(tmp_path):
    (tmp_path / ".forge").write_text("in the way")
    with pytest.raises(ToolError, match="cannot be written"):
        session_store(tmp_path)
    (tmp_path / ".forge").unlink()
    assert isinstance(session_store(tmp_path), SessionStore)


def test_names_of_sessions_differ():
    assert len({new_name() for _ in range(50)}) > 45


async def test_a_crowded_window_is_made_room_in_and_the_summary_kept(tmp_path):
    model = Says("Goals: all of it.")
    model.window = 4_000
    agent = Agent(model)
    with session_store(tmp_path) as store:
        kept = open_conversation(store, "s", agent)
        for number in range(40):
            kept.conversation.append(
                Message("user", f"question {number} " + "and words " * 40), Message("assistant", "yes")
            )
        await kept.shortening(kept.conversation)
        assert len(kept.conversation.shown) < 40
        assert len(kept.conversation.messages) == 80
        assert any("Goals: all of it." in message.text for message in kept.conversation.shown)
        again = open_conversation(store, "s", agent)
        assert again.conversation.shown == kept.conversation.shown
        again.conversation.append(Message("user", "more"))
        assert again.conversation.shown[-1].text == again.conversation.messages[-1].text == "more"
