"""The agent: one list of tools, a policy, runs, streams, structured answers, sub-agents."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel

from forge import (
    Agent,
    AgentType,
    Answer,
    DefinitionError,
    Limits,
    Message,
    Retry,
    RunContext,
    RunResult,
    Scope,
    Scripted,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    rules,
    tool,
    tool_group,
)
from forge.events import TextDelta, ToolFinished, ToolStarted


@tool
def word_count(text: str) -> int:
    """Count the words."""
    return len(text.split())


class Deploy(Tool, permissions={"execute"}, target="service"):
    """Deploy a service."""

    def __init__(self, region: str) -> None:
        self.region = region

    async def run(self, service: str) -> str:
        return f"{service} is live in {self.region}"


def plain(text: str) -> str:
    """A plain function."""
    return text.upper()


@asynccontextmanager
async def source():
    @tool(name="from_source")
    def mounted() -> str:
        """Mounted."""
        return "mounted"

    yield [mounted]


def texts(result):
    return [message.text for message in result.messages if message.role == "tool"]


async def test_one_list_takes_functions_tools_and_sources():
    model = Scripted(
        [ToolCall("word_count", {"text": "a b"}), ToolCall("plain", {"text": "x"}), ToolCall("from_source")], "done"
    )
    async with Agent(model, tools=[word_count, Deploy("eu"), plain, source()]) as agent:
        result = await agent.run("go")
    assert texts(result) == ["2", "X", "mounted"]


async def test_an_agent_with_sources_says_how_to_be_used():
    with pytest.raises(RuntimeError, match="async with"):
        await Agent(Scripted("x"), tools=[source()]).run("go")


def test_run_sync_needs_no_loop():
    assert Agent(Scripted("hello")).run_sync("go").text == "hello"


async def test_the_policy_guards_and_the_person_is_asked():
    asked: list = []

    async def person(request):
        asked.append(request.target)
        return Answer.ONCE

    model = Scripted([ToolCall("deploy", {"service": "web"}), ToolCall("deploy", {"service": "billing"})], "done")
    agent = Agent(model, tools=[Deploy("eu")], policy=rules("deny execute billing"), approve=person)
    live, denied = texts(await agent.run("ship"))
    assert live == "web is live in eu"
    assert "denied" in denied
    assert asked == ["web"]


async def test_a_stream_gives_every_event_and_the_result_last():
    model = Scripted(ToolCall("word_count", {"text": "a b c"}), "three words")
    seen = [event async for event in Agent(model, tools=[word_count]).stream("count")]
    assert isinstance(seen[-1], RunResult)
    assert [event.result.for_llm for event in seen if isinstance(event, ToolFinished)] == ["3"]
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "three words"


async def test_leaving_a_stream_early_stops_the_work():
    stopped = asyncio.Event()

    @tool
    async def hangs() -> str:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    stream = Agent(Scripted(ToolCall("hangs"), "never"), tools=[hangs]).stream("go")
    async for event in stream:
        if isinstance(event, ToolStarted):
            await asyncio.sleep(0)
            break
    await stream.aclose()
    assert stopped.is_set()


async def test_instructions_come_first_and_a_history_goes_on():
    model = Scripted("one", "two")
    agent = Agent(model, instructions="Be brief.")
    first = await agent.run("hello")
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    second = await agent.run([*first.messages, Message("user", "again")])
    assert second.text == "two"
    assert [m.role for m in second.messages].count("system") == 1


async def test_new_messages_are_those_that_the_run_added():
    agent = Agent(Scripted("one", "two", "three"), instructions="Be brief.")
    first = await agent.run("hello")
    assert first.new_messages == first.messages
    second = await agent.run("again", history=first.messages)
    assert [message.text for message in second.new_messages] == ["again", "two"]
    assert second.messages == [*first.new_messages, *second.new_messages]
    third = await agent.run([*second.messages, Message("user", "and again")])
    assert [message.text for message in third.new_messages] == ["three"]
    assert len(first.messages) == 3, "a run does not write into the history that it was given"


class City(BaseModel):
    name: str
    people: int


async def test_a_structured_answer_is_validated_mended_and_asked_again():
    model = Scripted(
        "Oslo, I think.",
        ToolCall("final_answer", {"name": "Oslo"}),
        ToolCall("final_answer", {"name": "Oslo", "people": "717710"}),
    )
    result = await Agent(model, output=City).run("Which city?")
    assert result.output == City(name="Oslo", people=717710)
    assert result.turns == 3


async def test_a_structured_answer_may_come_as_text_and_may_be_no_object():
    assert (await Agent(Scripted('Sure: {"name": "Oslo", "people": 1}'), output=City).run("?")).output == City(
        name="Oslo", people=1
    )
    model = Scripted(ToolCall("final_answer", {"value": [1, 2]}))
    assert (await Agent(model, output=list[int]).run("?")).output == [1, 2]


async def test_a_model_that_never_gives_the_shape_ends_in_an_error():
    result = await Agent(Scripted(*["no"] * 10), output=City).run("?")
    assert result.reason == "error"
    assert result.output_or_none is None
    with pytest.raises(ToolError, match=r"the run ended without one \(error\): the model was told 3 times"):
        result.output  # noqa: B018


def evens(*, by_tool: bool, answers: tuple[int, ...]) -> Agent[int]:
    turns = [ToolCall("final_answer", {"value": one}) if by_tool else str(one) for one in answers]
    agent: Agent[int] = Agent(Scripted(*turns), output=int)

    @agent.output_validator
    async def check(value: int) -> int:
        if value % 2:
            raise Retry(f"{value} is odd.")
        return value

    @agent.output_validator
    def halve(value: int) -> int:
        return value // 2

    return agent


@pytest.mark.parametrize("by_tool", [True, False])
async def test_a_validator_asks_again_and_may_change_the_value(by_tool):
    result = await evens(by_tool=by_tool, answers=(7, 8)).run("An even number?")
    assert (result.output, result.output_or_none, result.turns) == (4, 4, 2)
    assert "7 is odd." in result.messages[2].text


@pytest.mark.parametrize("by_tool", [True, False])
async def test_a_model_that_a_validator_refuses_too_often_ends_in_an_error(by_tool):
    result = await evens(by_tool=by_tool, answers=(1, 3, 5, 7, 8)).run("An even number?")
    assert (result.reason, result.turns, result.has_output) == ("error", 4, False)
    assert result.error is not None
    assert "told 3 times" in result.error.message
    assert "7 is odd." in result.error.message


@pytest.mark.parametrize("turn", ["8", ToolCall("final_answer", {"value": 8})])
async def test_a_validator_that_fails_itself_ends_the_run(turn):
    agent = Agent(Scripted(turn), output=int)

    @agent.output_validator
    def check(value: int) -> int:
        raise KeyError("no such thing")

    result = await agent.run("?")
    assert result.error is not None
    assert "an output validator failed: KeyError" in result.error.message
    assert "Retry" in result.error.suggestion


async def test_a_validator_gets_the_dependencies_of_the_run():
    agent = Agent(Scripted("7", "8"), output=int, deps_type=dict)

    @agent.output_validator
    def check(ctx: RunContext, value: int) -> int:
        if value < ctx.deps["least"]:
            raise Retry("Too small.")
        return value

    assert (await agent.run("?", deps={"least": 8})).output == 8
    assert (await agent.replace(output=str).run("?", deps={})).error is not None, "of another type: no validator"


class Unknown(BaseModel):
    why: str


@pytest.mark.parametrize("output", [[City, Unknown], City | Unknown])
async def test_an_answer_may_have_one_of_several_types(output):
    model = Scripted(ToolCall("final_answer", {"value": {"why": "no city"}}), '{"name": "Oslo", "people": 1}')
    agent = Agent(model, output=output)
    assert (await agent.run("?")).output == Unknown(why="no city")
    assert (await agent.run("?")).output == City(name="Oslo", people=1)
    with pytest.raises(DefinitionError, match="name at least one type"):
        Agent(model, output=[])


async def test_none_is_an_answer_and_an_agent_without_a_type_has_none():
    result = await Agent(Scripted("null"), output=int | None).run("?")
    assert result.output is None
    assert result.has_output
    with pytest.raises(ToolError, match="ended without one") as error:
        (await Agent(Scripted("Hi")).run("?")).output  # noqa: B018
    assert "Agent(output=…)" in error.value.suggestion


async def test_a_sub_agent_has_its_own_history_some_tools_and_all_rules():
    inner = Scripted(
        [ToolCall("word_count", {"text": "a b c d"}), ToolCall("deploy", {"service": "web"})],
        ToolCall("task_completion", {"result": "four words"}),
        "and more",
    )
    outer = Scripted(
        ToolCall("task", {"description": "count words", "prompt": "Count: a b c d", "agent_type": "helper"}),
        "it said four",
    )
    agent = Agent(
        outer,
        tools=[word_count, Deploy("eu")],
        policy=rules("allow execute", "deny execute web"),
        agents={"helper": AgentType(tools=("word_count", "deploy", "task"), model=inner, limits=Limits(turns=5))},
    )
    result = await agent.run("go")
    assert "four words" in texts(result)[0]
    assert "task-" in texts(result)[0]
    seen = inner.requests[-1].messages
    assert "denied" in next(m.text for m in seen if m.role == "tool" and "deploy" in m.text)
    assert {spec.name for spec in inner.requests[-1].tools} == {"word_count", "deploy", "task_completion"}
    assert result.text == "it said four"


async def test_a_task_can_be_resumed_and_unknown_ones_are_explained():
    inner = Scripted("first", "second")
    calls = []

    def again(request):
        report = next(m.text for m in request.messages if m.role == "tool")
        calls.append(report)
        task_id = report.rpartition("task_id: ")[2].rstrip("]")
        return ToolCall("task", {"description": "go on", "prompt": "more", "task_id": task_id})

    outer = Scripted(
        ToolCall("task", {"description": "start", "prompt": "begin"}),
        again,
        ToolCall("task", {"description": "x", "prompt": "y", "task_id": "task-nope"}),
        "done",
    )
    agent = Agent(outer, policy=rules("allow execute"), agents={"general": AgentType(model=inner)})
    first, second, unknown = texts(await agent.run("go"))
    assert "first" in first
    assert "second" in second
    assert "no task 'task-nope'" in unknown
    assert [m.text for m in inner.requests[-1].messages if m.role == "user"] == ["begin", "more"]


async def test_without_a_model_a_task_says_so_as_a_signal():
    from forge.agent.subagent import Task
    from forge.pipeline import standard_executor

    executor = standard_executor([Task()], policy=rules("allow execute"))
    from forge import Scope

    result = await executor.execute(ToolCall("task", {"description": "a", "prompt": "b"}), Scope())
    assert result.success
    assert result.data["error"] == "LLM_ASSIST_REQUIRED"


async def test_a_structured_answer_cannot_be_left_out_by_another_ending():
    model = Scripted(
        ToolCall("task_completion", {"result": "done"}), ToolCall("final_answer", {"name": "Oslo", "people": 1})
    )
    result = await Agent(model, output=City).run("?")
    assert result.output == City(name="Oslo", people=1)
    assert (await Agent(Scripted("42"), output=int).run("?")).output == 42


async def test_sources_are_opened_and_closed_every_time():
    class Source:
        def __init__(self):
            self.log = []

        async def __aenter__(self):
            self.log.append("open")

            @tool(name="from_source")
            def mounted() -> str:
                """Mounted."""
                return "mounted"

            return [mounted]

        async def __aexit__(self, *exception):
            self.log.append("close")

    source = Source()
    agent = Agent(Scripted(ToolCall("from_source"), "a", ToolCall("from_source"), "b"), tools=[source])
    for answer in ("a", "b"):
        async with agent:
            result = await agent.run("go")
        assert (result.text, texts(result)) == (answer, ["mounted"])
    assert source.log == ["open", "close", "open", "close"]
    with pytest.raises(RuntimeError, match="async with"):
        await agent.run("go")


async def test_background_work_that_outlives_its_run_is_heard_of_in_the_next():
    release = asyncio.Event()

    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await release.wait()
            return "the index is ready"

        return ctx.background(work(), "started")

    agent = Agent(Scripted(ToolCall("later"), "first", "second"), tools=[later])
    first = await agent.run("go", session="ada")
    assert first.text == "first"
    release.set()
    await agent.executor.background.settled(5)
    second = await agent.run([*first.messages, Message("user", "again")], session="ada")
    assert any("the index is ready" in message.text for message in second.messages)


async def test_background_work_of_a_sub_agent_is_heard_of_by_its_parent():
    @tool
    async def later(ctx: ToolContext) -> ToolResult:
        """Later."""

        async def work() -> str:
            await asyncio.sleep(0.01)
            return "the index is ready"

        return ctx.background(work(), "started")

    inner = Scripted(ToolCall("later"), "sub done")
    outer = Scripted(ToolCall("task", {"description": "a", "prompt": "b"}), "waiting", "heard it")
    agent = Agent(
        outer,
        tools=[later],
        policy=rules("allow execute"),
        agents={"general": AgentType(model=inner)},
        wait_for_background=True,
    )
    result = await agent.run("go")
    assert result.text == "heard it"
    assert any("the index is ready" in message.text for message in result.messages)


def test_a_sub_agent_is_found_by_its_whole_name_and_by_the_name_of_a_task_without_a_type():
    agent = Agent(Scripted("hi"), agents={"researcher": AgentType(prompt="Look.")})
    assert agent.subagent("researcher").system_prompt() == "Look."
    assert agent.subagent("general").system_prompt() == "Look."
    with pytest.raises(ToolError, match="no agent type 'mygeneral'"):
        agent.subagent("mygeneral")


def test_the_parameter_names_of_another_agent_are_understood(tmp_path):
    (tmp_path / "a.txt").write_text("one\none\n")
    agent = Agent(
        Scripted("seen"),
        tools=tool_group("search"),
        policy=rules("allow *"),
        scope=Scope(workspace=tmp_path),
        agents={"reader": AgentType()},
    )

    async def call_all() -> list[ToolResult]:
        return [
            await agent.call("grep_search", {"regex": "one", "max_matches": 1}),
            await agent.call("glob_search", {"pattern": "*.txt", "max_matches": 1}),
            await agent.call("task", {"description": "read", "prompt": "Read.", "subagent_type": "reader"}),
            await agent.call("task", {"description": "read", "prompt": "Read.", "subagent_type": "writer"}),
        ]

    grep, glob, known, unknown = asyncio.run(call_all())
    assert grep.for_llm.startswith("a.txt:1:one\n[1 of 2 ")
    assert "a.txt" in glob.for_llm
    assert known.for_llm.startswith("seen")
    assert unknown.is_error
    assert "writer" in unknown.for_llm


def test_an_agent_in_the_list_of_tools_is_refused_in_our_words():
    helper = Agent(Scripted("Paris"), name="helper")
    with pytest.raises(DefinitionError, match=r"an agent is not a tool; .*as_tool\(\)`.*Agent\(agents={…}\)"):
        Agent(Scripted("x"), tools=[word_count, helper])  # type: ignore[list-item]

    async def ask_helper(task: str) -> str:
        """Ask the helper."""
        return (await helper.run(task)).text

    asked = Agent(Scripted([ToolCall("ask_helper", {"task": "Capital?"})], "done"), tools=[ask_helper])
    assert [one.text for one in asked.run_sync("go").messages if one.role == "tool"] == ["Paris"]
