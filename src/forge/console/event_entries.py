"""Renders events for the page: numbered, of one run or of a run and its children, with long texts cut."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from forge.core.errors import ErrorKind, ToolError, Waiting
from forge.core.plain_values import plain
from forge.durable.store import RunStore
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import events

LONGEST = 32_768  # characters of a text in a list or a stream
LONGEST_WHOLE = 8_000_000  # … of one event that is asked for by its number
MOST_ITEMS = 2_000  # of a list in an event
MOST_RUNS = 500  # of a family
WAITS = Waiting("").suggestion
_LAST = 2**62
_LOOKED_AT = ('"arguments":"', '"attachments":[{', WAITS)  # what makes an event be read before it is passed on
_PIECES = tuple(  # as they are stored
    f'{{"event":"{kind}"' for kind in ("text_delta", "reasoning_delta", "tool_arguments_delta", "tool_output_chunk")
)
_EVENT = sa.type_coerce(events.c.event, sa.Text)


@dataclass(slots=True)
class EventEntry:
    """An event; `text` is its JSON: most events are passed on without being parsed."""

    number: int
    run: str
    text: str
    clipped: bool = False

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


def newest_number(store: RunStore) -> int:
    query = sa.select(sa.func.max(events.c.number))
    return store.database.read(lambda connection: connection.execute(query).scalar()) or 0


def entries_after(store: RunStore, after: int, also: Collection[int], limit: int) -> list[EventEntry]:
    """Returns entries of all runs after a number, and those of numbers that were missing before."""
    c = events.c
    wanted = sa.or_(c.number > after, c.number.in_(list(also))) if also else c.number > after
    query = sa.select(c.number, c.run, _EVENT).where(wanted).order_by(c.number).limit(limit)
    return [build_entry(*row) for row in store.database.read(lambda connection: connection.execute(query).all())]


def of_runs(
    store: RunStore, ids: Sequence[str], after: int, limit: int, longest: int = LONGEST
) -> tuple[list[EventEntry], int | None]:
    """Returns the entries, and the number after which there are more; None at the end. Texts are cut at `longest`."""
    c = events.c
    query = sa.select(c.number, c.run, _EVENT).where(c.run.in_(ids), c.number > max(0, min(after, _LAST)))
    rows = store.database.read(lambda connection: connection.execute(query.order_by(c.number).limit(limit)).all())
    return join_pieces([build_entry(row[0], row[1], row[2], longest) for row in rows]), rows[-1].number if len(
        rows
    ) == limit else None


def tail_of_runs(store: RunStore, ids: Sequence[str], limit: int) -> list[EventEntry]:
    c = events.c
    query = sa.select(c.number, c.run, _EVENT).where(c.run.in_(ids)).order_by(c.number.desc()).limit(limit)
    rows = store.database.read(lambda connection: connection.execute(query).all())
    return join_pieces([build_entry(*row) for row in reversed(rows)])


def one_entry(store: RunStore, ids: Sequence[str], number: int, limit: int = LONGEST_WHOLE) -> EventEntry:
    return build_entry(*_row(store, ids, number), limit)


def attachment(store: RunStore, ids: Sequence[str], number: int, index: int) -> tuple[str, bytes]:
    """Returns the name and the bytes of a result's attachment."""
    wire = (from_json(_row(store, ids, number)[2]).get("result") or {}).get("attachments") or []
    if not 0 <= index < len(wire):
        raise ToolError(f"event {number} has no attachment {index}", ErrorKind.NOT_FOUND, "Load the run again.")
    if why := wire[index].get("left_out"):
        raise ToolError(f"attachment {index} is not in the event: {why}", ErrorKind.NOT_FOUND, "Open the file there.")
    return str(wire[index].get("name") or f"attachment-{index}"), b64decode(wire[index].get("data") or "")


def span(store: RunStore, ids: Sequence[str]) -> dict[str, int]:
    c = events.c
    query = sa.select(sa.func.min(c.number), sa.func.max(c.number), sa.func.count()).where(c.run.in_(ids))
    first, last, count = store.database.read(lambda connection: connection.execute(query).one())
    return {"first": first or 0, "last": last or 0, "events": count}


def family(store: RunStore, run: RunInfo) -> list[RunInfo]:
    """Returns the run and all its descendants, parents first."""
    found, waiting = [run], [run]
    while waiting and len(found) < MOST_RUNS:
        children = store.list(parent=waiting.pop(0).id, limit=MOST_RUNS)[::-1]
        found += children
        waiting += children
    return found[:MOST_RUNS]


def build_entry(number: int, run: str, event: str | Mapping[str, Any], limit: int = LONGEST) -> EventEntry:
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
    if first["event"] != event["event"] or _call(first) != _call(event) or first.get("agent") != event.get("agent"):
        return False
    return length + len(event["text"]) <= LONGEST


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


def _row(store: RunStore, ids: Sequence[str], number: int) -> tuple[int, str, str]:
    c = events.c
    query = sa.select(c.number, c.run, _EVENT).where(c.number == max(0, min(number, _LAST)), c.run.in_(ids))
    row = store.database.read(lambda connection: connection.execute(query).first())
    if row is None:
        raise ToolError(f"the run has no event {number}", ErrorKind.NOT_FOUND, "Load the run again.")
    return row[0], row[1], row[2]
