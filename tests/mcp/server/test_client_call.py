"""Tools that ask their MCP client: its person, its model, its roots, its log."""

from __future__ import annotations

import asyncio

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    EmptyResult,
    ListRootsResult,
    Root,
    SetLevelRequest,
    SetLevelRequestParams,
    TextContent,
)
from pydantic import FileUrl

from forge import Agent, Answer, Scripted, ToolCall, ToolContext, rules, tool
from forge.core.context import Scope
from forge.mcp import MissingCapability
from forge.mcp.server import ElicitingApprover
from forge.mcp.server.offer import Offer
from forge.pipeline import standard_executor
from tests.mcp.server.test_offer import ERAS, connected, offered, person, text

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string", "default": "Ada"}, "age": {"type": "integer"}},
    "required": ["name"],
}


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


@tool
async def greet(ctx: ToolContext) -> str:
    """Ask for a name."""
    answer = await ctx.ask("Who are you?", NAME, key="who")
    return f"Hello, {answer['name']}!" if answer else "Nobody said anything."


@tool
async def rhyme(word: str, ctx: ToolContext) -> str:
    """Ask the client's model."""
    assert ctx.client is not None
    return await ctx.client.sample(f"A rhyme for {word}?", system="Be brief.", max_tokens=7)


@tool
async def places(ctx: ToolContext) -> str:
    """List the client's roots."""
    assert ctx.client is not None
    return ", ".join(f"{root.name} at {root.uri}" for root in await ctx.client.list_roots())


@tool
async def everything(ctx: ToolContext) -> str:
    """Ask for everything at once."""
    assert ctx.client is not None
    found = await asyncio.gather(ctx.ask("Who?", NAME), ctx.client.sample("Hi"), ctx.client.list_roots())
    return f"{found[0]['name']}, {found[1]}, {len(found[2])}"


async def sampled(ctx, params):
    said = f"{params.messages[-1].content.text} ({params.max_tokens}, {params.system_prompt})"
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=said), model="m")


async def rooted(ctx):
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/ada"), name="home\x1b[31m")])


async def test_a_tool_asks_the_person_with_its_own_form(era):
    asked: list = []
    answers = person({"name": "Bo"}, asked=asked)
    async with offered(greet) as offer, connected(offer, era, elicitation_callback=answers) as client:
        assert text(await client.call_tool("greet", {})) == "Hello, Bo!"
    [question] = asked
    assert question.message == "Who are you?"
    assert question.requested_schema["properties"]["name"] == {"type": "string", "default": "Ada"}


@pytest.mark.parametrize(("decision", "wanted"), [("once", ["Bo signs the lease"]), ("no", [])])
async def test_the_person_is_asked_by_the_tools_of_an_agent_that_is_a_tool(era, decision, wanted):
    """The agent's question for a permission and its tool's own form both reach the client of the call."""

    asked: list = []
    signed: list = []

    @tool(permissions={"write"}, target="paper")
    async def sign(paper: str, ctx: ToolContext) -> str:
        """Sign a paper."""
        answer = await ctx.ask("Who signs?", NAME)
        assert answer is not None
        signed.append(f"{answer['name']} signs the {paper}")
        return "signed"

    async def answers(ctx, params):
        asked.append(params.message)
        is_permission = "decision" in params.requested_schema["properties"]
        return ElicitResult(action="accept", content={"decision": decision} if is_permission else {"name": "Bo"})

    model = Scripted(ToolCall("sign", {"paper": "lease"}), "Done.")
    clerk = Agent(model, tools=[sign], approve=ElicitingApprover(), name="clerk")
    executor = standard_executor([clerk.as_tool()], policy=rules("allow *"))
    offer = Offer(executor, Scope())
    async with offer.open(), connected(offer, era, elicitation_callback=answers) as client:
        assert "Done." in text(await client.call_tool("clerk", {"prompt": "Sign the lease."}))
    assert signed == wanted
    assert len(asked) == 1 + len(wanted)


async def test_a_person_may_decline(era):
    answers = person(action="decline")
    async with offered(greet) as offer, connected(offer, era, elicitation_callback=answers) as client:
        assert text(await client.call_tool("greet", {})) == "Nobody said anything."


async def test_an_answer_that_does_not_fit_is_asked_for_again(era):
    asked: list = []

    async def improve(ctx, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"name": "Bo", "age": "old" if len(asked) == 1 else 7})

    async with offered(greet) as offer, connected(offer, era, elicitation_callback=improve) as client:
        assert text(await client.call_tool("greet", {})) == "Hello, Bo!"
    assert len(asked) == 2
    assert asked[1].startswith("The answer does not fit: ")


async def test_a_client_that_cannot_ask_is_named_as_the_reason():
    async with offered(greet) as offer:
        async with connected(offer, "legacy") as client:
            answer = await client.call_tool("greet", {})
            assert answer.is_error
            assert "cannot ask its person" in text(answer)
        async with connected(offer, ERAS[1]) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("greet", {})
            assert refused.value.error.code == -32021
            assert refused.value.error.data == {"requiredCapabilities": {"elicitation": {}}}


async def test_the_clients_model_answers(era):
    async with offered(rhyme) as offer, connected(offer, era, sampling_callback=sampled) as client:
        assert text(await client.call_tool("rhyme", {"word": "moon"})) == "A rhyme for moon? (7, Be brief.)"


async def test_without_a_model_of_the_client_the_servers_own_one_is_asked_after_an_approval(era):
    for decision, wanted in (("once", "June"), ("no", "refused")):
        asked: list = []
        executor = standard_executor([rhyme], approve=ElicitingApprover())
        offer = Offer(executor, Scope(), model=lambda: Scripted("June"))
        answers = person({"decision": decision}, asked=asked)
        async with offer.open(), connected(offer, era, elicitation_callback=answers) as client:
            assert wanted in text(await client.call_tool("rhyme", {"word": "moon"}))
        assert "The tool rhyme wants to send a prompt to your model" in asked[0].message


async def test_roots_are_cleaned(era):
    async with offered(places) as offer, connected(offer, era, list_roots_callback=rooted) as client:
        assert text(await client.call_tool("places", {})) == "home at file:///home/ada"


async def test_questions_that_are_asked_together_are_sent_together():
    callbacks = {"elicitation_callback": person({}), "sampling_callback": sampled, "list_roots_callback": rooted}
    async with offered(everything) as offer, connected(offer, ERAS[1], **callbacks) as client:
        session = client.session
        first = await session.call_tool("everything", {}, allow_input_required=True)
        assert {one.method for one in first.input_requests.values()} == {
            "elicitation/create",
            "sampling/createMessage",
            "roots/list",
        }
        answers = {
            "question": ElicitResult(action="accept", content={"name": "Bo"}),
            "sample": CreateMessageResult(role="assistant", content=TextContent(type="text", text="Hi!"), model="m"),
            "roots": ListRootsResult(roots=[]),
        }
        part = {key: answers[key] for key in ("question", "sample")}
        second = await session.call_tool(
            "everything", {}, input_responses=part, request_state=first.request_state, allow_input_required=True
        )
        assert list(second.input_requests) == ["roots"]
        rest = {"roots": answers["roots"]}
        last = await session.call_tool("everything", {}, input_responses=rest, request_state=second.request_state)
        assert text(last) == "Bo, Hi!, 0"


async def test_an_answer_may_come_with_the_first_request_but_an_approval_may_not():
    @tool(permissions={"execute"}, target="service")
    async def deploy(service: str, ctx: ToolContext) -> str:
        """Deploy a service."""
        return str(await ctx.ask("Who?", NAME, key="who"))

    given = {
        "who": ElicitResult(action="accept", content={"name": "Bo"}),
        "approval": ElicitResult(action="accept", content={"decision": "once"}),
    }
    async with offered(greet, deploy) as offer, connected(offer, ERAS[1], elicitation_callback=person({})) as client:
        call = client.session.call_tool
        assert text(await call("greet", {}, input_responses=given)) == "Hello, Bo!"
        asked = await call("deploy", {"service": "web"}, input_responses=given, allow_input_required=True)
        assert list(asked.input_requests) == ["approval"]


async def test_log_lines_have_a_level_that_the_client_chooses():
    @tool
    def work(ctx: ToolContext) -> str:
        """Log three lines."""
        ctx.log("little", "debug")
        ctx.log("\x1b[31msome\x1b[0m")
        ctx.log("much", "error")
        return "done"

    async def lines(level, era, **options):
        heard = []

        async def hear(params):
            heard.append((params.level, params.data, params.logger))

        async with offered(work) as offer, connected(offer, era, logging_callback=hear, **options) as client:
            if level:
                request = SetLevelRequest(params=SetLevelRequestParams(level=level))
                await client.session.send_request(request, EmptyResult)
            await client.call_tool("work", {})
        return heard

    some, much = ("info", "some", "work"), ("error", "much", "work")
    assert await lines("", "legacy") == [some, much]
    assert await lines("error", "legacy") == [much]
    assert await lines("", ERAS[1]) == []
    assert await lines("", ERAS[1], log_level="info") == [some, much]


async def test_secrets_are_masked_in_what_the_client_sees(era):
    @tool
    async def leak(ctx: ToolContext) -> str:
        """Say a secret."""
        await ctx.ask("hunter2hunter2?", NAME)
        assert ctx.client is not None
        ctx.log("hunter2hunter2")
        return await ctx.client.sample("hunter2hunter2")

    asked: list = []
    heard: list = []

    async def hear(params):
        heard.append(params.data)

    options = {"elicitation_callback": person({"name": "Bo"}, asked=asked), "sampling_callback": sampled}
    options |= {"logging_callback": hear, "log_level": "info"} if era != "legacy" else {"logging_callback": hear}
    async with offered(leak, secrets=["hunter2hunter2"]) as offer, connected(offer, era, **options) as client:
        answer = text(await client.call_tool("leak", {}))
    assert "hunter2" not in f"{asked[0].message} {heard} {answer}"
    assert heard


async def test_an_agent_asks_its_own_person():
    requests = []

    async def answer(request):
        requests.append(request)
        return Answer.edit({"name": "Bo"}) if len(requests) == 1 else Answer.NO

    agent = Agent(None, tools=[greet], approve=answer)
    assert (await agent.call("greet", {})).for_llm == "Hello, Bo!"
    assert "greet asks:\n  Who are you?" in requests[0].question
    assert requests[0].arguments == {"name": "Ada", "age": None}
    assert (await agent.call("greet", {})).for_llm == "Nobody said anything."


async def test_a_form_must_be_flat():
    @tool
    async def nested(ctx: ToolContext) -> str:
        """Ask for too much."""
        return str(await ctx.ask("?", {"type": "object", "properties": {"a": {"type": "object"}}}))

    result = await Agent(None, tools=[nested]).call("nested", {})
    assert "must be a flat object" in result.for_llm


async def test_outside_of_a_client_there_is_none():
    @tool
    def look(ctx: ToolContext) -> str:
        """Look for the client."""
        ctx.log("a line")
        return str(ctx.client)

    assert (await Agent(None, tools=[look]).call("look", {})).for_llm == "None"
    assert MissingCapability("roots").capability == "roots"
