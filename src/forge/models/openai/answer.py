"""Assembles the pieces of a streamed Chat Completions answer, in the forms of many servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.models.http.answer import Delta, StreamedAnswer
from forge.models.http.sse import Event, read_json
from forge.models.openai.request import EXTRA_KEY

_REASONING = ("reasoning_content", "reasoning")
_PIECE = ("index", "id", "type", "function")
_TEXT_ALONE = {"content", "role"}
_CUT = {"length", "max_tokens", "model_length"}
_REFUSED = {"content_filter", "refusal", "safety"}


class AnswerReader(StreamedAnswer):
    """Assembles an answer."""

    def _prepare(self) -> None:
        self._text: list[str] = []
        self._half = ""  # of a character that came in two
        self._calls = _Calls()
        self._reason = ""
        self._refused = False
        self._usage = Usage()
        self._fields: dict[str, Any] = {}

    def take(self, event: Event) -> list[Delta]:
        data = event.data.strip()
        if self.done or not data:
            return []
        if data == "[DONE]":
            self.done = True
            return []
        chunk = self._read(data, event.name)
        if "usage" in chunk or "x_groq" in chunk:
            usage = _usage(chunk)
            self._usage = usage if usage.total else self._usage
        found: list[Delta] = []
        for choice in _list(chunk.get("choices")):
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                found += self._take_choice(choice)
        return found

    def message(self) -> Message:
        if not self.done and not self._reason:
            raise self._error({"message": "the response ended before it was complete"})
        calls, saved = self._calls.collect(self._taken)
        finish = self._finish(bool(calls))
        if finish == "refused":
            calls, saved = (), {}  # calls cut by a filter must not run
        extra = {"fields": self._fields, "calls": saved}
        used = {name: value for name, value in extra.items() if value}
        return Message(
            "assistant",
            text="".join(self._text),
            tool_calls=calls,
            finish=finish,
            usage=self._usage,
            extra={EXTRA_KEY: {"from": self._origin, **used}} if used else {},
        )

    def _read(self, data: str, name: str) -> Mapping[str, Any]:
        try:
            chunk = read_json(data)
        except (ValueError, RecursionError):
            if name == "error":
                raise self._error(data) from None
            raise self._error({"message": f"a part of the response cannot be read: {data[:80]}"}) from None
        if not isinstance(chunk, dict):
            return {}
        if chunk.get("error") or chunk.get("object") == "error" or name == "error":
            raise self._error(chunk.get("error") or chunk)
        self.begun = True
        return chunk

    def _take_choice(self, choice: dict[str, Any]) -> list[Delta]:
        delta, found = choice.get("delta"), list[Delta]()
        if not isinstance(delta, dict):
            whole = choice.get("message")
            delta = whole if isinstance(whole, dict) and not self._text and not self._calls else {}
            self.done = self.done or whole is not None
        # nearly always; Mistral's content may be a list, with thoughts in it
        is_text_alone = delta.keys() <= _TEXT_ALONE and not isinstance(delta.get("content"), list)
        if not is_text_alone and (thought := self._keep(delta)):
            found.append(ReasoningDelta(thought))
        for piece in self._take_text(delta):
            self._text.append(piece)
            found.append(TextDelta(piece))
        if not is_text_alone:
            if sent := _list(delta.get("tool_calls")):
                found += self._calls.take_all([call for call in sent if isinstance(call, dict)])
            if isinstance(old := delta.get("function_call"), dict):  # the older form for a single call
                found += self._calls.take_all([{"index": "function_call", "function": old}])
        if isinstance(reason := choice.get("finish_reason"), str):
            self._reason = reason or self._reason
        return found

    def _take_text(self, delta: Mapping[str, Any]) -> list[str]:
        content, refusal = delta.get("content"), delta.get("refusal")
        if refusal is None and isinstance(content, str):
            piece = self._join_surrogates(content)
            return [piece] if piece else []
        parts = [part for part in _list(content) if isinstance(part, Mapping)]
        texts = [content, *(part.get("text") for part in parts if part.get("type") in (None, "text")), refusal]
        self._refused = self._refused or bool(refusal and isinstance(refusal, str))
        return [piece for text in texts if isinstance(text, str) and (piece := self._join_surrogates(text))]

    def _join_surrogates(self, text: str) -> str:
        """Joins the halves of a character: some servers send one beyond the first plane as two separate escapes."""
        if not self._half and text.isascii():
            return text
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _keep(self, delta: Mapping[str, Any]) -> str:
        """Stores thoughts: they are not part of the answer's text, but some servers want them back with the calls.

        Returns the new piece to show.
        """
        thoughts: list[str] = []
        for name in _REASONING:
            if isinstance(piece := delta.get(name), str):
                self._fields[name] = self._fields.get(name, "") + piece
                thoughts.append(piece)
        for detail in _list(delta.get("reasoning_details")):
            if isinstance(detail, Mapping):
                _add_detail(self._fields.setdefault("reasoning_details", []), detail)
                thoughts += [text for key in ("text", "summary") if isinstance(text := detail.get(key), str)]
        for part in _list(delta.get("content")):  # how Mistral sends them
            if isinstance(part, Mapping) and part.get("type") == "thinking":
                pieces = [one.get("text") for one in _list(part.get("thinking")) if isinstance(one, Mapping)]
                thoughts.append("".join(one for one in pieces if isinstance(one, str)))
        return thoughts[0] if thoughts else ""  # a server may send the same piece in several fields

    def _finish(self, calls: bool) -> Finish:
        if self._reason in _CUT:
            return "length"
        if self._refused or self._reason in _REFUSED:
            return "refused"
        return "calls" if calls else "stop"


class _Piece(NamedTuple):
    """A piece of a call; a server may leave out any field."""

    call_index: int | str | None  # its `index`
    id: str
    name: str
    arguments: Any
    more: Mapping[str, Any]  # such as a signature

    @classmethod
    def of(cls, sent: Mapping[str, Any]) -> _Piece:
        function = sent.get("function")
        function = function if isinstance(function, Mapping) else {}
        index, id, name = sent.get("index"), sent.get("id"), function.get("name")
        more = {key: value for key, value in sent.items() if key not in _PIECE and value is not None}
        return cls(
            index if isinstance(index, int | str) else None,
            id if isinstance(id, str) else "",
            name if isinstance(name, str) else "",
            function.get("arguments"),
            more,
        )


class _Call:
    def __init__(self) -> None:
        self.id, self.name = "", ""
        self.arguments: list[str] = []
        self.more: dict[str, Any] = {}

    @property
    def is_whole(self) -> bool:
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def add(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self.name = _extend_name(self.name, piece.name)
        self.more |= piece.more
        if isinstance(piece.arguments, str):
            self.arguments.append(piece.arguments)
        elif piece.arguments is not None:
            self.arguments = [json.dumps(piece.arguments, ensure_ascii=False)]


class _Calls:
    """Collects the calls of an answer, in order. Pieces find their call by index or id; servers may send neither."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int | str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take_all(self, sent: list[Mapping[str, Any]]) -> Iterator[ToolArgumentsDelta]:
        """Adds the pieces of one chunk, and yields the arguments among them."""
        for piece in map(_Piece.of, sent):
            call = self._find_call(piece, alone=len(sent) == 1)
            if call is None:
                call = _Call()
                self._calls.append(call)
            if piece.call_index is not None:
                self._by_index[piece.call_index] = call
            call.add(piece)
            if isinstance(piece.arguments, str) and piece.arguments:
                yield ToolArgumentsDelta(ToolCall(call.name, {}, call.id), piece.arguments)

    def collect(self, taken: set[str]) -> tuple[tuple[ToolCall, ...], dict[str, Any]]:
        """Returns the calls, with ids that are unique, also among `taken`, and their extra fields by id."""
        used = set(taken)
        calls: list[ToolCall] = []
        more: dict[str, Any] = {}
        for one in self._calls:
            arguments = "".join(one.arguments)
            fresh = one.id.strip() and one.id not in used
            call = ToolCall(one.name, arguments, one.id) if fresh else ToolCall(one.name, arguments)
            used.add(call.id)
            calls.append(call)
            if one.more:
                more[call.id] = one.more
        return tuple(calls), more

    def _find_call(self, piece: _Piece, *, alone: bool) -> _Call | None:
        """Returns the call that a piece continues, or None if it begins a new one."""
        same = next((call for call in self._calls if piece.id and call.id == piece.id), None)
        if piece.call_index is None:
            return same or self._find_by_order(piece, alone=alone)
        call = self._by_index.get(piece.call_index)
        if call is None and not piece.id and not piece.name:
            return self._calls[-1] if self._calls else None  # an index that counts pieces
        if call is None or not piece.name:
            return call
        if piece.id and call.id and piece.id != call.id:
            return same  # every call has the same index
        return None if not piece.id and piece.arguments and call.is_whole else call

    def _find_by_order(self, piece: _Piece, *, alone: bool) -> _Call | None:
        last = self._calls[-1] if self._calls else None
        if last is None or not (piece.id or piece.name):
            return last
        if piece.name:
            goes_on = alone and not piece.id and piece.name == last.name and not last.is_whole
        else:
            goes_on = not last.is_whole  # a new id for every piece
        return last if goes_on else None


def _extend_name(name: str, piece: str) -> str:
    """Returns the longer name: a name may come in pieces, or repeatedly."""
    if piece.startswith(name) or not piece:
        return piece or name
    return name if name.endswith(piece) else name + piece


def _add_detail(details: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    """Adds a piece of reasoning to its block: the pieces of one block have the same type and index."""
    last = details[-1] if details else {}
    if not last or piece.get("index") is None or any(last.get(key) != piece.get(key) for key in ("type", "index")):
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str):
            last[key] += value
        elif value is not None:
            last[key] = value


def _usage(chunk: Mapping[str, Any]) -> Usage:
    found = chunk.get("usage")
    if not isinstance(found, Mapping):
        groq = chunk.get("x_groq")
        found = groq.get("usage") if isinstance(groq, Mapping) else None
    if not isinstance(found, Mapping):
        return Usage()
    details = found.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else found.get("prompt_cache_hit_tokens")
    spent = found.get("completion_tokens_details")
    return Usage(
        _count(found.get("prompt_tokens")),
        _count(found.get("completion_tokens")),
        _count(cached),
        reasoning=_count(spent.get("reasoning_tokens")) if isinstance(spent, Mapping) else 0,
    )


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
