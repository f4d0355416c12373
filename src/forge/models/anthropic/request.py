"""Writes a request for the Messages API: options, tools, and the history as alternating turns of blocks."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import pydantic_core

from forge.core.messages import Message, ToolCall
from forge.core.plain_values import plain, sendable
from forge.core.provider import ModelRequest
from forge.core.result import Attachment
from forge.models.anthropic.output_schema import write_output

Block = dict[str, Any]
Thinking = int | str | Mapping[str, Any]

EXTRA_KEY = "anthropic"
"""Where `Message.extra` keeps what only this API understands: `{from, thinking, blocks}`."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_THINKING = ("thinking", "redacted_thinking")
_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_SIGNATURES = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_CONTINUE = "Continue."  # sent where the API wants a user's turn and the history has none


def request_body(
    request: ModelRequest,
    *,
    model: str,
    max_tokens: int,
    thinking: Thinking | None = None,
    origin: str = "",
    paused: bool = False,
) -> dict[str, Any]:
    """Returns the body to post. `paused`: the history ends in an answer that the server will continue."""
    options = {name: value for name, value in request.options.items() if value is not None}
    tools = [*request.definitions("anthropic"), *options.pop("tools", ())]
    thinking = _take_effort(options, thinking)
    if output := write_output(options.pop("response_format", None)):
        options["output_config"] = {**options.get("output_config", {}), **output}
    choice = _tool_choice(options.pop("tool_choice", None), options.pop("parallel_tool_calls", True))
    thinking = read_thinking(options.pop("thinking", thinking))
    if choice is not None and tools and choice["type"] in ("any", "tool"):
        thinking = None  # the API refuses to think before a forced call
    system, turns = _write_history(request.messages, origin, thinks=_is_on(thinking), paused=paused)
    if thinking is not None and thinking.get("type") == "enabled" and _began_without_thinking(turns):
        thinking = None  # the API does not begin to think in the middle of a turn
        system, turns = _write_history(request.messages, origin, thinks=False, paused=paused)
    body: dict[str, Any] = {
        "model": model,
        **_take_limits(options, max_tokens, thinking),
        **({"tools": [*tools[:-1], _mark_block(tools[-1])]} if tools else {}),
        **({"tool_choice": choice} if tools and choice is not None else {}),
        **({"system": [*system[:-1], _mark_block(system[-1])]} if system else {}),
        "messages": _mark_turns(turns),
    }
    return {**body, **options, "stream": True}


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
    """Returns True if the turn ends in tool results whose first call came without a thought."""
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


def _write_history(
    messages: Sequence[Message], origin: str, *, thinks: bool, paused: bool
) -> tuple[list[Block], list[Block]]:
    turns = _Turns(origin, thinks=thinks)
    for message in messages:
        turns.add(message)
    return turns.system, turns.finish(paused=paused)


class _Turns:
    """Writes the history in the only order that the API accepts: user and assistant alternate, the next turn
    answers every call, results come first, no text is empty, no id occurs twice.
    """

    def __init__(self, origin: str, *, thinks: bool) -> None:
        self.system: list[Block] = []
        self._turns: list[Block] = []
        self._origin, self._thinks = origin, thinks
        self._ids: dict[str, int] = {}
        self._open: dict[str, list[str]] = {}  # id in the history -> ids sent for it and not yet answered

    def add(self, message: Message) -> None:
        if message.role == "system":
            self.system += _text(message.text)
        elif message.role == "assistant":
            self._add_answer(message)
        elif message.role == "tool" and self._open.get(message.call_id):
            self._add_result(self._open[message.call_id].pop(0), message)
        elif message.role == "tool":
            late = Message("user", f"The result of an earlier call:\n{message.text}", attachments=message.attachments)
            self._append("user", _content(late))
        else:
            self._append("user", _content(message))

    def finish(self, *, paused: bool) -> list[Block]:
        self._answer_open_calls()
        if not self._turns or self._turns[0]["role"] != "user":
            self._turns.insert(0, {"role": "user", "content": _text(_CONTINUE)})
        if self._turns[-1]["role"] != "user" and not paused:
            self._append("user", _text(_CONTINUE))
        return self._turns

    def _add_answer(self, message: Message) -> None:
        saved = message.extra.get(EXTRA_KEY)
        entries: Sequence[Mapping[str, Any]] = ()
        if isinstance(saved, Mapping) and saved.get("from") == self._origin:
            silent = saved.get("thinking") and not self._thinks  # the API refuses earlier thoughts when thinking is off
            entries = [entry for entry in saved["blocks"] if not (silent and entry["type"] in _THINKING)]
        if not entries and not message.tool_calls and not message.text.strip():
            return
        self._answer_open_calls()
        blocks = _restore_blocks(message.text, entries, [self._call_block(call) for call in message.tool_calls])
        while blocks and blocks[-1]["type"] in _THINKING:  # cut off: the API wants something said after it
            blocks.pop()
        self._append("assistant", blocks)

    def _call_block(self, call: ToolCall) -> Block:
        id = self._make_unique(call.id)
        self._open.setdefault(call.id, []).append(id)
        name = _NOT_IN_NAMES.sub("_", call.name)[:64] or "unknown"
        return {"type": "tool_use", "id": id, "name": name, "input": _input(call.arguments)}

    def _make_unique(self, id: str) -> str:
        """Returns a valid, unused id: some servers number calls from zero in every turn, or use other characters."""
        known = id if _ID.fullmatch(id) else f"call_{sha256(id.encode(errors='replace')).hexdigest()[:24]}"
        chosen, number = known, self._ids.get(known, 0)
        while chosen in self._ids:
            number += 1
            chosen = f"{known[:50]}-{number}"
        self._ids[known] = number
        self._ids.setdefault(chosen, 0)
        return chosen

    def _add_result(self, id: str, message: Message) -> None:
        content = _content(message)
        failed = {"is_error": True} if message.is_error else {}
        self._insert({"type": "tool_result", "tool_use_id": id, **({"content": content} if content else {}), **failed})

    def _answer_open_calls(self) -> None:
        """Adds missing results: the API would always refuse a history with an unanswered call."""
        for id in [id for ids in self._open.values() for id in ids]:
            lost = _text("No result of this call was recorded.")
            self._insert({"type": "tool_result", "tool_use_id": id, "content": lost, "is_error": True})
        self._open = {}

    def _insert(self, result: Block) -> None:
        if self._turns[-1]["role"] != "user":
            self._turns.append({"role": "user", "content": []})
        content = self._turns[-1]["content"]
        content.insert(sum(block["type"] == "tool_result" for block in content), result)

    def _append(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"] += blocks
        else:
            self._turns.append({"role": role, "content": blocks})


def _restore_blocks(text: str, entries: Sequence[Mapping[str, Any]], uses: list[Block]) -> list[Block]:
    """Returns text and calls between their original blocks, or after all blocks if they were changed since."""
    length = sum(entry["length"] for entry in entries if entry["type"] == "text")
    if length != len(text) or sum(entry["type"] == "tool_use" for entry in entries) != len(uses):
        entries = [entry for entry in entries if entry["type"] not in ("text", "tool_use")]
        return [*map(dict, entries), *_text(text), *uses]
    blocks: list[Block] = []
    at, left = 0, iter(uses)
    for entry in entries:
        if entry["type"] == "text":
            piece, at = text[at : at + entry["length"]], at + entry["length"]
            cited = {key: value for key, value in entry.items() if key != "length"}
            blocks += [{**cited, **block} for block in _text(piece)]
        else:
            blocks.append(next(left) if entry["type"] == "tool_use" else dict(entry))
    return blocks


def _input(arguments: Mapping[str, Any] | str) -> Any:
    """Returns an object: other text is wrapped, so that the model sees what it sent."""
    if not isinstance(arguments, str):
        return plain(dict(arguments))
    try:
        found = pydantic_core.from_json(arguments, allow_inf_nan=False) if arguments.strip() else {}
    except (ValueError, TypeError, RecursionError):
        found = None
    return plain(found) if isinstance(found, dict) else {"_raw": sendable(arguments)}


def _content(message: Message) -> list[Block]:
    return [*_text(message.text), *map(_attachment_block, message.attachments)]


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": sendable(text)}] if text.strip() else []


def _attachment_block(attachment: Attachment) -> Block:
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if kind.startswith("image/"):
        kind = _image_type(attachment.data) or kind.replace("/jpg", "/jpeg")
    if attachment.data and (kind in _IMAGES or kind == "application/pdf"):
        source = {"type": "base64", "media_type": kind, "data": b64encode(attachment.data).decode()}
        return {"type": "image" if kind in _IMAGES else "document", "source": source}
    name = f"{attachment.name}: " if attachment.name else ""
    return _text(f"[{name}{kind or 'a file'}, {len(attachment.data)} bytes, cannot be shown here]")[0]


def _image_type(data: bytes) -> str:
    """Detects the type from the bytes, since the API refuses a wrongly declared image."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), "")
