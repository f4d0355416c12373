"""Writes a request for Bedrock's Converse API: options, tools, and the history as alternating turns of blocks."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.anthropic.request import read_thinking
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_saved

EXTRA_KEY = "bedrock"
"""Where `Message.extra` keeps what only this API understands: `{from, entries}`, such as signed reasoning."""

_CACHE_POINT: Block = {"cachePoint": {"type": "default"}}
_OURS = ("timeout", "tools", "tool_choice", "parallel_tool_calls", "thinking", "reasoning_effort", "response_format")
_SETTINGS = {"max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP", "stop": "stopSequences"}
_TOP_LEVEL = (
    *("guardrailConfig", "performanceConfig", "requestMetadata", "promptVariables", "serviceTier", "outputConfig"),
    *("additionalModelRequestFields", "additionalModelResponseFieldPaths"),
)
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576}  # tokens
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
_WITHOUT_CACHE = re.compile(r"claude-(?:v2|instant|3-(?:sonnet|haiku|opus)|3-5-sonnet-20240620)")
_WITHOUT_TOOLS = re.compile(
    r"amazon\.titan|ai21\.j2|cohere\.command-(?:text|light)|meta\.llama(?:2|3-(?:8b|70b))|deepseek\.r1"
    r"|mistral\.(?:mistral-7b|mixtral)|anthropic\.claude-(?:v2|instant)"
)
_BLIND = re.compile(
    r"amazon\.(?:titan|nova-micro)|ai21\.|cohere\.|deepseek\.|openai\.gpt-oss|meta\.llama(?:2|3-[0138]|3-70b)"
    r"|mistral\.(?:mistral|mixtral)|anthropic\.claude-(?:v2|instant|3-5-haiku)"
)


class BedrockModel:
    """The abilities of a model, as its id tells them; an unknown id stands for a model that only lacks caching."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.is_claude = "anthropic.claude" in id
        self.is_nova = "amazon.nova" in id
        self.calls_tools = _WITHOUT_TOOLS.search(id) is None
        self.sees_images = _BLIND.search(id) is None
        self.caches = self.is_nova or (self.is_claude and _WITHOUT_CACHE.search(id) is None)
        self.caches_tools = self.caches and not self.is_nova


def request_body(
    request: ModelRequest, *, model: BedrockModel, thinking: Any = None, origin: str = ""
) -> dict[str, Any]:
    """Returns the body to post. Raises `ProviderError` for something that the model does not do."""
    options = {name: value for name, value in request.options.items() if value is not None}
    _check_images(request, model)
    fields = _reasoning_fields(options, thinking, model)
    turns, spelling = _write_turns(request, model, origin, thinks=bool(fields))
    if "thinking" in fields and (_is_forced(options) or _began_without_thinking(turns)):
        fields = {}  # the model does not think before a forced call, nor begin to think in the middle of a turn
        turns, spelling = _write_turns(request, model, origin, thinks=False)
    messages = [_complete_turn(turn) for turn in turns.finish()]
    system: list[Block] = [{"text": text} for text in turns.system]
    if model.caches:
        system += [_CACHE_POINT] if system else []
        for turn in [turn for turn in messages if turn["role"] == "user"][-2:]:
            turn["content"].append(_CACHE_POINT)
    extra = {name: value for name, value in options.items() if name not in (*_OURS, *_SETTINGS, *_TOP_LEVEL, "seed")}
    fields = {**extra, **fields, **(options.get("additionalModelRequestFields") or {})}
    return {
        "messages": messages,
        **({"system": system} if system else {}),
        **_settings(options, fields),
        **_tools(request, options, model, spelling.names),
        **_response_format(options.get("response_format")),
        **{name: options[name] for name in _TOP_LEVEL if name in options},
        **({"additionalModelRequestFields": fields} if fields else {}),
    }


class BedrockSpelling:
    """Writes content blocks. Reasoning goes back only where the model signed it and is asked to think."""

    assistant, content = "assistant", "content"

    def __init__(self, origin: str, *, thinks: bool, sees_images: bool = True) -> None:
        self._origin, self._thinks, self._sees_images = origin, thinks, sees_images
        self.names: set[str] = set()  # of the calls in the history
        self._documents = 0

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        entries: Sequence[Mapping[str, Any]] = read_saved(message, EXTRA_KEY, self._origin).get("entries", ())
        return [one for one in entries if self._thinks or "reasoningContent" not in one.get("part", ())]

    def ends_answer(self, block: Block) -> bool:
        return "reasoningContent" not in block

    def text_block(self, text: str) -> Block:
        return {"text": text}

    def file_block(self, attachment: Attachment) -> Block:
        kind = media_type_of(attachment)
        source = {"bytes": b64encode(attachment.data).decode()}
        if attachment.data and kind in _IMAGES and self._sees_images:
            return {"image": {"format": _IMAGES[kind], "source": source}}
        if attachment.data and kind in _DOCUMENTS:
            self._documents += 1  # no two documents of a request may have the same name
            name = re.sub(r"[^A-Za-z0-9 ()\[\]-]|(?<= ) ", "-", attachment.name.rpartition(".")[0])[:100].strip()
            return {
                "document": {
                    "format": _DOCUMENTS[kind],
                    "name": f"{name or 'document'} {self._documents}",
                    "source": source,
                }
            }
        return {"text": describe_file(attachment)}

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        self.names.add(name)
        return {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        text = sendable(message.text) if message.text.strip() else "(no output)"
        content = [{"text": text}, *map(self.file_block, message.attachments)]
        status = "error" if message.is_error else "success"
        return {"toolResult": {"toolUseId": id, "content": content, "status": status}}, []


def _write_turns(
    request: ModelRequest, model: BedrockModel, origin: str, *, thinks: bool
) -> tuple[Turns, BedrockSpelling]:
    spelling = BedrockSpelling(origin, thinks=thinks, sees_images=model.sees_images)
    turns = Turns(spelling)
    for message in request.messages:
        turns.add(message)
    return turns, spelling


def _check_images(request: ModelRequest, model: BedrockModel) -> None:
    """Refuses an image in a prompt of a model that sees none. An image in a result becomes a note."""
    prompts = [message for message in request.messages if message.role == "user"]
    if not model.sees_images and any(media_type_of(one) in _IMAGES for m in prompts for one in m.attachments):
        words = f"asking bedrock:{model.id}: the model cannot see images"
        raise ProviderError(words, ErrorKind.VALIDATION, "Leave out the image, or choose a model that sees images.")


def _complete_turn(turn: Block) -> Block:
    """Adds the text that the API wants beside a document."""
    kinds = {kind for block in turn["content"] for kind in block}
    if "document" in kinds and kinds.isdisjoint(("text", "toolResult")):
        turn["content"].insert(0, {"text": "Read this document."})
    return turn


def _began_without_thinking(turns: Turns) -> bool:
    """Returns True if the turn ends in tool results whose first call came without a thought."""
    first: Block | None = None
    for turn in reversed(turns.finish()):
        if turn["role"] == "assistant":
            first = turn
        elif all("toolResult" not in block for block in turn["content"]):
            break
    return first is not None and "reasoningContent" not in first["content"][0]


def _reasoning_fields(options: Mapping[str, Any], thinking: Any, model: BedrockModel) -> dict[str, Any]:
    """Returns the model's own settings for reasoning. Raises `ProviderError` for a model that has none."""
    wish = options.get("thinking", options.get("reasoning_effort", thinking))
    if wish is None or wish is False or wish in ("none", "off", 0):
        return {}
    if model.is_claude:
        return {"thinking": dict(read_thinking(_BUDGETS.get(wish, wish) if isinstance(wish, str) else wish) or {})}
    if isinstance(wish, Mapping):
        return {"reasoningConfig": dict(wish)}
    if model.is_nova and wish in ("low", "medium", "high"):
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": wish}}
    if "openai." in model.id and isinstance(wish, str):
        return {"reasoning_effort": wish}
    words = f"asking bedrock:{model.id}: it does not think as requested ({str(wish)[:40]})"
    raise ProviderError(words, ErrorKind.VALIDATION, "Leave out `thinking`, or choose a model that thinks.")


def _settings(options: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    found = {spelled: options[name] for name, spelled in _SETTINGS.items() if name in options}
    if isinstance(found.get("stopSequences"), str):
        found["stopSequences"] = [found["stopSequences"]]
    budget = (fields.get("thinking") or {}).get("budget_tokens", 0)
    if budget and found.get("maxTokens", budget + 1) <= budget:
        found["maxTokens"] += budget
    return {"inferenceConfig": found} if found else {}


def _is_forced(options: Mapping[str, Any]) -> bool:
    return options.get("tool_choice") not in (None, "auto", "none")


def _tools(request: ModelRequest, options: Mapping[str, Any], model: BedrockModel, used: set[str]) -> dict[str, Any]:
    tools = [_tool(one) for one in request.definitions("anthropic")] + [*options.get("tools", ())]
    if tools and not model.calls_tools:
        words = f"asking bedrock:{model.id}: the model cannot call tools"
        raise ProviderError(words, ErrorKind.VALIDATION, f"Use text:bedrock:{model.id}, or choose another model.")
    choice = options.get("tool_choice")
    if not tools or choice == "none":  # a history with calls needs definitions, though none is to be called
        known = {one["toolSpec"]["name"] for one in tools if "toolSpec" in one}
        tools += [_tool({"name": name, "input_schema": {"type": "object"}}) for name in sorted(used - known)]
        if not used:
            return {}
        choice = None
    if model.caches_tools:
        tools = [*tools, _CACHE_POINT]
    if choice is None:
        return {"toolConfig": {"tools": tools}}
    if isinstance(choice, Mapping):
        spelled = dict(choice)
    else:
        spelled = {"auto": {"auto": {}}, "required": {"any": {}}}.get(choice, {"tool": {"name": choice}})
    return {"toolConfig": {"tools": tools, "toolChoice": spelled}}


def _tool(definition: Mapping[str, Any]) -> Block:
    described = {"description": definition["description"]} if definition.get("description") else {}
    return {"toolSpec": {"name": definition["name"], **described, "inputSchema": {"json": definition["input_schema"]}}}


def _response_format(wish: Any) -> dict[str, Any]:
    """Reads OpenAI's option for answers in JSON."""
    given = wish.get("json_schema") if isinstance(wish, Mapping) else None
    if not isinstance(given, Mapping) or "schema" not in given:
        return {}
    schema = {"name": str(given.get("name") or "answer"), "schema": json.dumps(given["schema"])}
    return {"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}}
