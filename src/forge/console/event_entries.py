"""Renders events for the page: numbered, of one run or of a run and its children, with long texts cut."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.plain_values import plain
from forge.durable.store import RunStore
from forge.durable.store.events import (
    StoredEvent,
    newest_event,
    read_event,
    read_events,
    read_last_events,
    span_of_events,
)
from forge.durable.store.find import RunFilter
from forge.durable.store.rows import RunInfo

LONGEST_TEXT = 32_768  # characters of a text in a list or a stream
LONGEST_WHOLE = 8_000_000  # … of one event that is asked for by its number
MOST_ITEMS = 2_000  # of a list in an event
MOST_RUNS = 500  # of a family
WAITS = Waiting("").suggestion
_LOOKED_AT = ('"arguments":"', '"attachments":[{', WAITS)  # what makes an event be read before it is passed on
_PIECES = tuple(  # as they are stored
    f'{{"event":"{kind}"' for kind in ("text_delta", "reasoning_delta", "tool_arguments_delta", "tool_output_chunk")
)


@dataclass(slots=True)
class EventEntry:
    """An event; `text` is its JSON: most events are passed on without being parsed."""

    number: int
    run: str
    text: str
    clipped: bool = False
    row: int = 0  # of the store

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = from_json(self.text)
        return found

    def to_dict(self) -> dict[str, Any]:
        more = {"clipped": True} if self.clipped else {}
        return {"n": self.number, "run": self.run, "event": self.event, **more}

    def line(self) -> str:
        more = ',"clipped":true' if self.clipped else ""
        return f'{{"n":{self.number},"run":{json.dumps(self.run)},"event":{self.text}{more}}}'


def newest_numbers(store: RunStore) -> tuple[int, int]:
    """Returns the highest number of an event, and the number of its row."""
    return store.read_events(newest_event)


def entries_after(store: RunStore, after: int, also: Collection[int], limit: int) -> list[EventEntry]:
    """Returns entries of all runs after a number, and those of rows that were missing before."""
    found = store.read_events(lambda connection: read_events(connection, None, after, limit, also))
    return [_entry_of(one) for one in found]


def of_runs(
    store: RunStore, ids: Sequence[str], after: int, limit: int, longest: int = LONGEST_TEXT
) -> tuple[list[EventEntry], int | None]:
    """Returns the entries, and the number after which there are more; None at the end. Texts are cut at `longest`."""
    found = store.read_events(lambda connection: read_events(connection, ids, max(0, after), limit))
    entries = join_pieces([_entry_of(one, longest) for one in found])
    return entries, found[-1].number if len(found) == limit else None


def tail_of_runs(store: RunStore, ids: Sequence[str], limit: int) -> list[EventEntry]:
    newest = store.read_events(lambda connection: read_last_events(connection, ids, limit))
    return join_pieces([_entry_of(one) for one in newest])


def one_entry(store: RunStore, ids: Sequence[str], number: int, limit: int = LONGEST_WHOLE) -> EventEntry:
    return _entry_of(_find(store, ids, number), limit)


def attachment(store: RunStore, ids: Sequence[str], number: int, index: int) -> tuple[str, bytes]:
    """Returns the name and the bytes of a result's attachment."""
    wire = (from_json(_find(store, ids, number).text).get("result") or {}).get("attachments") or []
    if not 0 <= index < len(wire):
        raise ToolError(f"event {number} has no attachment {index}", ErrorKind.NOT_FOUND, "Load the run again.")
    if why := wire[index].get("left_out"):
        raise ToolError(f"attachment {index} is not in the event: {why}", ErrorKind.NOT_FOUND, "Open the file there.")
    return str(wire[index].get("name") or f"attachment-{index}"), b64decode(wire[index].get("data") or "")


def span(store: RunStore, ids: Sequence[str]) -> dict[str, int]:
    first, last, count = store.read_events(lambda connection: span_of_events(connection, ids))
    return {"first": first, "last": last, "events": count}


def family(store: RunStore, run: RunInfo) -> list[RunInfo]:
    """Returns the run and all its descendants, parents first."""
    found, waiting = [run], [run]
    while waiting and len(found) < MOST_RUNS:
        children = store.list(RunFilter(parent=waiting.pop(0).id), limit=MOST_RUNS)[::-1]
        found += children
        waiting += children
    return found[:MOST_RUNS]


def build_entry(number: int, run: str, event: str | Mapping[str, Any], limit: int = LONGEST_TEXT) -> EventEntry:
    """Builds an entry: long texts are cut, attachments only named, and a waiting call is distinguished from a failed
    one.
    """
    if isinstance(event, str) and len(event) <= limit and not any(mark in event for mark in _LOOKED_AT):
        return EventEntry(number, run, event)
    read: Mapping[str, Any] = from_json(event) if isinstance(event, str) else event
    entry = EventEntry(number, run, "")
    entry.text = dump_json(_cut_texts(_plainer(read), limit, entry))
    return entry


def dump_json(value: Any) -> str:
    """Writes JSON for browsers: no NaN, and lone surrogates as escapes."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=str).decode()
    except (ValueError, UnicodeError):
        return json.dumps(plain(value))


def _plainer(event: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(event)
    call, result = event.get("call"), event.get("result")
    if isinstance(call, dict) and isinstance(call.get("arguments"), str):
        made["call"] = {**call, "arguments": read_arguments(call["arguments"])}
    if isinstance(result, dict):
        made["result"] = {**result, "attachments": _describe_attachments(result.get("attachments"))}
        if result.get("is_error") and result.get("suggestion") == WAITS:
            made["waits"] = True
    return made


def read_arguments(arguments: str) -> Any:
    """Parses the arguments, which a model sends as text; other values stay as they are."""
    try:
        found = from_json(arguments)
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def join_pieces(entries: list[EventEntry]) -> list[EventEntry]:
    """Joins pieces of one text into one entry, with the number of the last."""
    found: list[EventEntry] = []
    pieces: list[EventEntry] = []
    read: list[dict[str, Any]] = []  # their events
    length = 0  # of their texts
    for one in entries:
        event = one.event if one.text.startswith(_PIECES) else None
        if pieces and (event is None or pieces[0].run != one.run or not _belong_together(read[0], event, length)):
            found.append(_whole(pieces, read))
            pieces, read, length = [], [], 0
        if event is None:
            found.append(one)
            continue
        pieces.append(one)
        read.append(event)
        length += len(event["text"])
    return [*found, _whole(pieces, read)] if pieces else found


def _whole(pieces: list[EventEntry], read: list[dict[str, Any]]) -> EventEntry:
    if len(pieces) == 1:
        return pieces[0]
    event = {**read[0], "text": "".join(one["text"] for one in read)}
    return EventEntry(pieces[-1].number, pieces[-1].run, dump_json(event), any(one.clipped for one in pieces))


def _belong_together(first: Mapping[str, Any], event: Mapping[str, Any], length: int) -> bool:
    if _call(first) != _call(event) or any(first.get(name) != event.get(name) for name in ("event", "agent", "task")):
        return False
    return length + len(event["text"]) <= LONGEST_TEXT


def _call(event: Mapping[str, Any]) -> Any:
    return (event.get("call") or {}).get("id")


def _describe_attachments(attachments: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": str(one.get("name", "")),
            "media_type": str(one.get("media_type", "")),
            "size": one.get("bytes") or len(one.get("data") or "") * 3 // 4 - str(one.get("data") or "").count("=", -2),
            **({"left_out": str(one["left_out"])} if one.get("left_out") else {}),
            "index": index,
        }
        for index, one in enumerate(attachments or ())
        if isinstance(one, dict)
    ]


def _cut_texts(value: Any, limit: int, entry: EventEntry) -> Any:
    if isinstance(value, str):
        if len(value) <= limit:
            return value
        entry.clipped = True
        return f"{value[:limit]}… [{len(value) - limit:,} more characters]"
    if isinstance(value, dict):
        return {str(key)[:limit]: _cut_texts(one, limit, entry) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > MOST_ITEMS:
        entry.clipped = True
        value = [*value[:MOST_ITEMS], f"… [{len(value) - MOST_ITEMS:,} more]"]
    return [_cut_texts(one, limit, entry) for one in value]


def _find(store: RunStore, ids: Sequence[str], number: int) -> StoredEvent:
    found = store.read_events(lambda connection: read_event(connection, ids, number))
    if found is None:
        raise ToolError(f"the run has no event {number}", ErrorKind.NOT_FOUND, "Load the run again.")
    return found


def _entry_of(stored: StoredEvent, limit: int = LONGEST_TEXT) -> EventEntry:
    entry = build_entry(stored.number, stored.run, stored.text, limit)
    entry.row = stored.row
    return entry
