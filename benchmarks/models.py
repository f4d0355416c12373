"""Streams of models, against the bare HTTP client, and the share of a prompt that a cache can answer."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

import httpx2

from benchmarks.timing import Measure, side_by_side_async
from forge.core.events import TextDelta
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, Provider
from forge.core.spec import ToolSpec
from forge.models.anthropic import Anthropic
from forge.models.anthropic import request_body as anthropic_body
from forge.models.bedrock import Bedrock, BedrockModel
from forge.models.bedrock import request_body as bedrock_body
from forge.models.gemini import Gemini, GeminiModel
from forge.models.gemini import request_body as gemini_body
from forge.models.http.events import AWS_EVENTS
from forge.models.openai_chat import ChatFormat, OpenAI
from forge.models.openai_chat import request_body as chat_body
from forge.models.openai_responses import OpenAIResponses, ResponsesFormat
from forge.models.openai_responses import request_body as responses_body

TOKENS = 2_000  # of one answer
TURNS = 50
REQUEST = ModelRequest(messages=[Message("user", "Hello")])
TOOL = ToolSpec(name="look", description="Look. " * 50, parameters={"type": "object", "properties": {}})

Cached = Callable[[list[dict[str, Any]]], Iterator[tuple[int, int]]]


async def measures() -> list[Measure]:
    found = []
    for name, events, make in (
        ("Chat Completions", _chat_events(), lambda url: OpenAI("m", base_url=url)),
        ("Responses", _responses_events(), lambda url: OpenAIResponses("m", base_url=url)),
        ("Anthropic", _anthropic_events(), lambda url: Anthropic("m", base_url=url, api_key="k")),
        ("Gemini", _gemini_events(), lambda url: Gemini("m", base_url=url, api_key="k")),
        ("Bedrock", _bedrock_events(), _bedrock),
    ):
        kind = AWS_EVENTS if name == "Bedrock" else "text/event-stream"
        async with _serving(events, kind) as url:
            pair = await _stream(url, make(url), _count_frames if name == "Bedrock" else _count_lines)
        bare = "httpx2, struct and json" if name == "Bedrock" else "httpx2 and json"
        found.append(Measure(f"models: a streamed token of {name}", bare, *pair, "µs", 1.3))
    for name, bodies, read in _requests_of_a_run():
        found.append(_missed_share(name, bodies, read))
    return found


def _bedrock(url: str) -> Bedrock:
    os.environ |= {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
    return Bedrock("m", region="us-east-1", base_url=url)


async def _count_lines(response: httpx2.Response) -> int:
    count = 0
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            json.loads(line[6:])
            count += 1
    return count


async def _count_frames(response: httpx2.Response) -> int:
    """Reads AWS's frames with as little code as possible: nothing is checked."""
    count, left = 0, b""
    async for chunk in response.aiter_bytes():
        left += chunk
        at = 0
        while len(left) - at >= 12:
            total, headers = struct.unpack_from(">II", left, at)
            if len(left) - at < total:
                break
            json.loads(left[at + 12 + headers : at + total - 4])
            at, count = at + total, count + 1
        left = left[at:]
    return count


async def _stream(
    url: str, provider: Provider, read: Callable[[httpx2.Response], Awaitable[int]]
) -> tuple[float, float]:
    async with httpx2.AsyncClient(trust_env=False) as client:

        async def bare() -> float:
            started = time.process_time()
            async with client.stream("POST", url, json={"stream": True}) as response:
                assert await read(response) >= TOKENS
            return (time.process_time() - started) / TOKENS * 1e6

        async def ours() -> float:
            started, count = time.process_time(), 0
            async for part in provider.stream(REQUEST):
                count += isinstance(part, TextDelta)
            assert count == TOKENS
            return (time.process_time() - started) / TOKENS * 1e6

        return await side_by_side_async(bare, ours)


def _missed_share(name: str, bodies: Sequence[dict[str, Any]], read: Cached) -> Measure:
    """Percent of what a request repeats that a cache cannot answer; the goal is to read 95 %."""
    repeated = answered = 0
    for before, now in read(list(bodies)):
        repeated, answered = repeated + before, answered + now
    missed = 100 * (1 - answered / repeated)
    return Measure(f"models: {TURNS} turns of {name}, not from the cache", "", 0.0, missed, "%", 5.0, absolute=True)


def _requests_of_a_run() -> Iterator[tuple[str, list[dict[str, Any]], Cached]]:
    histories = [_history(turns) for turns in range(TURNS)]
    requests = [ModelRequest(messages=history, tools=[TOOL]) for history in histories]
    yield "Anthropic", [anthropic_body(one, model="m", max_tokens=1000) for one in requests], _by_breakpoints
    yield "Chat Completions", [chat_body(one, ChatFormat("m", "x")) for one in requests], _by_prefix
    yield "Responses", [responses_body(one, ResponsesFormat("m", "x")) for one in requests], _by_prefix
    yield "Gemini", [gemini_body(one, model=GeminiModel("gemini-3-pro")) for one in requests], _by_prefix
    claude = BedrockModel("anthropic.claude-sonnet-5-v1:0")
    yield "Bedrock", [_with_marks(bedrock_body(one, model=claude)) for one in requests], _by_breakpoints


def _history(turns: int) -> list[Message]:
    messages = [Message("system", "You help. " * 100), Message("user", "Read all files.")]
    for turn in range(turns):
        calls = tuple(ToolCall("look", {"n": turn}, f"c{turn}_{number}") for number in range(1 + turn % 3))
        messages.append(Message("assistant", f"I read file {turn}.", calls))
        messages += [Message("tool", f"line {turn}\n" * 100, call_id=call.id) for call in calls]
    return messages


def _with_marks(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the request in Anthropic's form, where a mark is a part of a block."""

    def mark(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        marked: list[dict[str, Any]] = []
        for block in blocks:
            if "cachePoint" in block:
                marked[-1]["cache_control"] = block
            else:
                marked.append(dict(block))
        return marked

    turns = [{"role": turn["role"], "content": mark(turn["content"])} for turn in body["messages"]]
    return {"tools": mark(body["toolConfig"]["tools"]), "system": mark(body["system"]), "messages": turns}


def _by_breakpoints(bodies: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yields characters that a request repeats, and those of them before a breakpoint of both requests."""
    earlier: set[str] = set()
    last = 0
    for body in bodies:
        blocks, at, ends = "", 0, {}
        for block in _blocks(body):
            mark = block.pop("cache_control", None)
            blocks += json.dumps(block)
            at = len(blocks)
            if mark is not None:
                ends[blocks] = at
        if last:
            yield last, max((size for text, size in ends.items() if text in earlier), default=0)
        earlier, last = set(ends), at


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from map(dict, [*body["tools"], *body["system"]])
    for turn in body["messages"]:
        for block in turn["content"]:
            yield {"role": turn["role"], **block}


def _by_prefix(bodies: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yields the length of each request, and how much of it begins the next one."""
    texts = [
        json.dumps([body["tools"], body.get("instructions"), body.get("systemInstruction")])
        + json.dumps(next(body[key] for key in ("messages", "input", "contents") if key in body))
        for body in bodies
    ]
    for before, now in pairwise(texts):
        before = before[:-1]  # the end of the list
        same = next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
        yield len(before), same


def _chat_events() -> list[bytes]:
    pieces: list[Any] = [{"choices": [{"index": 0, "delta": {"content": "word "}}]}] * TOKENS
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    envelope = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [
        *(b"data: %b\n\n" % json.dumps({**envelope, **one}).encode() for one in (*pieces, end)),
        b"data: [DONE]\n\n",
    ]


def _responses_events() -> list[bytes]:
    text = "word " * TOKENS
    item = {"type": "message", "id": "m1", "content": [{"type": "output_text", "text": text}]}
    delta = {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0}
    events: list[Any] = [{"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}}]
    events += [{**delta, "delta": "word ", "logprobs": [], "sequence_number": number} for number in range(TOKENS)]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": [item]}})
    return [_named(event["type"], event) for event in events]


def _anthropic_events() -> list[bytes]:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    events: list[Any] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[delta] * TOKENS,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return [_named(event["type"], event) for event in events]


def _gemini_events() -> list[bytes]:
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": "word "}]}}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    piece = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "x"}
    end = {"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": usage}
    return [b"data: %b\n\n" % json.dumps(one).encode() for one in (*[piece] * TOKENS, end)]


def _bedrock_events() -> list[bytes]:
    piece = {"contentBlockIndex": 0, "delta": {"text": "word "}, "p": "abcdefghij"}
    return [*[_frame("contentBlockDelta", piece)] * TOKENS, _frame("messageStop", {"stopReason": "end_turn"})]


def _frame(name: str, event: Any) -> bytes:
    headers, payload = b"", json.dumps(event).encode()
    for key, text in ((":event-type", name), (":content-type", "application/json"), (":message-type", "event")):
        headers += struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", 7, len(text)) + text.encode()
    start = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = start + struct.pack(">I", crc32(start)) + headers + payload
    return message + struct.pack(">I", crc32(message))


def _named(name: str, event: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json.dumps(event).encode())


@asynccontextmanager
async def _serving(events: list[bytes], kind: str) -> AsyncIterator[str]:
    """Streams the events, a chunk each, from a process of its own: its work is not counted."""
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, events, kind), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{mine.recv()}/v1"
    finally:
        server.terminate()
        server.join()


def _serve(told: Connection, events: list[bytes], kind: str) -> None:
    asyncio.run(_answer_forever(told, events, kind))


async def _answer_forever(told: Connection, events: list[bytes], kind: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(head + chunks + b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=100)
    told.send(listening.sockets[0].getsockname()[1])
    await listening.serve_forever()
