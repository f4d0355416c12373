"""Assembles an answer of the Messages API from its streamed events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.core.provider import ProviderError
from forge.models.anthropic.request import EXTRA_KEY
from forge.models.http.answer import Delta, StreamedAnswer
from forge.models.http.sse import Event, read_json

_FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # still paused after the last continuation
    "refusal": "refused",
}
_GROWS = {  # a delta's type -> its field; the block has a field of the same name, except for JSON
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
Deltas = Sequence[Delta]
_WITHOUT_START = {"text_delta": "text", "thinking_delta": "thinking"}
_CARRIES_ANSWER = {"message", "message_start", "message_delta", "content_block_start", "content_block_delta", "error"}


@dataclass(slots=True)
class _Block:
    """A block's start and the pieces that followed."""

    start: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)
    is_known: bool = True  # False: an unknown delta came for this block

    @property
    def kind(self) -> Any:
        return self.start.get("type")

    def join_pieces(self, name: str) -> str:
        return _as_text(self.start.get(name)) + "".join(self.pieces.get(name, ()))

    def input(self) -> str:
        """Returns the JSON text exactly as received; a server may also send the whole object at the start."""
        return "".join(self.pieces.get("partial_json", ())) or _as_text(self.start.get("input") or "")


class AnswerReader(StreamedAnswer):
    """Assembles an answer from one response, or from several if the model pauses."""

    def _prepare(self) -> None:
        self.thinks = False  # the request asks the model to think
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}  # by index in the response
        self._last: _Block | None = None
        self._reason = ""
        self._details: Any = None
        self._counts: dict[str, int] = {}
        self._paid = Usage()  # for responses that are over

    def continue_response(self) -> None:
        """Prepares for another response that continues this one."""
        self._paid = self._usage
        self._at, self._last, self._counts = {}, None, {}
        self._reason, self.done = "", False

    def take(self, event: Event) -> Deltas:
        """Returns the pieces to show, usually none. Raises `ProviderError` for a broken or garbled answer."""
        data = self._read(event)
        match data.get("type") or event.name:
            case "message_start":
                self._count(_object(data, "message"))
            case "content_block_start":
                return self._start(data.get("index"), _object(data, "content_block"))
            case "content_block_delta":
                return self._grow(data.get("index"), _object(data, "delta"))
            case "message_delta":
                self._count(data)
                self._stop(_object(data, "delta"))
            case "message_stop":
                self.done = True
            case "message" if "content" in data:  # a server that does not stream
                self._count(data)
                self._stop(data)
                self.done = True
                blocks = [block for block in _list(data, "content") if isinstance(block, dict)]
                return [part for block in blocks for part in self._start(None, block)]
            case "error":
                raise self._error(data.get("error") or data)
        return ()

    @property
    def is_paused(self) -> bool:
        return self._reason == "pause_turn" and all(block.kind != "tool_use" for block in self._blocks)

    def message(self) -> Message:
        """Returns the message. Raises if the stream ended too early: an unfinished call must not run."""
        if not self._reason:
            raise self._garbled_error("the response ended before it was complete")
        finish = _FINISH.get(self._reason)
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        for block in self._blocks:
            if block.kind == "text":
                cited = {"citations": block.citations} if block.citations else {}
                entries.append({"type": "text", "length": len(block.join_pieces("text")), **cited})
            elif block.kind != "tool_use":
                entries += _saved_block(block)
            elif finish != "refused":
                cut = finish == "length" and block is self._blocks[-1]
                calls.append(_read_call(block, {call.id for call in calls}, cut=cut))
                entries.append({"type": "tool_use"})
        extra: dict[str, Any] = {}
        if any(entry["type"] not in ("text", "tool_use") or "citations" in entry for entry in entries):
            extra = {"from": self._origin, "thinking": self.thinks, "blocks": entries}
        if finish == "refused" and self._details:
            extra["refusal"] = self._details
        return Message(
            "assistant",
            "".join([block.join_pieces("text") for block in self._blocks if block.kind == "text"]),
            tuple(calls),
            finish=finish or ("calls" if calls else "stop"),
            usage=self._usage,
            extra={EXTRA_KEY: extra} if extra else {},
        )

    def _read(self, event: Event) -> dict[str, Any]:
        try:
            data = read_json(event.data)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return data
        if event.name not in _CARRIES_ANSWER or event.data.strip() == "[DONE]":
            return {}
        if event.name == "error":
            return {"error": event.data}
        raise self._garbled_error("a part of the response is not a JSON object")

    def _start(self, index: Any, start: dict[str, Any]) -> Deltas:
        block = _Block(start)
        self._blocks.append(block)
        self._last = block
        if isinstance(index, int):
            self._at[index] = block
        if block.kind == "thinking" and (thought := sendable(_as_text(start.get("thinking")))):
            return [ReasoningDelta(thought)]
        if block.kind != "text":
            return ()
        block.start = {**start, "text": sendable(_as_text(start.get("text")))}
        block.citations += _list(start, "citations")
        return [TextDelta(block.start["text"])] if block.start["text"] else ()

    def _grow(self, index: Any, delta: dict[str, Any]) -> Deltas:
        kind = str(delta.get("type"))
        block = self._at.get(index) if isinstance(index, int) else self._last
        needed = _WITHOUT_START.get(kind)
        if needed is not None and (block is None or block.kind != needed):
            self._start(index, {"type": needed})
            block = self._last
        if kind == "input_json_delta" and (block is None or block.kind in ("text", "thinking")):
            raise self._garbled_error("the response contains a part of a call that never began")
        if block is None:
            return ()
        if name := _GROWS.get(kind):
            piece = sendable(_as_text(delta.get(name)))
            block.pieces.setdefault(name, []).append(piece)
            return _delta(kind, block, piece) if piece else ()
        if kind == "citations_delta":
            block.citations.append(delta.get("citation"))
        else:
            block.is_known = False
        return ()

    def _stop(self, delta: dict[str, Any]) -> None:
        self._reason = _as_text(delta.get("stop_reason")) or self._reason
        self._details = delta.get("stop_details") or self._details

    def _count(self, data: dict[str, Any]) -> None:
        """Stores the counts. They are totals, so a later count replaces an earlier one."""
        usage = _object(data, "usage")
        self._counts |= {name: count for name, count in usage.items() if type(count) is int and count >= 0}

    @property
    def _usage(self) -> Usage:
        count = self._counts.get
        cached = count("cache_read_input_tokens", 0)
        written = count("cache_creation_input_tokens", 0)
        total = count("input_tokens", 0) + written + cached
        return self._paid.plus(Usage(total, count("output_tokens", 0), cached, written))

    def _garbled_error(self, what: str) -> ProviderError:
        return ProviderError(f"{self._action}: {what}", ErrorKind.SYSTEM, "Try again in a moment.", passing=True)


def _delta(kind: str, block: _Block, piece: str) -> Deltas:
    if kind == "text_delta":
        return [TextDelta(piece)]
    if kind == "thinking_delta":
        return [ReasoningDelta(piece)]
    if kind == "input_json_delta" and block.kind == "tool_use":
        return [ToolArgumentsDelta(ToolCall(_as_text(block.start.get("name")), {}, str(block.start.get("id"))), piece)]
    return ()


def _read_call(block: _Block, taken: set[str], *, cut: bool) -> ToolCall:
    id, name, text = block.start.get("id"), _as_text(block.start.get("name")), block.input()
    arguments = text if text.strip() or cut else "{}"
    return (
        ToolCall(name, arguments, id) if isinstance(id, str) and id and id not in taken else ToolCall(name, arguments)
    )


def _saved_block(block: _Block) -> list[dict[str, Any]]:
    """Returns the block to send back unchanged, if it is complete."""
    whole = {**block.start, **{name: block.join_pieces(name) for name in block.pieces if name != "partial_json"}}
    if "partial_json" in block.pieces:
        try:
            whole["input"] = json.loads(block.input() or "{}")
        except (ValueError, RecursionError):
            return []
    return [whole] if block.is_known and block.kind else []


def _object(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _list(data: dict[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    return found if isinstance(found, list) else []


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
