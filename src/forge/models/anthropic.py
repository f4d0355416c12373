"""Anthropic's Messages API, and servers compatible with it: the model, its request, its streamed answer."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import CONTEXT_EDITS, Finish, Message, ToolCall, Usage, found_tools
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest, ProviderError
from forge.core.result import Attachment
from forge.models.http.events import Delta, SentEvent, StreamedAnswer, count_of, list_in, object_in, read_json
from forge.models.http.model import Exchange, HttpModel
from forge.models.http.outgoing import add_key_advice
from forge.models.known_models import add_model_advice
from forge.models.server_tools import note_calls, read_anthropic_calls, spell_for_anthropic
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_edits, read_saved

DEFAULT_URL = "https://api.anthropic.com"
# not Claude 3, and not the first ones of Claude 4
_NEWER = re.compile(r"claude-(?!\d)(?!(?:sonnet|opus)-4(?:-0|-2025|$))")
_REFERENCE_REFUSED = re.compile(r"tool_reference|tool reference|defer_loading", re.I)
EDITS_BETA, COMPACTION_BETA = "context-management-2025-06-27", "compact-2026-01-12"
MOST_PAUSES = 10  # times the server may pause and continue in another request


class Anthropic(HttpModel):
    """A model of the Messages API.

    Without a base URL, `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN` of the environment count;
    with one, only `api_key` is sent, so that a key never goes to a server it was not meant for.

    Args:
        model: the model's name.
        base_url: the address of the server.
        api_key: the key.
        headers: further headers.
        max_tokens: the longest answer.
        thinking: a budget in tokens, a word such as "adaptive", or the API's own object. With a budget as large as
            `max_tokens` or larger, `max_tokens` counts what comes after the thinking.
        loads_found_tools: load a tool that `tool_search` found where it was found (`defer_loading` and
            `tool_reference`), so that the cached prompt before it stays valid. By default, at Anthropic's own address
            with models that can; a server that refuses it gets the definition beside the others from then on.

    Example:
        >>> agent = Agent(Anthropic("claude-sonnet-5", api_key="a key", max_tokens=4_096))
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        thinking: Thinking | None = None,
        loads_found_tools: bool | None = None,
    ) -> None:
        self.model, self.max_tokens, self.thinking = model, max_tokens, thinking
        self.label = "anthropic"
        chosen = base_url or os.environ.get("ANTHROPIC_BASE_URL", "").strip() or DEFAULT_URL
        self.base_url = chosen.rstrip("/").removesuffix("/v1")
        self._url = f"{self.base_url}/v1/messages"
        can_load = self.base_url == DEFAULT_URL and _NEWER.match(model) is not None
        self.loads_found_tools = can_load if loads_found_tools is None else loads_found_tools
        self._key_variable = "" if api_key else _key_variable(os.environ if not base_url else {})
        self._headers = {"anthropic-version": "2023-06-01", **_credentials(api_key, os.environ if not base_url else {})}
        self._headers |= {name.lower(): value for name, value in (headers or {}).items()}

    _takes = "PNG, JPEG, GIF and WebP images, PDF documents and text, and the addresses of images and PDF documents"

    _server_tools = {  # noqa: RUF012 - read only
        "web_search": ("allowed_domains", "blocked_domains", "max_uses", "user_location"),
        "web_fetch": ("allowed_domains", "blocked_domains", "max_uses", "max_content_tokens"),
        "code_execution": (),
    }

    def _write_file(self, attachment: Attachment) -> Block | None:
        return _AnthropicSpelling().file_block(attachment)

    def __repr__(self) -> str:
        return f"Anthropic({self.model!r})"

    def takes_schema(self, schema: Mapping[str, Any], *, with_tools: bool) -> bool:
        """Returns whether the model holds an answer to a schema."""
        return self.label == "anthropic" and _NEWER.match(self.model) is not None and fits_output(schema)

    def _begin(self, request: ModelRequest) -> Exchange:
        self._check_key()
        answer = MessagesReader(self.base_url, set(), self._error, f"asking {self.label}:{self.model}")
        return self._ask(request, answer, pauses=0)

    def _ask(self, request: ModelRequest, answer: MessagesReader, pauses: int) -> Exchange:
        body = request_body(
            request,
            model=self.model,
            max_tokens=self.max_tokens,
            thinking=self.thinking,
            origin=self.base_url,
            paused=pauses > 0,
            loads_found=self.loads_found_tools,
        )
        answer.thinks = asks_to_think(body)
        return Exchange(body, answer, pauses)

    def _continue(self, message: Message, exchange: Exchange, request: ModelRequest) -> Exchange | None:
        if not exchange.answer.is_paused or exchange.state == MOST_PAUSES:
            return None
        exchange.answer.continue_response()
        rest = replace(request, messages=[*request.messages, message])
        return self._ask(rest, exchange.answer, exchange.state + 1)

    def _headers_for(self, body: Mapping[str, Any]) -> Mapping[str, str]:
        if "context_management" not in body:
            return self._headers
        compacts = any(one["type"].startswith("compact") for one in body["context_management"]["edits"])
        named = [self._headers.get("anthropic-beta", ""), EDITS_BETA, COMPACTION_BETA if compacts else ""]
        return {**self._headers, "anthropic-beta": ",".join(filter(None, named))}

    async def _recover(self, error: ProviderError, exchange: Exchange, request: ModelRequest) -> Exchange:
        refused = error.status == 400 and _REFERENCE_REFUSED.search(error.message) is not None
        if self.loads_found_tools and refused and not exchange.state and request.found:
            self.loads_found_tools = False
            return self._begin(request)
        return await super()._recover(error, exchange, request)

    async def _explain(self, error: ProviderError) -> ProviderError:
        sent = not {"x-api-key", "authorization"}.isdisjoint(self._headers)
        advised = add_key_advice(error, self._key_variable, sent=sent)
        return add_model_advice(advised, self.label, self.model)

    def _check_key(self) -> None:
        if self.base_url == DEFAULT_URL and not {"x-api-key", "authorization"} & self._headers.keys():
            raise ProviderError(
                f"asking {self.label}:{self.model}: there is no API key",
                ErrorKind.CONFIG,
                "Set ANTHROPIC_API_KEY, or choose another model with --model.",
            )


def _key_variable(environment: Mapping[str, str]) -> str:
    """Returns the variable that holds the key, or the one to set if there is none."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    return next((name for name in names if environment.get(name, "").strip()), names[0])


def _credentials(api_key: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    if key := (api_key or environment.get("ANTHROPIC_API_KEY", "")).strip():
        return {"x-api-key": key}
    token = environment.get("ANTHROPIC_AUTH_TOKEN", "").strip()
    return {"authorization": f"Bearer {token}"} if token else {}


# --- Writes a request for the Messages API: options, tools, and the history as alternating turns of blocks.


Thinking = int | str | Mapping[str, Any]

EXTRA_KEY = "anthropic"
"""Where `Message.extra` keeps what only this API understands: `{from, thinking, blocks}`."""

_THINKING = ("thinking", "redacted_thinking")
_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def request_body(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    thinking: Thinking | None = None,
    origin: str = "",
    paused: bool = False,
    loads_found: bool = False,
) -> dict[str, Any]:
    """Returns the body to post.

    Args:
        request: the request.
        model: the model's name.
        max_tokens: the longest answer.
        thinking: how to think.
        origin: only answers of this origin are sent back with their own blocks.
        paused: the history ends in an answer that the server will continue.
        loads_found: tools that a search found are loaded where it found them.
    """
    options = {name: value for name, value in request.options.items() if value is not None}
    definitions = request.definitions("anthropic")
    sent = {one["name"] for one in definitions}
    spelling = _AnthropicSpelling(origin, loads=sent.intersection(request.found) if loads_found else ())
    tools = [*definitions, *options.pop("tools", ())]
    if request.server_tools:
        tools += spell_for_anthropic(request, f"anthropic:{model}")
    thinking = _take_effort(options, thinking)
    if edits := _write_edits(options.pop("context_management", None), model):
        options["context_management"] = {"edits": edits}
    if output := write_output(options.pop("response_format", None)):
        options["output_config"] = {**options.get("output_config", {}), **output}
    choice = _tool_choice(options.pop("tool_choice", None), options.pop("parallel_tool_calls", True))
    thinking = read_thinking(options.pop("thinking", thinking))
    if choice is not None and tools and choice["type"] in ("any", "tool"):
        thinking = None  # the API refuses to think before a forced call
    spelling.thinks = _is_on(thinking)
    system, turns = _write_history(request.messages, spelling, paused=paused)
    if thinking is not None and thinking.get("type") == "enabled" and _began_without_thinking(turns):
        thinking = None  # the API does not begin to think in the middle of a turn
        spelling.thinks = False
        system, turns = _write_history(request.messages, spelling, paused=paused)
    body: dict[str, Any] = {
        "model": model,
        **_take_limits(options, max_tokens, thinking),
        **({"tools": _write_tools(tools, spelling.loaded)} if tools else {}),
        **({"tool_choice": choice} if tools and choice is not None else {}),
        **({"system": [*system[:-1], _mark_block(system[-1])]} if system else {}),
        "messages": _mark_turns(turns),
    }
    return {**body, **options, "stream": True}


def _write_edits(given: Any, model: str) -> list[Any]:
    """Returns the edits that the provider makes of its prompt: ours in its words, or its own as they are."""
    if isinstance(given, Mapping) and "edits" in given:
        return list(given["edits"])
    wanted = read_edits(given, f"anthropic:{model}", ("clear_thinking", "clear_results", "compact"))
    kinds = {"clear_results": "clear_tool_uses_20250919", "compact": "compact_20260112"}
    edits: list[Any] = []
    if turns := wanted.pop("clear_thinking", 0):  # the API wants it first
        edits.append({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": turns}})
    for name, kind in kinds.items():
        if tokens := wanted.get(name):
            edits.append({"type": kind, "trigger": {"type": "input_tokens", "value": tokens}})
    return edits


def asks_to_think(body: Mapping[str, Any]) -> bool:
    return _is_on(body.get("thinking"))


def read_thinking(wish: Thinking | None) -> Mapping[str, Any] | None:
    """Reads a token budget, a word such as "adaptive" (also the meaning of True), or the API's own object."""
    if isinstance(wish, Mapping):
        return wish
    if wish is None or isinstance(wish, bool):
        return {"type": "adaptive"} if wish else None
    return {"type": wish} if isinstance(wish, str) else {"type": "enabled", "budget_tokens": wish}


def _take_effort(options: dict[str, Any], thinking: Thinking | None) -> Thinking | None:
    """Writes `reasoning_effort` as the API does, and returns how to think: not at all where the effort is none."""
    effort = options.pop("reasoning_effort", None)
    if effort == "none":
        options.pop("thinking", None)
        return {"type": "disabled"}
    if effort is not None:
        effort = "low" if effort == "minimal" else effort
        options["output_config"] = {**options.get("output_config", {}), "effort": effort}
    return thinking


def _take_limits(options: dict[str, Any], max_tokens: int, thinking: Mapping[str, Any] | None) -> dict[str, Any]:
    """Takes the options that the API spells differently out of `options`; the rest is sent unchanged."""
    for unknown in ("seed", "timeout"):
        options.pop(unknown, None)
    stop = options.pop("stop", ())
    stop = [text for text in ([stop] if isinstance(stop, str) else stop) if text.strip()]
    limit = options.pop("max_tokens", max_tokens)
    budget = thinking.get("budget_tokens", 0) if thinking is not None else 0
    return {
        "max_tokens": limit if limit > budget else limit + budget,
        **({"thinking": dict(thinking)} if thinking is not None else {}),
        **({"stop_sequences": stop} if stop else {}),
    }


def _tool_choice(choice: Any, parallel: bool) -> dict[str, Any] | None:
    if isinstance(choice, Mapping):
        return dict(choice)
    if choice is None and parallel:
        return None
    known = {None: "auto", "auto": "auto", "none": "none", "required": "any"}
    spelled = {"type": known[choice]} if choice in known else {"type": "tool", "name": choice}
    return spelled if parallel or choice == "none" else {**spelled, "disable_parallel_tool_use": True}


def _is_on(thinking: Mapping[str, Any] | None) -> bool:
    return thinking is not None and thinking.get("type") != "disabled"


def _began_without_thinking(turns: Sequence[Block]) -> bool:
    """Returns whether the turn ends in tool results whose first call came without a thought."""
    first: Block | None = None
    for turn in reversed(turns):
        if turn["role"] == "assistant":
            first = turn
        elif all(block["type"] != "tool_result" for block in turn["content"]):
            break
    return first is not None and first["content"][0]["type"] not in _THINKING


def _mark_turns(turns: list[Block]) -> list[Block]:
    """Marks the parts that the next request repeats, and the end of the last one, so that the cache matches."""
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
        turn["content"][-1] = _mark_block(turn["content"][-1])
    return turns


def _mark_block(block: Mapping[str, Any]) -> Block:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _write_tools(tools: Sequence[Mapping[str, Any]], loaded: Collection[str]) -> list[Mapping[str, Any]]:
    """Returns the definitions. Those that the history loads come last: they are no part of the cached beginning."""
    first = [one for one in tools if one.get("name") not in loaded] if loaded else list(tools)
    later = [{**one, "defer_loading": True} for one in tools if one.get("name") in loaded]
    return [*first[:-1], *map(_mark_block, first[-1:]), *later]


def _write_history(
    messages: Sequence[Message], spelling: _AnthropicSpelling, *, paused: bool
) -> tuple[list[Block], list[Block]]:
    turns = Turns(spelling)
    unread = max((at for at, message in enumerate(messages) if spelling.is_compacted(message)), default=0)
    for at, message in enumerate(messages):
        spelling.is_read = at >= unread  # the API does not look at what comes before its summary
        turns.add(message)
    return [spelling.text_block(text) for text in turns.system], turns.finish(paused=paused)


class _AnthropicSpelling:
    """Writes content blocks. Thoughts go back only if the model is asked to think."""

    assistant, content = "assistant", "content"

    def __init__(self, origin: str = "", *, thinks: bool = False, loads: Collection[str] = ()) -> None:
        self._origin, self.thinks = origin, thinks
        self._loads = loads  # tools that a search may load
        self.loaded: set[str] = set()  # those that a result in the history loads
        self.is_read = True

    def is_compacted(self, message: Message) -> bool:
        """Returns whether an answer begins with the provider's summary of everything before it."""
        if not message.extra or CONTEXT_EDITS not in message.extra:
            return False
        blocks = read_saved(message, EXTRA_KEY, self._origin).get("blocks", ())
        return any(block["type"] == "compaction" and block.get("content") for block in blocks)

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        saved = read_saved(message, EXTRA_KEY, self._origin)
        silent = saved.get("thinking") and not self.thinks  # the API refuses earlier thoughts when thinking is off
        found: list[Mapping[str, Any]] = []
        at = 0
        for block in saved.get("blocks", ()):
            if block["type"] == "text":
                piece, at = message.text[at : at + block["length"]], at + block["length"]
                cited = {key: value for key, value in block.items() if key not in ("type", "length")}
                found.append({"kind": "text", "length": block["length"], "saved": cited if piece.strip() else {}})
            elif block["type"] == "tool_use":
                found.append({"kind": "call"})
            elif not (silent and block["type"] in _THINKING):
                found.append({"kind": "part", "part": block})
        return found

    def ends_answer(self, block: Block) -> bool:
        return block["type"] not in _THINKING

    def text_block(self, text: str) -> Block:
        return {"type": "text", "text": text}

    def file_block(self, attachment: Attachment) -> Block | None:
        kind = media_type_of(attachment)
        if attachment.url and (kind.startswith("image/") or kind in ("application/pdf", "application/*")):
            source = {"type": "url", "url": attachment.url}
            return {"type": "image" if kind.startswith("image/") else "document", "source": source}
        if attachment.data and (kind in _IMAGES or kind == "application/pdf"):
            source = {"type": "base64", "media_type": kind, "data": b64encode(attachment.data).decode()}
            return {"type": "image" if kind in _IMAGES else "document", "source": source}
        return None

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        if self._loads and self.is_read and (found := [one for one in found_tools(message) if one in self._loads]):
            self.loaded.update(found)
            references = [{"type": "tool_reference", "tool_name": one} for one in found]
            return {"type": "tool_result", "tool_use_id": id, "content": references}, []
        text = [self.text_block(sendable(message.text))] if message.text.strip() else []
        files = [self.file_block(one) or self.text_block(sendable(describe_file(one))) for one in message.attachments]
        content = [*text, *files]
        failed = {"is_error": True} if message.is_error else {}
        return {"type": "tool_result", "tool_use_id": id, **({"content": content} if content else {}), **failed}, []


# --- Writes the schema of a structured answer within the limits of the Messages API.


MOST_UNIONS = 16  # the API takes no more parameters with several types
_UNKNOWN = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems", "pattern")


def fits_output(schema: Mapping[str, Any]) -> bool:
    """Returns whether the API takes a schema: one that does not contain itself, with few unions."""
    return not _is_recursive(schema, schema.get("$defs", {}), ()) and _count_unions(schema) <= MOST_UNIONS


def write_output(response_format: Any) -> dict[str, Any]:
    """Returns OpenAI's option for answers in JSON as an entry of `output_config`; empty for another option."""
    given = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(given.get("schema"), Mapping):
        return {}
    return {"format": {"type": "json_schema", "schema": _write(given["schema"])}}


def _write(schema: Any, *, names: bool = False) -> Any:
    """Leaves out bounds, which the API refuses; Forge checks them. `names`: the keys are names, not keywords."""
    if isinstance(schema, list):
        return [_write(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _write(value, names=not names and key in ("properties", "$defs"))
        if key not in ("enum", "const", "required") or names
        else value
        for key, value in schema.items()
        if names or not (key in _UNKNOWN or (key == "minItems" and value not in (0, 1)))
    }


def _is_recursive(schema: Any, shelf: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    if isinstance(schema, list):
        return any(_is_recursive(one, shelf, inside) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    name = schema.get("$ref")
    if isinstance(name, str):
        if name in inside:
            return True
        if _is_recursive(shelf.get(name.rpartition("/")[2], {}), shelf, (*inside, name)):
            return True
    return any(_is_recursive(value, shelf, inside) for key, value in schema.items() if key != "$defs")


def _count_unions(schema: Any) -> int:
    if isinstance(schema, list):
        return sum(map(_count_unions, schema))
    if not isinstance(schema, Mapping):
        return 0
    return ("anyOf" in schema) + isinstance(schema.get("type"), list) + sum(map(_count_unions, schema.values()))


# --- Assembles an answer of the Messages API from its streamed events.


_FINISH: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # still paused after the last continuation
    "refusal": "refused",
}
_GROWS = {  # a delta's type -> its field; the block has a field of the same name, except for JSON
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
Deltas = Sequence[Delta]
_WITHOUT_START = {"text_delta": "text", "thinking_delta": "thinking"}
_CARRIES_ANSWER = {"message", "message_start", "message_delta", "content_block_start", "content_block_delta", "error"}


@dataclass(slots=True)
class _Block:
    """A block's start and the pieces that followed."""

    start: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)
    is_known: bool = True  # False: an unknown delta came for this block

    @property
    def kind(self) -> Any:
        return self.start.get("type")

    def join_pieces(self, name: str) -> str:
        return _as_text(self.start.get(name)) + "".join(self.pieces.get(name, ()))

    def input(self) -> str:
        """Returns the JSON text exactly as received; a server may also send the whole object at the start."""
        return "".join(self.pieces.get("partial_json", ())) or _as_text(self.start.get("input") or "")


class MessagesReader(StreamedAnswer):
    """Assembles an answer from one response, or from several if the model pauses."""

    def _prepare(self) -> None:
        self.thinks = False  # the request asks the model to think
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}  # by index in the response
        self._last: _Block | None = None
        self._reason = ""
        self._details: Any = None
        self._counts: dict[str, int] = {}
        self._paid = Usage()  # for responses that are over
        self._edits: list[Any] = []  # that the provider made of its prompt
        self._compaction = Usage()  # for its summary

    def continue_response(self) -> None:
        """Prepares for another response that continues this one."""
        self._paid = self._usage
        self._at, self._last, self._counts = {}, None, {}
        self._reason, self.done = "", False

    def take(self, event: SentEvent) -> Deltas:
        """Returns the pieces to show, usually none. Raises `ProviderError` for a broken or garbled answer."""
        data = self._read(event)
        match data.get("type") or event.name:
            case "message_start":
                self._count(object_in(data, "message"))
            case "content_block_start":
                return self._start(data.get("index"), object_in(data, "content_block"))
            case "content_block_delta":
                return self._grow(data.get("index"), object_in(data, "delta"))
            case "message_delta":
                self._count(data)
                self._edits = list_in(object_in(data, "context_management"), "applied_edits") or self._edits
                self._stop(object_in(data, "delta"))
            case "message_stop":
                self.done = True
            case "message" if "content" in data:  # a server that does not stream
                self._count(data)
                self._edits = list_in(object_in(data, "context_management"), "applied_edits")
                self._stop(data)
                self.done = True
                blocks = [block for block in list_in(data, "content") if isinstance(block, dict)]
                return [part for block in blocks for part in self._start(None, block)]
            case "error":
                raise self._error(data.get("error") or data)
        return ()

    @property
    def is_paused(self) -> bool:
        return self._reason == "pause_turn" and all(block.kind != "tool_use" for block in self._blocks)

    def message(self) -> Message:
        """Returns the message. Raises if the stream ended too early: an unfinished call must not run."""
        if not self._reason:
            raise self._garbled_error("the response ended before it was complete")
        finish = _FINISH.get(self._reason)
        calls: list[ToolCall] = []
        entries: list[dict[str, Any]] = []
        for block in self._blocks:
            if block.kind == "text":
                cited = {"citations": block.citations} if block.citations else {}
                entries.append({"type": "text", "length": len(block.join_pieces("text")), **cited})
            elif block.kind != "tool_use":
                entries += _saved_block(block)
            elif finish != "refused":
                cut = finish == "length" and block is self._blocks[-1]
                calls.append(_read_call(block, {call.id for call in calls}, cut=cut))
                entries.append({"type": "tool_use"})
        extra: dict[str, Any] = {}
        if any(entry["type"] not in ("text", "tool_use") or "citations" in entry for entry in entries):
            extra = {"from": self._origin, "thinking": self.thinks, "blocks": entries}
        if finish == "refused" and self._details:
            extra["refusal"] = self._details
        calls_made = read_anthropic_calls(entries) if any("_tool_" in one["type"] for one in entries) else []
        return Message(
            "assistant",
            "".join([block.join_pieces("text") for block in self._blocks if block.kind == "text"]),
            tuple(calls),
            finish=finish or ("calls" if calls else "stop"),
            usage=self._usage,
            extra=self._with_edits(note_calls({EXTRA_KEY: extra} if extra else {}, calls_made)),
        )

    def _with_edits(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Returns what a message carries, with what the provider left out of its prompt."""
        found: list[dict[str, Any]] = []
        for one in self._edits:
            if isinstance(one, Mapping):
                kind = "thinking" if "thinking" in _as_text(one.get("type")) else "results"
                counts = one.get("cleared_tool_uses", one.get("cleared_thinking_turns"))
                tokens = count_of(one.get("cleared_input_tokens"))
                found.append({"kind": kind, "count": count_of(counts), "tokens": tokens})
        if any(block.kind == "compaction" and block.start.get("content") for block in self._blocks):
            found.append({"kind": "messages", "count": 1, "usage": self._compaction._asdict()})
        return {**extra, CONTEXT_EDITS: found} if found else extra

    def _read(self, event: SentEvent) -> dict[str, Any]:
        try:
            data = read_json(event.data)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return data
        if event.name not in _CARRIES_ANSWER or event.data.strip() == "[DONE]":
            return {}
        if event.name == "error":
            return {"error": event.data}
        raise self._garbled_error("a part of the response is not a JSON object")

    def _start(self, index: Any, start: dict[str, Any]) -> Deltas:
        block = _Block(start)
        self._blocks.append(block)
        self._last = block
        if isinstance(index, int):
            self._at[index] = block
        if block.kind == "thinking" and (thought := sendable(_as_text(start.get("thinking")))):
            return [ReasoningDelta(thought)]
        if block.kind != "text":
            return ()
        block.start = {**start, "text": sendable(_as_text(start.get("text")))}
        block.citations += list_in(start, "citations")
        return [TextDelta(block.start["text"])] if block.start["text"] else ()

    def _grow(self, index: Any, delta: dict[str, Any]) -> Deltas:
        kind = str(delta.get("type"))
        block = self._at.get(index) if isinstance(index, int) else self._last
        needed = _WITHOUT_START.get(kind)
        if needed is not None and (block is None or block.kind != needed):
            self._start(index, {"type": needed})
            block = self._last
        if kind == "input_json_delta" and (block is None or block.kind in ("text", "thinking")):
            raise self._garbled_error("the response contains a part of a call that never began")
        if block is None:
            return ()
        if name := _GROWS.get(kind):
            piece = sendable(_as_text(delta.get(name)))
            block.pieces.setdefault(name, []).append(piece)
            return _delta(kind, block, piece) if piece else ()
        if kind == "compaction_delta":
            block.start |= {key: delta[key] for key in ("content", "encrypted_content") if delta.get(key) is not None}
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))
        else:
            block.is_known = False
        return ()

    def _stop(self, delta: dict[str, Any]) -> None:
        self._reason = _as_text(delta.get("stop_reason")) or self._reason
        self._details = delta.get("stop_details") or self._details

    def _count(self, data: dict[str, Any]) -> None:
        """Stores the counts. They are totals, so a later count replaces an earlier one."""
        usage = object_in(data, "usage")
        for one in list_in(usage, "iterations"):
            if isinstance(one, Mapping) and one.get("type") == "compaction":  # not part of the other counts
                self._compaction = _read_usage(one)
        self._counts |= {name: count for name, count in usage.items() if type(count) is int and count >= 0}

    @property
    def _usage(self) -> Usage:
        return self._paid.plus(_read_usage(self._counts))

    def _garbled_error(self, what: str) -> ProviderError:
        return ProviderError(f"{self._action}: {what}", ErrorKind.SYSTEM, "Try again in a moment.", passing=True)


def _read_usage(counts: Mapping[str, Any]) -> Usage:
    cached, written = (
        count_of(counts.get("cache_read_input_tokens")),
        count_of(counts.get("cache_creation_input_tokens")),
    )
    total = count_of(counts.get("input_tokens")) + written + cached
    return Usage(total, count_of(counts.get("output_tokens")), cached, written)


def _delta(kind: str, block: _Block, piece: str) -> Deltas:
    if kind == "text_delta":
        return [TextDelta(piece)]
    if kind == "thinking_delta":
        return [ReasoningDelta(piece)]
    if kind == "input_json_delta" and block.kind == "tool_use":
        return [ToolArgumentsDelta(ToolCall(_as_text(block.start.get("name")), {}, str(block.start.get("id"))), piece)]
    return ()


def _read_call(block: _Block, taken: set[str], *, cut: bool) -> ToolCall:
    id, name, text = block.start.get("id"), _as_text(block.start.get("name")), block.input()
    arguments = text if text.strip() or cut else "{}"
    return (
        ToolCall(name, arguments, id) if isinstance(id, str) and id and id not in taken else ToolCall(name, arguments)
    )


def _saved_block(block: _Block) -> list[dict[str, Any]]:
    """Returns the block to send back unchanged, if it is complete."""
    whole = {**block.start, **{name: block.join_pieces(name) for name in block.pieces if name != "partial_json"}}
    if "partial_json" in block.pieces:
        try:
            whole["input"] = json.loads(block.input() or "{}")
        except (ValueError, RecursionError):
            return []
    return [whole] if block.is_known and block.kind else []


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
