"""Amazon Bedrock's Converse API: the model, its request, its streamed answer."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Finish, Message, ToolCall, Usage
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, NotSetUp, ProviderError
from forge.core.result import Attachment
from forge.models.anthropic import read_thinking
from forge.models.credentials.aws import AwsSigner, find_region
from forge.models.http.events import Delta, SentEvent, StreamedAnswer, object_in, read_json
from forge.models.http.fetch import suggest_model
from forge.models.http.model import Exchange, HttpModel, call_ids
from forge.models.http.outgoing import KEY_ADVICE, BrokeOff, Sign
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_saved

TOKEN = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the name of a variable
_PREFIXES = {"us-": "us", "eu-": "eu", "ap-": "apac"}


class Bedrock(HttpModel):
    """A model behind Bedrock's `converse-stream`.

    Requests are signed with AWS's usual credentials: the environment, the profile of `~/.aws`, single sign-on, a role,
    or the container's or machine's own. The extra `bedrock` finds them. A token in `AWS_BEARER_TOKEN_BEDROCK` replaces
    them and needs no extra.

    Args:
        model: the id of a model or an inference profile, or its ARN.
        region: such as "eu-central-1"; by default that of the environment or the profile.
        base_url: another address of the service.
        thinking: of Claude, a budget in tokens or the API's own object; otherwise a level (low, medium, high).

    Example:
        >>> agent = Agent(Bedrock("eu.anthropic.claude-sonnet-5", region="eu-central-1"))
    """

    _takes = "PNG, JPEG, GIF and WebP images, PDF, Word, Excel and text documents, as files of the workspace or bytes"

    def _write_file(self, attachment: Attachment) -> Block | None:
        return BedrockSpelling("", thinks=False, hears=BedrockModel(self.model).hears).file_block(attachment)

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        base_url: str | None = None,
        thinking: int | str | Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.label, self.thinking = model, "bedrock", thinking
        self.region = region or find_region()
        if not self.region:
            message = f"asking bedrock:{model}: no AWS region is set"
            raise NotSetUp(message, ErrorKind.CONFIG, "Set AWS_REGION, such as AWS_REGION=us-east-1.")
        named = base_url or os.environ.get("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "").strip()
        self.base_url = (named or f"https://bedrock-runtime.{self.region}.amazonaws.com").rstrip("/")
        self._token = os.environ.get(TOKEN, "").strip()
        self._sign: Sign | None = None if self._token else AwsSigner("bedrock", self.region)
        self._headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        self._abilities = BedrockModel(model)
        self._url = self._make_url("converse-stream")

    def __repr__(self) -> str:
        return f"<Bedrock {self.model}>"

    def _begin(self, request: ModelRequest) -> Exchange:
        body = request_body(request, model=self._abilities, thinking=self.thinking, origin=self.model)
        return Exchange(body, self._make_reader(request))

    def _make_reader(self, request: ModelRequest) -> ConverseReader:
        return ConverseReader(self.model, call_ids(request), self._error, f"asking bedrock:{self.model}")

    async def _recover(self, error: ProviderError, exchange: Exchange, request: ModelRequest) -> Exchange:
        whole = self._make_url("converse")  # some models cannot stream when they have tools
        if self._url == whole or exchange.answer.begun or "streaming mode" not in error.message:
            raise await self._explain(error) from error.__cause__
        self._url = whole
        return Exchange(exchange.body, self._make_reader(request))

    def _make_url(self, method: str) -> str:
        return f"{self.base_url}/model/{quote(self.model, safe='')}/{method}"

    async def _explain(self, error: ProviderError) -> ProviderError:
        """Adds what a person can do about the refusals that are common here."""
        said = error.message.lower()
        if error.suggestion == KEY_ADVICE and "token" in said:
            error.suggestion = f"Renew the credentials: check {TOKEN}." if self._token else "Renew the AWS credentials."
        elif error.suggestion == KEY_ADVICE:
            error.suggestion = (
                f"Enable access to this model for your account in {self.region}, and check the IAM policy."
            )
        elif error.status == 400 and "inference profile" in said:
            prefix = next((known for start, known in _PREFIXES.items() if self.region.startswith(start)), "us")
            error.suggestion = f"Use an inference profile, such as bedrock:{prefix}.{self.model}."
        elif error.status == 404 or "model identifier is invalid" in said:
            error.suggestion = "Check the model's id and the region."
            named = os.environ.get("AWS_ENDPOINT_URL_BEDROCK", "").strip().rstrip("/")
            url = f"{named or f'https://bedrock.{self.region}.amazonaws.com'}/foundation-models"
            headers = self._headers or await AwsSigner("bedrock", self.region)(url, b"", "GET")
            await suggest_model(error, url, headers, self.model)
        return error


# --- Writes a request for Bedrock's Converse API: options, tools, and the history as alternating turns of blocks.


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


_HEARING = re.compile(r"voxtral|nova-(?:2-)?(?:omni|sonic)")
_AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/flac": "flac", "audio/ogg": "ogg"} | {
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
}


class BedrockModel:
    """The abilities of a model, as its id tells them; an unknown id stands for a model that only lacks caching."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.is_claude = "anthropic.claude" in id
        self.is_nova = "amazon.nova" in id
        self.calls_tools = _WITHOUT_TOOLS.search(id) is None
        self.sees_images = _BLIND.search(id) is None
        self.hears = _HEARING.search(id) is not None
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

    def __init__(self, origin: str, *, thinks: bool, sees_images: bool = True, hears: bool = False) -> None:
        self._origin, self._thinks, self._sees_images, self._hears = origin, thinks, sees_images, hears
        self.names: set[str] = set()  # of the calls in the history
        self._documents = 0

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        entries: Sequence[Mapping[str, Any]] = read_saved(message, EXTRA_KEY, self._origin).get("entries", ())
        return [one for one in entries if self._thinks or "reasoningContent" not in one.get("part", ())]

    def ends_answer(self, block: Block) -> bool:
        return "reasoningContent" not in block

    def text_block(self, text: str) -> Block:
        return {"text": text}

    def file_block(self, attachment: Attachment) -> Block | None:
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
        if attachment.data and kind in _AUDIO and self._hears:
            return {"audio": {"format": _AUDIO[kind], "source": source}}
        return None

    def _file_in_result(self, attachment: Attachment) -> Block | None:
        return None if media_type_of(attachment) in _AUDIO else self.file_block(attachment)

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        self.names.add(name)
        return {"toolUse": {"toolUseId": id, "name": name, "input": arguments}}

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        text = sendable(message.text) if message.text.strip() else "(no output)"
        files = [self._file_in_result(one) or {"text": describe_file(one)} for one in message.attachments]
        content = [{"text": text}, *files]
        status = "error" if message.is_error else "success"
        return {"toolResult": {"toolUseId": id, "content": content, "status": status}}, []


def _write_turns(
    request: ModelRequest, model: BedrockModel, origin: str, *, thinks: bool
) -> tuple[Turns, BedrockSpelling]:
    spelling = BedrockSpelling(origin, thinks=thinks, sees_images=model.sees_images, hears=model.hears)
    turns = Turns(spelling)
    for message in request.messages:
        turns.add(message)
    return turns, spelling


def _check_images(request: ModelRequest, model: BedrockModel) -> None:
    """Refuses an image in a prompt of a model that sees none. An image in a result becomes a note."""
    prompts = [message for message in request.messages if message.role == "user"]
    if not model.sees_images and any(media_type_of(one) in _IMAGES for m in prompts for one in m.attachments):
        message = f"asking bedrock:{model.id}: the model cannot see images"
        raise ProviderError(message, ErrorKind.VALIDATION, "Leave out the image, or choose a model that sees images.")


def _complete_turn(turn: Block) -> Block:
    """Adds the text that the API wants beside a document."""
    kinds = {kind for block in turn["content"] for kind in block}
    if "document" in kinds and kinds.isdisjoint(("text", "toolResult")):
        turn["content"].insert(0, {"text": "Read this document."})
    return turn


def _began_without_thinking(turns: Turns) -> bool:
    """Returns whether the turn ends in tool results whose first call came without a thought."""
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
    message = f"asking bedrock:{model.id}: it does not think as requested ({str(wish)[:40]})"
    raise ProviderError(message, ErrorKind.VALIDATION, "Leave out `thinking`, or choose a model that thinks.")


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
        message = f"asking bedrock:{model.id}: the model cannot call tools"
        raise ProviderError(message, ErrorKind.VALIDATION, f"Use text:bedrock:{model.id}, or choose another model.")
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


# --- Assembles an answer of Bedrock's Converse API from its events.


_FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}
_GARBLED = ("malformed_model_output", "malformed_tool_use")


@dataclass(slots=True)
class _Block:
    """A block and the pieces that came for it."""

    kind: str  # text, toolUse, reasoning
    start: Mapping[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    redacted: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ConverseReader(StreamedAnswer):
    """Assembles an answer, which ends with its stream."""

    def _prepare(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._reason = ""
        self._usage = Usage()

    def take(self, event: SentEvent) -> Sequence[Delta]:
        if event.name == "contentBlockDelta":  # almost every event is a piece of text
            try:
                data = from_json(event.data)
                text, block = data["delta"]["text"], self._blocks[data["contentBlockIndex"]]
                if text.isascii() and block.kind == "text":
                    block.pieces.append(text)
                    return (TextDelta(text),) if text else ()
            except (KeyError, TypeError, AttributeError, ValueError):
                pass  # something else, or the first piece of a block
        return [*self._take(event, self._read(event))]

    def _take(self, event: SentEvent, data: dict[str, Any]) -> Iterator[Delta]:
        match event.name:
            case "contentBlockStart":
                self._start(data.get("contentBlockIndex"), object_in(data, "start"))
            case "contentBlockDelta":
                yield from self._grow(data.get("contentBlockIndex"), object_in(data, "delta"))
            case "messageStop":
                self._reason = str(data.get("stopReason") or "end_turn")
            case "metadata":
                self._count(object_in(data, "usage"))
            case "message" if "output" in data:  # a model that does not stream
                yield from self._take_whole(data)

    def message(self) -> Message:
        if not self._reason:
            raise self._error({"message": "the response ended before it was complete"})
        if self._reason in _GARBLED:
            message = f"{self._action}: the model's answer cannot be used ({self._reason})"
            raise BrokeOff(message, ErrorKind.SYSTEM, "Try again, or choose another model with --model.", passing=True)
        finish = _FINISH.get(self._reason)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        for block in blocks:
            if block.kind == "text":
                entries.append({"kind": "text", "length": len(block.text)})
            elif block.kind == "reasoning":
                entries += _save_reasoning(block)
            elif finish != "refused":
                calls.append(self._read_call(block, cut=finish == "length" and block is blocks[-1]))
                entries.append({"kind": "call"})
        extra: dict[str, Any] = {"reason": self._reason} if finish == "refused" else {}
        if finish != "refused" and any(entry["kind"] == "part" for entry in entries):
            extra = {"entries": entries}
        return Message(
            "assistant",
            "".join(block.text for block in blocks if block.kind == "text"),
            tuple(calls),
            finish=finish or ("calls" if calls else "stop"),
            usage=self._usage,
            extra={EXTRA_KEY: {"from": self._origin, **extra}} if extra else {},
        )

    def _read(self, event: SentEvent) -> dict[str, Any]:
        try:
            data = read_json(event.data)
        except (ValueError, RecursionError):
            raise self._error({"message": f"a part of the response cannot be read: {event.data[:80]}"}) from None
        data = data if isinstance(data, dict) else {}
        if event.name == "error":
            raise self._error(data.get("error") or data)
        self.begun = True
        return data

    def _take_whole(self, data: Mapping[str, Any]) -> Iterator[Delta]:
        content = object_in(object_in(data, "output"), "message").get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, Mapping):
                continue
            if call := object_in(block, "toolUse"):
                self._start(index, {"toolUse": call})
                yield from self._grow(index, {"toolUse": {"input": json.dumps(call.get("input") or {})}})
            elif thought := object_in(block, "reasoningContent"):
                yield from self._grow(index, {"reasoningContent": {**thought, **object_in(thought, "reasoningText")}})
            else:
                yield from self._grow(index, block)
        self._count(object_in(data, "usage"))
        self._reason = str(data.get("stopReason") or "end_turn")

    def _start(self, index: Any, start: Mapping[str, Any]) -> None:
        if isinstance(index, int) and (call := object_in(start, "toolUse")):
            self._blocks[index] = _Block("toolUse", call)

    def _grow(self, index: Any, delta: Mapping[str, Any]) -> Iterator[Delta]:
        if not isinstance(index, int):
            return
        if isinstance(text := delta.get("text"), str):
            self._block(index, "text").pieces.append(sendable(text))
            if text:
                yield TextDelta(sendable(text))
        elif call := object_in(delta, "toolUse"):
            block = self._block(index, "toolUse")
            if isinstance(piece := call.get("input"), str) and piece:
                block.pieces.append(sendable(piece))
                name, id = str(block.start.get("name", "")), str(block.start.get("toolUseId", ""))
                yield ToolArgumentsDelta(ToolCall(name, {}, id), sendable(piece))
        elif thought := object_in(delta, "reasoningContent"):
            block = self._block(index, "reasoning")
            for name, pieces in (("signature", block.signature), ("redactedContent", block.redacted)):
                pieces += [given] if isinstance(given := thought.get(name), str) else []
            if isinstance(said := thought.get("text"), str) and said:
                block.pieces.append(sendable(said))
                yield ReasoningDelta(sendable(said))

    def _block(self, index: int, kind: str) -> _Block:
        """Returns the block of an index. Raises for a piece of a call that never began."""
        block = self._blocks.get(index)
        if block is None and kind == "toolUse":
            raise self._error({"message": "the response contains a part of a call that never began"})
        if block is None or block.kind != kind:
            block = self._blocks[index] = _Block(kind)
        return block

    def _read_call(self, block: _Block, *, cut: bool) -> ToolCall:
        id, name = block.start.get("toolUseId"), str(block.start.get("name") or "")
        text = block.text if block.text.strip() or cut else "{}"
        if not isinstance(id, str) or not id or id in self._taken:
            return ToolCall(name, text)
        self._taken.add(id)
        return ToolCall(name, text, id)

    def _count(self, usage: Mapping[str, Any]) -> None:
        names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
        counts = [count if type(count := usage.get(name)) is int and count >= 0 else 0 for name in names]
        fresh, output, cached, written = counts
        self._usage = Usage(fresh + cached + written, output, cached, written)


def _save_reasoning(block: _Block) -> list[dict[str, Any]]:
    """Returns the block to send back unchanged; without a signature, nobody can check it, and it is not sent."""
    if block.redacted:
        part: dict[str, Any] = {"redactedContent": "".join(block.redacted)}
    elif block.signature:
        part = {"reasoningText": {"text": block.text, "signature": "".join(block.signature)}}
    else:
        return []
    return [{"kind": "part", "part": {"reasoningContent": part}}]
