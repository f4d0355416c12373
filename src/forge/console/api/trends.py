"""The trends page: calls, errors, refusals, times and costs by day, from the index of the event log."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.project.audit.log_events import EventFilter, is_error, number_of, text_of
from forge.project.audit.log_trends import DayCount, Trends

MOST_DAYS = 90
MOST_RUNS = 20_000  # ends of runs that are read for their costs, the newest
MOST_TOOLS = 200


def show_trends(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    days = _last_days(request.number("days", 14, 1, MOST_DAYS))
    since = datetime.fromisoformat(days[0]).timestamp()
    log = console.open_log(EventFilter(since=since))
    found = log.trends(request.text("tool"))
    console.say(log.notes)
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


class _RunFigures:
    """Counts the tokens and costs of each run once. A durable run that is resumed reports its totals again."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, float]] = {}

    def add(self, event: dict[str, Any]) -> dict[str, float] | None:
        """Returns what this end of a run adds to the figures; None for a sub-agent, whose parent counts its tokens."""
        usage, run = event.get("usage"), text_of(event.get("run"))
        if run and "/" in text_of(event.get("agent")):
            return None
        used = usage if isinstance(usage, dict) else {}
        now = {"runs": float(event.get("event") == "run_finished"), "cost": number_of(event.get("cost"))}
        now |= {name: number_of(used.get(name)) for name in ("input", "output")}
        if not run:
            return now
        before, self._before[run] = self._before.get(run, {}), now
        return {name: max(0.0, value - before.get(name, 0.0)) for name, value in now.items()}


def _costs(console: ConsoleState, since: float, days: list[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """Reads the ends of runs and the titles, which the index finds: no other line of the log is read."""
    log = console.open_log(EventFilter(events=("run_finished", "session_titled"), since=since))
    ends = [entry.event for entry in log.last(MOST_RUNS)]
    console.say(log.notes)
    figures = {name: dict.fromkeys(days, 0.0) for name in ("runs", "failed", "input", "output")}
    cost: dict[str, float | None] = dict.fromkeys(days)
    counted = _RunFigures()
    for event in ends:
        day = datetime.fromtimestamp(number_of(event.get("ts"))).date().isoformat()
        added = counted.add(event)
        if day not in cost or added is None:
            continue
        figures["failed"][day] += is_error(event)
        for name, by_day in figures.items():
            by_day[day] += added.get(name, 0.0)
        if event.get("cost") is not None:
            cost[day] = (cost[day] or 0.0) + added["cost"]
    series: dict[str, list[Any]] = {name: list(by_day.values()) for name, by_day in figures.items()}
    note = f"Costs and tokens are of the newest {MOST_RUNS:,} runs only."
    return {**series, "cost": list(cost.values())}, [note] if len(ends) == MOST_RUNS else []
