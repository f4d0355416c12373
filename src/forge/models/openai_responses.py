"""The Responses API of OpenAI and compatible servers: the model, its request, its streamed answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Unpack

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import CONTEXT_EDITS, Finish, Message, ToolCall, Usage, found_tools
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.http.events import Delta, SentEvent, StreamedAnswer, count_of, list_in, object_in, read_json
from forge.models.http.model import Exchange, call_ids
from forge.models.http.outgoing import PromptTooLong
from forge.models.openai_base import SCHEMA_REFUSED, OpenAIServer, ServerSettings, find_named, is_output
from forge.models.openai_chat import (
    add_to_system,
    data_url,
    describe_schema,
    fit_id,
    fit_name,
    split_images,
    write_arguments,
)
from forge.models.server_tools import (
    OPENAI_RESULTS,
    note_calls,
    read_openai_calls,
    spell_for_openai,
    text_for_others,
)
from forge.models.turns import describe_file, media_type_of, read_edits, read_object

THINKING = 300.0  # seconds between two pieces of the answer of a model that reasons

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "summary": r"reasoning\.summary|reasoning summar|\bsummary\b",
    "include": r"encrypted|\binclude\b",
    "parallel_tool_calls": r"parallel_tool_calls",
    "response_format": SCHEMA_REFUSED,
    "prompt_cache_key": r"prompt_cache_key",
    "tool_search": r"tool_search|defer_loading",
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
}
_REASONS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-(?:[5-9]|oss)|codex|computer-use)(?!.*-chat)")
_SEARCHES = re.compile(r"gpt-(?:5\.(?:[4-9]|\d\d)|[6-9])")  # models that load tools in the middle of a conversation


class ResponsesSettings(ServerSettings, total=False):
    """The parameters of `OpenAIResponses`, which describes them."""

    loads_found_tools: bool | None


class OpenAIResponses(OpenAIServer):
    """A model behind `{base_url}/responses`.

    Nothing is stored at the server: the history goes with every request, and reasoning goes back encrypted. Without a
    base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is sent there.
    Optional features that a server refuses (summaries, strict schemas …) are left out from then on. The effort of
    reasoning is never one of them.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        loads_found_tools: send `tool_search` as the API's own tool search, and load a found tool where it was found,
            so that the cached prompt before it stays valid. By default, at OpenAI's own address with models that can.
        label: the name of the provider in messages.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAIResponses("gpt-5.4", api_key="a key"), options={"reasoning_effort": "low"})
    """

    _path = "/responses"
    _takes = "PNG, JPEG, GIF and WebP images, PDF documents and text, and the addresses of images and documents"

    def _write_file(self, attachment: Attachment) -> Item | None:
        return write_file(attachment)

    _settings = ResponsesSettings
    _server_tools = {  # noqa: RUF012 - read only
        "web_search": ("allowed_domains", "user_location", "search_context_size"),
        "code_execution": ("container",),
        "file_search": ("vector_store_ids",),
    }

    def __init__(self, model: str, **settings: Unpack[ResponsesSettings]) -> None:
        super().__init__(model, "openai-responses", settings)
        self._spelling = ResponsesFormat(
            model,
            origin=f"{self._host}/{model}",
            strict=settings.get("strict", True),
            reasons=_REASONS.match(model) is not None,
            has_cache_key=self._host == "api.openai.com",
            searches=self._can_search(settings.get("loads_found_tools")),
        )

    def _can_search(self, wanted: bool | None) -> bool:
        return self._host == "api.openai.com" and _SEARCHES.match(self.model) is not None if wanted is None else wanted

    @property
    def loads_found_tools(self) -> bool:
        """True if a found tool is loaded where it was found; False once the server refused that."""
        return self._spelling.searches and "tool_search" not in self._spelling.without

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether the server is known to hold an answer to a schema, as one with strict schemas does."""
        is_refused = "response_format" in self._spelling.without
        return not is_refused and (self._spelling.strict or super().takes_schema(schema, with_tools=with_tools))

    def _silence(self, timeout: float, options: Mapping[str, Any]) -> float:
        thinks = self._spelling.reasons or asks_for_reasoning(options)
        return THINKING if thinks and not self._is_local else super()._silence(timeout, options)

    def _write(self, request: ModelRequest, spelling: ResponsesFormat) -> Exchange:
        answer = ResponsesReader(spelling.origin, call_ids(request), self._error, request.search)
        return Exchange(request_body(request, spelling), answer, spelling)

    def _find_refused(self, error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
        """Returns the optional feature that the server refuses. A feature that the options ask for is not optional."""
        if error.status not in (400, 403, 422) or isinstance(error, PromptTooLong):
            return None
        wanted = options.get("reasoning")
        sent = {name for name in ("include", "prompt_cache_key") if name in body} - options.keys()
        sent |= {"parallel_tool_calls"} & body.keys()
        sent |= {"strict"} if "tools" in body else set()
        sent |= {"tool_search"} if any(one.get("execution") == "client" for one in body.get("tools", ())) else set()
        sent |= {"response_format"} if is_output(body.get("text", {}).get("format")) else set()
        if "summary" in body.get("reasoning", {}) and not (isinstance(wanted, Mapping) and "summary" in wanted):
            sent.add("summary")
        return find_named(error, sent, _REFUSED_FEATURES)


# --- Writes a request for the Responses API: options, tools, and the history as a list of items.


Item = dict[str, Any]

EXTRA_KEY = "openai-responses"
"""Where `Message.extra` keeps what only this API understands: `{from, items}`."""

_OURS = (
    *("input", "model", "stream", "timeout", "tool_choice", "parallel_tool_calls", "max_tokens", "tools"),
    *("max_completion_tokens", "reasoning", "reasoning_effort", "response_format", "text", "verbosity"),
    "context_management",
)
_ONLY_IN_CHAT = ("stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "n", "stream_options")
_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ResponsesFormat:
    """Describes the features of a server and a model."""

    model: str
    origin: str  # only answers of this origin are sent back with their own items
    strict: bool = True
    reasons: bool = False  # ask for summaries and for reasoning that can be sent back
    has_cache_key: bool = False
    searches: bool = False  # has a tool search of its own, which loads tools where they are found
    without: frozenset[str] = frozenset()  # features it refused


def request_body(request: ModelRequest, spelling: ResponsesFormat) -> Item:
    """Returns the body to post. Raises `ProviderError` for an option that the API does not have."""
    given = {name: value for name, value in request.options.items() if value is not None}
    _check_options(given, spelling.model)
    messages = request.messages
    if "response_format" in spelling.without and (told := describe_schema(given.get("response_format"))):
        messages = add_to_system(messages, told)
        given = {name: value for name, value in given.items() if name != "response_format"}
    definitions = _definitions(request, spelling)
    searches = spelling.searches and "tool_search" not in spelling.without
    searches = searches and any(one["name"] == request.search for one in definitions)
    history = _History(spelling.origin, request.search if searches else "", _take_found(request, definitions))
    instructions, items = history.of(messages)
    body: Item = {
        "model": spelling.model,
        **({"instructions": instructions} if instructions else {}),
        "input": items,
        "stream": True,
        "store": False,
        **_tools([*history.write_tools(definitions), *spell_for_openai(request)], given, spelling),
        **_with_results(_reasoning(given, spelling), request, given),
        **_text_settings(given),
        **_write_edits(given.get("context_management"), spelling.model),
    }
    if spelling.has_cache_key and "prompt_cache_key" not in spelling.without:
        body["prompt_cache_key"] = _cache_key(instructions, items)
    limit = given.get("max_tokens", given.get("max_completion_tokens"))
    if limit is not None:
        body["max_output_tokens"] = limit
    return {**body, **{name: value for name, value in given.items() if name not in _OURS}}


def asks_for_reasoning(options: Mapping[str, Any]) -> bool:
    """Returns whether the options of a request set the model's reasoning."""
    return options.get("reasoning") is not None or options.get("reasoning_effort") is not None


def _check_options(given: Mapping[str, Any], model: str) -> None:
    for name in _ONLY_IN_CHAT:
        if name in given:
            raise ProviderError(
                f"asking openai-responses:{model}: the Responses API has no option `{name}`",
                ErrorKind.VALIDATION,
                f"Remove the option, or use openai-chat:{model}.",
            )


def _reasoning(given: Mapping[str, Any], spelling: ResponsesFormat) -> Item:
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


def _with_results(body: Item, request: ModelRequest, given: Mapping[str, Any]) -> Item:
    """Asks for the results of the server's own tools, unless the options say what to include."""
    wanted = [OPENAI_RESULTS[tool.kind] for tool in request.server_tools]
    return {**body, "include": [*body.get("include", ()), *wanted]} if wanted and "include" not in given else body


def _write_edits(given: Any, model: str) -> Item:
    """Returns how the provider shortens its prompt: in our words, or its own list as it is."""
    if isinstance(given, list):
        return {"context_management": given} if given else {}
    wanted = read_edits(given, f"openai-responses:{model}", ("compact",))
    return {"context_management": [{"type": "compaction", "compact_threshold": wanted["compact"]}]} if wanted else {}


def _text_settings(given: Mapping[str, Any]) -> Item:
    settings = dict(given["text"]) if isinstance(given.get("text"), Mapping) else {}
    shape = given.get("response_format")
    if isinstance(shape, Mapping):
        inner = shape.get("json_schema")
        settings["format"] = {"type": shape.get("type"), **(inner if isinstance(inner, Mapping) else {})}
    if "verbosity" in given:
        settings["verbosity"] = given["verbosity"]
    return {"text": settings} if settings else {}


def _definitions(request: ModelRequest, spelling: ResponsesFormat) -> list[Item]:
    strict = spelling.strict and "strict" not in spelling.without
    definitions = request.definitions("openai-strict" if strict else "openai")
    return [{"type": "function", "strict": False, **one["function"]} for one in definitions]


def _take_found(request: ModelRequest, definitions: Sequence[Item]) -> dict[str, Item]:
    return {one["name"]: {**one, "defer_loading": True} for one in definitions if one["name"] in request.found}


def _tools(definitions: Sequence[Item], given: Mapping[str, Any], spelling: ResponsesFormat) -> Item:
    tools = [*definitions, *given.get("tools", ())]
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
    """Writes the history as items: every call is answered, and every answer follows its call.

    With `search`, calls of the tool with this name are searches of the API's own kind, whose results load tools.
    """

    def __init__(self, origin: str, search: str = "", found: Mapping[str, Item] | None = None) -> None:
        self._origin = origin
        self._search, self._found = search, found if search and found else {}
        self._searches: set[str] = set()  # ids of open calls that are searches
        self._loaded: set[str] = set()
        self._items: list[Item] = []
        self._instructions: list[str] = []
        self._open: dict[str, list[str]] = {}  # id in the history -> ids sent for it and not yet answered
        self._used: set[str] = set()
        self._later: list[Item] = []  # behind the results of all calls

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
                self._items.append(_said(role, _content(message.text, message.attachments, in_prompt=True)))
        self._end_results()
        self._drop_compacted()
        return "\n\n".join(text for text in self._instructions if text.strip()), self._items

    def _drop_compacted(self) -> None:
        """Leaves out what the server's last summary holds. Tools that were loaded before it go beside the history."""
        last = max((at for at, item in enumerate(self._items) if item["type"] == "compaction"), default=0)
        if last:
            outputs = [item for item in self._items[:last] if item["type"] == "tool_search_output"]
            self._loaded -= {one["name"] for item in outputs for one in item["tools"]}
            del self._items[:last]

    def write_tools(self, definitions: Sequence[Item]) -> list[Item]:
        """Returns the definitions that go beside the history: not those that it loads. It follows `of`."""
        return [self._write_definition(one) for one in definitions if one["name"] not in self._loaded]

    def _write_definition(self, one: Item) -> Item:
        if not self._search or one["name"] != self._search:
            return one
        return {
            "type": "tool_search",
            "execution": "client",
            "description": one.get("description", ""),
            "parameters": one["parameters"],
        }

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
            text = message.text if others else text_for_others(message)
            spoken = [_said("assistant", text)] if text else []
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
        if self._search and call.name == self._search:
            self._searches.add(id)
            given = read_object(call.arguments)
            return {"type": "tool_search_call", "call_id": id, "execution": "client", "arguments": given}
        arguments = write_arguments(call.arguments)
        return {"type": "function_call", "call_id": id, "name": fit_name(call.name), "arguments": arguments}

    def _add_result(self, message: Message) -> None:
        id = self._open[message.call_id].pop(0)
        if id in self._searches:
            self._add_found(id, message)
            return
        output = _content(message.text, message.attachments)
        self._items.append({"type": "function_call_output", "call_id": id, "output": output})

    def _add_found(self, id: str, message: Message) -> None:
        """Loads the tools that a search found; one that loads none is told in words, behind all results."""
        names = [name for name in found_tools(message) if name in self._found and name not in self._loaded]
        self._loaded.update(names)
        self._items.append(_search_output(id, [self._found[name] for name in names]))
        if not names:
            self._later.append(_said("user", f"The result of an earlier call:\n{message.text}"))

    def _end_results(self) -> None:
        """Adds missing results: a server would always refuse a history with an unanswered call."""
        for id in [id for ids in self._open.values() for id in ids]:
            lost = "No result of this call was recorded."
            item = {"type": "function_call_output", "call_id": id, "output": lost}
            self._items.append(_search_output(id, []) if id in self._searches else item)
        self._items += self._later
        self._later = []
        self._open = {}


def _without_loose_reasoning(items: list[Item]) -> list[Item]:
    """Removes reasoning at the end: the API wants the item that came after it."""
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _search_output(id: str, tools: list[Item]) -> Item:
    return {"type": "tool_search_output", "call_id": id, "execution": "client", "status": "completed", "tools": tools}


def _said(role: str, content: str | list[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _content(text: str, attachments: Sequence[Attachment], *, in_prompt: bool = False) -> str | list[Item]:
    if not attachments:
        return text
    files = [write_file(one) or _text(describe_file(one, in_prompt=in_prompt)) for one in attachments]
    return [*([_text(text)] if text else []), *files]


def _text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def write_file(attachment: Attachment) -> Item | None:
    """Returns the part for a file; None for one that the API has no form for."""
    kind = media_type_of(attachment)
    is_image = kind.startswith("image/") if attachment.url else split_images([attachment])[0] != []
    if is_image and (attachment.url or attachment.data):
        return {"type": "input_image", "detail": "auto", "image_url": attachment.url or data_url(attachment)}
    if attachment.url and not kind.startswith("audio/"):
        return {"type": "input_file", "file_url": attachment.url}
    if attachment.data and kind == "application/pdf":
        name = attachment.name or "document.pdf"
        return {"type": "input_file", "filename": name, "file_data": data_url(attachment)}
    return None


# --- Assembles an answer of the Responses API from its streamed events.


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

    @property
    def is_search(self) -> bool:
        """True for a search for tools that we make, not the server."""
        return self.kind == "tool_search_call" and self.data.get("execution") == "client"

    def arguments(self) -> str:
        """Returns the JSON text exactly as received; of a search, which has an object, its JSON."""
        last = self.data.get("arguments")
        if isinstance(last, Mapping):
            return json.dumps(last)
        return last if isinstance(last, str) and last else "".join(self.pieces)


class ResponsesReader(StreamedAnswer):
    """Assembles an answer. `search` is the name of the tool that the API's own searches for tools call."""

    def __init__(self, origin: str, taken: set[str], error: Callable[[Any], ProviderError], search: str = "") -> None:
        super().__init__(origin, taken, error)
        self._search = search

    def _prepare(self) -> None:
        self._items: dict[int, _OutputItem] = {}
        self._text: list[str] = []
        self._is_refused = False
        self._response: Mapping[str, Any] = {}

    def take(self, event: SentEvent) -> list[Delta]:
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
            return self._end(object_in(found, "response"))
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
            elif item.kind == "function_call" or item.is_search:
                if finish != "refused":  # calls cut by a filter must not run
                    entries.append({"type": "function_call"})
                    calls.append(_read_call(item, used, self._search))
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
            extra=_note_compaction(
                note_calls(
                    {} if is_plain else {EXTRA_KEY: {"from": self._origin, "items": entries}},
                    read_openai_calls(entries),
                ),
                entries,
            ),
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
            item.start = object_in(found, "item")
        elif kind == "response.output_item.done":
            return self._complete(item, object_in(found, "item"))
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
        for part in list_in(whole, "content"):
            if isinstance(part, Mapping):
                self._is_refused = self._is_refused or part.get("type") == "refusal"
                texts.append(_as_text(part.get("text") if part.get("type") != "refusal" else part.get("refusal")))
        return self._show(item, sendable("".join(texts))[item.length :])

    def _end(self, response: Mapping[str, Any]) -> list[Delta]:
        self.done, self._response = True, response
        if response.get("status") in ("failed", "cancelled"):
            raise self._error(response.get("error") or {"message": f"the response is {response['status']}"})
        pieces: list[Delta] = []
        for index, whole in enumerate(list_in(response, "output")):
            item = self._items.setdefault(index, _OutputItem())
            if isinstance(whole, Mapping) and item.whole is None:
                pieces += self._complete(item, whole)
        return pieces

    def _in_order(self) -> list[_OutputItem]:
        return [self._items[index] for index in sorted(self._items)]

    def _finish(self) -> Finish:
        details = object_in(self._response, "incomplete_details")
        if self._response.get("status") == "incomplete" and details.get("reason") == "content_filter":
            return "refused"
        if self._response.get("status") == "incomplete":
            return "length"
        return "refused" if self._is_refused else "stop"


def _read_call(item: _OutputItem, used: set[str], search: str) -> ToolCall:
    name, id = search if item.is_search else _as_text(item.data.get("name")), item.data.get("call_id")
    fresh = isinstance(id, str) and id.strip() and id not in used
    return ToolCall(name, item.arguments(), str(id)) if fresh else ToolCall(name, item.arguments())


def _saved_item(item: _OutputItem) -> dict[str, Any]:
    """Returns the item to send back unchanged, if it is complete and can be read without the server's memory."""
    if item.whole is None or not item.kind:
        return {}
    needs_status = item.kind.endswith("_call")  # a call that the server made
    kept = {name: value for name, value in item.whole.items() if value is not None and name != "status"}
    kept |= {"status": item.whole.get("status") or "completed"} if needs_status else {}
    if item.kind == "reasoning":
        return kept if kept.get("encrypted_content") or kept.get("content") else {}
    return kept


def _note_compaction(extra: dict[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a message carries, with a note that the server summarised what came before."""
    summaries = sum(entry["type"] == "compaction" for entry in entries)
    return {**extra, CONTEXT_EDITS: [{"kind": "messages", "count": summaries}]} if summaries else extra


def _usage(found: Any) -> Usage:
    if not isinstance(found, Mapping):
        return Usage()
    before, after = object_in(found, "input_tokens_details"), object_in(found, "output_tokens_details")
    return Usage(
        count_of(found.get("input_tokens")),
        count_of(found.get("output_tokens")),
        count_of(before.get("cached_tokens")),
        count_of(before.get("cache_write_tokens")),
        count_of(after.get("reasoning_tokens")),
    )


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
