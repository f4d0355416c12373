"""Writes a request for the Messages API: options, tools, and the history as alternating turns of blocks."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.messages import Message
from forge.core.plain_values import sendable
from forge.core.provider import ModelRequest
from forge.core.result import Attachment
from forge.models.anthropic.output_schema import write_output
from forge.models.turns import Block, Turns, describe_file, media_type_of, read_saved

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
    spelling = _AnthropicSpelling(origin, thinks=thinks)
    turns = Turns(spelling)
    for message in messages:
        turns.add(message)
    return [spelling.text_block(text) for text in turns.system], turns.finish(paused=paused)


class _AnthropicSpelling:
    """Writes content blocks. Thoughts go back only if the model is asked to think."""

    assistant, content = "assistant", "content"

    def __init__(self, origin: str, *, thinks: bool) -> None:
        self._origin, self._thinks = origin, thinks

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        saved = read_saved(message, EXTRA_KEY, self._origin)
        silent = saved.get("thinking") and not self._thinks  # the API refuses earlier thoughts when thinking is off
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

    def file_block(self, attachment: Attachment) -> Block:
        kind = media_type_of(attachment)
        if attachment.data and (kind in _IMAGES or kind == "application/pdf"):
            source = {"type": "base64", "media_type": kind, "data": b64encode(attachment.data).decode()}
            return {"type": "image" if kind in _IMAGES else "document", "source": source}
        return self.text_block(sendable(describe_file(attachment)))

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        text = [self.text_block(sendable(message.text))] if message.text.strip() else []
        content = [*text, *map(self.file_block, message.attachments)]
        failed = {"is_error": True} if message.is_error else {}
        return {"type": "tool_result", "tool_use_id": id, **({"content": content} if content else {}), **failed}, []
