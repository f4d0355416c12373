"""Assembles an answer of Gemini from its streamed responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.models.gemini.request import EXTRA_KEY
from forge.models.http.answer import Delta, StreamedAnswer
from forge.models.http.errors import BrokeOff
from forge.models.http.sse import Event, read_json

_REFUSED = {
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
_GARBLED = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"}
_NOTHING: dict[str, Any] = {"kind": ""}
_KNOWN = {"text", "thought", "thoughtSignature", "functionCall"}


class AnswerReader(StreamedAnswer):
    """Assembles an answer, which ends with its stream."""

    def _prepare(self) -> None:
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._entries: list[dict[str, Any]] = []  # the parts in their order; see `forge.models.turns`
        self._reason = ""
        self._said = ""  # about the reason
        self._blocked: Mapping[str, Any] = {}
        self._counts: dict[str, Any] = {}

    def take(self, event: Event) -> Sequence[Delta]:
        data = event.data
        try:
            found = read_json(data)
        except (ValueError, RecursionError):
            if data.strip() in ("", "[DONE]"):
                return ()
            raise self._error({"message": f"a part of the response cannot be read: {data[:80]}"}) from None
        if (text := _plain_text(found)) and text.isascii():
            self.begun = True
            if type(usage := found.get("usageMetadata")) is dict:
                self._counts.update(usage)
            self._text.append(text)
            last = self._entries[-1] if self._entries else _NOTHING
            if last["kind"] == "text" and "saved" not in last:
                last["length"] += len(text)
            else:
                self._entries.append({"kind": "text", "length": len(text)})
            return (TextDelta(text),)
        return [*self._take_responses(found if isinstance(found, list) else [found])]  # a list: not streamed

    def _take_responses(self, responses: list[Any]) -> Iterator[Delta]:
        for response in responses:
            if not isinstance(response, dict):
                continue
            if response.get("error"):
                raise self._error(response["error"])
            self.begun = True
            if isinstance(usage := response.get("usageMetadata"), dict):
                self._counts |= usage  # totals: a later count replaces an earlier one
            if "promptFeedback" in response and isinstance(feedback := response["promptFeedback"], dict):
                self._blocked = feedback if feedback.get("blockReason") else self._blocked
            candidates = response.get("candidates")
            for candidate in candidates if isinstance(candidates, list) else ():
                if isinstance(candidate, dict) and candidate.get("index", 0) == 0:
                    yield from self._take_candidate(candidate)

    def message(self) -> Message:
        if not self._reason and not self._blocked:
            raise self._error({"message": "the response ended before it was complete"})
        if self._reason in _GARBLED or (self._reason == "OTHER" and not self._text and not self._calls):
            said = sendable(self._said or self._reason)[:300]
            words = f"{self._action}: the model's answer cannot be used: {said}"
            raise BrokeOff(words, ErrorKind.SYSTEM, "Try again, or choose another model with --model.", passing=True)
        finish = self._finish()
        calls, entries = tuple(self._calls), self._entries
        extra: dict[str, Any] = {}
        if finish == "refused":
            calls, entries = (), []
            extra["refusal"] = {"reason": self._blocked.get("blockReason") or self._reason, "message": self._said}
        if any(entry["kind"] == "part" or entry.get("saved") for entry in entries):
            extra["entries"] = entries
        return Message(
            "assistant",
            "".join(self._text),
            calls,
            finish=finish,
            usage=self._usage,
            extra={EXTRA_KEY: {"from": self._origin, **extra}} if extra else {},
        )

    def _take_candidate(self, candidate: Mapping[str, Any]) -> Iterator[Delta]:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                continue
            text = part.get("text")
            if len(part) == 1 and type(text) is str and text.isascii():  # almost every part is a piece of text
                self._add_text(text, {})
                if text:
                    yield TextDelta(text)
            else:
                yield from self._take_part(part)
        if isinstance(reason := candidate.get("finishReason"), str) and reason != "FINISH_REASON_UNSPECIFIED":
            self._reason = reason
            self._said = str(candidate.get("finishMessage") or "")

    def _take_part(self, part: Mapping[str, Any]) -> Iterator[Delta]:
        signature = part.get("thoughtSignature")
        saved = {"thoughtSignature": signature} if isinstance(signature, str) and signature else {}
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, Mapping):
            yield from self._take_call(call, saved)
        elif part.get("thought") is True:
            if isinstance(text, str) and text:
                yield ReasoningDelta(sendable(text))
        elif isinstance(text, str):
            text = sendable(text)
            self._add_text(text, saved)
            if text:
                yield TextDelta(text)
        elif part.keys() - _KNOWN:
            self._entries.append({"kind": "part", "part": dict(part)})  # such as code that the server ran
        elif saved:
            self._add_text("", saved)

    def _add_text(self, text: str, saved: dict[str, Any]) -> None:
        """Adds text to the last text, except where a signature belongs to one of them alone."""
        self._text.append(text)
        last = self._entries[-1] if self._entries else {}
        if last.get("kind") == "text" and not saved and not last.get("saved"):
            last["length"] += len(text)
        elif text or saved:
            self._entries.append({"kind": "text", "length": len(text), **({"saved": saved} if saved else {})})

    def _take_call(self, sent: Mapping[str, Any], saved: dict[str, Any]) -> Iterator[Delta]:
        name, given, arguments = sent.get("name"), sent.get("id"), sent.get("args")
        name = name if isinstance(name, str) else ""
        text = json.dumps(arguments, ensure_ascii=False) if arguments is not None else "{}"
        call = ToolCall(name, sendable(text))
        if isinstance(given, str) and given and given not in self._taken:
            call = ToolCall(name, sendable(text), given)
            saved = {**saved, "id": given}
        self._taken.add(call.id)
        self._calls.append(call)
        self._entries.append({"kind": "call", "saved": {**saved, "own": True}})
        yield ToolArgumentsDelta(ToolCall(name, {}, call.id), sendable(text))

    def _finish(self) -> Finish:
        if self._blocked or self._reason in _REFUSED:
            return "refused"
        if self._reason == "MAX_TOKENS":
            return "length"
        return "calls" if self._calls else "stop"

    @property
    def _usage(self) -> Usage:
        counts = {name: value for name, value in self._counts.items() if type(value) is int and value >= 0}
        count = counts.get
        thoughts = count("thoughtsTokenCount", 0)
        return Usage(
            count("promptTokenCount", 0) + count("toolUsePromptTokenCount", 0),
            count("candidatesTokenCount", 0) + thoughts,
            count("cachedContentTokenCount", 0),
            reasoning=thoughts,
        )


def _plain_text(response: Any) -> str:
    """Returns the text of a response that is nothing else, as almost every one is; otherwise nothing."""
    try:
        (candidate,) = response["candidates"]
        (part,) = candidate["content"]["parts"]
        text = part["text"]
        if len(part) != 1 or type(text) is not str or "finishReason" in candidate or candidate.get("index"):
            return ""
        return "" if "error" in response or "promptFeedback" in response else text
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""
