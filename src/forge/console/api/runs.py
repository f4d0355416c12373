"""The runs page: lists, shows, starts, stops, answers and undoes runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from forge.console.api.exporting import as_markdown, as_ndjson
from forge.console.api.requests import ApiRequest, Download, Events, StatusAnswer
from forge.console.console_state import SESSION, UNDOER, ConsoleState
from forge.console.event_entries import attachment, family, of_runs, one_entry, span, tail_of_runs
from forge.console.response_shapes import message_shape, question_shape, run_shape
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import brief
from forge.durable.client import new_run_id
from forge.durable.engine.attempt import ATTEMPTS
from forge.durable.engine.children import ONLY
from forge.durable.store.find import COLUMNS, run_info
from forge.durable.store.rows import MODEL, OVER, RunInfo
from forge.durable.store.tables import runs
from forge.project.runs.durable_runs import INITIAL_MESSAGES, store_in_session
from forge.project.runs.sessions import session_store
from forge.workspace.history.tracking import SessionState

log = logging.getLogger("forge.console")

SEARCHED = 5_000  # runs, the newest
MOST = 200  # runs of a page
MOST_EVENTS = 5_000
MOST_MESSAGES = 1_000
MOST_CHANGES = 200


def list_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    limit = request.number("limit", 50, 1, MOST)
    query = sa.select(*COLUMNS).where(runs.c.parent == "").order_by(runs.c.created.desc(), runs.c.id.desc())
    for condition in _conditions(request):
        query = query.where(condition)
    rows = console.runs.store.database.read(lambda connection: connection.execute(query.limit(limit + 1)).all())
    found = [run_info(row) for row in rows[:limit]]
    following = f"{found[-1].created!r} {found[-1].id}" if len(rows) > limit else ""
    names = sa.select(runs.c.agent).distinct().limit(100)
    agents = console.runs.store.database.read(lambda connection: sorted(connection.execute(names).scalars()))
    return {"runs": [run_shape(run) for run in found], "next": following, "agents": agents}


def _conditions(request: ApiRequest) -> list[sa.ColumnElement[bool]]:
    c = runs.c
    made: list[sa.ColumnElement[bool]] = []
    if statuses := [one for one in request.text("status").split(",") if one]:
        made.append(c.status.in_(statuses))
    made += [c[name] == request.text(name) for name in ("agent", "session") if request.text(name)]
    if kind := request.text("kind"):
        is_call = sa.type_coerce(c.scope, sa.Text).contains(f'"{ONLY}":true')
        made.append(is_call if kind == "call" else sa.not_(is_call))
    if text := request.text("text").strip():
        newest = sa.select(c.id).where(c.parent == "").order_by(c.created.desc()).limit(SEARCHED)
        places = (c.prompt, c.id, c.session, sa.func.coalesce(sa.type_coerce(c.result, sa.Text), ""))
        made += [
            c.id.in_(newest),
            sa.or_(*(sa.type_coerce(one, sa.Text).icontains(text, autoescape=True) for one in places)),
        ]
    if before := request.text("before"):
        created, _, name = before.partition(" ")
        try:
            moment = float(created)
        except ValueError:
            way = "Send the `next` of the page before."
            raise ToolError("before is not a cursor of this list", ErrorKind.VALIDATION, way) from None
        made.append(sa.or_(c.created < moment, sa.and_(c.created == moment, c.id < name)))
    return made


def show_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    store = console.runs.store
    run, *below = family(store, store.get(request.path["id"]))
    ids = [run.id, *(one.id for one in below)]
    known = {one.id: one for one in (run, *below)}
    questions = [one for run_id in ids for one in store.questions(run_id, open=False)]
    return {
        **run_shape(run, whole=True),
        "children": [run_shape(one) for one in below],
        "questions": [question_shape(console, one, known) for one in questions],
        "files": [{"run": run_id, "name": name, "size": size} for run_id in ids for name, size in store.files(run_id)],
        "undoable": _undoable(console, run),
        **span(store, ids),
    }


def show_events(console: ConsoleState, request: ApiRequest) -> Events:
    ids = _ids(console, request)
    if tail := request.number("tail", 0, 0, MOST_EVENTS):
        return Events(tail_of_runs(console.runs.store, ids, tail), None)
    limit = request.number("limit", 1_000, 1, MOST_EVENTS)
    return Events(*of_runs(console.runs.store, ids, request.number("after", 0, 0, 2**62), limit))


def show_event(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return one_entry(console.runs.store, _ids(console, request), request.path["number"]).to_dict()


def show_attachment(console: ConsoleState, request: ApiRequest) -> Download:
    ids = _ids(console, request)
    return Download(*attachment(console.runs.store, ids, request.path["number"], request.path["index"]))


def show_messages(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    messages = console.runs.messages(request.path["id"])
    limit = request.number("limit", MOST_MESSAGES, 1, MOST_MESSAGES)
    shown = [message_shape(console, one) for one in messages[-limit:]]
    return {"messages": shown, "left_out": max(0, len(messages) - limit)}


def export_run(console: ConsoleState, request: ApiRequest) -> Download:
    run = console.runs.get(request.path["id"])
    form = request.text("as", "ndjson")
    if form not in ("ndjson", "markdown"):
        words = f"a run is exported as ndjson or markdown, not as {brief(form)}"
        raise ToolError(words, ErrorKind.VALIDATION, "Add ?as=ndjson or ?as=markdown.")
    ids = [one.id for one in family(console.runs.store, run)]
    if form == "ndjson":
        return Download(f"{run.id}.ndjson", as_ndjson(console.runs.store, ids))
    return Download(f"{run.id}.md", as_markdown(console.runs.store, run, ids))


def show_file(console: ConsoleState, request: ApiRequest) -> Download:
    name = request.path["name"]
    return Download(name, console.runs.store.file(console.runs.get(request.path["id"]).id, name))


def begin_run(console: ConsoleState, request: ApiRequest) -> StatusAnswer:
    run = begin(console, request.body_text("prompt"), request.body_text("session", needed=False, most=200))
    return _answer_started(console, run)


def begin(console: ConsoleState, prompt: str, session: str = "") -> RunInfo:
    """Starts a run of the project's agent, in a new or an existing session. Raises `ToolError`."""
    if not console.has_model:
        raise ToolError("no model is set, so no run can start", ErrorKind.CONFIG, console.model_problem)
    run_id = new_run_id()
    history = _history(console, session) if session else []
    return console.runs.submit(
        prompt,
        agent=console.agent.name,
        session=session or run_id,
        version=console.version,
        run_id=run_id,
        messages=console.agent.begin(prompt, list(history), session).messages,
        scope={INITIAL_MESSAGES: len(history), **({MODEL: console.asked_model} if console.asked_model else {})},
    )


def _history(console: ConsoleState, session: str) -> list[Message]:
    store = console.runs.store
    for run in store.list(session=session, parent="", limit=20)[::-1]:
        if not run.is_over and not run.scope.get(ONLY):
            words = f"run {run.id} of the session {brief(session)} is {run.status}"
            raise ToolError(words, ErrorKind.USER, "Wait until it is over, answer it, or stop it first.")
    with session_store(console.workspace) as sessions:
        for run in store.list(session=session, parent="", status=OVER, limit=20)[::-1]:
            if not run.scope.get(ONLY):
                store_in_session(run, store, sessions)
        return sessions.open(session).messages


def call_tool(
    console: ConsoleState, name: str, arguments: Mapping[str, Any], *, session: str = "", agent: str = ""
) -> StatusAnswer:
    """Makes one call as a run of its own, through the same steps and policy as an agent's."""
    call = ToolCall(name, dict(arguments))
    run = console.runs.submit(
        f"{name} {brief(dict(arguments))}" if arguments else name,
        agent=agent or console.scope.agent,
        session=session or SESSION,
        version=console.version,
        messages=(Message("assistant", tool_calls=(call,)),),
        scope={ONLY: True, "message_id": uuid4().hex[:12]},
    )
    return _answer_started(console, run)


def cancel_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    run = console.runs.cancel(console.runs.get(request.path["id"]).id)
    for one in family(console.runs.store, run):
        if (attempt := ATTEMPTS.get(one.id)) is not None:
            console.hub.on_loop(attempt.stop)  # here at once; elsewhere at the next tick
    return _run_state(console, run)


def resume_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    run = console.runs.get(request.path["id"])
    if run.version != console.version:
        words = f"run {run.id} belongs to version {run.version} of the project, and this is {console.version}"
        raise ToolError(words, ErrorKind.USER, f"Move it to this version: forge runs migrate {run.id}")
    say = request.body_text("say", needed=False)
    return _run_state(console, console.runs.resume(run.id, say or None))


def send_message(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    run = console.runs.get(request.path["id"])
    return _run_state(console, console.runs.send(run.id, request.body_text("text")))


def answer_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return _run_state(
        console, console.runs.answer(console.runs.get(request.path["id"]).id, request.body_text("text"), by="console")
    )


def show_changes(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return {"changes": _changes(console, console.runs.get(request.path["id"]))}


def undo_run(console: ConsoleState, request: ApiRequest) -> StatusAnswer:
    run = console.runs.get(request.path["id"])
    call, turn = request.body_text("call", needed=False, most=200), request.body_text("turn", needed=False, most=200)
    wanted = {"action": "apply", "call_id": call, "turn": turn}
    arguments = {name: value for name, value in wanted.items() if value}
    agent = "" if "undo" in console.registry else UNDOER  # other workers know the project's agent alone
    return call_tool(console, "undo", arguments, session=run.session or run.id, agent=agent)


def _changes(console: ConsoleState, run: RunInfo) -> list[dict[str, Any]]:
    undo = SessionState(console.workspace).undo
    return [
        {
            "call": one.call_id,
            "turn": one.turn,
            "tool": one.tool,
            "at": one.time,
            "files": [{"path": file.shown, "lost": file.dropped} for file in one.files],
            "undone": one.undone or one.is_undo,
        }
        for one in undo.entries(run.session or run.id, most=MOST_CHANGES)
    ]


def _undoable(console: ConsoleState, run: RunInfo) -> int:
    try:
        return sum(not one["undone"] for one in _changes(console, run))
    except ToolError as error:  # the disk is full, say: the run can be looked at all the same
        log.warning("%s", error.message)
        return 0


def _ids(console: ConsoleState, request: ApiRequest) -> list[str]:
    run = console.runs.store.get(request.path["id"])
    if request.text("family", "1") == "0":
        return [run.id]
    return [one.id for one in family(console.runs.store, run)]


def _answer_started(console: ConsoleState, run: RunInfo) -> StatusAnswer:
    return StatusAnswer(201, _run_state(console, run))


def _run_state(console: ConsoleState, run: RunInfo) -> dict[str, Any]:
    console.hub.nudge()
    return {"run": run_shape(run)}
