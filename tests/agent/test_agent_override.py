"""`agent.override(…)` changes an agent for a test: in its own context, for every way to use the agent."""

from __future__ import annotations

import asyncio
import threading

import pytest

from forge import (
    Agent,
    AgentType,
    DurableAgent,
    Failure,
    RunResult,
    Scripted,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    approve_all,
    rules,
    tool,
)
from forge.testing import Person, no_real_requests


class Db:
    def __init__(self, name: str) -> None:
        self.name = name


@tool
def who(ctx: ToolContext[Db]) -> str:
    """Tell whose database it is."""
    return ctx.deps.name


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


def error_of(result: RunResult | ToolResult) -> Failure:
    error = result.error if isinstance(result, RunResult) else result.failure
    assert error is not None
    return error


def results(result: RunResult) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


async def test_every_door_of_the_agent_uses_it():
    agent = Agent(Scripted(*["the agent's own"] * 9), tools=[deploy])
    with agent.override(model=Scripted("one", "two", "three"), policy=rules("allow execute")):
        assert (await agent.run("Hi")).text == "one"
        assert [one.text async for one in agent.stream("Hi") if isinstance(one, RunResult)] == ["two"]
        assert (await asyncio.to_thread(agent.run_sync, "Hi")).text == "three"
        assert (await agent.call("deploy", {"service": "web"})).for_llm == "web is live"
    assert (await agent.run("Hi")).text == "the agent's own"
    assert error_of(await agent.call("deploy", {"service": "web"})).kind == "permission_error"


async def test_an_approver_and_a_policy():
    agent = Agent(Scripted(*3 * (ToolCall("deploy", {"service": "web"}), "Done.")), tools=[deploy])
    person = Person("yes")
    with agent.override(approve=person):
        assert results(await agent.run("Deploy.")) == ["web is live"]
    assert len(person.asked) == 1
    with agent.override(policy=rules("deny execute"), approve=approve_all):
        assert "is denied" in results(await agent.run("Deploy."))[0]
    assert "no one to ask" in results(await agent.run("Deploy."))[0]


async def test_tools_are_others_and_dependencies_are_used_instead():
    @tool(name="deploy")
    def pretend(service: str) -> str:
        """Pretend to deploy a service."""
        return f"{service}: pretended"

    agent = Agent(Scripted(ToolCall("who"), "Done."), tools=[who], deps_type=Db)
    with agent.override(deps=Db("test")):
        assert results(await agent.run("Who?", deps=Db("production"))) == ["test"]
        assert (await agent.call("who", {})).for_llm == "test"
    with agent.override(tools=[pretend], model=Scripted(ToolCall("deploy", {"service": "web"}), ToolCall("who"), "x")):
        said = results(await agent.run("Deploy.", deps=Db("test")))
    assert said[0] == "web: pretended"
    assert "no such tool" in said[1]
    assert (await agent.call("who", {}, deps=Db("production"))).for_llm == "production"


async def test_other_tasks_and_threads_are_not_affected():
    agent = Agent(Scripted(*["own"] * 9))
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def overridden() -> str:
        with agent.override(model=Scripted("test", "test")):
            inside.set()
            await go_on.wait()
            return (await agent.run("Hi")).text

    task = asyncio.create_task(overridden())
    await inside.wait()
    assert (await agent.run("Hi")).text == "own"
    texts = []
    with agent.override(model=Scripted("here")):
        thread = threading.Thread(target=lambda: texts.append(agent.run_sync("Hi").text))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert (await agent.run("Hi")).text == "here"
    go_on.set()
    assert (await task, texts) == ("test", ["own"])


def test_overrides_are_nested_and_end_with_an_error_too():
    agent = Agent(Scripted("own"), tools=[deploy])
    with agent.override(policy=rules("allow execute")):
        with agent.override(model=Scripted(ToolCall("deploy", {"service": "web"}), "inner")):
            result = agent.run_sync("Hi")
        assert (result.text, results(result)) == ("inner", ["web is live"])
        with pytest.raises(ZeroDivisionError), agent.override(model=Scripted("never")):
            raise ZeroDivisionError
        assert agent.run_sync("Hi").text == "own"


def test_two_agents_are_overridden_apart():
    one, two = Agent(Scripted("one"), name="one"), Agent(Scripted("two"), name="two")
    with one.override(model=Scripted("test")):
        assert (one.run_sync("Hi").text, two.run_sync("Hi").text) == ("test", "two")


def test_a_sub_agent_has_the_model_and_the_rules_of_the_override():
    @tool(permissions={"read"})
    def find(word: str) -> str:
        """Find a word."""
        return f"{word} is here"

    order = ToolCall("task", {"description": "Find", "prompt": "Find it.", "agent_type": "finder"})
    agent = Agent(Scripted(), tools=[find], agents={"finder": AgentType(tools=("find",))})
    model = Scripted(order, ToolCall("find", {"word": "rose"}), "It is here.", "Found.")
    with agent.override(model=model, policy=rules("allow execute", "allow read")):
        result = agent.run_sync("Find it.")
    assert (result.text, model.left) == ("Found.", 0)
    assert "It is here." in results(result)[0]


async def test_a_message_reaches_an_overridden_run_from_outside():
    begun, heard = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        begun.set()
        await heard.wait()
        return "done"

    agent = Agent(Scripted("own"), tools=[work])

    async def overridden() -> str:
        with agent.override(model=Scripted(ToolCall("work"), lambda request: request.messages[-1].text)):
            return (await agent.run("Hi", session="ada")).text

    task = asyncio.create_task(overridden())
    await begun.wait()
    agent.send("Faster!", session="ada")
    heard.set()
    assert await task == "Faster!"


async def test_a_durable_agent_that_is_opened_inside(tmp_path):
    agent = Agent(Scripted("own"), tools=[who], deps_type=Db)
    durable = DurableAgent(agent, f"sqlite:///{tmp_path}/runs.db", deps=lambda scope: Db("production"))
    with agent.override(model=Scripted(ToolCall("who"), "test"), deps=Db("test")):
        async with durable:
            result = await durable.run("Who?")
    assert (result.text, results(result)) == ("test", ["test"])


async def test_a_stored_run_is_refused_where_its_worker_does_not_know_the_override(tmp_path):
    agent = Agent(Scripted("own"))
    async with DurableAgent(agent, f"sqlite:///{tmp_path}/runs.db") as durable:
        with agent.override(model=Scripted("test")), pytest.raises(ToolError, match="began without") as refused:
            await durable.run("Hi")
        assert "Open the DurableAgent inside" in refused.value.suggestion
        assert (await durable.run("Hi")).text == "own"


def test_rules_cannot_be_overridden_where_the_steps_are_given():
    agent = Agent(Scripted("one")).replace(steps=[])
    with pytest.raises(ToolError, match="its steps were given"), agent.override(policy=rules("deny read")):
        pass
    with agent.override(model=Scripted("test")):
        assert agent.run_sync("Hi").text == "test"


@pytest.mark.parametrize("name", ["anthropic:m", "openai:m", "groq:m", "gemini:m", "azure:m", "text:openai:m"])
def test_a_missing_key_is_an_error_of_the_first_request(name, monkeypatch):
    for variable in ("ANTHROPIC", "OPENAI", "GROQ", "GEMINI", "GOOGLE", "AZURE_OPENAI"):
        for ending in ("_API_KEY", "_BASE_URL", "_AUTH_TOKEN", "_ENDPOINT"):
            monkeypatch.delenv(f"{variable}{ending}", raising=False)
    agent = Agent(name)
    error = error_of(agent.run_sync("Hi"))
    assert error.kind == "config_error"
    assert error.message.startswith("choosing the model")
    assert "is not set" in error.message
    assert error.suggestion.startswith("Set ")
    with agent.override(model=Scripted("Hello!")):
        assert agent.run_sync("Hi").text == "Hello!"
    with pytest.raises(ToolError, match="there is no provider"):
        Agent("antropic:m")


def test_a_key_that_is_set_later_is_found(monkeypatch):
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    agent = Agent("groq:m")
    monkeypatch.setenv("GROQ_API_KEY", "gsk-123456789")
    with no_real_requests():
        assert "FORGE_NO_REAL_REQUESTS" in error_of(agent.run_sync("Hi")).message
