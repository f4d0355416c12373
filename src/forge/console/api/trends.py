"""The trends page: calls, errors, refusals and times from the index of the event log; runs, costs, tokens, questions
and their waits from the stored runs. By day, and by agent, model, tool and user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest
from forge.console.console_state import ConsoleState
from forge.durable.store.find import now
from forge.durable.store.rows import OVER
from forge.durable.store.tables import IS_ROOT, questions, runs
from forge.project.audit.log import DayCount, Trends
from forge.project.audit.log_events import EventFilter, is_error, number_of, text_of

MOST_DAYS = 90
MOST_RUNS = 20_000  # ended runs that are counted, the newest
MOST_QUESTIONS = 20_000  # questions that are counted, the newest
MOST_GROUPS = 200  # tools, agents, models or users
PORTION = 1_000  # ids in one query
SUBJECTS = ("agent", "model", "user")
_OF_RUNS = ("runs", "failed", "cost", "input", "output", "cached", "run_p50", "run_p95")
_OF_QUESTIONS = ("questions", "refused", "wait_p50", "wait_p95")
_OF_CALLS = ("calls", "errors", "denied")
_SUMS = ("runs", "failed", "input", "output", "cached", "questions", "refused")  # 0 where there are none; else null

Row = dict[str, Any]


def show_trends(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    days = _last_days(request.number("days", 14, 1, MOST_DAYS))
    since = datetime.fromisoformat(days[0]).timestamp()
    wanted = {name: request.text(name) for name in (*SUBJECTS, "tool") if request.text(name)}
    log = console.open_log(EventFilter(since=since))
    found = log.trends(wanted.get("tool", ""), wanted.get("agent", ""))
    console.add_notes(log.notes)
    notes = [] if found is not None else ["The index of the event log cannot be used now. Calls are not counted."]
    trends = found if found is not None else Trends([], {}, {}, [])
    read = console.runs.store.database.read
    stored = read(lambda connection: _read_stored(connection, days, since, wanted))
    series, more_notes = _stored_series(console, stored, days, since, wanted)
    if "model" in wanted or "user" in wanted:
        notes.append(
            "Calls, their durations, errors and denials are of all models and users: the event log does not have them. "
            "Runs, cost, tokens and questions are of the chosen ones."
        )
    tools = _tools(trends)
    return {
        "days": days,
        "series": {**_call_series(trends, days), **series},
        "tools": tools,
        "denials": _denials(trends, days),
        "by": {**_by_subject(stored, trends), "tool": _by_tool(tools, stored)},
        "notes": [*notes, *more_notes],
    }


def _last_days(count: int) -> list[str]:
    today = date.today()
    return [(today - timedelta(days=back)).isoformat() for back in reversed(range(count))]


# Stored runs and questions, counted in the database.


def _read_stored(
    connection: sa.Connection, days: Sequence[str], since: float, wanted: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the figures of runs and questions by day, agent, model and user, of questions also by tool, and the
    agent, the model and the user of each session.
    """
    of = [runs.c[name] == wanted[name] for name in SUBJECTS if name in wanted]
    columns = [runs.c[name] for name in (*SUBJECTS, "session", "status", "cost", "worked", "input", "output", "cached")]
    ended = (
        sa.select(*columns, _day_case(runs.c.updated, days).label("day"))
        .where(IS_ROOT, runs.c.status.in_(OVER), runs.c.updated >= since, *of)
        .order_by(runs.c.updated.desc())
        .limit(MOST_RUNS)
        .subquery()
    )
    of_tool = [questions.c.tool == wanted["tool"]] if "tool" in wanted else []
    is_no = sa.type_coerce(questions.c.answer, sa.Text).contains('"kind":"no"')
    asked = (
        sa.select(
            *(runs.c[name] for name in SUBJECTS),
            questions.c.tool,
            (sa.func.coalesce(questions.c.answered, now(connection)) - questions.c.asked).label("wait"),
            sa.case((is_no, 1), else_=0).label("no"),
            _day_case(questions.c.asked, days).label("day"),
        )
        .join(runs, runs.c.id == questions.c.run)
        .where(questions.c.asked >= since, *of, *of_tool)
        .order_by(questions.c.asked.desc())
        .limit(MOST_QUESTIONS)
        .subquery()
    )
    failed = sa.func.sum(sa.case((ended.c.status == "failed", 1), else_=0))
    tokens = [sa.cast(sa.func.sum(ended.c[name]), sa.BigInteger) for name in ("input", "output", "cached")]
    sums = [sa.func.sum(ended.c.cost), *tokens]
    told: dict[str, Any] = {"runs": {}, "questions": {}}
    for key in ("day", *SUBJECTS):
        counts = _grouped(connection, ended.c[key], sa.func.count(), failed, *sums)
        times = _percentiles(connection, ended.c[key], ended.c.worked)
        told["runs"][key] = _name_figures(_OF_RUNS, counts, times)
    for key in ("day", *SUBJECTS, "tool"):
        counts = _grouped(connection, asked.c[key], sa.func.count(), sa.func.sum(asked.c.no))
        times = _percentiles(connection, asked.c[key], asked.c.wait)
        told["questions"][key] = _name_figures(_OF_QUESTIONS, counts, times)
    sessions = sa.select(ended.c.session, *(ended.c[name] for name in SUBJECTS)).distinct()
    told["sessions"] = {row[0]: dict(zip(SUBJECTS, row[1:], strict=True)) for row in connection.execute(sessions)}
    total = sum(one["runs"] for one in told["runs"]["day"].values())
    told["is_cut"] = total == MOST_RUNS
    return told


def _name_figures(names: Sequence[str], counts: Mapping[str, Any], times: Mapping[str, Any]) -> dict[str, Row]:
    return {key: dict(zip(names, (*row, *times[key]), strict=True)) for key, row in counts.items()}


def _day_case(moment: sa.ColumnElement[float], days: Sequence[str]) -> sa.ColumnElement[str]:
    """Returns the local day of a time."""
    starts = [datetime.fromisoformat(day).timestamp() for day in days[1:]]
    if not starts:  # a CASE without a case is no SQL
        return sa.literal(days[0])
    return sa.case(*((moment < end, name) for name, end in zip(days, starts, strict=False)), else_=days[-1])


def _grouped(connection: sa.Connection, key: sa.ColumnElement[Any], *values: sa.ColumnElement[Any]) -> dict[str, Any]:
    query = sa.select(key, *values).group_by(key).order_by(sa.func.count().desc(), key).limit(MOST_GROUPS)
    return {row[0]: tuple(row[1:]) for row in connection.execute(query)}


def _percentiles(
    connection: sa.Connection, key: sa.ColumnElement[Any], value: sa.ColumnElement[float]
) -> dict[str, tuple[float, float]]:
    """Returns the median and the 95th percentile of each group."""
    rank = sa.func.row_number().over(partition_by=key, order_by=value).label("rank")
    number = sa.func.count().over(partition_by=key).label("number")
    ranked = sa.select(key.label("part"), value.label("value"), rank, number).subquery()
    c = ranked.c
    p50 = sa.func.max(sa.case((c.rank == (c.number + 1) // 2, c.value)))
    p95 = sa.func.max(sa.case((c.rank == (c.number * 95 + 99) // 100, c.value)))
    rows = connection.execute(sa.select(c.part, p50, p95).group_by(c.part))
    return {row[0]: (row[1], row[2]) for row in rows}


def _stored_series(
    console: ConsoleState, stored: Mapping[str, Any], days: Sequence[str], since: float, wanted: Mapping[str, str]
) -> tuple[dict[str, list[Any]], list[str]]:
    """Returns runs, tokens, costs and questions by day. `runs` and `failed` count the runs of the run list that ended,
    wherever their worker was; `unlisted` counts the runs that only the event log has, such as those of `forge run`.
    Tokens and costs are of both.
    """
    by_day: dict[str, Row] = {}
    for day in days:
        known = {**stored["runs"]["day"].get(day, {}), **stored["questions"]["day"].get(day, {})}
        empty: Row = {name: 0 if name in _SUMS else None for name in (*_OF_RUNS, *_OF_QUESTIONS)}
        by_day[day] = {**empty, **known, "unlisted": 0, "unlisted_failed": 0}
    ends = [] if "model" in wanted or "user" in wanted else _read_ends(console, since, wanted.get("agent", ""))
    for event in ends:
        if (row := by_day.get(_day_of(number_of(event.get("ts"))))) is not None:
            used = event.get("usage")
            for name in ("input", "output", "cached"):
                row[name] += number_of(used.get(name)) if isinstance(used, dict) else 0
            if event.get("cost") is not None:
                row["cost"] = (row["cost"] or 0.0) + number_of(event.get("cost"))
            row["unlisted"] += event.get("event") == "run_finished"
            row["unlisted_failed"] += is_error(event)
    is_cut = stored["is_cut"] or len(ends) == MOST_RUNS
    notes = [f"Runs, costs and tokens are of the newest {MOST_RUNS:,} runs only."] if is_cut else []
    names = (*_OF_RUNS, *_OF_QUESTIONS, "unlisted", "unlisted_failed")
    return {name: [row[name] for row in by_day.values()] for name in names}, notes


def _day_of(moment: float) -> str:
    return datetime.fromtimestamp(moment).date().isoformat()


def _read_ends(console: ConsoleState, since: float, agent: str) -> list[dict[str, Any]]:
    """Reads the ends of runs that are not stored, and the titles, which the index finds: no other line is read.

    Of a stored run that was removed since then, the last end counts: it has the totals.
    """
    log = console.open_log(EventFilter(events=("run_finished", "session_titled"), since=since))
    read = [entry.event for entry in log.last(MOST_RUNS)]
    console.add_notes(log.notes)
    known = _known_runs(console, {text_of(event.get("run")) for event in read} - {""})
    ends: dict[Any, dict[str, Any]] = {}
    for number, event in enumerate(read):
        run, of = text_of(event.get("run")), text_of(event.get("agent"))
        if run not in known and not (run and "/" in of) and agent in ("", of):
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


# Calls, from the index of the event log.


def _call_series(trends: Trends, days: list[str]) -> dict[str, list[Any]]:
    times = [trends.by_day.get(day) for day in days]
    sums = {name: dict.fromkeys(days, 0) for name in _OF_CALLS}
    for one in trends.counts:
        for name, by_day in sums.items():
            if one.day in by_day:
                by_day[one.day] += getattr(one, name)
    return {
        **{name: list(by_day.values()) for name, by_day in sums.items()},
        "p50": [one.p50 if one is not None else None for one in times],
        "p95": [one.p95 if one is not None else None for one in times],
    }


def _tools(trends: Trends) -> list[Row]:
    """Returns the figures of each tool, the most called first."""
    sums: dict[str, DayCount] = {}
    for one in trends.counts:
        before = sums.get(one.tool, DayCount("", one.tool, 0, 0, 0))
        added = (before.calls + one.calls, before.errors + one.errors, before.denied + one.denied)
        sums[one.tool] = DayCount("", one.tool, *added)
    rows = [
        {
            **{name: getattr(one, name) for name in ("tool", *_OF_CALLS)},
            "p50": times.p50,
            "p95": times.p95,
        }
        for one in sums.values()
        if (times := trends.by_tool.get(one.tool)) is not None
    ]
    return sorted(rows, key=lambda row: (-int(str(row["calls"])), str(row["tool"])))[:MOST_GROUPS]


def _denials(trends: Trends, days: list[str]) -> list[Row]:
    """Returns the refusals of each tool by day, the most refused first."""
    found: dict[str, dict[str, int]] = {}
    for one in trends.counts:
        if one.denied and one.day in days:
            found.setdefault(one.tool, dict.fromkeys(days, 0))[one.day] += one.denied
    most_first = sorted(found, key=lambda tool: (-sum(found[tool].values()), tool))
    return [{"tool": tool, "counts": list(found[tool].values())} for tool in most_first[:MOST_GROUPS]]


# Both, by agent, model, user and tool.


def _by_subject(stored: Mapping[str, Any], trends: Trends) -> dict[str, list[Row]]:
    """Returns the figures of each agent, model and user, those with the most runs first. Calls belong to the model and
    the user of their session's run; calls of sessions without a stored run have neither.
    """
    groups: dict[str, dict[str, Row]] = {subject: {} for subject in SUBJECTS}

    def row_of(subject: str, name: str) -> Row:
        sums = (*_SUMS, *_OF_CALLS)
        empty = {one: 0 if one in sums else None for one in (*_OF_RUNS, *_OF_CALLS, *_OF_QUESTIONS)}
        return groups[subject].setdefault(name, {"name": name, **empty})

    for subject in SUBJECTS:
        for figures in (stored["runs"], stored["questions"]):
            for name, values in figures[subject].items():
                row_of(subject, name).update(values)
    for one in trends.sessions:
        of = {**stored["sessions"].get(one.session, {}), "agent": one.agent}
        for subject in SUBJECTS:
            row = row_of(subject, of.get(subject, ""))
            for name in _OF_CALLS:
                row[name] += getattr(one, name)
    most_first = {name: sorted(rows.values(), key=_count_first) for name, rows in groups.items()}
    return {name: rows[:MOST_GROUPS] for name, rows in most_first.items()}


def _by_tool(tools: Sequence[Row], stored: Mapping[str, Any]) -> list[Row]:
    asked: dict[str, Row] = stored["questions"]["tool"]
    calls: dict[str, Row] = {one["tool"]: one for one in tools}
    none: Row = {"calls": 0, "errors": 0, "denied": 0, "p50": None, "p95": None}
    unasked: Row = {name: 0 if name in _SUMS else None for name in _OF_QUESTIONS}
    names = [*calls, *(name for name in asked if name not in calls)]
    rows = [{**none, **calls.get(name, {}), **unasked, **asked.get(name, {}), "name": name} for name in names]
    return rows[:MOST_GROUPS]


def _count_first(row: Row) -> tuple[int, int, str]:
    return (-row["runs"], -row["calls"], row["name"])
