"""The trends page: calls, errors, refusals and times by day from the index of the event log, runs and costs from the
stored runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.durable.store.rows import OVER
from forge.durable.store.tables import runs
from forge.project.audit.log import DayCount, Trends
from forge.project.audit.log_events import EventFilter, is_error, number_of, text_of

MOST_DAYS = 90
MOST_RUNS = 20_000  # ends of runs that are read for their costs, the newest
MOST_TOOLS = 200
PORTION = 1_000  # ids in one query


def show_trends(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    days = _last_days(request.number("days", 14, 1, MOST_DAYS))
    since = datetime.fromisoformat(days[0]).timestamp()
    log = console.open_log(EventFilter(since=since))
    found = log.trends(request.text("tool"))
    console.add_notes(log.notes)
    notes = [] if found is not None else ["The index of the event log cannot be used now. Calls are not counted."]
    trends = found if found is not None else Trends([], {}, {})
    costs, note = _costs(console, since, days)
    return {
        "days": days,
        "series": {**_series(trends, days), **costs},
        "tools": _tools(trends),
        "denials": _denials(trends, days),
        "notes": [*notes, *note],
    }


def _last_days(count: int) -> list[str]:
    today = date.today()
    return [(today - timedelta(days=back)).isoformat() for back in reversed(range(count))]


def _series(trends: Trends, days: list[str]) -> dict[str, list[Any]]:
    times = [trends.by_day.get(day) for day in days]
    sums = {name: dict.fromkeys(days, 0) for name in ("calls", "errors", "denied")}
    for one in trends.counts:
        for name, by_day in sums.items():
            if one.day in by_day:
                by_day[one.day] += getattr(one, name)
    return {
        **{name: list(by_day.values()) for name, by_day in sums.items()},
        "p50": [one.p50 if one is not None else None for one in times],
        "p95": [one.p95 if one is not None else None for one in times],
    }


def _tools(trends: Trends) -> list[dict[str, Any]]:
    """Returns the figures of each tool, the most called first."""
    sums: dict[str, DayCount] = {}
    for one in trends.counts:
        before = sums.get(one.tool, DayCount("", one.tool, 0, 0, 0))
        added = (before.calls + one.calls, before.errors + one.errors, before.denied + one.denied)
        sums[one.tool] = DayCount("", one.tool, *added)
    rows = [
        {
            **{name: getattr(one, name) for name in ("tool", "calls", "errors", "denied")},
            "p50": times.p50,
            "p95": times.p95,
        }
        for one in sums.values()
        if (times := trends.by_tool.get(one.tool)) is not None
    ]
    return sorted(rows, key=lambda row: (-int(str(row["calls"])), str(row["tool"])))[:MOST_TOOLS]


def _denials(trends: Trends, days: list[str]) -> list[dict[str, Any]]:
    """Returns the refusals of each tool by day, the most refused first."""
    found: dict[str, dict[str, int]] = {}
    for one in trends.counts:
        if one.denied and one.day in days:
            found.setdefault(one.tool, dict.fromkeys(days, 0))[one.day] += one.denied
    most_first = sorted(found, key=lambda tool: (-sum(found[tool].values()), tool))
    return [{"tool": tool, "counts": list(found[tool].values())} for tool in most_first[:MOST_TOOLS]]


_FIGURES = ("runs", "failed", "unlisted", "unlisted_failed", "input", "output")


def _costs(console: ConsoleState, since: float, days: list[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """Returns runs, tokens and costs by day. `runs` and `failed` count the runs of the run list that ended, wherever
    their worker was; `unlisted` counts the runs that only the event log has, such as those of `forge run`. Tokens and
    costs are of both.
    """
    figures = {name: dict.fromkeys(days, 0.0) for name in _FIGURES}
    cost: dict[str, float | None] = dict.fromkeys(days)
    notes: list[str] = []

    def add(day: str, used: Mapping[str, Any], price: Any) -> None:
        for name in ("input", "output"):
            figures[name][day] += number_of(used.get(name))
        if price is not None:
            cost[day] = (cost[day] or 0.0) + number_of(price)

    database = console.runs.store.database
    for day, status, count in database.read(lambda connection: _count_ended(connection, days)):
        figures["runs"][day] += count
        figures["failed"][day] += count if status == "failed" else 0
    stored = database.read(lambda connection: _spent_of_ended(connection, since))
    for _, ended, spent in stored:
        used = spent.get("usage")
        if (day := _day_of(ended)) in cost:
            add(day, used if isinstance(used, dict) else {}, spent.get("cost"))
    ends = _read_ends(console, since, {name for name, _, _ in stored})
    for event in ends:
        if (day := _day_of(number_of(event.get("ts")))) in cost:
            used = event.get("usage")
            add(day, used if isinstance(used, dict) else {}, event.get("cost"))
            figures["unlisted"][day] += event.get("event") == "run_finished"
            figures["unlisted_failed"][day] += is_error(event)
    if max(len(stored), len(ends)) == MOST_RUNS:
        notes.append(f"Costs and tokens are of the newest {MOST_RUNS:,} runs only.")
    series: dict[str, list[Any]] = {name: list(by_day.values()) for name, by_day in figures.items()}
    return {**series, "cost": list(cost.values())}, notes


def _day_of(moment: float) -> str:
    return datetime.fromtimestamp(moment).date().isoformat()


def _is_ended_root(since: float) -> list[sa.ColumnElement[bool]]:
    return [runs.c.parent == "", runs.c.status.in_(OVER), runs.c.updated >= since]


def _count_ended(connection: sa.Connection, days: list[str]) -> list[tuple[str, str, int]]:
    """Counts the runs that ended, by local day and status, in one statement."""
    starts = [datetime.fromisoformat(day).timestamp() for day in days]
    ends = [*starts[1:], (datetime.fromisoformat(days[-1]) + timedelta(days=1)).timestamp()]
    day = sa.case(*((runs.c.updated < end, name) for name, end in zip(days, ends, strict=True)), else_=days[-1])
    query = sa.select(day.label("day"), runs.c.status, sa.func.count()).where(*_is_ended_root(starts[0]))
    rows = connection.execute(query.group_by(sa.text("1"), runs.c.status))
    return [(row[0], row[1], row[2]) for row in rows]


def _spent_of_ended(connection: sa.Connection, since: float) -> list[tuple[str, float, dict[str, Any]]]:
    """Returns id, end and usage of the newest ended runs. The usage of a sub-agent is part of its parent's."""
    query = sa.select(runs.c.id, runs.c.updated, runs.c.spent).where(*_is_ended_root(since))
    rows = connection.execute(query.order_by(runs.c.updated.desc()).limit(MOST_RUNS))
    return [(row[0], row[1], row[2] if isinstance(row[2], dict) else {}) for row in rows]


def _read_ends(console: ConsoleState, since: float, stored: Collection[str]) -> list[dict[str, Any]]:
    """Reads the ends of runs that are not stored, and the titles, which the index finds: no other line is read.

    Of a stored run that was removed since then, the last end counts: it has the totals.
    """
    log = console.open_log(EventFilter(events=("run_finished", "session_titled"), since=since))
    read = [entry.event for entry in log.last(MOST_RUNS)]
    console.add_notes(log.notes)
    known = _known_runs(console, {text_of(event.get("run")) for event in read} - {"", *stored})
    ends: dict[Any, dict[str, Any]] = {}
    for number, event in enumerate(read):
        run = text_of(event.get("run"))
        if run not in stored and run not in known and not (run and "/" in text_of(event.get("agent"))):
            ends[run or number] = event
    return list(ends.values())


def _known_runs(console: ConsoleState, ids: Collection[str]) -> set[str]:
    """Returns those of the runs that are stored, such as one that was resumed and runs now."""
    found: set[str] = set()
    wanted = sorted(ids)
    for start in range(0, len(wanted), PORTION):
        query = sa.select(runs.c.id).where(runs.c.id.in_(wanted[start : start + PORTION]))
        found.update(console.runs.store.database.read(lambda connection: connection.execute(query).scalars().all()))  # noqa: B023
    return found
