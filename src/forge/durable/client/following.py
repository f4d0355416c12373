"""Merges the events of a run and its sub-runs into one stream, without the repetitions of retries and waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from forge.core.events import Event, PermissionAsked, RunFinished, RunStarted, ToolFailed, ToolFinished, ToolStarted
from forge.core.messages import ToolCall
from forge.core.plain_values import brief
from forge.core.result import ToolResult
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.marks import RunMarked
from forge.durable.store.rows import RunInfo

MOST_AT_ONCE = 1_000  # events, or children, of one run in one query

Key = tuple[str, str, str]


class RunFollower:
    """Reads new events on request. `after` is the number of the last known event."""

    def __init__(self, store: RunStore, run_id: str, after: int = 0) -> None:
        self._store = store
        self._id = run_id
        self._start = after
        self._seen: dict[str, int] = {run_id: after}  # the number of the last event, by run
        self._state: tuple[int, str] | None = None
        self._straight = RepeatFilter()

    def read_new(self) -> tuple[RunInfo, list[Event]]:
        """Returns the run as it is now, and all events since the last call."""
        run = self._store.get(self._id)
        if (run.segment, run.status) != self._state:
            self._state = (run.segment, run.status)
            self._add_children(run.id)
        rows = []
        for run_id in self._seen:
            rows += [(number, run_id, wire) for number, wire in self._new(run_id)]
        events = [self._straight.decode(wire, own=run_id == run.id) for _, run_id, wire in sorted(rows, key=_number)]
        return run, [event for event in events if event is not None]

    def _new(self, run_id: str) -> list[tuple[int, dict[str, Any]]]:
        found: list[tuple[int, dict[str, Any]]] = []
        while True:
            more = self._store.events(run_id, self._seen[run_id], MOST_AT_ONCE)
            found += more
            if more:
                self._seen[run_id] = more[-1][0]
            if len(more) < MOST_AT_ONCE:
                return found

    def _add_children(self, run_id: str) -> None:
        """Adds the runs that it started, recursively."""
        for child in self._store.list(RunFilter(parent=run_id), limit=MOST_AT_ONCE):
            self._seen.setdefault(child.id, self._start)
            self._add_children(child.id)


class RepeatFilter:
    """Removes repeated events: a call that waited is started again when the run resumes, but here it begins and ends
    once.
    """

    def __init__(self) -> None:
        self._begun: set[Key] = set()
        self._failed: set[Key] = set()
        self._asked: set[tuple[Key, str, str, tuple[tuple[str, str], ...]]] = set()

    def decode(self, wire: Mapping[str, Any], *, own: bool = True) -> Event | None:
        """Returns the event, or None if it is not new. `own`: False for an event of a sub-run."""
        try:
            event = event_from_dict(wire)
        except ValueError:  # an event of a newer version, unknown here
            return None
        if isinstance(event, RunMarked) or (not own and isinstance(event, RunStarted | RunFinished)):
            return None  # marked after its end; or its call already has a start and an end
        return event if self._is_new(event) else None

    def _is_new(self, event: Event) -> bool:
        match event:
            case ToolStarted():
                return self._begin((event.agent, event.task, event.call.id))
            case ToolFailed():
                self._failed.add((event.agent, event.task, event.call.id))
            case ToolFinished():
                return self._end((event.agent, event.task, event.call.id), success=event.success)
            case PermissionAsked():
                asked = ((event.agent, event.task, event.call.id), event.permission, event.target, event.others)
                if asked in self._asked:
                    return False
                self._asked.add(asked)
        return True

    def _begin(self, key: Key) -> bool:
        if key in self._begun:
            return False
        self._begun.add(key)
        return True

    def _end(self, key: Key, *, success: bool) -> bool:
        if not success and key not in self._failed:  # the call waits: nothing failed, and it runs again
            return False
        self._begun.discard(key)
        self._failed.discard(key)
        return True


def _number(row: tuple[int, str, Any]) -> int:
    return row[0]


def event_from_dict(wire: Mapping[str, Any]) -> Event:
    """Decodes an event that `to_dict` wrote; missing fields get their defaults. Raises ValueError."""
    kind = _kinds().get(wire.get("event", ""))
    if kind is None:
        raise ValueError(f"event: there is no event {brief(wire.get('event'))}")
    given = {one.name: _decode_value(one.name, wire[one.name]) for one in fields(kind) if one.name in wire}
    try:
        return kind(**given, **({"at": wire["ts"]} if "ts" in wire else {}))
    except TypeError as error:
        raise ValueError(f"{kind.type}: {error}") from None


@cache
def _kinds() -> dict[str, type[Event]]:
    return {kind.type: kind for kind in _subclasses_of(Event)}


def _subclasses_of(kind: type[Event]) -> Iterator[type[Event]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses_of(one)


def _decode_value(name: str, wire: Any) -> Any:
    try:
        if name == "call":
            return ToolCall(wire["name"], wire["arguments"], wire["id"])
        if name == "result":
            return ToolResult.from_dict(wire)
        if name == "others":
            return tuple((permission, target) for permission, target in wire)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from None
    return wire
