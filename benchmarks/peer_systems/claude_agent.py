"""Claude Agent SDK: `query` with its bundled program, which calls a scripted model over Anthropic's API on loopback."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, get_type_hints

from benchmarks.peer_systems import Action, Call, RunEndedError, Script, System

SERVER = "peer"
PREFIX = f"mcp__{SERVER}__"
MODEL = "claude-opus-4-8"


class It(System):
    actions: ClassVar[dict[str, Action]] = {
        "read": Action("Read", {"path": "file_path"}),
        "write": Action("Write", {"path": "file_path", "text": "content"}),
        "edit": Action("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
        "run": Action("Bash", {"command": "command"}),
        "delegate": Action("Agent", {"task": "prompt"}, {"description": "A task", "subagent_type": "general-purpose"}),
    }

    def __init__(self) -> None:
        self.sdk: Any = import_module("claude_agent_sdk")
        self.guarded: Any = None

    def define(self, function: Callable[..., Any]) -> Any:
        async def call(arguments: dict[str, Any]) -> dict[str, Any]:
            made = await asyncio.to_thread(function, **arguments)  # it takes async functions only
            return {"content": [{"type": "text", "text": str(await made if isawaitable(made) else made)}]}

        hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
        return self.sdk.tool(function.__name__, str(function.__doc__), hints)(call)

    def define_guarded(self, function: Callable[..., Any]) -> Any:
        """It asks about every tool that is not in `allowed_tools`."""
        self.guarded = self.define(function)
        return self.guarded

    async def run(self, tools: list[Any], script: Script, turns: int = 0) -> None:
        servers = {SERVER: self.sdk.create_sdk_mcp_server(SERVER, tools=tools)}
        allowed = [f"{PREFIX}{made.name}" for made in tools if made is not self.guarded]
        names = {made.name for made in tools}

        def rename(call: Call) -> Call:
            return call._replace(name=f"{PREFIX}{call.name}" if call.name in names else call.name)

        with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as home:
            options = {"mcp_servers": servers, "allowed_tools": allowed}
            await self.ask(script, Path(place), Path(home), rename, **options)

    async def work(self, script: Script, place: Path, home: Path, *, allowed: bool) -> None:
        async def allow(name: str, arguments: Any, context: Any) -> Any:
            return self.sdk.PermissionResultAllow()

        await self.ask(script, place, home, lambda call: call, **({"can_use_tool": allow} if allowed else {}))

    async def ask(
        self, script: Script, place: Path, home: Path, rename: Callable[[Call], Call], **options: Any
    ) -> None:
        with serve_model(script, rename) as address:
            environment = {
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "HOME": str(home),
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            }
            given = self.sdk.ClaudeAgentOptions(cwd=place, model=MODEL, env=environment, **options)
            async with self.sdk.ClaudeSDKClient(given) as client:
                await client.query("go")
                async for message in client.receive_response():
                    if type(message).__name__ == "ResultMessage" and message.subtype != "success":
                        raise RunEndedError(message.subtype)

    def results(self, messages: Any) -> list[str]:
        parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
        return [write_content(part["content"]) for part in parts if part["type"] == "tool_result"]


def write_content(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@contextmanager
def serve_model(script: Script, rename: Callable[[Call], Call]) -> Iterator[str]:
    """Yields the address of a server that speaks Anthropic's API; only requests with tools are turns of the agent."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "count_tokens" in self.path:
                return self.send("application/json", json.dumps({"input_tokens": 1000}))
            is_turn = bool(body.get("tools"))
            calls = [rename(call) for call in script.next(body["messages"], body)] if is_turn else []
            self.send("text/event-stream", "".join(write_events(calls)))

        def do_GET(self) -> None:
            self.send("application/json", "{}")

        do_HEAD = do_GET

        def send(self, media_type: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def write_events(calls: Sequence[Call]) -> Iterator[str]:
    """A message as the events of a stream."""
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (
            {"type": "tool_use", "id": call.id, "name": call.name, "input": {}},
            {"type": "input_json_delta", "partial_json": call.text},
        )
        for call in calls
    ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": "done"})]
    yield write_event("message_start", message=message)
    for at, (block, delta) in enumerate(blocks):
        yield write_event("content_block_start", index=at, content_block=block)
        yield write_event("content_block_delta", index=at, delta=delta)
        yield write_event("content_block_stop", index=at)
    reason = "tool_use" if calls else "end_turn"
    yield write_event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
    yield write_event("message_stop")


def write_event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"
