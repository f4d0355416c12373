"""Dependencies of a run: tools find them as `ctx.deps`, and a missing or wrong object is refused at the start."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NewType, Protocol, TypedDict

import pytest

from forge import (
    Agent,
    AgentType,
    DurableAgent,
    ErrorKind,
    RunContext,
    RunResult,
    Scope,
    Scripted,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    rules,
    tool,
)
from forge.core.arguments.call_style import is_of_type, name_type
from forge.events import RunStarted, ToolStarted
from forge.pipeline import standard_executor
from forge.testing import bench


@dataclass
class Db:
    """A database of one request."""

    users: dict[int, str]
    asked: list[int] = field(default_factory=list)


HERE = Path(__file__).parent
ADA, BOB = Db({1: "Ada"}), Db({1: "Bob"})


@tool
def find_user(user: int, ctx: ToolContext[Db]) -> str:
    """Find a user by number."""
    ctx.deps.asked.append(user)
    return ctx.deps.users[user]


@tool
def say_hello() -> str:
    """Say hello."""
    return "hello"


class FindUser(Tool, name="find_user_slowly"):
    """Find a user by number."""

    async def run(self, ctx: ToolContext[Db], user: int) -> str:
        return ctx.deps.users[user]


def find_by_schema(user: int, ctx: ToolContext[Db]) -> str:
    return ctx.deps.users[user]


SCHEMA = {"type": "object", "properties": {"user": {"type": "integer"}}, "required": ["user"]}
KINDS = {
    "function": lambda: find_user,
    "class": FindUser,
    "schema": lambda: Tool.from_schema("by_schema", "Find a user.", SCHEMA, find_by_schema),
    "deferred": lambda: Tool.define("later", lambda: find_user),
}


class Seen(list[str]):
    """The instructions that the model saw, one a turn."""

    def note(self, request: Any) -> str:
        self.append(request.messages[0].text)
        return "ok"


def asking(name: str = "find_user") -> Scripted:
    return Scripted([ToolCall(name, {"user": 1})], lambda request: request.messages[-1].text)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_of_every_kind_finds_the_dependencies_of_its_run(kind):
    made = KINDS[kind]()
    agent = Agent(asking(made.spec.name), tools=[made])
    assert (await agent.run("Who?", deps=ADA)).text == "Ada"
    agent = agent.replace(model=asking(made.spec.name))
    assert (await agent.run("Who?", deps=BOB)).text == "Bob"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("deps", "found"), [(None, "the run has none"), ("a text", "the run was given str")])
async def test_a_run_without_the_declared_dependencies_does_not_start(kind, deps, found):
    """No model is asked and no event is emitted; the message names the tool, the type and the way out."""
    model, made = Scripted("done"), KINDS[kind]()
    agent = Agent(model, tools=[say_hello, made])
    seen: list[object] = []
    agent.activity.subscribe(seen.append)
    with pytest.raises(ToolError, match=f"the tool '{made.spec.name}' needs deps of type Db, and {found}") as refused:
        await agent.run("Who?", deps=deps)
    assert refused.value.kind is ErrorKind.CONFIG
    assert "agent.run(prompt, deps=…)" in refused.value.suggestion
    assert not seen
    assert (await agent.run("Who?", deps=ADA)).text == "done"


async def test_concurrent_runs_of_one_agent_keep_their_dependencies_apart():
    import asyncio

    agent = Agent(None, tools=[find_user])
    names = ["Ada", "Bob", "Cleo", "Dan"]
    databases = [Db({1: name}) for name in names]
    runs = (agent.replace(model=asking()).run("Who?", deps=db) for db in databases)
    assert [result.text for result in await asyncio.gather(*runs)] == names
    assert [db.asked for db in databases] == [[1]] * 4


async def test_a_stream_a_plain_program_a_session_and_a_single_call_take_dependencies_too():
    agent = Agent(Scripted("a", "b"), tools=[find_user], deps_type=Db)
    [*_, last] = [event async for event in agent.stream("Who?", deps=ADA)]
    assert isinstance(last, RunResult)
    assert last.text == "a"
    assert (await agent.run("Who?", deps=ADA, session="alice")).text == "b"
    assert (await agent.call("find_user", {"user": 1}, deps=BOB)).for_llm == "Bob"
    assert (await agent.call("find_user", {"user": 1}, scope=Scope(deps=ADA))).for_llm == "Ada"
    refused = await agent.call("find_user", {"user": 1})
    assert refused.failure is not None
    assert refused.failure.kind is ErrorKind.CONFIG


def test_run_sync_takes_dependencies():
    assert Agent(asking(), tools=[find_user]).run_sync("Who?", deps=ADA).text == "Ada"


async def test_a_sub_agent_has_the_dependencies_of_its_parent():
    model = Scripted(
        [ToolCall("task", {"description": "look", "prompt": "Find user 1."})],
        [ToolCall("find_user", {"user": 1})],
        lambda request: request.messages[-1].text,
        lambda request: request.messages[-1].text,
    )
    kinds = {"general": AgentType(tools=("find_user",))}
    agent = Agent(model, tools=[find_user], agents=kinds, policy=rules("allow *"))
    assert "Ada" in (await agent.run("Who?", deps=ADA)).text


async def test_without_an_agent_the_scope_has_the_dependencies():
    executor = standard_executor([find_user])
    call = ToolCall("find_user", {"user": 1})
    assert (await executor.execute(call, Scope(deps=ADA))).for_llm == "Ada"
    refused = await executor.execute(call, Scope())
    assert "needs deps of type Db, and the run has none" in refused.for_llm
    assert refused.failure is not None
    assert "Scope(deps=…)" in refused.failure.suggestion


def test_a_bench_has_dependencies():
    assert bench(find_user, deps=ADA).text("find_user", user=1) == "Ada"
    assert bench(find_user).failure("find_user", user=1).kind is ErrorKind.CONFIG


async def test_the_agents_own_type_is_checked_without_any_tool():
    agent = Agent(Scripted("done"), deps_type=Db)
    with pytest.raises(ToolError, match="the agent 'main' needs deps of type Db, and the run was given int"):
        await agent.run("?", deps=3)  # type: ignore[arg-type]
    assert (await agent.run("?", deps=ADA)).text == "done"


async def test_an_isolated_tool_cannot_declare_dependencies():
    agent = Agent(Scripted("done"), tools=[isolated_find])
    with pytest.raises(ToolError, match="isolate=True runs it in a process that cannot receive them"):
        await agent.run("?", deps=ADA)


@tool(isolate=True)
def isolated_find(ctx: ToolContext[Db]) -> str:
    """Find nothing."""
    return "never"


@tool(isolate=True)
def isolated_hello(ctx: ToolContext) -> str:
    """Say hello from another process."""
    return f"hello, {ctx.deps}"


async def test_an_isolated_tool_beside_them_runs_without_the_dependencies():
    """They may be anything, such as an open connection, and are not sent to another process."""
    agent = Agent(None, tools=[isolated_hello, find_user], policy=rules("allow *"))
    assert (await agent.call("isolated_hello", {}, deps=ADA)).for_llm == "hello, None"


def test_dependencies_are_neither_shown_nor_compared():
    assert Scope(workspace=HERE, deps="secret") == Scope(workspace=HERE, deps="other")
    assert "secret" not in repr(Scope(deps="secret"))


class Named(Protocol):
    name: str


class Row(TypedDict):
    a: int


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("deps", "declared", "is_right"),
    [
        (ADA, Db, True),
        (None, Db, False),
        (None, Db | None, True),
        (3, Db | int, True),
        ("3", typing.Union[Db, int], False),  # noqa: UP007
        ({}, dict[str, int], True),
        ([], dict[str, int], False),
        (ADA, Annotated[Db, "of a request"], True),
        (3, Annotated[Db, "of a request"], False),
        (3, UserId, True),
        ("3", UserId, False),
        (ADA, Named, True),  # Python cannot check such a protocol
        (None, Named, False),
        ({}, Row, True),
        (None, Row, False),
        (None, Any, True),
        (None, object, True),
        (None, None, True),
        (3, None, False),
    ],
)
def test_what_python_can_check_is_checked(deps, declared, is_right):
    assert is_of_type(deps, declared) is is_right


def test_a_type_is_named_as_a_person_writes_it():
    assert [name_type(one) for one in (Db, dict[str, int], typing.Optional[int])] == [  # noqa: UP045
        "Db",
        "dict[str, int]",
        "Optional[int]" if "Optional" in str(typing.Optional[int]) else "int | None",  # noqa: UP045
    ]


async def test_a_bare_context_needs_no_dependencies():
    @tool
    def user_of(ctx: ToolContext) -> str:
        """Return the user's name."""
        return str(ctx.deps)

    agent = Agent(Scripted([ToolCall("user_of", {})], lambda request: request.messages[-1].text), tools=[user_of])
    assert (await agent.run("?")).text == "None"


def test_an_optional_context_parameter_is_hidden_from_the_model():
    @tool
    def shout(text: str, ctx: ToolContext[Db] | None = None) -> str:
        """Shout a text."""
        return text.upper() + str(ctx is None)

    assert set(shout.spec.parameters["properties"]) == {"text"}
    assert bench(shout, deps=ADA).text("shout", text="a") == "AFalse"


# instructions


async def test_instructions_may_be_a_function_of_the_runs_context():
    seen = Seen()
    model = Scripted(*[seen.note] * 3)

    def about(ctx: RunContext[Db]) -> str:
        return f"You help {ctx.deps.users[1]}, {ctx.scope.user}."

    agent = Agent(model, instructions=about, scope=Scope(user="u1"))
    first = await agent.run("Hi", deps=ADA)
    await agent.run("Hi", deps=BOB)
    await agent.run("Again", deps=BOB, history=first.messages)
    assert seen == ["You help Ada, u1.", "You help Bob, u1.", "You help Bob, u1."]
    assert [message.text for message in first.messages if message.role == "system"] == ["You help Ada, u1."]


async def test_instructions_may_be_async_and_a_plain_function_is_called_once_a_conversation():
    seen = Seen()
    model = Scripted(*[seen.note] * 4)
    counted = iter("abcdef")

    async def later(ctx: RunContext[Db]) -> str:
        return f"{ctx.deps.users[1]} {next(counted)}"

    agent = Agent(model, instructions=later)
    first = await agent.run("Hi", deps=ADA)
    await agent.run("Again", deps=ADA, history=first.messages)
    plain = Agent(model, instructions=lambda: next(counted))
    first = await plain.run("Hi")
    await plain.run("Again", history=first.messages)
    assert seen == ["Ada a", "Ada b", "c", "c"]


async def test_instructions_that_are_no_text_are_an_error():
    agent = Agent(Scripted("ok"), instructions=lambda ctx: ctx.deps)
    with pytest.raises(ToolError, match="a function that returned int"):
        await agent.run("Hi", deps=3)
    assert (await agent.run("Hi", deps="Be brief.")).text == "ok"


def test_async_instructions_need_a_run():
    async def later() -> str:
        return "Be brief."

    with pytest.raises(ToolError, match="async function"):
        Agent(Scripted("ok"), instructions=later).system_prompt()
    assert Agent(Scripted("ok"), instructions=later).run_sync("Hi").messages[0].text == "Be brief."


# durable runs


async def test_a_durable_run_makes_its_dependencies_from_the_scope(tmp_path):
    made: list[str] = []

    async def open_db(scope: Scope) -> Db:
        made.append(scope.user)
        return Db({1: f"Ada of {scope.user}"})

    model = asking()
    agent = Agent(model, tools=[find_user], scope=Scope(workspace=tmp_path), deps_type=Db)
    async with DurableAgent(agent, deps=open_db) as durable:
        result = await durable.run("Who?", scope={"user": "acme"})
    assert result.text == "Ada of acme"
    assert made == ["acme"]
    assert agent.make_deps is None  # the agent itself is as it was


async def test_a_durable_run_evaluates_its_instructions_when_it_is_submitted(tmp_path):
    seen = Seen()
    model = Scripted(seen.note)
    agent = Agent(model, instructions=lambda ctx: f"For {ctx.deps}.", scope=Scope(workspace=tmp_path))
    async with DurableAgent(agent, deps=lambda scope: scope.user) as durable:
        await durable.run("Hi", scope={"user": "acme"})
    assert seen == ["For acme."]


async def test_a_durable_run_without_its_dependencies_fails_and_says_why(tmp_path):
    agent = Agent(Scripted("never"), tools=[find_user], scope=Scope(workspace=tmp_path))
    async with DurableAgent(agent) as durable:
        result = await durable.run("Who?")
    assert result.error is not None
    assert "needs deps of type Db, and the run has none" in result.error.message


def test_an_object_is_refused_where_a_durable_agent_needs_a_function(tmp_path):
    agent = Agent(Scripted("never"), tools=[find_user], scope=Scope(workspace=tmp_path))
    with pytest.raises(ToolError, match="a stored run cannot keep an object"):
        DurableAgent(agent, deps=ADA)  # type: ignore[arg-type]
    DurableAgent(agent, deps=lambda scope: ADA)


def test_an_agent_of_one_type_parameter_is_still_an_annotation():
    assert typing.get_args(Agent[int]) == (int, Any)
    assert typing.get_args(Agent[int, Db]) == (int, Db)


async def test_events_do_not_hold_the_dependencies():
    agent = Agent(asking(), tools=[find_user])
    events = [event async for event in agent.stream("Who?", deps=ADA)]
    assert {RunStarted, ToolStarted} <= {type(event) for event in events}
    assert not [one for one in events if not isinstance(one, RunResult) and "Db(" in str(one.to_dict())]
