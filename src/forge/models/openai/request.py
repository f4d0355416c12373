"""Writes a request for Chat Completions: options, tools, and the history as a list of messages."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from forge.core.messages import Message, ToolCall
from forge.core.plain_values import plain
from forge.core.provider import ModelRequest
from forge.core.result import Attachment

Wire = dict[str, Any]

EXTRA_KEY = "openai"
"""Where `Message.extra` keeps what only its server understands: `{from, fields, calls}`."""

_OURS = ("messages", "model", "stream", "timeout", "tool_choice", "parallel_tool_calls", "max_tokens")
_CHOICES = ("auto", "none", "required")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """Describes the features of a server and a model."""

    model: str
    origin: str  # only answers of this origin are sent back with their extra fields
    strict: bool = True
    short_ids: bool = False  # nine letters and digits
    max_tokens: str = "max_tokens"
    without: frozenset[str] = frozenset()  # features it refused


def request_body(request: ModelRequest, spelling: RequestFormat) -> Wire:
    """Returns the body to post."""
    given = dict(request.options)
    messages = request.messages
    if "response_format" in spelling.without and (told := describe_schema(given.get("response_format"))):
        messages, given = add_to_system(messages, told), {**given, "response_format": None}
    given = {name: value for name, value in given.items() if value is not None}
    passed_on = {name: value for name, value in given.items() if name not in _OURS}
    body: Wire = {
        "model": spelling.model,
        "messages": _History(spelling).of(messages),
        "stream": True,
        **({} if "stream_options" in spelling.without else {"stream_options": {"include_usage": True}}),
        **_tools(request, given, passed_on.pop("tools", ()), spelling),
    }
    if "max_tokens" in given:
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        name = other[spelling.max_tokens] if "max_tokens" in spelling.without else spelling.max_tokens
        body[name] = given["max_tokens"]
    return {**body, **passed_on}


def describe_schema(response_format: Any) -> str:
    """Returns the schema of an answer in words, for a server that cannot hold a model to it."""
    given = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(given, Mapping):
        return ""
    return f"Give your final answer as JSON alone, which fits this JSON Schema:\n{json.dumps(given.get('schema'))}"


def add_to_system(messages: Sequence[Message], text: str) -> list[Message]:
    """Returns the history with more instructions at its beginning."""
    if messages and messages[0].role == "system":
        return [replace(messages[0], text=f"{messages[0].text}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def _tools(request: ModelRequest, given: Mapping[str, Any], more: Sequence[Any], spelling: RequestFormat) -> Wire:
    strict = spelling.strict and "strict" not in spelling.without
    tools = [*request.definitions("openai-strict" if strict else "openai"), *more]
    if not tools:
        return {}
    found: Wire = {"tools": tools}
    choice = given.get("tool_choice")
    if choice is not None:
        named = isinstance(choice, str) and choice not in _CHOICES
        found["tool_choice"] = {"type": "function", "function": {"name": choice}} if named else choice
    parallel = given.get("parallel_tool_calls")
    if parallel is not None and "parallel_tool_calls" not in spelling.without:
        found["parallel_tool_calls"] = parallel
    return found


class _History:
    """Writes the history in the only order that servers accept: results right after the message with their calls."""

    def __init__(self, spelling: RequestFormat) -> None:
        self._spelling = spelling
        self._wire: list[Wire] = []
        self._open: dict[str, list[str]] = {}  # id in the history -> ids sent for it and not yet answered
        self._seen: list[Wire] = []  # images of results, sent after all results

    def of(self, messages: Sequence[Message]) -> list[Wire]:
        for message in messages:
            if message.role == "tool" and self._open.get(message.call_id):
                self._add_result(message)
                continue
            self._end_results()
            if message.role == "assistant":
                self._add_answer(message)
            elif message.role == "tool":
                late = f"The result of an earlier call:\n{message.text}"
                self._wire.append({"role": "user", "content": _content(late, message.attachments)})
            else:
                self._wire.append({"role": message.role, "content": _content(message.text, message.attachments)})
        self._end_results()
        return self._wire

    def _add_answer(self, message: Message) -> None:
        if not message.text and not message.tool_calls:
            return
        wire: Wire = {"role": "assistant", "content": message.text or None}
        if message.tool_calls:
            saved = message.extra.get(EXTRA_KEY)
            known = saved if isinstance(saved, Mapping) and saved.get("from") == self._spelling.origin else {}
            calls = known.get("calls", {})
            wire |= known.get("fields", {})
            wire["tool_calls"] = [{**calls.get(call.id, {}), **self._call_entry(call)} for call in message.tool_calls]
        self._wire.append(wire)

    def _call_entry(self, call: ToolCall) -> Wire:
        id = fit_id(call.id, short=self._spelling.short_ids)
        taken = {taken for ids in self._open.values() for taken in ids}
        while id in taken:
            id = fit_id(f"{id} again", short=self._spelling.short_ids)
        self._open.setdefault(call.id, []).append(id)
        name = fit_name(call.name)
        return {"id": id, "type": "function", "function": {"name": name, "arguments": write_arguments(call.arguments)}}

    def _add_result(self, message: Message) -> None:
        id = self._open[message.call_id].pop(0)
        images, others = split_images(message.attachments)
        text = "\n".join([message.text, *map(describe_attachment, others)]) if others else message.text
        self._wire.append({"role": "tool", "tool_call_id": id, "content": text})
        if images:
            self._seen += [_text(f"The images in the result of call {id}:"), *map(_image, images)]

    def _end_results(self) -> None:
        """Adds missing results: a server would always refuse a history with an unanswered call."""
        for id in [id for ids in self._open.values() for id in ids]:
            self._wire.append({"role": "tool", "tool_call_id": id, "content": "No result of this call was recorded."})
        if self._seen:
            self._wire.append({"role": "user", "content": self._seen})
        self._open, self._seen = {}, []


def fit_name(name: str) -> str:
    """Returns the name of a tool with characters that the API accepts."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unknown"


def fit_id(id: str, *, short: bool = False) -> str:
    """Returns the id, or a valid one derived from it; the same one every time."""
    if (_SHORT_ID if short else _ID).fullmatch(id):
        return id
    made = sha256(id.encode(errors="replace")).hexdigest()
    return made[:9] if short else f"call_{made[:24]}"


def write_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Returns a JSON object: other text is wrapped, so that the model sees what it sent."""
    if not isinstance(arguments, str):
        return json.dumps(plain(dict(arguments)), ensure_ascii=False)
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(json.loads(arguments, parse_constant=_refuse_constant), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps({"_raw": arguments}, ensure_ascii=False)


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _content(text: str, attachments: Sequence[Attachment]) -> str | list[Wire]:
    if not attachments:
        return text
    images, others = split_images(attachments)
    parts = [_text(text)] if text else []
    return [*parts, *map(_image, images), *map(_file, others)]


def split_images(attachments: Sequence[Attachment]) -> tuple[list[Attachment], list[Attachment]]:
    """Returns the images that can be shown, and the other attachments."""
    images = [one for one in attachments if one.data and media_type_of(one) in _IMAGES]
    return images, [one for one in attachments if one not in images]


def media_type_of(attachment: Attachment) -> str:
    """Returns the type without parameters, in its usual spelling."""
    return attachment.media_type.partition(";")[0].strip().lower().replace("image/jpg", "image/jpeg")


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(attachment: Attachment) -> Wire:
    return {"type": "image_url", "image_url": {"url": data_url(attachment)}}


def _file(attachment: Attachment) -> Wire:
    if attachment.data and media_type_of(attachment) == "application/pdf":
        name = attachment.name or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": data_url(attachment)}}
    return _text(describe_attachment(attachment))


def data_url(attachment: Attachment) -> str:
    """Returns the attachment as a `data:` URL."""
    return f"data:{media_type_of(attachment)};base64,{b64encode(attachment.data).decode()}"


def describe_attachment(attachment: Attachment) -> str:
    """Returns a note in place of an attachment that the API does not take."""
    name = f"{attachment.name}: " if attachment.name else ""
    return f"[{name}{media_type_of(attachment) or 'a file'}, {len(attachment.data)} bytes, cannot be shown here]"
