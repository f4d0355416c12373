"""Writes a request for Gemini's generateContent: options, tools, and the history as turns of parts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_saved

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
        way = "Ask for little: thinking='low'" + ("." if model.has_levels else ", or a budget of 128 tokens.")
        raise _cannot(model, "its thinking cannot be switched off", way)
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

    def file_block(self, attachment: Attachment) -> Block:
        kind = media_type_of(attachment)
        if attachment.data and (kind in _SEEN or kind.startswith(("audio/", "video/"))):
            return {"inlineData": {"mimeType": kind, "data": b64encode(attachment.data).decode()}}
        return {"text": describe_file(attachment)}

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
        shown = [one for one in beside if "inlineData" in self.file_block(one)]
        notes = [describe_file(one) for one in beside if one not in shown]
        text = sendable("\n".join([message.text, *notes]) if notes else message.text)
        result: Block = {"name": name, "response": {"error" if message.is_error else "output": text}}
        if id in self._given:
            result["id"] = self._given[id]
        if within:
            result["parts"] = [
                self.file_block(one) if "inlineData" in self.file_block(one) else _plain(one) for one in within
            ]
        later = [{"text": f"The files in the result of {name}:"}, *map(self.file_block, shown)] if shown else []
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
