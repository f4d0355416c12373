"""Chat Completions of OpenAI and compatible servers: the model, its request, its streamed answer."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple, Unpack

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import plain
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.http.events import Delta, SentEvent, StreamedAnswer, count_of, read_json
from forge.models.http.model import Exchange, call_ids
from forge.models.http.outgoing import PromptTooLong
from forge.models.openai_base import (
    BASE_URL,
    SCHEMA_REFUSED,
    OpenAIServer,
    ServerSettings,
    endpoint_url,
    find_named,
    is_output,
)
from forge.models.server_tools import text_for_others
from forge.models.turns import describe_file, media_type_of

__all__ = ["BASE_URL", "OpenAI", "endpoint_url"]

_REFUSED_FEATURES = {  # optional features, and how a server says that it does not know them
    "stream_options": r"stream_options|include_usage",
    "parallel_tool_calls": r"parallel_tool_calls",
    "response_format": SCHEMA_REFUSED,
    "strict": r"\bstrict\b|invalid schema for (?:function|tool)",
    "max_tokens": r"(?s)(?=.*(?:unsupported|unknown|unrecognized|unexpected|extra|not (?:supported|permitted|allowed)))"
    r".*\bmax_(?:completion_)?tokens",
}
_REASONING_REFUSED = re.compile(r"(?is)(?=.*\btools?\b).*reasoning_effort")  # reasoning together with tools


class OpenAI(OpenAIServer):
    """A model behind `{base_url}/chat/completions`.

    Without a base URL, `OPENAI_BASE_URL` and `OPENAI_API_KEY` of the environment count; with one, only `api_key` is
    sent there. Optional features that a server refuses (usage, strict schemas …) are left out from then on.

    Args:
        model: the model's name.
        short_ids: give calls short ids, which some servers require.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        strict: ask for strict schemas.
        label: the name of the provider in messages.
        key_variable: the environment variable to name where the key is refused.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.

    Example:
        >>> agent = Agent(OpenAI("qwen3", base_url="http://127.0.0.1:11434/v1"))
    """

    _path = "/chat/completions"
    _takes = "PNG, JPEG, GIF and WebP images and their addresses, WAV and MP3 audio, PDF documents and text"

    def _write_file(self, attachment: Attachment) -> Wire | None:
        return write_file(attachment)

    def __init__(self, model: str, *, short_ids: bool = False, **settings: Unpack[ServerSettings]) -> None:
        super().__init__(model, "openai", settings)
        self._spelling = ChatFormat(
            model,
            origin=f"{self._host}/{model}",
            strict=settings.get("strict", True),
            short_ids=short_ids,
            max_tokens="max_completion_tokens" if self._host == "api.openai.com" else "max_tokens",
        )

    def _write(self, request: ModelRequest, spelling: ChatFormat) -> Exchange:
        answer = ChatReader(spelling.origin, call_ids(request), self._error)
        return Exchange(request_body(request, spelling), answer, spelling)

    def _find_refused(self, error: ProviderError, body: Mapping[str, Any], options: Mapping[str, Any]) -> str | None:
        if error.status not in (400, 422) or isinstance(error, PromptTooLong):
            return None
        sent = set(body)
        if not is_output((body.get("response_format") or {}).get("json_schema")):
            sent -= {"response_format"}
        sent |= {"strict"} if "tools" in body else set()
        sent |= {"max_tokens"} if "max_completion_tokens" in body else set()
        return find_named(error, sent, _REFUSED_FEATURES)

    async def _explain(self, error: ProviderError) -> ProviderError:
        if error.status in (400, 422) and _REASONING_REFUSED.search(error.message):  # never switched off silently
            error.suggestion = (
                f"Use openai-responses:{self.model}, which reasons with tools, or switch reasoning off with the option"
                " reasoning_effort: none."
            )
        return await super()._explain(error)


# --- Writes a request for Chat Completions: options, tools, and the history as a list of messages.


Wire = dict[str, Any]

EXTRA_KEY = "openai"
"""Where `Message.extra` keeps what only its server understands: `{from, fields, calls}`."""

_OURS = ("messages", "model", "stream", "timeout", "tool_choice", "parallel_tool_calls", "max_tokens")
_CHOICES = ("auto", "none", "required")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Describes the features of a server and a model."""

    model: str
    origin: str  # only answers of this origin are sent back with their extra fields
    strict: bool = True
    short_ids: bool = False  # nine letters and digits
    max_tokens: str = "max_tokens"
    without: frozenset[str] = frozenset()  # features it refused


def request_body(request: ModelRequest, spelling: ChatFormat) -> Wire:
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


def _tools(request: ModelRequest, given: Mapping[str, Any], more: Sequence[Any], spelling: ChatFormat) -> Wire:
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

    def __init__(self, spelling: ChatFormat) -> None:
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
                content = _content(message.text, message.attachments, in_prompt=True)
                self._wire.append({"role": message.role, "content": content})
        self._end_results()
        return self._wire

    def _add_answer(self, message: Message) -> None:
        text = text_for_others(message)
        if not text and not message.tool_calls:
            return
        wire: Wire = {"role": "assistant", "content": text or None}
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
        text = "\n".join([message.text, *map(describe_file, others)]) if others else message.text
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


def _content(text: str, attachments: Sequence[Attachment], *, in_prompt: bool = False) -> str | list[Wire]:
    if not attachments:
        return text
    files = [write_file(one) or _text(describe_file(one, in_prompt=in_prompt)) for one in attachments]
    return [*([_text(text)] if text else []), *files]


def split_images(attachments: Sequence[Attachment]) -> tuple[list[Attachment], list[Attachment]]:
    """Returns the images that can be shown, and the other attachments."""
    images = [one for one in attachments if one.data and media_type_of(one) in _IMAGES]
    return images, [one for one in attachments if one not in images]


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(attachment: Attachment) -> Wire:
    return {"type": "image_url", "image_url": {"url": data_url(attachment)}}


def write_file(attachment: Attachment) -> Wire | None:
    """Returns the part for a file; None for one that the API has no form for."""
    kind = media_type_of(attachment)
    if attachment.url:
        is_image = kind.startswith("image/")
        return {"type": "image_url", "image_url": {"url": attachment.url}} if is_image else None
    if attachment.data and kind in _IMAGES:
        return _image(attachment)
    if attachment.data and kind == "application/pdf":
        name = attachment.name or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": data_url(attachment)}}
    if attachment.data and kind in _SOUNDS:
        sound = {"data": b64encode(attachment.data).decode(), "format": _SOUNDS[kind]}
        return {"type": "input_audio", "input_audio": sound}
    return None


def data_url(attachment: Attachment) -> str:
    """Returns the attachment as a `data:` URL."""
    return f"data:{media_type_of(attachment)};base64,{b64encode(attachment.data).decode()}"


# --- Assembles the pieces of a streamed Chat Completions answer, in the forms of many servers.


_REASONING = ("reasoning_content", "reasoning")
_PIECE = ("index", "id", "type", "function")
_TEXT_ALONE = {"content", "role"}
_CUT = {"length", "max_tokens", "model_length"}
_REFUSED = {"content_filter", "refusal", "safety"}


class ChatReader(StreamedAnswer):
    """Assembles an answer."""

    def _prepare(self) -> None:
        self._text: list[str] = []
        self._half = ""  # of a character that came in two
        self._calls = _Calls()
        self._reason = ""
        self._refused = False
        self._usage = Usage()
        self._fields: dict[str, Any] = {}

    def take(self, event: SentEvent) -> list[Delta]:
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
        count_of(found.get("prompt_tokens")),
        count_of(found.get("completion_tokens")),
        count_of(cached),
        reasoning=count_of(spent.get("reasoning_tokens")) if isinstance(spent, Mapping) else 0,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
