"""Requests to MCP servers in traces: the names of the MCP conventions, the context in `_meta`, no text of a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from forge import Agent, Scripted, ToolCall, rules
from forge.mcp import Http, mcp
from tests.mcp import hostile
from tests.mcp.server.test_http import TOKEN, served
from tests.network.serving import Asked, Reply, serving

telemetry = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

Spans = Callable[[], Sequence[Any]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """All spans of the process, also those that the SDK makes."""
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "get_tracer", provider.get_tracer)
    monkeypatch.setattr("mcp.shared._otel._tracer", provider.get_tracer("mcp-python-sdk"))
    found: Spans = exporter.get_finished_spans
    return found


class Server:
    """Answers every call with what a test says, and notes the messages."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.messages: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Reply:
        if asked.method != "POST":
            return Reply(status=405)
        message = json.loads(asked.body)
        self.messages.append(message)
        if message["method"] == "server/discover":
            return Reply(status=404)
        if "id" not in message:
            return Reply(status=202)
        info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}}}
        results: dict[str, Any] = {
            "initialize": {"result": {**info, "serverInfo": {"name": "x", "version": "1"}}},
            "tools/list": {"result": {"tools": [hostile.tool("look")]}},
            "resources/read": {"result": {"contents": [{"uri": "x://1", "text": "content"}]}},
            "tools/call": self.answer,
        }
        body = {"jsonrpc": "2.0", "id": message["id"], **results[message["method"]]}
        headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "session-7")]
        return Reply([json.dumps(body).encode()], headers=headers)


async def run(server: Server) -> str:
    """Returns what the model is told."""
    async with serving(server) as web:
        model = Scripted(ToolCall("docs__look", {}), "done")
        source = mcp(f"{web.url}/mcp", name="docs")
        async with Agent(model, tools=[source], policy=rules("allow *")) as agent:
            result = await agent.run("Look.")
            await source.read_resource("x://1?token=abc")
    return "\n".join(message.text for message in result.messages)


async def test_a_request_has_a_span_of_the_conventions_and_the_server_gets_its_context(spans: Spans) -> None:
    server = Server({"result": hostile.text("found")})
    await run(server)
    names = [one.name for one in spans()]
    assert not [name for name in names if name.startswith("MCP send")]  # the SDK's own
    assert {"initialize", "tools/list", "tools/call look", "resources/read"} <= set(names)
    (span,) = [one for one in spans() if one.name == "tools/call look"]
    (call,) = [one for one in spans() if one.name == "execute_tool docs__look"]
    assert span.kind is telemetry.SpanKind.CLIENT
    assert span.parent.span_id == call.context.span_id
    known = dict(span.attributes)
    assert known.pop("server.port")
    assert known.pop("jsonrpc.request.id")
    assert known == {
        "mcp.method.name": "tools/call",
        "mcp.session.id": "session-7",
        "mcp.protocol.version": "2025-11-25",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "network.transport": "tcp",
        "server.address": "127.0.0.1",
    }
    (sent,) = [one for one in server.messages if one["method"] == "tools/call"]
    _, trace, parent, _ = sent["params"]["_meta"]["traceparent"].split("-")
    assert (int(trace, 16), int(parent, 16)) == (span.context.trace_id, span.context.span_id)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"error": {"code": -32001, "message": "these are private words"}}, "-32001"),
        ({"result": {**hostile.text("private words"), "isError": True}}, "tool_error"),
    ],
)
async def test_a_failure_is_marked_and_its_text_is_not_in_the_span(
    spans: Spans, answer: dict[str, Any], kind: str
) -> None:
    assert "private words" in await run(Server(answer))  # the model is told
    (span,) = [one for one in spans() if one.name == "tools/call look"]
    assert span.attributes["error.type"] == kind
    assert span.status.status_code is telemetry.StatusCode.ERROR
    everything = "".join(one.to_json() for one in spans())
    assert "private" not in everything
    assert "x://1" not in everything


async def test_the_uri_of_a_resource_counts_as_content(spans: Spans) -> None:
    from forge.mcp.client.mcp_call import McpResource

    server = Server({"result": hostile.text("found")})
    async with serving(server) as web:
        source = mcp(f"{web.url}/mcp", name="docs")
        read = ToolCall("mcp_resource", {"server": "docs", "action": "read", "uri": "x://1"})
        tools: list[Any] = [source, McpResource({"docs": source})]
        async with Agent(Scripted(read, "done"), tools=tools, policy=rules("allow *"), trace_content=True) as agent:
            await agent.run("Read.")
    (span,) = [one for one in spans() if one.name == "resources/read"]
    assert span.attributes["mcp.resource.uri"] == "x://1"


async def test_what_a_server_of_forge_does_belongs_to_the_same_trace(spans: Spans) -> None:
    async with served() as url:
        source = mcp(Http(url, headers={"Authorization": f"Bearer {TOKEN}"}), name="docs")
        model = Scripted(ToolCall("docs__add", {"a": 1}), "done")
        async with Agent(model, tools=[source], policy=rules("allow *")) as agent:
            await agent.run("Add.")
    sent, answered = (
        next(one for one in spans() if one.name == "tools/call add" and one.kind is kind)
        for kind in (telemetry.SpanKind.CLIENT, telemetry.SpanKind.SERVER)
    )
    assert answered.parent.span_id == sent.context.span_id
    (ran,) = [one for one in spans() if one.name == "execute_tool add"]
    assert ran.context.trace_id == sent.context.trace_id
