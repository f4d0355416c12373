"""Writes a history as alternating turns, in the only order that chat APIs accept; each API spells the blocks itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol

import pydantic_core

from forge.core.errors import ErrorKind
from forge.core.messages import SERVER_CALLS, Message, ToolCall
from forge.core.plain_values import plain, sendable
from forge.core.provider import ProviderError
from forge.core.result import Attachment
from forge.models.server_tools import text_for_others

Block = dict[str, Any]

CONTINUE = "Continue."  # sent where the API wants a user's turn and the history has none
LOST = "No result of this call was recorded."

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_IMAGES = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class Spelling(Protocol):
    """Writes the blocks of one API."""

    assistant: str  # the role of the model
    content: str  # the key of a turn that holds its blocks

    def entries(self, message: Message) -> Sequence[Mapping[str, Any]]:
        """Returns what the API wants to see again of its own answer: texts, calls and other parts, in their order."""

    def ends_answer(self, block: Block) -> bool:
        """Returns whether the API accepts an answer that ends in this block."""

    def text_block(self, text: str) -> Block: ...

    def file_block(self, attachment: Attachment) -> Block | None:
        """Returns None for a file that the API has no form for."""

    def call_block(self, id: str, name: str, arguments: Block, saved: Mapping[str, Any]) -> Block:
        """`saved` is what the API sent beside the call, such as a signature."""

    def result_blocks(self, id: str, name: str, message: Message) -> tuple[Block, list[Block]]:
        """Returns the result, and blocks that follow the results of all calls."""


class Turns:
    """Collects turns: user and assistant alternate, the next turn answers every call, results come first."""

    def __init__(self, spelling: Spelling) -> None:
        self.system: list[str] = []
        self._spelling = spelling
        self._turns: list[Block] = []
        self._ids: dict[str, int] = {}
        self._open: dict[str, list[tuple[str, str]]] = {}  # id in the history -> ids and names sent, not yet answered
        self._results = 0  # at the beginning of the last turn
        self._later: list[Block] = []

    def add(self, message: Message) -> None:
        if message.role == "system":
            self.system += [sendable(message.text)] if message.text.strip() else []
        elif message.role == "assistant":
            self._add_answer(message)
        elif message.role == "tool" and self._open.get(message.call_id):
            self._add_result(*self._open[message.call_id].pop(0), message)
        else:
            late = "The result of an earlier call:\n" if message.role == "tool" else ""
            files = [self._file(one, in_prompt=not late) for one in message.attachments]
            self._append("user", [*self._text(f"{late}{message.text}"), *files])

    def finish(self, *, paused: bool = False) -> list[Block]:
        """Returns the turns: the first and the last one are the user's. `paused`: the model's may be the last one."""
        self._answer_open_calls()
        if not self._turns or self._turns[0]["role"] != "user":
            self._turns.insert(0, {"role": "user", self._spelling.content: self._text(CONTINUE)})
        if self._turns[-1]["role"] != "user" and not paused:
            self._append("user", self._text(CONTINUE))
        return self._turns

    def _add_answer(self, message: Message) -> None:
        entries = self._spelling.entries(message)
        if not entries and SERVER_CALLS in message.extra:
            message = replace(message, text=text_for_others(message))
        if not entries and not message.tool_calls and not message.text.strip():
            return
        self._answer_open_calls()
        kept = [entry for entry in entries if entry["kind"] == "call"]
        saved = kept if len(kept) == len(message.tool_calls) else [{}] * len(message.tool_calls)
        calls = [
            self._call_block(call, entry.get("saved", {}))
            for call, entry in zip(message.tool_calls, saved, strict=True)
        ]
        blocks = self._restore(message.text, entries, calls)
        while blocks and not self._spelling.ends_answer(blocks[-1]):  # a thought that was cut off
            blocks.pop()
        self._append(self._spelling.assistant, blocks)

    def _restore(self, text: str, entries: Sequence[Mapping[str, Any]], calls: list[Block]) -> list[Block]:
        """Returns text and calls between their original blocks, or after all blocks if they were changed since."""
        length = sum(entry["length"] for entry in entries if entry["kind"] == "text")
        if length != len(text) or sum(entry["kind"] == "call" for entry in entries) != len(calls):
            parts = [dict(entry["part"]) for entry in entries if entry["kind"] == "part"]
            return [*parts, *self._text(text), *calls]
        blocks: list[Block] = []
        at, left = 0, iter(calls)
        for entry in entries:
            if entry["kind"] == "text":
                piece, at = text[at : at + entry["length"]], at + entry["length"]
                saved = entry.get("saved", {})
                if piece.strip() or saved:
                    blocks.append({**self._spelling.text_block(sendable(piece)), **saved})
            else:
                blocks.append(next(left) if entry["kind"] == "call" else dict(entry["part"]))
        return blocks

    def _call_block(self, call: ToolCall, saved: Mapping[str, Any]) -> Block:
        id, name = self._make_unique(call.id), fit_name(call.name)
        self._open.setdefault(call.id, []).append((id, name))
        return self._spelling.call_block(id, name, read_object(call.arguments), saved)

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

    def _add_result(self, id: str, name: str, message: Message) -> None:
        result, later = self._spelling.result_blocks(id, name, message)
        if self._turns[-1]["role"] != "user":
            self._turns.append({"role": "user", self._spelling.content: []})
            self._results = 0
        self._turns[-1][self._spelling.content].insert(self._results, result)
        self._results += 1
        self._later += later

    def _answer_open_calls(self) -> None:
        """Adds missing results: the API would always refuse a history with an unanswered call."""
        for id, name in [one for sent in self._open.values() for one in sent]:
            self._add_result(id, name, Message("tool", LOST, is_error=True))
        self._open = {}
        later, self._later = self._later, []
        self._append("user", later)

    def _append(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1][self._spelling.content] += blocks
        else:
            self._turns.append({"role": role, self._spelling.content: blocks})
            self._results = 0

    def _text(self, text: str) -> list[Block]:
        return [self._spelling.text_block(sendable(text))] if text.strip() else []

    def _file(self, attachment: Attachment, *, in_prompt: bool) -> Block:
        block = self._spelling.file_block(attachment)
        return block or self._spelling.text_block(sendable(describe_file(attachment, in_prompt=in_prompt)))


def read_saved(message: Message, key: str, origin: str) -> Mapping[str, Any]:
    """Returns what an API saved beside its answer; nothing if the answer has another origin."""
    saved = message.extra.get(key)
    return saved if isinstance(saved, Mapping) and saved.get("from") == origin else {}


def read_edits(given: Any, model: str, known: Sequence[str]) -> dict[str, int]:
    """Returns the option `context_management` in Forge's words: edits with their numbers. Raises `ProviderError`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        given = {str(given)[:40]: 0}
    for name, value in given.items():
        if name not in known or type(value) is not int or value < 1:
            message = f"asking {model}: the option context_management cannot have {name}: {str(value)[:40]!r}"
            hint = f"It takes {', '.join(known)}, each with a number above zero, or the API's own form."
            raise ProviderError(message, ErrorKind.VALIDATION, hint)
    return dict(given)


def fit_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unknown"


def read_object(arguments: Mapping[str, Any] | str) -> Block:
    """Returns an object: other text is wrapped, so that the model sees what it sent."""
    if not isinstance(arguments, str):
        found: Any = dict(arguments)
    else:
        try:
            found = pydantic_core.from_json(arguments, allow_inf_nan=False) if arguments.strip() else {}
        except (ValueError, TypeError, RecursionError):
            found = None
    return plain(found) if isinstance(found, dict) else {"_raw": sendable(str(arguments))}


def media_type_of(attachment: Attachment) -> str:
    """Returns the type of a file; of an image as its bytes say, since APIs refuse a wrongly declared one."""
    kind = attachment.media_type.partition(";")[0].strip().lower()
    if not kind.startswith("image/"):
        return kind
    if attachment.data[:4] == b"RIFF" and attachment.data[8:12] == b"WEBP":
        return "image/webp"
    found = next((known for start, known in _IMAGES if attachment.data.startswith(start)), "")
    return found or kind.replace("/jpg", "/jpeg")


def describe_file(attachment: Attachment, *, in_prompt: bool = False) -> str:
    """Returns a note in place of a file that the API cannot take; of a text in a prompt, the text itself."""
    name = f"{attachment.name}: " if attachment.name else ""
    if in_prompt and attachment.text:
        return f"[{attachment.name or 'a file'}]\n{attachment.text}"
    return f"[{name}{media_type_of(attachment) or 'a file'}, {len(attachment.data)} bytes, cannot be shown here]"
