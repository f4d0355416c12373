"""Reads one event of the log, filters events, and tells errors and refusals."""

from __future__ import annotations

import re
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind, Waiting

REFUSED = frozenset({ErrorKind.PERMISSION, ErrorKind.SECURITY})
WAITS = Waiting("").suggestion

_HEAD = re.compile(rb'\{"event": "(\w+)", "ts": (\d+(?:\.\d+)?(?:e[+-]?\d+)?), "seq": \d+, "session": ')
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h|d|w)", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

Event = dict[str, Any]


class EventFilter(NamedTuple):
    """A filter of events; an empty field accepts all. Names and sessions are patterns."""

    tools: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    since: float = 0.0
    until: float = float("inf")
    denied: bool = False
    errors: bool = False

    @property
    def is_narrow(self) -> bool:
        """True if few events may match, so that an index pays off; a pattern of kinds matches many."""
        kinds = bool(self.events) and not any("*" in one for one in self.events)
        names = bool(self.tools or self.sessions or self.agents)
        return kinds or names or self.denied or self.errors or self.since > 0.0 or self.until != float("inf")

    def may_match(self, line: bytes) -> bool:
        """Tests the beginning of a line, so that most of a long log need not be parsed as JSON."""
        head = _HEAD.match(line)
        if head is None:
            return True
        at = float(head[2])
        return self.since <= at < self.until and (not self.events or matches_any(head[1].decode(), self.events))

    def matches(self, event: Event) -> bool:
        return (
            self.since <= number_of(event.get("ts")) < self.until
            and (not self.events or matches_any(text_of(event.get("event")), self.events))
            and (not self.sessions or matches_any(text_of(event.get("session")), self.sessions))
            and (not self.agents or matches_any(text_of(event.get("agent")), self.agents))
            and (not self.tools or matches_any(tool_of(event), self.tools))
            and (not (self.denied or self.errors) or self._went_wrong(event))
        )

    def _went_wrong(self, event: Event) -> bool:
        return (self.denied and is_refusal(event)) or (self.errors and is_error(event))


class LogEntry(NamedTuple):
    """An event and its line in the log."""

    event: Event
    line: bytes


class ParsedLine(NamedTuple):
    """The content of a line."""

    entry: LogEntry | None
    start: int = 0  # the position of the event in the line
    is_damaged: bool = False


def read_line(line: bytes) -> ParsedLine:
    """Reads the event of a line. A crash may have left part of a line before the first line of the next process."""
    if not line.strip():
        return ParsedLine(None)
    event = _event(line)
    if event is not None:
        return ParsedLine(LogEntry(event, line))
    # quotes in values are escaped, so only the beginning of a line matches
    heads = list(_HEAD.finditer(line))
    start = heads[-1].start() if heads else 0
    event = _event(line[start:]) if start else None
    return ParsedLine(LogEntry(event, line[start:]) if event is not None else None, start, is_damaged=True)


def parse_moment(text: str, now: float) -> float:
    """Parses `90s`, `30m`, `2h`, `3d`, `1w` before now, or a local date or time. Raises `ValueError`."""

    if span := _SPAN.fullmatch(text.strip()):
        return now - float(span[1]) * _UNIT_SECONDS[span[2].lower()]
    return datetime.fromisoformat(text.strip()).timestamp()


def tool_of(event: Event) -> str:
    call = event.get("call")
    return text_of(call.get("name")) if isinstance(call, dict) else ""


def result_of(event: Event) -> Event:
    result = event.get("result")
    return result if isinstance(result, dict) else {}


def is_error(event: Event) -> bool:
    """Returns whether a call or a run failed; the event `error` only announces such an end."""
    kind = event.get("event")
    if kind in ("tool_call_end", "tool_completed"):
        return result_of(event).get("is_error") is True or event.get("success") is False
    return kind == "run_finished" and (event.get("reason") in ("error", "loop") or bool(event.get("error")))


def is_refusal(event: Event) -> bool:
    """Returns whether a rule, a guard or a person refused a call, or the event is that person's answer."""
    if event.get("event") == "permission_answered":
        return event.get("answer") == "no"
    return event.get("event") == "tool_call_end" and result_of(event).get("error_type") in REFUSED


def is_wait(event: Event) -> bool:
    """Returns whether a call only waits, for a person or another run, and will end again later."""
    return event.get("event") == "tool_call_end" and result_of(event).get("suggestion") == WAITS


def _event(line: bytes) -> Event | None:
    from pydantic_core import from_json  # three times as fast as the standard library

    try:
        found = from_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def number_of(value: Any) -> float:
    """Returns 0 for other values, because other programs may have written the line."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return 0.0
    return float(value)
