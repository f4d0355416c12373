"""Counts calls, errors, refusals and times by day and by tool, from the index alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from forge.project.audit.log_index import EventIndex, IndexedFile

# calls that wait for a person or a run are not over: they end again later
_ENDS = """WITH ends AS (
    SELECT date(ts, 'unixepoch', 'localtime') AS day, tool, wrong, seconds FROM audit_events
    WHERE file IN ({files}) AND ts >= ? AND wrong & 4 = 0
    AND kind = (SELECT id FROM audit_names WHERE text = 'tool_call_end') {tool})"""
_COUNTS = """ SELECT day, text, count(*), sum(wrong & 3 = 2), sum(wrong & 1) FROM ends
    JOIN audit_names ON id = tool GROUP BY day, tool ORDER BY day, text"""
_TIMES = """, ranked AS (SELECT {key} AS part, seconds, row_number() OVER (PARTITION BY {key} ORDER BY seconds) AS rank,
    count(*) OVER (PARTITION BY {key}) AS number FROM ends)
    SELECT {shown}, max(CASE WHEN rank = (number + 1) / 2 THEN seconds END),
    max(CASE WHEN rank = (number * 95 + 99) / 100 THEN seconds END) FROM ranked GROUP BY part"""


class DayCount(NamedTuple):
    """The finished calls of a tool on a local day, as `YYYY-MM-DD`."""

    day: str
    tool: str
    calls: int
    errors: int  # without refusals
    denied: int


class CallTimes(NamedTuple):
    """The seconds that half of the calls take at most, and 95 of 100."""

    p50: float
    p95: float


class Trends(NamedTuple):
    """Figures of calls since a time."""

    counts: Sequence[DayCount]
    by_day: dict[str, CallTimes]
    by_tool: dict[str, CallTimes]


def read_trends(index: EventIndex, files: Sequence[IndexedFile], since: float, tool: str = "") -> Trends:
    """Counts the calls since a time, of one tool or of all. No line of the log is read. Raises `StoreError`."""
    chosen = "AND tool = (SELECT id FROM audit_names WHERE text = ?)" if tool else ""
    ends = _ENDS.format(files=", ".join(str(one.id) for one in files), tool=chosen)
    values: list[Any] = [since, *([tool] if tool else [])]
    tool_name = "(SELECT text FROM audit_names WHERE id = part)"
    return Trends(
        [DayCount(*row) for row in index.query(ends + _COUNTS, values)],
        _read_times(index, ends + _TIMES.format(key="day", shown="part"), values),
        _read_times(index, ends + _TIMES.format(key="tool", shown=tool_name), values),
    )


def _read_times(index: EventIndex, query: str, values: Sequence[Any]) -> dict[str, CallTimes]:
    return {str(name): CallTimes(p50, p95) for name, p50, p95 in index.query(query, values)}
