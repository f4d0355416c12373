"""Google's generateContent, at Google AI or on Vertex: the model, its request, its streamed answer."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.http.events import Delta, SentEvent, StreamedAnswer, read_json
from forge.models.http.fetch import suggest_model
from forge.models.http.model import Exchange, HttpModel, call_ids
from forge.models.http.outgoing import KEY_ADVICE, BrokeOff, Sign, add_key_advice
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_saved

BASE_URL = "https://generativelanguage.googleapis.com/v1"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


class Gemini(HttpModel):
    """A model behind `{base_url}/models/MODEL:streamGenerateContent`.

    Without a base URL, `GEMINI_BASE_URL`, `GEMINI_API_KEY` and `GOOGLE_API_KEY` of the environment count; with one,
    only `api_key` is sent, so that a key never goes to a server it was not meant for.

    Args:
        model: the model's name.
        base_url: the address of the server, up to the API's version.
        api_key: the key.
        headers: further headers.
        thinking: a budget in tokens, a level (minimal, low, medium, high), "none", or the API's own object.
        sign: returns the headers that authorise a request, for servers that take tokens instead of a key.
        label: the name of the provider in messages.

    Example:
        >>> agent = Agent(Gemini("gemini-3-pro", api_key="a key", thinking="low"))
    """

    _takes = "PNG, JPEG, WebP and HEIC images, audio, video, PDF documents, text, and addresses"

    def _write_file(self, attachment: Attachment) -> Block | None:
        return GeminiSpelling(GeminiModel(self.model), "").file_block(attachment)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        thinking: Thinking | None = None,
        sign: Sign | None = None,
        label: str = "gemini",
    ) -> None:
        environment: Mapping[str, str] = os.environ if base_url is None else {}
        variable = next((name for name in KEYS if environment.get(name, "").strip()), KEYS[0])
        key = (api_key or environment.get(variable, "")).strip()
        self.model, self.thinking, self.label = model, thinking, label
        self.base_url = (base_url or environment.get("GEMINI_BASE_URL", "").strip() or BASE_URL).rstrip("/")
        self._key_variable = "" if api_key or sign else variable
        self._headers = {**({"x-goog-api-key": key} if key else {}), **(headers or {})}
        self._sign = sign
        if self.base_url == BASE_URL and not self._headers and sign is None:
            message = f"asking {label}:{model}: there is no API key"
            raise ProviderError(message, ErrorKind.CONFIG, f"Set {KEYS[0]}, or choose another model with --model.")
        path = model if "/" in model else f"models/{model}"
        self._url = f"{self.base_url}/{quote(path, safe='/')}:streamGenerateContent?alt=sse"
        self._abilities = GeminiModel(model)
        self._origin = f"{label}/{model}"

    def __repr__(self) -> str:
        return f"<Gemini {self.label}:{self.model}>"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether the model holds an answer to a schema; older ones do so only without tools."""
        return self._abilities.has_levels if with_tools else self._abilities.thinks

    def _begin(self, request: ModelRequest) -> Exchange:
        body = request_body(request, model=self._abilities, thinking=self.thinking, origin=self._origin)
        action = f"asking {self.label}:{self.model}"
        return Exchange(body, GeminiReader(self._origin, call_ids(request), self._error, action))

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Adds what a person can do: Google answers a wrong key with a status for wrong requests."""
        if error.status == 400 and "api key" in error.message.lower():
            error.kind, error.suggestion = ErrorKind.CONFIG, KEY_ADVICE
        if error.status == 404 and self._sign is None:
            await suggest_model(error, f"{self.base_url}/models?pageSize=1000", self._headers, self.model)
        return add_key_advice(error, self._key_variable, sent="x-goog-api-key" in self._headers)


# --- Writes a request for Gemini's generateContent: options, tools, and the history as turns of parts.


EXTRA_KEY = "gemini"
"""Where `Message.extra` keeps what only this API understands: `{from, entries}`, such as thought signatures."""

Thinking = int | str | bool | Mapping[str, Any]

# where a call of another model has no signature, this one says so; Gemini 3 refuses a call without any
_NO_SIGNATURE = "skip_thought_signature_validator"
_TOP_LEVEL = ("safetySettings", "cachedContent", "labels", "toolConfig", "serviceTier")
_NAMES = {"max_tokens": "maxOutputTokens", "max_completion_tokens": "maxOutputTokens", "stop": "stopSequences"}
_OURS = ("timeout", "tools", "tool_choice", "parallel_tool_calls", "thinking", "reasoning_effort", "response_format")
_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_LEVELS = ("minimal", "low", "medium", "high")
_BUDGETS = {
    "none": 0,
    "minimal": 512,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
}  # tokens, where levels are unknown
_SEEN = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf")
_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")


class GeminiModel:
    """The abilities of a model, as its name tells them; an unknown name is taken for a new model."""

    def __init__(self, name: str) -> None:
        self.name = name
        family = re.match(r"(?:models/)?gemini-(\d+)(?:\.(\d+))?", name)
        version = (int(family[1]), int(family[2] or 0)) if family else (99, 0)
        special = re.search(r"image|tts|audio|live|embedding|computer-use", name) is not None
        is_gemma = "gemma" in name
        self.thinks = not special and not is_gemma and version >= (2, 5)
        self.has_levels = self.thinks and version >= (3, 0)
        self.always_thinks = self.has_levels or (self.thinks and "pro" in name)
        self.files_in_results = not is_gemma and version >= (3, 0)
        self.needs_signatures = self.has_levels


def request_body(
    request: ModelRequest, *, model: GeminiModel, thinking: Thinking | None = None, origin: str = ""
) -> dict[str, Any]:
    """Returns the body to post. Raises `ProviderError` for an option that the model does not have."""
    options = {name: value for name, value in request.options.items() if value is not None}
    turns = Turns(GeminiSpelling(model, origin))
    for message in request.messages:
        turns.add(message)
    contents = turns.finish()
    named = {_NAMES.get(name) or _camel(name): value for name, value in options.items() if name not in _OURS}
    body: dict[str, Any] = {
        **({"systemInstruction": {"parts": [{"text": text} for text in turns.system]}} if turns.system else {}),
        "contents": contents,
        **_tools(request, options),
        **{name: value for name, value in named.items() if name in _TOP_LEVEL},
    }
    settings = {name: value for name, value in named.items() if name not in (*_TOP_LEVEL, "generationConfig")}
    if isinstance(settings.get("stopSequences"), str):
        settings["stopSequences"] = [settings["stopSequences"]]
    settings |= _response_format(options.get("response_format"))
    if thoughts := thinking_config(options, thinking, model):
        settings["thinkingConfig"] = thoughts
    settings |= options.get("generationConfig") or {}
    return {**body, "generationConfig": settings} if settings else body


def thinking_config(options: Mapping[str, Any], thinking: Thinking | None, model: GeminiModel) -> dict[str, Any]:
    """Returns the settings of the thoughts. Raises `ProviderError` if the model cannot think as requested."""
    wish: Any = options.get("thinking", options.get("reasoning_effort", thinking))
    if isinstance(wish, Mapping):
        return {_camel(name): value for name, value in wish.items()}
    if wish is None:
        return {"includeThoughts": True} if model.thinks else {}
    wish = (-1 if wish else "none") if isinstance(wish, bool) else wish
    is_off = wish in (0, "none", "off")
    if not model.thinks:
        if is_off:
            return {}
        raise _cannot(model, "it does not think", "Leave out `thinking`, or choose a model that thinks.")
    if is_off and model.always_thinks:
        hint = "Ask for little: thinking='low'" + ("." if model.has_levels else ", or a budget of 128 tokens.")
        raise _cannot(model, "its thinking cannot be switched off", hint)
    if isinstance(wish, str) and not is_off and wish not in _LEVELS:
        raise _cannot(model, f"{wish[:40]!r} is no level of thinking", f"Use one of {', '.join(_LEVELS)}, or a number.")
    if isinstance(wish, str) and model.has_levels:
        return {"includeThoughts": True, "thinkingLevel": wish}
    budget = 0 if is_off else _BUDGETS[wish] if isinstance(wish, str) else int(wish)
    return {"thinkingBudget": budget, **({} if is_off else {"includeThoughts": True})}


class GeminiSpelling:
    """Writes parts. Files in results are a part of the result for models that see them there."""

    assistant, content = "model", "parts"

    def __init__(self, model: GeminiModel, origin: str) -> None:
        self._origin, self._model = origin, model
        self._given: dict[str, str] = {}  # ids that the API gave to calls, by the ids that are unique here

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        entries: Sequence[Mapping[str, Any]] = read_saved(message, EXTRA_KEY, self._origin).get("entries", ())
        return entries

    def ends_answer(self, block: Block) -> bool:
        return True

    def text_block(self, text: str) -> Block:
        return {"text": text}

    def file_block(self, attachment: Attachment) -> Block | None:
        kind = media_type_of(attachment)
        if attachment.url:
            return {"fileData": {"fileUri": attachment.url, **({} if kind.endswith("*") else {"mimeType": kind})}}
        if attachment.data and (kind in _SEEN or kind.startswith(("audio/", "video/"))):
            return {"inlineData": {"mimeType": kind, "data": b64encode(attachment.data).decode()}}
        return None

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        call: Block = {"name": name, "args": arguments}
        if given := saved.get("id"):
            self._given[id] = call["id"] = given
        signature = saved.get("thoughtSignature")
        if not saved and self._model.needs_signatures:
            signature = _NO_SIGNATURE
        return {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        kinds = _IN_RESULTS if self._model.files_in_results else ()
        within = [one for one in message.attachments if one.data and media_type_of(one) in kinds]
        beside = [one for one in message.attachments if one not in within]
        shown = [one for one in beside if self.file_block(one) is not None]
        notes = [describe_file(one) for one in beside if one not in shown]
        text = sendable("\n".join([message.text, *notes]) if notes else message.text)
        result: Block = {"name": name, "response": {"error" if message.is_error else "output": text}}
        if id in self._given:
            result["id"] = self._given[id]
        if within:
            result["parts"] = [self.file_block(one) or _plain(one) for one in within]
        seen = [block for block in map(self.file_block, shown) if block is not None]
        later = [{"text": f"The files in the result of {name}:"}, *seen] if shown else []
        return {"functionResponse": result}, later


def _plain(attachment: Attachment) -> Block:
    return {"inlineData": {"mimeType": "text/plain", "data": b64encode(attachment.data).decode()}}


def _tools(request: ModelRequest, options: Mapping[str, Any]) -> dict[str, Any]:
    declared = request.definitions("gemini")
    tools = [*([{"functionDeclarations": declared}] if declared else []), *options.get("tools", ())]
    if not tools:
        return {}
    choice = options.get("tool_choice")
    if choice is None:
        return {"tools": tools}
    if isinstance(choice, Mapping):
        config = dict(choice)
    elif choice in _CHOICES:
        config = {"mode": _CHOICES[choice]}
    else:
        config = {"mode": "ANY", "allowedFunctionNames": [choice]}
    return {"tools": tools, "toolConfig": {"functionCallingConfig": config}}


def _response_format(wish: Any) -> dict[str, Any]:
    """Reads OpenAI's option for answers in JSON."""
    if not isinstance(wish, Mapping) or wish.get("type") not in ("json_schema", "json_object"):
        return {}
    schema = (wish.get("json_schema") or {}).get("schema")
    return {"responseMimeType": "application/json", **({"responseJsonSchema": schema} if schema else {})}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return "".join([first, *(word.capitalize() for word in rest)])


def _cannot(model: GeminiModel, problem: str, suggestion: str) -> ProviderError:
    return ProviderError(f"asking gemini:{model.name}: {problem}", ErrorKind.VALIDATION, suggestion)


# --- Assembles an answer of Gemini from its streamed responses.


_REFUSED = {
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
_GARBLED = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"}
_NOTHING: dict[str, Any] = {"kind": ""}
_KNOWN = {"text", "thought", "thoughtSignature", "functionCall"}


class GeminiReader(StreamedAnswer):
    """Assembles an answer, which ends with its stream."""

    def _prepare(self) -> None:
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._entries: list[dict[str, Any]] = []  # the parts in their order; see `forge.models.turns`
        self._reason = ""
        self._said = ""  # about the reason
        self._blocked: Mapping[str, Any] = {}
        self._counts: dict[str, Any] = {}

    def take(self, event: SentEvent) -> Sequence[Delta]:
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
            message = f"{self._action}: the model's answer cannot be used: {said}"
            raise BrokeOff(message, ErrorKind.SYSTEM, "Try again, or choose another model with --model.", passing=True)
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
