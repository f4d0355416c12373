"""Writes a request for the Responses API: options, tools, and the history as a list of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.messages import Message, ToolCall
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.openai.request import (
    add_to_system,
    data_url,
    describe_attachment,
    describe_schema,
    fit_id,
    fit_name,
    media_type_of,
    split_images,
    write_arguments,
)

Item = dict[str, Any]

EXTRA_KEY = "openai-responses"
"""Where `Message.extra` keeps what only this API understands: `{from, items}`."""

_OURS = (
    *("input", "model", "stream", "timeout", "tool_choice", "parallel_tool_calls", "max_tokens", "tools"),
    *("max_completion_tokens", "reasoning", "reasoning_effort", "response_format", "text", "verbosity"),
)
_ONLY_IN_CHAT = ("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "n", "stream_options")
_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """Describes the features of a server and a model."""

    model: str
    origin: str  # only answers of this origin are sent back with their own items
    strict: bool = True
    reasons: bool = False  # ask for summaries and for reasoning that can be sent back
    has_cache_key: bool = False
    without: frozenset[str] = frozenset()  # features it refused


def request_body(request: ModelRequest, spelling: RequestFormat) -> Item:
    """Returns the body to post. Raises `ProviderError` for an option that the API does not have."""
    given = {name: value for name, value in request.options.items() if value is not None}
    _check_options(given, spelling.model)
    messages = request.messages
    if "response_format" in spelling.without and (told := describe_schema(given.get("response_format"))):
        messages = add_to_system(messages, told)
        given = {name: value for name, value in given.items() if name != "response_format"}
    instructions, items = _History(spelling.origin).of(messages)
    body: Item = {
        "model": spelling.model,
        **({"instructions": instructions} if instructions else {}),
        "input": items,
        "stream": True,
        "store": False,
        **_tools(request, given, spelling),
        **_reasoning(given, spelling),
        **_text_settings(given),
    }
    if spelling.has_cache_key and "prompt_cache_key" not in spelling.without:
        body["prompt_cache_key"] = _cache_key(instructions, items)
    limit = given.get("max_tokens", given.get("max_completion_tokens"))
    if limit is not None:
        body["max_output_tokens"] = limit
    return {**body, **{name: value for name, value in given.items() if name not in _OURS}}


def asks_for_reasoning(options: Mapping[str, Any]) -> bool:
    """Says whether the options of a request set the model's reasoning."""
    return options.get("reasoning") is not None or options.get("reasoning_effort") is not None


def _check_options(given: Mapping[str, Any], model: str) -> None:
    for name in _ONLY_IN_CHAT:
        if name in given:
            raise ProviderError(
                f"asking openai-responses:{model}: the Responses API has no option `{name}`",
                ErrorKind.VALIDATION,
                f"Remove the option, or use openai-chat:{model}.",
            )


def _reasoning(given: Mapping[str, Any], spelling: RequestFormat) -> Item:
    """Returns the reasoning as it was asked for. A summary is asked for where the model can write one."""
    wanted = dict(given["reasoning"]) if isinstance(given.get("reasoning"), Mapping) else {}
    if "reasoning_effort" in given:
        wanted["effort"] = given["reasoning_effort"]
    if not spelling.reasons and not wanted:
        return {}
    if "summary" not in wanted and "summary" not in spelling.without and wanted.get("effort") != "none":
        wanted["summary"] = "auto"
    found: Item = {"reasoning": wanted} if wanted else {}
    if "include" not in spelling.without and "include" not in given:
        found["include"] = ["reasoning.encrypted_content"]
    return found


def _text_settings(given: Mapping[str, Any]) -> Item:
    settings = dict(given["text"]) if isinstance(given.get("text"), Mapping) else {}
    shape = given.get("response_format")
    if isinstance(shape, Mapping):
        inner = shape.get("json_schema")
        settings["format"] = {"type": shape.get("type"), **(inner if isinstance(inner, Mapping) else {})}
    if "verbosity" in given:
        settings["verbosity"] = given["verbosity"]
    return {"text": settings} if settings else {}


def _tools(request: ModelRequest, given: Mapping[str, Any], spelling: RequestFormat) -> Item:
    strict = spelling.strict and "strict" not in spelling.without
    definitions = request.definitions("openai-strict" if strict else "openai")
    tools = [{"type": "function", "strict": False, **one["function"]} for one in definitions]
    tools += list(given.get("tools", ()))
    if not tools:
        return {}
    found: Item = {"tools": tools}
    choice = given.get("tool_choice")
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):  # as in Chat Completions
        choice = choice["function"].get("name")
    if choice is not None:
        named = isinstance(choice, str) and choice not in _CHOICES
        found["tool_choice"] = {"type": "function", "name": choice} if named else choice
    parallel = given.get("parallel_tool_calls")
    if parallel is not None and "parallel_tool_calls" not in spelling.without:
        found["parallel_tool_calls"] = parallel
    return found


def _cache_key(instructions: str, items: Sequence[Item]) -> str:
    """Returns the same key for every turn of a conversation, so that its requests reach the same cache."""
    first = next((str(item["content"]) for item in items if item.get("role") == "user"), "")
    start = f"{instructions}\n{first}".encode(errors="replace")
    return f"forge-{sha256(start).hexdigest()[:32]}"


class _History:
    """Writes the history as items: every call is answered, and every answer follows its call."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._items: list[Item] = []
        self._instructions: list[str] = []
        self._open: dict[str, list[str]] = {}  # id in the history -> ids sent for it and not yet answered
        self._used: set[str] = set()

    def of(self, messages: Sequence[Message]) -> tuple[str, list[Item]]:
        """Returns the instructions, which are the system messages at the beginning, and the items."""
        for message in messages:
            if message.role == "tool" and self._open.get(message.call_id):
                self._add_result(message)
                continue
            self._end_results()
            if message.role == "assistant":
                self._items += self._write_answer(message)
            elif message.role == "tool":
                late = f"The result of an earlier call:\n{message.text}"
                self._items.append(_said("user", _content(late, message.attachments)))
            elif message.role == "system" and not self._items:
                self._instructions.append(message.text)
            else:
                role = "developer" if message.role == "system" else "user"
                self._items.append(_said(role, _content(message.text, message.attachments)))
        self._end_results()
        return "\n\n".join(text for text in self._instructions if text.strip()), self._items

    def _write_answer(self, message: Message) -> list[Item]:
        """Returns the answer with its own items in their places, or after them if the answer was changed since."""
        calls = [self._write_call(call) for call in message.tool_calls]
        saved = message.extra.get(EXTRA_KEY)
        entries: Sequence[Mapping[str, Any]] = ()
        if isinstance(saved, Mapping) and saved.get("from") == self._origin:
            entries = saved["items"]
        length = sum(entry["length"] for entry in entries if entry["type"] == "message")
        if length != len(message.text) or sum(entry["type"] == "function_call" for entry in entries) != len(calls):
            others = [dict(entry) for entry in entries if entry["type"] not in ("message", "function_call")]
            entries = ()
            spoken = [_said("assistant", message.text)] if message.text else []
            return _without_loose_reasoning([*others, *spoken, *calls])
        items: list[Item] = []
        at, left = 0, iter(calls)
        for entry in entries:
            if entry["type"] == "message":
                piece, at = message.text[at : at + entry["length"]], at + entry["length"]
                items += [{**_said("assistant", piece), **entry.get("more", {})}] if piece else []
            else:
                items.append(next(left) if entry["type"] == "function_call" else dict(entry))
        return _without_loose_reasoning(items)

    def _write_call(self, call: ToolCall) -> Item:
        id = fit_id(call.id)
        while id in self._used:
            id = fit_id(f"{id} again")
        self._used.add(id)
        self._open.setdefault(call.id, []).append(id)
        arguments = write_arguments(call.arguments)
        return {"type": "function_call", "call_id": id, "name": fit_name(call.name), "arguments": arguments}

    def _add_result(self, message: Message) -> None:
        id = self._open[message.call_id].pop(0)
        output = _content(message.text, message.attachments)
        self._items.append({"type": "function_call_output", "call_id": id, "output": output})

    def _end_results(self) -> None:
        """Adds missing results: a server would always refuse a history with an unanswered call."""
        for id in [id for ids in self._open.values() for id in ids]:
            lost = "No result of this call was recorded."
            self._items.append({"type": "function_call_output", "call_id": id, "output": lost})
        self._open = {}


def _without_loose_reasoning(items: list[Item]) -> list[Item]:
    """Removes reasoning at the end: the API wants the item that came after it."""
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _said(role: str, content: str | list[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _content(text: str, attachments: Sequence[Attachment]) -> str | list[Item]:
    if not attachments:
        return text
    images, others = split_images(attachments)
    parts = [_text(text)] if text else []
    return [*parts, *map(_image, images), *map(_file, others)]


def _text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _image(attachment: Attachment) -> Item:
    return {"type": "input_image", "detail": "auto", "image_url": data_url(attachment)}


def _file(attachment: Attachment) -> Item:
    if attachment.data and media_type_of(attachment) == "application/pdf":
        name = attachment.name or "document.pdf"
        return {"type": "input_file", "filename": name, "file_data": data_url(attachment)}
    return _text(describe_attachment(attachment))
