"""Dependencies of a run: the type that tools declare, and the one that a run is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from forge import Agent, DurableAgent, Limits, RunContext, RunResult, Scope, Scripted, Tool, ToolContext, tool

MODEL = Scripted("done")


@dataclass
class Db:
    name: str


class Weather(BaseModel):
    degrees: float


@tool
def find_user(user: int, ctx: ToolContext[Db]) -> str:
    """Find a user."""
    assert_type(ctx.deps, Db)
    assert_type(ctx.deps.name, str)
    number: int = ctx.deps.name  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    ctx.deps = Db("b")  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    return f"{user} in {ctx.deps.name} {number}"


@tool
def find_order(ctx: ToolContext[Db], number: int) -> str:
    """Find an order."""
    return f"{number} in {ctx.deps.name}"


@tool(permissions={"write"})
async def cancel_order(ctx: ToolContext[Db], number: int) -> str:
    """Cancel an order."""
    return f"{number} in {ctx.deps.name}"


@tool
def count_orders(ctx: ToolContext[list[int]]) -> int:
    """Count the orders."""
    return len(ctx.deps)


def plain(ctx: ToolContext[Db], number: int) -> str:
    """Find an order without a decorator."""
    return f"{number} in {ctx.deps.name}"


class Better(Db):
    """A database with more."""


class Deploy(Tool):
    """Deploy."""

    def run(self) -> str:
        return "done"


@tool
def anything(ctx: ToolContext) -> str:
    """Use a context without a type."""
    assert_type(ctx.deps, Any)
    return ctx.scope.user


def greet(ctx: RunContext[Db]) -> str:
    return f"Help the users of {ctx.deps.name}."


async def greet_later(ctx: RunContext[Db]) -> str:
    return greet(ctx)


def helper(ctx: ToolContext[Db]) -> str:
    return greet(ctx)  # a call's context is a run's context


agent = Agent(MODEL, tools=[find_user], deps_type=Db, output=Weather)
assert_type(agent, Agent[Weather, Db])
assert_type(agent.run_sync("?", deps=Db("a")), RunResult[Weather])
agent.run_sync("?", deps=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
agent.run_sync("?", dep=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

assert_type(Agent(MODEL, instructions=greet, output=Weather), Agent[Weather, Db])
assert_type(Agent(MODEL, instructions=greet_later, output=Weather), Agent[Weather, Db])
Agent(MODEL, instructions=lambda: "Be brief.")
Agent(MODEL, instructions=greet, deps_type=int)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Agent(MODEL, instructions=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def use() -> None:
    await agent.run("?", deps=Db("a"))
    await agent.run("?", deps="a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await agent.call("find_user", {"user": 1}, deps=Db("a"))
    await agent.call("find_user", {}, deps="a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async for _ in agent.stream("?", deps=Db("a"), session="alice"):
        pass
    async for _ in agent.stream("?", deps=1):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        pass


def make(scope: Scope) -> Db:
    return Db(scope.user)


async def make_later(scope: Scope) -> Db:
    return make(scope)


DurableAgent(agent, deps=make)
DurableAgent(agent, deps=make_later)
DurableAgent(agent, deps=lambda scope: 3)  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]

old: Agent[Weather] = agent  # an annotation from before there were dependencies
untyped: Agent = agent
narrow: Agent[Weather, int] = agent  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


async def settings_are_known() -> None:
    """The keywords of an agent and of a run are typed, one by one."""
    agent = Agent(Scripted("Hello!"), secrets=["a secret"], options={"temperature": 0})
    await agent.run("Hi", session="ada", limits=Limits(turns=3))
    agent.run_sync("Hi", sesion="ada")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    agent.run_sync("Hi", session=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent(Scripted("Hello!"), code_mode="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# a context that comes first is a part of the tool's type: an agent with other dependencies is refused
Agent(MODEL, tools=[find_order, cancel_order, find_user, anything, plain, Deploy()], deps_type=Db)
Agent(MODEL, tools=[find_order, cancel_order], deps_type=Better)
Agent(MODEL, tools=[find_order, anything, Deploy()]).run_sync("?", deps=Db("a"))
Agent(MODEL, tools=[anything, plain]).run_sync("?", deps=3)
Agent(MODEL, tools=[find_order], deps_type=str)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
Agent(MODEL, tools=[plain, cancel_order], deps_type=str)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
Agent(MODEL, tools=[find_order, count_orders], deps_type=Db)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def call_directly(ctx: ToolContext[Db]) -> None:
    assert_type(find_order(ctx, number=1), str)
    find_order(ctx, number="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    find_order(1)  # type: ignore[call-arg,arg-type]  # pyright: ignore[reportCallIssue]
