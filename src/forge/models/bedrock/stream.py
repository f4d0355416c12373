"""Assembles an answer of Bedrock's Converse API from its events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.models.bedrock.request import EXTRA_KEY
from forge.models.http.answer import Delta, StreamedAnswer
from forge.models.http.errors import BrokeOff
from forge.models.http.sse import Event, read_json

_FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}
_GARBLED = ("malformed_model_output", "malformed_tool_use")


@dataclass(slots=True)
class _Block:
    """A block and the pieces that came for it."""

    kind: str  # text, toolUse, reasoning
    start: Mapping[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnswerReader(StreamedAnswer):
    """Assembles an answer, which ends with its stream."""

    def _prepare(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._reason = ""
        self._usage = Usage()

    def take(self, event: Event) -> Sequence[Delta]:
        if event.name == "contentBlockDelta":  # almost every event is a piece of text
            try:
                data = from_json(event.data)
                text, block = data["delta"]["text"], self._blocks[data["contentBlockIndex"]]
                if text.isascii() and block.kind == "text":
                    block.pieces.append(text)
                    return (TextDelta(text),) if text else ()
            except (KeyError, TypeError, AttributeError, ValueError):
                pass  # something else, or the first piece of a block
        return [*self._take(event, self._read(event))]

    def _take(self, event: Event, data: dict[str, Any]) -> Iterator[Delta]:
        match event.name:
            case "contentBlockStart":
                self._start(data.get("contentBlockIndex"), _object(data, "start"))
            case "contentBlockDelta":
                yield from self._grow(data.get("contentBlockIndex"), _object(data, "delta"))
            case "messageStop":
                self._reason = str(data.get("stopReason") or "end_turn")
            case "metadata":
                self._count(_object(data, "usage"))
            case "message" if "output" in data:  # a model that does not stream
                yield from self._take_whole(data)

    def message(self) -> Message:
        if not self._reason:
            raise self._error({"message": "the response ended before it was complete"})
        if self._reason in _GARBLED:
            words = f"{self._action}: the model's answer cannot be used ({self._reason})"
            raise BrokeOff(words, ErrorKind.SYSTEM, "Try again, or choose another model with --model.", passing=True)
        finish = _FINISH.get(self._reason)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        for block in blocks:
            if block.kind == "text":
                entries.append({"kind": "text", "length": len(block.text)})
            elif block.kind == "reasoning":
                entries += _save_reasoning(block)
            elif finish != "refused":
                calls.append(self._read_call(block, cut=finish == "length" and block is blocks[-1]))
                entries.append({"kind": "call"})
        extra: dict[str, Any] = {"reason": self._reason} if finish == "refused" else {}
        if finish != "refused" and any(entry["kind"] == "part" for entry in entries):
            extra = {"entries": entries}
        return Message(
            "assistant",
            "".join(block.text for block in blocks if block.kind == "text"),
            tuple(calls),
            finish=finish or ("calls" if calls else "stop"),
            usage=self._usage,
            extra={EXTRA_KEY: {"from": self._origin, **extra}} if extra else {},
        )

    def _read(self, event: Event) -> dict[str, Any]:
        try:
            data = read_json(event.data)
        except (ValueError, RecursionError):
            raise self._error({"message": f"a part of the response cannot be read: {event.data[:80]}"}) from None
        data = data if isinstance(data, dict) else {}
        if event.name == "error":
            raise self._error(data.get("error") or data)
        self.begun = True
        return data

    def _take_whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        content = _object(_object(data, "output"), "message").get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, Mapping):
                continue
            if call := _object(block, "toolUse"):
                self._start(index, {"toolUse": call})
                yield from self._grow(index, {"toolUse": {"input": json.dumps(call.get("input") or {})}})
            elif thought := _object(block, "reasoningContent"):
                yield from self._grow(index, {"reasoningContent": {**thought, **_object(thought, "reasoningText")}})
            else:
                yield from self._grow(index, block)
        self._count(_object(data, "usage"))
        self._reason = str(data.get("stopReason") or "end_turn")

    def _start(self, index: Any, start: Mapping[str, Any]) -> None:
        if isinstance(index, int) and (call := _object(start, "toolUse")):
            self._blocks[index] = _Block("toolUse", call)

    def _grow(self, index: Any, delta: Mapping[str, Any]) -> Iterator[Delta]:
        if not isinstance(index, int):
            return
        if isinstance(text := delta.get("text"), str):
            self._block(index, "text").pieces.append(sendable(text))
            if text:
                yield TextDelta(sendable(text))
        elif call := _object(delta, "toolUse"):
            block = self._block(index, "toolUse")
            if isinstance(piece := call.get("input"), str) and piece:
                block.pieces.append(sendable(piece))
                name, id = str(block.start.get("name", "")), str(block.start.get("toolUseId", ""))
                yield ToolArgumentsDelta(ToolCall(name, {}, id), sendable(piece))
        elif thought := _object(delta, "reasoningContent"):
            block = self._block(index, "reasoning")
            for name, pieces in (("signature", block.signature), ("redactedContent", block.redacted)):
                pieces += [given] if isinstance(given := thought.get(name), str) else []
            if isinstance(said := thought.get("text"), str) and said:
                block.pieces.append(sendable(said))
                yield ReasoningDelta(sendable(said))

    def _block(self, index: int, kind: str) -> _Block:
        """Returns the block of an index. Raises for a piece of a call that never began."""
        block = self._blocks.get(index)
        if block is None and kind == "toolUse":
            raise self._error({"message": "the response contains a part of a call that never began"})
        if block is None or block.kind != kind:
            block = self._blocks[index] = _Block(kind)
        return block

    def _read_call(self, block: _Block, *, cut: bool) -> ToolCall:
        id, name = block.start.get("toolUseId"), str(block.start.get("name") or "")
        text = block.text if block.text.strip() or cut else "{}"
        if not isinstance(id, str) or not id or id in self._taken:
            return ToolCall(name, text)
        self._taken.add(id)
        return ToolCall(name, text, id)

    def _count(self, usage: Mapping[str, Any]) -> None:
        names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        counts = [count if type(count := usage.get(name)) is int and count >= 0 else 0 for name in names]
        fresh, output, cached, written = counts
        self._usage = Usage(fresh + cached + written, output, cached, written)


def _save_reasoning(block: _Block) -> list[dict[str, Any]]:
    """Returns the block to send back unchanged; without a signature, nobody can check it, and it is not sent."""
    if block.redacted:
        part: dict[str, Any] = {"redactedContent": "".join(block.redacted)}
    elif block.signature:
        part = {"reasoningText": {"text": block.text, "signature": "".join(block.signature)}}
    else:
        return []
    return [{"kind": "part", "part": {"reasoningContent": part}}]


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}
