"""Assembles an answer of the Responses API from its streamed events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.models.http.answer import Delta, StreamedAnswer
from forge.models.http.sse import Event, read_json
from forge.models.openai_responses.request import EXTRA_KEY

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_KEPT_OF_MESSAGES = ("phase",)


@dataclass(slots=True)
class _OutputItem:
    """An item of the answer: as it was announced, the pieces that followed, and the whole item where it came."""

    start: Mapping[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)  # of arguments
    length: int = 0  # characters of text that were shown
    whole: Mapping[str, Any] | None = None

    @property
    def data(self) -> Mapping[str, Any]:
        return self.whole if self.whole is not None else self.start

    @property
    def kind(self) -> str:
        return _as_text(self.data.get("type"))

    def arguments(self) -> str:
        """Returns the JSON text exactly as received."""
        last = self.data.get("arguments")
        return last if isinstance(last, str) and last else "".join(self.pieces)


class AnswerReader(StreamedAnswer):
    """Assembles an answer."""

    def _prepare(self) -> None:
        self._items: dict[int, _OutputItem] = {}
        self._text: list[str] = []
        self._is_refused = False
        self._response: Mapping[str, Any] = {}

    def take(self, event: Event) -> list[Delta]:
        data = event.data.strip()
        if not data or data == "[DONE]" or self.done:
            return []
        found = self._read(data, event.name)
        kind = _as_text(found.get("type")) or event.name
        if kind == "response.output_text.delta":  # nearly always
            self.begun = True
            return self._take_piece(kind, found)
        if kind == "error":
            raise self._error(found)
        self.begun = True
        if found.get("object") == "response":  # a server that does not stream
            return self._end(found)
        if kind in _ENDS:
            return self._end(_object(found, "response"))
        return self._take_piece(kind, found)

    def message(self) -> Message:
        if not self.done:
            raise self._error({"message": "the response ended before it was complete"})
        finish = self._finish()
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        used = set(self._taken)
        for item in self._in_order():
            if item.kind == "message":
                more = {name: item.data[name] for name in _KEPT_OF_MESSAGES if item.data.get(name) is not None}
                entries.append({"type": "message", "length": item.length, **({"more": more} if more else {})})
            elif item.kind == "function_call":
                if finish != "refused":  # calls cut by a filter must not run
                    entries.append({"type": "function_call"})
                    calls.append(_read_call(item, used))
                    used.add(calls[-1].id)
            elif saved := _saved_item(item):
                entries.append(saved)
        is_plain = all(entry["type"] in ("message", "function_call") and "more" not in entry for entry in entries)
        return Message(
            "assistant",
            "".join(self._text),
            tuple(calls),
            finish="calls" if calls and finish == "stop" else finish,
            usage=_usage(self._response.get("usage")),
            extra={} if is_plain else {EXTRA_KEY: {"from": self._origin, "items": entries}},
        )

    def _read(self, data: str, name: str) -> Mapping[str, Any]:
        try:
            found = read_json(data)
        except (ValueError, RecursionError):
            said: Any = data if name == "error" else {"message": f"a part of the response cannot be read: {data[:80]}"}
            raise self._error(said) from None
        if not isinstance(found, dict):
            return {}
        if found.get("error") and found.get("object") != "response":
            raise self._error(found["error"])
        return found

    def _take_piece(self, kind: str, found: Mapping[str, Any]) -> list[Delta]:
        index = found.get("output_index")
        if type(index) is not int:
            return []
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _OutputItem()
        piece = sendable(_as_text(found.get("delta")))
        if kind == "response.output_text.delta":
            return self._show(item, piece)
        if kind == "response.output_item.added":
            item.start = _object(found, "item")
        elif kind == "response.output_item.done":
            return self._complete(item, _object(found, "item"))
        elif kind == "response.refusal.delta":
            self._is_refused = True
            return self._show(item, piece)
        elif kind in _THOUGHTS and piece:
            return [ReasoningDelta(piece)]
        elif kind == "response.reasoning_summary_part.added" and found.get("summary_index"):
            return [ReasoningDelta("\n\n")]
        elif kind == "response.function_call_arguments.delta" and piece:
            item.pieces.append(piece)
            name, id = _as_text(item.start.get("name")), _as_text(item.start.get("call_id"))
            return [ToolArgumentsDelta(ToolCall(name, {}, id), piece)]
        return []

    def _show(self, item: _OutputItem, piece: str) -> list[Delta]:
        if not piece:
            return []
        item.length += len(piece)
        self._text.append(piece)
        return [TextDelta(piece)]

    def _complete(self, item: _OutputItem, whole: Mapping[str, Any]) -> list[Delta]:
        """Stores the whole item, and returns the part of its text that was not streamed."""
        if not whole:
            return []
        item.whole = whole
        if whole.get("type") != "message":
            return []
        texts = []
        for part in _list(whole, "content"):
            if isinstance(part, Mapping):
                self._is_refused = self._is_refused or part.get("type") == "refusal"
                texts.append(_as_text(part.get("text") if part.get("type") != "refusal" else part.get("refusal")))
        return self._show(item, sendable("".join(texts))[item.length :])

    def _end(self, response: Mapping[str, Any]) -> list[Delta]:
        self.done, self._response = True, response
        if response.get("status") in ("failed", "cancelled"):
            raise self._error(response.get("error") or {"message": f"the response is {response['status']}"})
        pieces: list[Delta] = []
        for index, whole in enumerate(_list(response, "output")):
            item = self._items.setdefault(index, _OutputItem())
            if isinstance(whole, Mapping) and item.whole is None:
                pieces += self._complete(item, whole)
        return pieces

    def _in_order(self) -> list[_OutputItem]:
        return [self._items[index] for index in sorted(self._items)]

    def _finish(self) -> Finish:
        details = _object(self._response, "incomplete_details")
        if self._response.get("status") == "incomplete" and details.get("reason") == "content_filter":
            return "refused"
        if self._response.get("status") == "incomplete":
            return "length"
        return "refused" if self._is_refused else "stop"


def _read_call(item: _OutputItem, used: set[str]) -> ToolCall:
    name, id = _as_text(item.data.get("name")), item.data.get("call_id")
    fresh = isinstance(id, str) and id.strip() and id not in used
    return ToolCall(name, item.arguments(), str(id)) if fresh else ToolCall(name, item.arguments())


def _saved_item(item: _OutputItem) -> dict[str, Any]:
    """Returns the item to send back unchanged, if it is complete and can be read without the server's memory."""
    if item.whole is None or not item.kind:
        return {}
    kept = {name: value for name, value in item.whole.items() if value is not None and name != "status"}
    if item.kind == "reasoning":
        return kept if kept.get("encrypted_content") or kept.get("content") else {}
    return kept


def _usage(found: Any) -> Usage:
    if not isinstance(found, Mapping):
        return Usage()
    before, after = _object(found, "input_tokens_details"), _object(found, "output_tokens_details")
    return Usage(
        _count(found.get("input_tokens")),
        _count(found.get("output_tokens")),
        _count(before.get("cached_tokens")),
        _count(before.get("cache_write_tokens")),
        _count(after.get("reasoning_tokens")),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    return found if isinstance(found, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
