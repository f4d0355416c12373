"""The list of runs: pages and filters, marks, and what is done with several runs at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from forge.console.api.questions import BY
from forge.console.api.requests import ApiRequest, Download
from forge.console.api.runs import check_version
from forge.console.console_state import ConsoleState
from forge.console.response_shapes import question_shape, run_shape
from forge.core.errors import ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.durable.store.find import RunFilter
from forge.durable.store.marks import LONGEST_NOTE
from forge.durable.store.remove import count_parts
from forge.durable.store.rows import RunInfo
from forge.durable.store.tables import IS_ROOT, runs
from forge.project.runs.marked_runs import cases_text, mark_run, marked_cases

MOST_RUNS = 200  # runs of a page, and runs that are selected
SEARCHED = 5_000  # runs that one request looks at
CHOICES = 2_000  # runs, the newest, whose agents, models and users are offered as filters
MOST_CHOICES = 100
_NAMES = ("agent", "session", "user", "model", "failure")
_WORDS = {"kind": ("chat", "call"), "mark": ("good", "bad", "any", "none")}


def list_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    store = console.runs.store
    wanted = read_filter(request)
    page = store.list_page(wanted, request.number("limit", 50, 1, MOST_RUNS), SEARCHED)
    marks = store.marks([run.id for run in page.runs])
    following = f"{page.following[0]!r} {page.following[1]}" if page.following is not None else ""
    return {
        "runs": [run_shape(run, mark=marks.get(run.id)) for run in page.runs],
        "next": following,
        "searched": page.following[0] if page.following is not None else None,
        **({} if wanted.before is not None else _choices(console)),
    }


def read_filter(request: ApiRequest) -> RunFilter:
    """Returns the filters of the address."""
    for name, known in _WORDS.items():
        if request.text(name) and request.text(name) not in known:
            message = f"{name} cannot be {brief(request.text(name))}"
            raise ToolError(message, ErrorKind.VALIDATION, f"Use one of {', '.join(known)}.")
    statuses = tuple(one for one in request.text("status").split(",") if one)
    numbers: dict[str, Any] = {name: _read_number(request, name) for name in ("since", "until", "cost")}
    names: dict[str, Any] = {name: request.text(name) or None for name in (*_NAMES, *_WORDS)}
    text, before = request.text("text").strip() or None, _read_cursor(request.text("before"))
    return RunFilter(status=statuses or None, text=text, before=before, **names, **numbers)


def _read_number(request: ApiRequest, name: str) -> float | None:
    text = request.text(name)
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise ToolError(f"{name} must be a number, and is {brief(text)}", ErrorKind.VALIDATION, "Send a number.")
    return value


def _read_cursor(text: str) -> tuple[float, str] | None:
    created, _, name = text.partition(" ")
    try:
        return (float(created), name) if text else None
    except ValueError:
        hint = "Send the `next` of the page before."
        raise ToolError("before is not a cursor of this list", ErrorKind.VALIDATION, hint) from None


def _choices(console: ConsoleState) -> dict[str, list[str]]:
    """Returns what the newest runs can be filtered by."""
    columns = [runs.c[name] for name in ("agent", "model", "user", "failure")]
    newest = sa.select(*columns).where(IS_ROOT).order_by(runs.c.created.desc(), runs.c.id.desc()).limit(CHOICES)
    query = sa.select(newest.subquery()).distinct()
    rows = console.runs.store.database.read(lambda connection: connection.execute(query).all())
    names = ("agents", "models", "users", "failures")
    return {name: sorted({row[at] for row in rows} - {""})[:MOST_CHOICES] for at, name in enumerate(names)}


def mark_answer(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Marks the answer of a run as good or bad, with a note; "" removes the mark."""
    run = console.runs.get(request.path["id"])
    verdict = request.body_text("verdict", needed="verdict" not in request.body, most=20)
    note = request.body_text("note", needed=False, most=LONGEST_NOTE)
    mark_run(console.runs, console.workspace, run.id, verdict, note.strip(), BY)
    console.hub.tell("runs", runs=(run.id,))
    return {"run": run_shape(run, mark=console.runs.marks([run.id]).get(run.id))}


def download_cases(console: ConsoleState, request: ApiRequest) -> Download:
    """Returns the marked runs that the filters select as a file for `forge eval`."""
    wanted = read_filter(request)
    filters = {**wanted._asdict(), "mark": wanted.mark if wanted.mark in ("good", "bad") else "any", "before": None}
    del filters["parent"]
    judged = request.text("judge") == "1"
    return Download("cases.yaml", cases_text(marked_cases(console.runs, judged=judged, **filters)).encode())


def list_selected_questions(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Returns the open questions of runs and of their sub-agents. Each is answered by itself, as on its own page."""
    found = [one for run in _selected(console, request) for one in console.runs.questions(run.id)]
    known: dict[str, RunInfo] = {}
    now = console.runs.store.now()
    return {"questions": [question_shape(console, one, known, now) for one in found]}


def retry_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Continues runs that did not end well where they stopped; without `write` it tells which."""

    def check(run: RunInfo) -> None:
        if "resume" not in run_shape(run)["can"]:
            message = f"run {run.id} is {run.status}: there is nothing to retry"
            raise ToolError(message, ErrorKind.USER, "Retry runs that failed or were stopped.")
        check_version(console, run)

    return _do_with_each(console, request, check, lambda run: console.runs.resume(run.id))


def delete_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Deletes runs that are over; without `write` it tells what would be deleted with them."""

    def check(run: RunInfo) -> None:
        if not run.is_over:
            message = f"run {run.id} is {run.status}, so it is not deleted"
            raise ToolError(message, ErrorKind.USER, "Stop it first, or wait until it is over.")

    if request.body_flag("write"):
        console.keep_finished()  # in their sessions, which stay
    told = _do_with_each(console, request, check, lambda run: console.runs.delete(run.id, console.workspace))
    if not told["written"]:
        read = console.runs.store.database.read
        told["parts"] = read(lambda connection: count_parts(connection, told["runs"]))
    return told


def _do_with_each(
    console: ConsoleState, request: ApiRequest, check: Callable[[RunInfo], None], work: Callable[[RunInfo], object]
) -> dict[str, Any]:
    """Checks each run and works on it; without `write` it only checks. A run that is refused does not stop the rest."""
    is_written = request.body_flag("write") is True
    done, refused = [], []
    for run in _selected(console, request):
        try:
            check(run)
            if is_written:
                work(run)
            done.append(run.id)
        except ToolError as error:
            if error.kind is not ErrorKind.USER:
                raise
            refused.append({"run": run.id, "what": error.message, "next": error.suggestion})
    if is_written:
        console.hub.nudge()
    return {"written": is_written, "runs": done, "refused": refused}


def _selected(console: ConsoleState, request: ApiRequest) -> list[RunInfo]:
    ids = request.body.get("runs")
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        raise ToolError("the request needs the ids of runs", ErrorKind.VALIDATION, 'Send {"runs": ["run-…"]}.')
    if len(ids) > MOST_RUNS:
        message = f"{len(ids):,} runs are selected"
        raise ToolError(message, ErrorKind.VALIDATION, f"Select at most {MOST_RUNS} at once.")
    found = [console.runs.get(one) for one in dict.fromkeys(ids)]
    for run in found:
        if run.parent:
            message = f"run {run.id} was started by another run"
            raise ToolError(message, ErrorKind.VALIDATION, f"Select the run {run.parent} instead.")
    return found
