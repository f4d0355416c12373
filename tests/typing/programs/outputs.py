"""An agent of a user, and the type of its answers."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict, assert_type

from pydantic import BaseModel, Field

from forge import Agent, DurableAgent, Retry, RunContext, RunResult, Scripted
from forge.agent import StartedRun
from forge.events import Event

MODEL = Scripted("done")


class Weather(BaseModel):
    place: str
    degrees: float


class Sky(TypedDict):
    clouds: int


weather = Agent(MODEL, output=Weather)
assert_type(weather, Agent[Weather])
result = weather.run_sync("How is it?")
assert_type(result, RunResult[Weather])
assert_type(result.output, Weather)
assert_type(result.output.degrees, float)
assert_type(result.text, str)
place: int = result.output.place  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
wrong: Agent[Sky] = Agent(MODEL, output=Weather)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]

assert_type(Agent(MODEL, output=list[Weather]).run_sync("?").output, list[Weather])
assert_type(Agent(MODEL, output=Sky).run_sync("?").output["clouds"], int)
assert_type(Agent(MODEL, output=int).run_sync("?").output, int)
Agent(MODEL, output=Annotated[int, Field(gt=1)])
Agent(MODEL, output=Literal["rain", "sun"])
Agent(MODEL, output=Weather | Sky)
Agent(MODEL, output=[Weather, Sky])
several: Agent[Weather | Sky] = Agent(MODEL, output=[Weather, Sky])
assert_type(several.run_sync("?").output, Weather | Sky)
assert_type(result.output_or_none, Weather | None)
either: Agent[Weather | Sky] = Agent(MODEL, output=Weather | Sky)
assert_type(either.run_sync("?").output, Weather | Sky)
Agent(MODEL, output={"type": "object", "properties": {"clouds": {"type": "integer"}}})  # a JSON Schema
Agent(MODEL, output=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# a copy has the type of its agent, unless its output is another
assert_type(weather.replace(name="other"), Agent[Weather])
assert_type(weather.replace(output=Sky), Agent[Sky])
weather.replace(nmae="other")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
with weather.override(model=MODEL, tools=[]):
    assert_type(weather.run_sync("?").output, Weather)


@weather.output_validator
def check(value: Weather) -> Weather:
    if value.degrees < -100:
        raise Retry("It is never that cold.")
    return value


@weather.output_validator
async def check_with_context(ctx: RunContext, value: Weather) -> Weather:
    return value


@weather.output_validator  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def check_another_type(value: int) -> int:
    return value


async def use() -> None:
    assert_type((await weather.run("?")).output, Weather)
    run = weather.start("?")
    assert_type(run, StartedRun[RunResult[Weather]])
    assert_type((await run).output, Weather)
    assert_type((await run.cancel()).output, Weather)
    assert_type((await DurableAgent(weather).start("?")).run_id, str)
    async with weather as opened:
        assert_type(opened, Agent[Weather])
    async for partial in weather.stream_output("?"):
        assert_type(partial, Weather)
    async for event in weather.stream("?"):
        if isinstance(event, RunResult):
            assert_type(event.output, Weather)
        else:
            assert_type(event, Event)


def name_of(agent: Agent, ended: RunResult) -> str:  # both without a type: those of any
    return f"{agent.name} {ended.text}"


name_of(weather, result)
name_of(Agent(MODEL), Agent(MODEL).run_sync("?"))
agents: list[Agent] = [weather, Agent(MODEL)]
DurableAgent(weather)
