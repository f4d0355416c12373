"""Servers of two APIs that answer with given turns, and count tokens as the provider's prompt cache would.

The rules are the published ones. Anthropic: the prompt is tools, system, messages; deferred tools are no part of it, a
reference to one is its definition in place; a request reads the longest stored beginning that ends at a mark of its own
or at most 20 blocks before one, and stores the beginnings that end at its marks. OpenAI: the prompt is tools,
instructions, items; a request reads the longest beginning that an earlier one had, in steps of 128 tokens, at least
1,024.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from forge import ToolCall
from tests.models.serving import Asked, Reply, named_sse, refusal, stream

Turn = str | ToolCall
LOOKED_BACK = 20  # blocks before a mark
STEP, SHORTEST = 128, 1_024  # tokens


def count(text: str) -> int:
    return len(text) // 4 + 1


class CachingAnthropic:
    """Answers requests of the Messages API with these turns, one after the other."""

    def __init__(self, turns: Iterable[Turn], expire_before: int = 0) -> None:
        self.turns = iter(turns)
        self.stored: set[tuple[str, ...]] = set()
        self.asked = 0
        self.expire_before = expire_before  # a request before which nothing is left in the cache

    def __call__(self, asked: Asked) -> Reply:
        self.asked += 1
        if self.asked == self.expire_before:
            self.stored.clear()
        body = asked.body
        try:
            blocks = list(_anthropic_prompt(body))
        except LookupError as error:
            message = f"Tool reference {error} not found in available tools"
            return refusal(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        texts = [body["model"], *(text for text, _ in blocks)]
        marks = [at + 1 for at, (_, marked) in enumerate(blocks) if marked]
        assert len(marks) <= 4
        starts = [at for mark in marks for at in range(mark, max(mark - LOOKED_BACK, 0), -1)]
        hit = max((at for at in starts if tuple(texts[: at + 1]) in self.stored), default=0)
        self.stored.update(tuple(texts[: mark + 1]) for mark in marks)
        sizes = [count(text) for text in texts[1:]]
        read, marked = sum(sizes[:hit]), sum(sizes[: max(marks, default=0)])
        usage = {
            "input_tokens": sum(sizes) - max(marked, read),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, marked - read),
            "output_tokens": 20,
        }
        return stream(_write_anthropic(next(self.turns), usage))


def _anthropic_prompt(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yields the blocks of the prompt, and whether each is marked. Raises `LookupError` for a loose reference."""
    deferred = {one["name"]: one for one in body.get("tools", ()) if one.get("defer_loading")}
    for one in body.get("tools", ()):
        if not one.get("defer_loading"):
            yield _block(one)
        else:
            assert "cache_control" not in one
    yield from map(_block, body.get("system", ()))
    for turn in body["messages"]:
        for block in turn["content"]:
            inner = block.get("content") if block["type"] == "tool_result" else None
            if inner and any(one["type"] == "tool_reference" for one in inner):
                block = {**block, "content": [deferred[one["tool_name"]] for one in inner]}
            yield _block({"role": turn["role"], **block})


def _block(block: dict[str, Any]) -> tuple[str, bool]:
    text = json.dumps({key: value for key, value in block.items() if key != "cache_control"})
    return text, "cache_control" in block


def _write_anthropic(turn: Turn, usage: dict[str, int]) -> bytes:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    if isinstance(turn, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": turn}
    else:
        block = {"type": "tool_use", "id": turn.id, "name": turn.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
    stop = "end_turn" if isinstance(turn, str) else "tool_use"
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return named_sse(*((event["type"], event) for event in found))


class CachingOpenAI:
    """Answers requests of the Responses API with these turns, one after the other."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turns = iter(turns)
        self.earlier: list[list[str]] = []

    def __call__(self, asked: Asked) -> Reply:
        body = asked.body
        prompt = [body["model"], *map(json.dumps, body.get("tools", ())), body.get("instructions", "")]
        prompt += map(json.dumps, body["input"])
        read = max((_shared(one, prompt) for one in self.earlier), default=0)
        read = read // STEP * STEP if read >= SHORTEST else 0
        self.earlier.append(prompt)
        usage = {
            "input_tokens": sum(map(count, prompt)),
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(map(count, prompt)) + 20,
        }
        searches = any(one["type"] == "tool_search" for one in body.get("tools", ()))
        return stream(_write_openai(next(self.turns), usage, searches=searches))


def _shared(earlier: Sequence[str], now: Sequence[str]) -> int:
    tokens = 0
    for before, after in zip(earlier, now, strict=False):
        if before != after:
            break
        tokens += count(before)
    return tokens


def _write_openai(turn: Turn, usage: dict[str, Any], *, searches: bool) -> bytes:
    if isinstance(turn, str):
        part = {"type": "output_text", "text": turn, "annotations": []}
        item: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
    elif turn.name == "tool_search" and searches:
        item = {"id": "ts_1", "type": "tool_search_call", "execution": "client", "arguments": dict(turn.arguments)}  # type: ignore[arg-type]
        item["call_id"] = turn.id
    else:
        item = {"id": "fc_1", "type": "function_call", "name": turn.name, "arguments": json.dumps(turn.arguments)}
        item["call_id"] = turn.id
    item["status"] = "completed"
    response = {"id": "resp_1", "object": "response", "model": "m", "output": [item], "status": "completed"}
    found: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "usage": usage}},
    ]
    return named_sse(*((event["type"], event) for event in found))
