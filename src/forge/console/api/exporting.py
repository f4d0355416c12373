"""Exports a run: its events line by line, or as readable Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from forge.console.event_entries import LONGEST_WHOLE, EventEntry, of_runs
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo

PAGE = 2_000
MOST = 200_000  # events of one file
LARGEST = 64_000_000  # characters of it
LEFT_OUT = "export_ends"  # in place of what does not fit


def as_ndjson(store: RunStore, ids: Sequence[str]) -> bytes:
    """Writes events as `forge run --json` does, with their number and run."""
    lines = []
    for entry in _all_entries(store, ids):
        cut = {"clipped": True} if entry.clipped else {}
        lines.append(json.dumps({**entry.event, "run": entry.run, "n": entry.number, **cut}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def as_markdown(store: RunStore, run: RunInfo, ids: Sequence[str]) -> bytes:
    lines = [f"# {_line(run.prompt) or run.id}", "", f"`{run.id}` · {run.agent} · {run.status}", ""]
    for entry in _all_entries(store, ids):
        lines += _render_entry(entry, run.id)
    return "\n".join(lines).encode("utf-8", "backslashreplace")


def _all_entries(store: RunStore, ids: Sequence[str]) -> Iterator[EventEntry]:
    """Yields whole events up to the limit of a file, then one that says that there is more."""
    after: int | None = 0
    count = size = 0
    while after is not None:
        entries, after = of_runs(store, ids, after, PAGE, LONGEST_WHOLE)
        for entry in entries:
            count, size = count + 1, size + len(entry.text)
            yield entry
            if count >= MOST or size >= LARGEST:
                yield EventEntry(entry.number, entry.run, json.dumps({"event": LEFT_OUT, "after": entry.number}))
                return


def _render_entry(entry: EventEntry, main: str) -> list[str]:
    event: dict[str, Any] = entry.event
    who = "" if entry.run == main else f" ({_line(str(event.get('agent', '')))})"
    match event.get("event"):
        case "run_started":
            return [f"## Prompt{who}", "", *_quote(str(event.get("prompt", ""))), ""]
        case "text_delta":
            return [*_quote(str(event.get("text", ""))), ""]
        case "tool_call_start":
            call = event.get("call") or {}
            arguments = json.dumps(call.get("arguments"), ensure_ascii=False, indent=2)
            return [f"### {_line(str(call.get('name', '')))}{who}", "", *_fence(arguments, "json"), ""]
        case "permission_answered":
            return [f"Answered: {_line(str(event.get('answer', '')))}, by {_line(str(event.get('by', '')))}", ""]
        case "context_shortened":
            counts = ((event.get(name), name) for name in ("outputs", "repeats", "summaries", "tokens"))
            return [f"Not sent again{who}: {', '.join(f'{count} {name}' for count, name in counts if count)}", ""]
        case "tool_call_end":
            result = event.get("result") or {}
            if event.get("waits"):
                return ["Waiting for an answer.", ""]
            return [*_fence(str(result.get("for_user") or result.get("for_llm") or "")), ""]
        case "run_finished":
            ended = f"## Ended{who}: {_line(str(event.get('reason', '')))}"
            return [ended, "", *_quote(str(event.get("text") or event.get("error") or "")), ""]
        case "export_ends":
            return [f"The export ends here: the events after {entry.number} do not fit in one file.", ""]
    return []


def _line(text: str) -> str:
    return " ".join(text.split())[:200].replace("`", "'")


def _quote(text: str) -> list[str]:
    """Quotes a text, so that it is not read as markup."""
    return [f"    {line}" for line in text[:LONGEST_WHOLE].splitlines()]


def _fence(text: str, kind: str = "") -> list[str]:
    """Puts a text behind a fence that is longer than any inside it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return [f"{fence}{kind}", text, fence]
