"""Resources, prompts and tasks of mounted servers, in both generations of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forge import ToolCall, ToolRegistry, mcp, rules
from forge.core.context import Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.events import ToolProgress
from forge.mcp.apps import find_app
from forge.mcp.client.mcp_call import McpResource
from forge.mcp.client.tools import McpTool
from forge.permissions.questions import approve_all
from forge.pipeline import standard_executor
from tests.mcp import hostile, library

KINDS = ("old", "new")


@pytest.fixture(params=KINDS)
def server(request):
    return mcp(library.command(request.param), name="docs")


async def execute(tools, name, /, policy=None, **arguments) -> Any:
    executor = standard_executor(ToolRegistry(tools), policy=policy, approve=None if policy else approve_all)
    return await executor.execute(ToolCall(name, arguments), Scope())


async def test_resources_are_listed_and_read(server):
    async with server:
        tool = McpResource({"docs": server})
        listed = await execute([tool], "mcp_resource", server="docs")
        assert listed.for_llm == "docs://guide  (guide, A guide.)\ndocs://pixel  (pixel, image/png)"
        templates = await execute([tool], "mcp_resource", server="docs", action="templates")
        assert templates.for_llm == "docs://{page}  (page)"
        found = await execute([tool], "mcp_resource", server="docs", match="PIX")
        assert found.data["uris"] == ["docs://pixel"]
        read = await execute([tool], "mcp_resource", server="docs", action="read", uri="docs://guide")
        assert read.for_llm == "[resource docs://guide]\nRead me first."
        assert read.data["uri"] == "docs://guide"
        picture = await execute([tool], "mcp_resource", server="docs", action="read", uri="docs://pixel")
        assert [one.data for one in picture.attachments] == [b"\x00\x01\x02"]
        empty = await execute([tool], "mcp_resource", server="docs", action="read", uri="docs://none")
        assert "is empty" in empty.for_llm


async def test_reading_a_resource_needs_what_the_tools_of_its_server_need():
    server = mcp(library.command("old"), name="docs")
    tool = McpResource({"docs": server})
    refused = await execute([tool], "mcp_resource", policy=rules("allow read"), server="docs")
    assert refused.failure.kind is ErrorKind.PERMISSION
    assert not server.is_open, "the server was not even started"
    allowed = await execute([tool], "mcp_resource", policy=rules("allow execute", "allow network"), server="docs")
    assert "docs://guide" in allowed.for_llm


async def test_what_cannot_be_read_is_explained():
    server = mcp(library.command("old"), name="docs")
    tool = McpResource({"docs": server})
    assert "configured servers are docs" in (await execute([tool], "mcp_resource", server="other")).for_llm
    assert "`read` needs a `uri`" in (await execute([tool], "mcp_resource", server="docs", action="read")).for_llm
    with pytest.raises(ToolError, match="not open"):
        await server.list_resources()


async def test_prompts_are_listed_completed_and_read(server):
    async with server:
        review, hello = await server.list_prompts()
        assert (review.name, review.description) == ("review", "Review a page.")
        assert [(one.name, one.required) for one in review.arguments] == [("page", True), ("style", False)]
        assert hello.arguments == ()
        (message,) = await server.get_prompt("review", {"page": "guide"})
        assert (message.role, message.text) == ("user", "Review guide (plain).")
        assert await server.complete_argument("review", "page", "g") == ["guide", "glossary"]
        assert await server.complete_argument("review", "page", "s", {"style": "x"}) == ["style"]


async def test_a_server_without_resources_has_none():
    server = mcp(hostile.command("Server"), name="plain")
    async with server:
        assert (await server.list_resources(), await server.list_prompts()) == ([], [])
        assert await server.complete_argument("x", "y", "") == []


async def test_a_call_that_becomes_a_task_is_followed_to_its_result(server):
    shown: list = []
    async with server as tools:
        executor = standard_executor(ToolRegistry(tools), approve=approve_all)
        executor.activity.subscribe(lambda event: shown.append(event.title), ToolProgress)
        result = await executor.execute(ToolCall("docs__long", {}), Scope())
        assert result.for_llm == "it took long"
        assert shown == ["begun", "look 1"]


async def test_a_task_that_fails_is_an_error(server):
    async with server as tools:
        result = await execute(tools, "docs__fails")
        assert result.is_error
        assert "out of paper" in result.for_llm


async def test_a_cancelled_call_cancels_its_task(server):
    begun = asyncio.Event()
    async with server as tools:
        executor = standard_executor(ToolRegistry(tools), approve=approve_all)
        executor.activity.subscribe(lambda event: begun.set(), ToolProgress)
        call = asyncio.create_task(executor.execute(ToolCall("docs__endless", {}), Scope()))
        await asyncio.wait_for(begun.wait(), 60)
        call.cancel()
        await asyncio.wait({call})
        assert "task-endless" in (await server.read_resource("docs://cancelled")).for_llm


async def test_a_tool_with_an_app_gives_text_and_names_its_app(server):
    async with server as tools:
        known = {tool.remote: tool for tool in tools if isinstance(tool, McpTool)}
        result = await execute(tools, "docs__board", id=1)
        assert result.for_llm == "board: {'id': 1}"
        assert (result.data["app"], result.data["structured"]) == (library.APP, {"cards": 2})
        assert "<script>" in await known["board"].read_app()
        assert (known["board"].spec.hidden, known["move"].spec.hidden) == (False, True), "move is for apps"
        with pytest.raises(ToolError, match="has no app"):
            await server.read_app("docs://guide")


@pytest.mark.parametrize(
    "meta", [None, [], {"ui": 3}, {"ui": {"resourceUri": "https://x.example"}}, {"ui": {"resourceUri": 3}}]
)
def test_only_a_ui_address_is_an_app(meta):
    assert find_app({"_meta": meta}) == ""
    assert find_app({"_meta": {"ui": {"resourceUri": "ui://a/b"}}}) == "ui://a/b"
