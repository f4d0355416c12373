"""A model API on loopback for the pairs of docs/coming-from.md: it speaks Chat Completions, Responses and Messages.

It has one conversation: it looks up order 7, refunds it, and answers with its number and state. Which turn is due is
counted in the request, so that one server serves every framework at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

CALLS = [("find_order", {"number": 7}), ("refund", {"number": 7})]
ANSWER = {"number": 7, "state": "refunded"}
FINAL = {"final_answer", "final_result", "Order"}  # the tools by which frameworks ask for a typed answer


@contextmanager
def model_api() -> Iterator[str]:
    """Serves; yields the address without a path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path.endswith("/chat/completions"):
            answer, events, end = *_chat(body), "data: [DONE]\n\n"
        elif path.endswith("/responses"):
            answer, events, end = *_responses(body), ""
        else:
            answer, events, end = *_messages(body), ""
        if body.get("stream"):
            named = [(f"event: {event['type']}\n" if "type" in event else "", event) for event in events]
            self._send("text/event-stream", "".join(f"{n}data: {json.dumps(e)}\n\n" for n, e in named) + end)
        else:
            self._send("application/json", json.dumps(answer))

    def _send(self, media_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


Answer = tuple[dict[str, Any], list[dict[str, Any]]]  # whole, and as the events of a stream


def _due(results: int, offered: list[str]) -> tuple[str, str]:
    """The name and the arguments of the call that is due; no name: a text."""
    if results < len(CALLS):
        name, arguments = CALLS[results]
        found = [full for full in offered if full.endswith(name)]
        return (found[0], json.dumps(arguments)) if found else ("", "A refund")  # a title, which a framework asks for
    return next((name for name in offered if name in FINAL), ""), json.dumps(ANSWER)


def _chat(body: dict[str, Any]) -> Answer:
    results = sum(message["role"] == "tool" for message in body["messages"])
    name, text = _due(results, [tool["function"]["name"] for tool in body.get("tools", ())])
    call = {"id": f"call_{results}", "type": "function", "function": {"name": name, "arguments": text}}
    message = (
        {"role": "assistant", "content": None, "tool_calls": [call]} if name else {"role": "assistant", "content": text}
    )
    ended = "tool_calls" if name else "stop"
    whole = {"id": "chat", "created": 1, "model": body["model"]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    delta = {**message, "tool_calls": [{"index": 0, **call}]} if name else message
    return (
        {
            **whole,
            "object": "chat.completion",
            "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": ended}],
        },
        [
            {
                **whole,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            },
            {
                **whole,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {}, "finish_reason": ended}],
            },
            {**whole, "object": "chat.completion.chunk", "choices": [], "usage": usage},
        ],
    )


def _responses(body: dict[str, Any]) -> Answer:
    items = body["input"] if isinstance(body["input"], list) else []
    results = sum(item.get("type") == "function_call_output" for item in items)
    name, text = _due(results, [tool["name"] for tool in body.get("tools", ())])
    item: dict[str, Any] = {"id": f"item_{results}", "status": "completed"}
    if name:
        item |= {"type": "function_call", "call_id": f"call_{results}", "name": name, "arguments": text}
    else:
        part = {"type": "output_text", "text": text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [part]}
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": "response", "object": "response", "created_at": 1, "status": "completed", "model": body["model"]}
    whole |= {"output": [item], "usage": usage, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _messages(body: dict[str, Any]) -> Answer:
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    results = sum(block["type"] == "tool_result" for block in blocks)
    name, text = _due(results, [tool["name"] for tool in body.get("tools", ())])
    usage = {"input_tokens": 10, "output_tokens": 5}
    whole = {"id": "message", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    block: dict[str, Any] = {"type": "tool_use", "id": f"call_{results}", "name": name} if name else {"type": "text"}
    empty: dict[str, Any] = {"input": {}} if name else {"text": ""}
    full: dict[str, Any] = {"input": json.loads(text)} if name else {"text": text}
    delta = {"type": "input_json_delta", "partial_json": text} if name else {"type": "text_delta", "text": text}
    ended = "tool_use" if name else "end_turn"
    return (
        {**whole, "content": [block | full], "stop_reason": ended, "usage": usage},
        [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block | empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": ended, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ],
    )
