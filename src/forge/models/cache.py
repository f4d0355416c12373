"""Tells for each request what the provider read from its cache, and why it did not read more."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forge.core.messages import SUMMARY_HEADING, Message, Usage, context_edits, export_message
from forge.core.plain_values import visible
from forge.core.provider import ModelRequest, Provider, StreamPart, name_model

KEPT = 300.0  # seconds that a provider keeps a prompt at least, if nothing asks for it
SMALL = 1_024  # tokens that a provider may leave out of its cache: it stores whole steps, and no short prompts
MOST_NAMED = 3  # tools in a cause

_SYSTEM = ("system", "instructions", "systemInstruction")
_HISTORY = ("messages", "input", "contents")
_SETTINGS = ("tool_choice", "thinking", "output_config", "reasoning", "text", "response_format")
_MARKS = ("cache_control", "cachePoint")


@dataclass(frozen=True, slots=True)
class CachedTurn:
    """The tokens of one request, and why some of them are paid for again.

    Args:
        session: the session of the request.
        model: the model that was asked.
        sent: input tokens.
        cached: input tokens that were read from the cache.
        written: input tokens that were written to the cache, where the provider says so.
        again: tokens of the request before that were not read from the cache: they are paid for again.
        cause: why, in words; "" if the cache held what it could.

    Example:
        >>> CachedTurn("ada", "claude-sonnet-5", sent=9_000, cached=1_000, again=7_000, cause="tools changed").again
        7000
    """

    session: str
    model: str
    sent: int = 0
    cached: int = 0
    written: int = 0
    again: int = 0
    cause: str = ""


class _Part(NamedTuple):
    """A piece of the prompt: what it is, and a number that is the same for the same text."""

    kind: str
    name: str
    digest: int
    note: str = ""


class _SentPrompt(NamedTuple):
    """A request of a session."""

    parts: list[_Part]
    sent: int
    at: float


class ExplainedModel:
    """A model whose requests are explained: `turns` has an entry for each turn of an agent, `table()` prints them.

    Args:
        provider: the model.
        clock: returns the time in seconds.

    Example:
        >>> ExplainedModel(Scripted("Hello!")).table()
        'prompt cache: no request was sent'
    """

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self.turns: list[CachedTurn] = []
        self._clock = clock
        self._before: dict[str, _SentPrompt] = {}  # by session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        """Streams the answer of the model."""
        bodies: list[Mapping[str, Any]] = []
        parts: Any = self.provider.stream(replace(request, watch=bodies.append))
        async with aclosing(parts):
            async for part in parts:
                if isinstance(part, Message) and request.session:  # others are not part of a conversation
                    self._take(request, bodies[0] if bodies else _body_of(request), part)
                yield part

    def table(self) -> str:
        """Returns the turns as a table, with the sums and the breaks by their cause."""
        if not self.turns:
            return "prompt cache: no request was sent"
        rows = [("turn", "model", "sent", "cached", "written", "again", "cause of the break")]
        for number, turn in enumerate(self.turns, 1):
            rows.append((str(number), turn.model[:40], *_write_counts(turn), turn.cause))
        widths = [max(len(row[at]) for row in rows) for at in range(6)]
        lines = ["prompt cache, in tokens:"]
        for row in rows:
            cells = [cell.ljust(width) if at == 1 else cell.rjust(width) for at, (cell, width) in _columns(row, widths)]
            lines.append(f"  {'  '.join([*cells, row[6]])}".rstrip())
        total = CachedTurn("", "", *(sum(getattr(turn, name) for turn in self.turns) for name in _COUNTS))
        breaks = sum(bool(turn.cause) for turn in self.turns)
        sums = ", ".join(f"{getattr(total, name):,} {name}" for name in _COUNTS)
        return "\n".join([*lines, f"  {sums}; {breaks} break{'' if breaks == 1 else 's'}"])

    def _take(self, request: ModelRequest, body: Mapping[str, Any], message: Message) -> None:
        asked = _SentPrompt(list(_read_parts(body)), message.usage.input, self._clock())
        before = self._before.get(request.session)
        self._before[request.session] = asked
        again, cause = _explain(before, asked, message.usage) if before is not None else (0, "")
        if again > SMALL and context_edits(message):
            cause = "context edited by the provider"
        model = str(body.get("model") or name_model(self.provider)[1])
        used = message.usage
        self.turns.append(
            CachedTurn(request.session, model, used.input, used.cached, used.cache_writes, again, visible(cause))
        )


_COUNTS = ("sent", "cached", "written", "again")


def explain_cache(model: Provider) -> ExplainedModel:
    """Returns the model with a record of what its provider reads from the cache.

    Args:
        model: the model, such as `provider_for("anthropic:claude-sonnet-5")`.

    Example:
        >>> model = explain_cache(Scripted("Hello!"))
        >>> agent = Agent(model)
        >>> agent.run_sync("Hi").text
        'Hello!'
        >>> [turn.cause for turn in model.turns]
        ['']
    """
    return ExplainedModel(model)


def _write_counts(turn: CachedTurn) -> tuple[str, str, str, str]:
    return f"{turn.sent:,}", f"{turn.cached:,}", f"{turn.written:,}", f"{turn.again:,}"


def _columns(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    return enumerate(zip(row[:6], widths, strict=True))


# Compares a request with the one before it in its session.


def _explain(before: _SentPrompt, now: _SentPrompt, usage: Usage) -> tuple[int, str]:
    """Returns the tokens that are paid for again, and why."""
    again = max(0, before.sent - usage.cached)
    at = next((at for at, part in enumerate(before.parts) if now.parts[at : at + 1] != [part]), None)
    if at is not None:
        return again, _name_change(before.parts, now.parts, at) if again else ""
    if again <= SMALL:
        return again, ""
    seconds = now.at - before.at
    if seconds > KEPT:
        return again, f"expired: the request before was {seconds / 60:.0f} minutes ago"
    return again, "no longer in the provider's cache, though the prompt only grew"


def _name_change(before: Sequence[_Part], now: Sequence[_Part], at: int) -> str:
    kind = before[at].kind
    if kind == "model":
        return f"model changed: from {before[at].name} to {now[at].name}"
    if kind == "tools" or (at < len(now) and now[at].kind == "tools"):
        return f"tools changed: {_compare_tools(before, now)}"
    if kind == "settings":
        return f"settings changed: {before[at].name}"
    if kind == "system" or (at < len(now) and now[at].kind == "system"):
        return "system prompt changed"
    number = sum(part.kind == "history" for part in before[: at + 1])
    note = now[at].note if at < len(now) else "the end is gone"
    return f"history rewritten: {note or f'part {number} ({before[at].name}) changed'}"


def _compare_tools(before: Sequence[_Part], now: Sequence[_Part]) -> str:
    old = {part.name: part.digest for part in before if part.kind == "tools"}
    new = {part.name: part.digest for part in now if part.kind == "tools"}
    found = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and old[name] != new[name]],
    }
    said = [f"{what} {_list_names(names)}" for what, names in found.items() if names]
    return ", ".join(said) or "another order"


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


# Reads the parts of a prompt from the body of a request, in the order in which providers read them.


def _read_parts(body: Mapping[str, Any]) -> Iterator[_Part]:
    yield _part("model", str(body.get("model", "")), "")
    deferred: dict[str, Any] = {}
    for one in _list_tools(body):
        name = _name_tool(one)
        if one.get("defer_loading"):
            deferred[name] = one  # loaded where the history refers to it
        else:
            yield _part("tools", name, one)
    for key in _SYSTEM:
        if key in body:
            yield _part("system", key, body[key])
    history = [turn for key in _HISTORY for turn in body.get(key, ())]
    told = 0
    while told < len(history) and history[told].get("role") in ("system", "developer"):
        yield _part("system", "", history[told])
        told += 1
    for key in _SETTINGS:
        if key in body:
            yield _part("settings", key, body[key])
    for turn in history[told:]:
        yield from _read_turn(turn, deferred)


def _read_turn(turn: Mapping[str, Any], deferred: Mapping[str, Any]) -> Iterator[_Part]:
    role = str(turn.get("role") or turn.get("type") or "")
    blocks = turn.get("content", turn.get("parts"))
    if not isinstance(blocks, list):
        yield _part("history", role, turn)
        return
    for block in blocks:
        inner = block.get("content") if isinstance(block, Mapping) else None
        names = (
            [str(one.get("tool_name")) for one in inner if isinstance(one, Mapping)] if isinstance(inner, list) else []
        )
        loaded = [deferred[name] for name in names if name in deferred]
        yield _part("history", f"{role}'s {_kind_of(block)}", [role, block, loaded])


def _kind_of(block: Any) -> str:
    if not isinstance(block, Mapping):
        return "text"
    return str(block.get("type") or next(iter(block), "text")).replace("_", " ")


def _list_tools(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    given = body.get("tools") or (body.get("toolConfig") or {}).get("tools") or ()
    for one in given:
        if isinstance(one, Mapping):
            yield from one.get("functionDeclarations") or (one,)


def _name_tool(one: Mapping[str, Any]) -> str:
    inner = one.get("function") or one.get("toolSpec") or one
    return str(inner.get("name") or one.get("type") or next(iter(one), ""))


def _part(kind: str, name: str, value: Any) -> _Part:
    text = json.dumps(value, default=str, ensure_ascii=False) if value else ""
    for mark in _MARKS:  # marks move from turn to turn, and are no part of the prompt
        if mark in text:
            text = json.dumps(_without(value, mark), default=str, ensure_ascii=False)
            break
    note = ""
    if kind == "history" and SUMMARY_HEADING in text:
        note = "a summary stands for older messages"
    elif kind == "history" and "[left out: " in text:
        note = "an old output was left out"
    return _Part(kind, name, hash(text), note)


def _without(value: Any, mark: str) -> Any:
    if isinstance(value, list):
        return [_without(one, mark) for one in value]
    if isinstance(value, Mapping):
        return {key: _without(one, mark) for key, one in value.items() if key != mark}
    return value


def _body_of(request: ModelRequest) -> dict[str, Any]:
    """Returns what a model without an HTTP request was sent."""
    messages = [export_message(message) for message in request.messages]
    return {"tools": request.definitions("openai"), "messages": messages}
