"""Reads the log of events: line by line however large it is, chosen, followed, summed up."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from forge.app.audit_files import Tail, changed, lines_of, rotations
from forge.core.errors import ErrorKind

NAME = "audit.ndjson"
MOST_TOOLS = 1_000  # that are counted apart: a model may make up names
OTHERS = "(others)"
REFUSED = frozenset({ErrorKind.PERMISSION, ErrorKind.SECURITY})
LATER = 60.0  # seconds by which a rotated log's last event may be younger than the file says

_HEAD = re.compile(rb'\{"event": "(\w+)", "ts": (\d+(?:\.\d+)?(?:e[+-]?\d+)?), "seq": \d+, "session": ')
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h|d|w)", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

Event = dict[str, Any]


class Wanted(NamedTuple):
    """Which events are asked for; what is empty asks for nothing. Names and sessions are patterns."""

    tools: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    since: float = 0.0
    until: float = float("inf")
    denied: bool = False
    errors: bool = False

    def may_match(self, line: bytes) -> bool:
        """By the beginning of a line alone, so that most of a long log need not be read as JSON."""
        head = _HEAD.match(line)
        if head is None:
            return True
        at = float(head[2])
        return self.since <= at < self.until and (not self.events or _any(head[1].decode(), self.events))

    def matches(self, event: Event) -> bool:
        return (
            self.since <= _number(event.get("ts")) < self.until
            and (not self.events or _any(_text(event.get("event")), self.events))
            and (not self.sessions or _any(_text(event.get("session")), self.sessions))
            and (not self.agents or _any(_text(event.get("agent")), self.agents))
            and (not self.tools or _any(tool_of(event), self.tools))
            and (not (self.denied or self.errors) or self._went_wrong(event))
        )

    def _went_wrong(self, event: Event) -> bool:
        return (self.denied and is_refusal(event)) or (self.errors and is_error(event))


class Entry(NamedTuple):
    """An event, and the line it was written as."""

    event: Event
    line: bytes


class Log:
    """The events of a file and of those it was rotated to, the oldest first. `unreadable` counts what was no event."""

    def __init__(self, path: Path, wanted: Wanted | None = None, *, rotated: bool = True) -> None:
        self.path = path
        self.wanted = wanted if wanted is not None else Wanted()
        self.unreadable = 0
        self._rotated = rotated

    @property
    def files(self) -> list[Path]:
        """Those there are. Raises `ToolError` where they cannot be listed."""
        return [*(rotations(self.path) if self._rotated else ()), *([self.path] if os.path.lexists(self.path) else ())]

    def __iter__(self) -> Iterator[Entry]:
        """Raises `ToolError` for a file that cannot be read. Never holds more than a line."""
        for path in self.files:
            if path == self.path or changed(path) + LATER >= self.wanted.since:
                yield from self.chosen(lines_of(path))

    def chosen(self, lines: Iterator[bytes]) -> Iterator[Entry]:
        for line in lines:
            if not self.wanted.may_match(line):
                continue
            entry = self._read(line)
            if entry is not None and self.wanted.matches(entry.event):
                yield entry

    def follow(self, wait: Callable[[], bool], last: int) -> Iterator[Entry]:
        """The last few events, then those that come, until `wait` says no. A log that is rotated or emptied meanwhile,
        or is not there yet, is followed all the same."""
        tail = Tail(self.path)
        with closing(tail):
            recent = list(self.chosen(tail.recent()))
            yield from recent[max(0, len(recent) - last) :]
            while wait():
                yield from self.chosen(tail.more())

    def _read(self, line: bytes) -> Entry | None:
        if not line.strip():
            return None
        event = _event(line)
        if event is not None:
            return Entry(event, line)
        self.unreadable += 1
        # what a crash left of a line may stand before the first line of the next process: quotes in values are escaped,
        # so that only the beginning of a line looks like this
        heads = list(_HEAD.finditer(line))
        event = _event(line[heads[-1].start() :]) if heads and heads[-1].start() else None
        return Entry(event, line[heads[-1].start() :]) if event is not None else None


class Tally:
    """What was done with one tool."""

    def __init__(self) -> None:
        self.calls = self.errors = self.denied = self.asked = self.started = 0
        self.seconds = 0.0

    @property
    def unfinished(self) -> int:
        """Calls without an end: still running, or the process was killed."""
        return max(0, self.started - self.calls)

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "errors": self.errors,
            "denied": self.denied,
            "asked": self.asked,
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 3),
        }


class Summary:
    """Counts events: by tool, and how runs ended. Its size does not depend on how many there are."""

    COUNTED = ("permission_asked", "run_finished", "tool_call_*")

    def __init__(self) -> None:
        self.tools: dict[str, Tally] = {}
        self.runs: dict[str, int] = {}  # reason -> how many
        self.first: float | None = None
        self.last: float | None = None

    def add(self, event: Event) -> None:
        at = _number(event.get("ts"))
        self.first = at if self.first is None else min(self.first, at)
        self.last = at if self.last is None else max(self.last, at)
        kind = event.get("event")
        if kind == "run_finished":
            reason = _text(event.get("reason"))[:40]
            self.runs[reason] = self.runs.get(reason, 0) + 1
        elif kind in ("tool_call_start", "tool_call_end", "permission_asked"):
            self._count(self._of(tool_of(event)), event)

    @property
    def total(self) -> Tally:
        total = Tally()
        for one in self.tools.values():
            for name, value in vars(one).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def to_dict(self) -> dict[str, Any]:
        return {
            "from": self.first,
            "to": self.last,
            "runs": dict(sorted(self.runs.items())),
            "tools": [{"tool": name, **one.to_dict()} for name, one in self.ranked()],
            "total": self.total.to_dict(),
        }

    def ranked(self) -> list[tuple[str, Tally]]:
        """Those used most first."""
        return sorted(self.tools.items(), key=lambda one: (-one[1].calls, one[0]))

    def _of(self, name: str) -> Tally:
        if name not in self.tools and len(self.tools) >= MOST_TOOLS:
            name = OTHERS
        return self.tools.setdefault(name, Tally())

    def _count(self, tally: Tally, event: Event) -> None:
        kind = event["event"]
        if kind == "tool_call_start":
            tally.started += 1
        elif kind == "permission_asked":
            tally.asked += 1
        else:
            tally.calls += 1
            tally.errors += is_error(event)
            tally.denied += is_refusal(event)
            tally.seconds += max(0.0, _number(event.get("seconds")))


def moment(text: str, now: float) -> float:
    """`90s`, `30m`, `2h`, `3d`, `1w` before now; or a date, or a date and a time, here. Raises `ValueError`."""
    from datetime import datetime  # reading all of a log does without

    if span := _SPAN.fullmatch(text.strip()):
        return now - float(span[1]) * _SECONDS[span[2].lower()]
    return datetime.fromisoformat(text.strip()).timestamp()


def tool_of(event: Event) -> str:
    call = event.get("call")
    return _text(call.get("name")) if isinstance(call, dict) else ""


def result_of(event: Event) -> Event:
    result = event.get("result")
    return result if isinstance(result, dict) else {}


def is_error(event: Event) -> bool:
    """A call or a run that ended badly; the event `error` only announces such an end."""
    kind = event.get("event")
    if kind in ("tool_call_end", "tool_completed"):
        return result_of(event).get("is_error") is True or event.get("success") is False
    return kind == "run_finished" and (event.get("reason") in ("error", "loop") or bool(event.get("error")))


def is_refusal(event: Event) -> bool:
    """A call that a rule, a guard or a person did not let pass, and that person's answer."""
    if event.get("event") == "permission_answered":
        return event.get("answer") == "no"
    return event.get("event") == "tool_call_end" and result_of(event).get("error_type") in REFUSED


def _event(line: bytes) -> Event | None:
    from pydantic_core import from_json  # three times as fast as the standard library's, and a log is long

    try:
        found = from_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    """0 for whatever is none: somebody else may have written the line."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return 0.0
    return float(value)
