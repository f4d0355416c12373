"""Runs: listed, looked at, begun, stopped, told something, taken back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from forge.console.api.asking import Asked, Download, Events, Made
from forge.console.api.exporting import as_markdown, as_ndjson
from forge.console.console_state import SESSION, UNDOER, Home
from forge.console.entries import attachment, family, of_runs, one_entry, span, tail_of_runs
from forge.console.shapes import message_shape, question_shape, run_shape
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import brief
from forge.durable.client import new_run_id
from forge.durable.engine.agents import MODEL
from forge.durable.engine.attempt import ATTEMPTS
from forge.durable.engine.children import ONLY
from forge.durable.store.find import COLUMNS, run_info
from forge.durable.store.rows import OVER, RunInfo
from forge.durable.store.tables import runs
from forge.project.runs.durable_runs import INITIAL_MESSAGES, store_in_session
from forge.project.runs.stored_conversation import session_store
from forge.workspace.history.tracking import SessionState

log = logging.getLogger("forge.console")

SEARCHED = 5_000  # runs, the newest
MOST = 200  # runs of a page
MOST_EVENTS = 5_000
MOST_MESSAGES = 1_000
MOST_CHANGES = 200


def list_runs(home: Home, asked: Asked) -> dict[str, Any]:
    limit = asked.number("limit", 50, 1, MOST)
    query = sa.select(*COLUMNS).where(runs.c.parent == "").order_by(runs.c.created.desc(), runs.c.id.desc())
    for condition in _conditions(asked):
        query = query.where(condition)
    rows = home.runs.store.database.read(lambda connection: connection.execute(query.limit(limit + 1)).all())
    found = [run_info(row) for row in rows[:limit]]
    following = f"{found[-1].created!r} {found[-1].id}" if len(rows) > limit else ""
    names = sa.select(runs.c.agent).distinct().limit(100)
    agents = home.runs.store.database.read(lambda connection: sorted(connection.execute(names).scalars()))
    return {"runs": [run_shape(run) for run in found], "next": following, "agents": agents}


def _conditions(asked: Asked) -> list[sa.ColumnElement[bool]]:
    c = runs.c
    made: list[sa.ColumnElement[bool]] = []
    if statuses := [one for one in asked.text("status").split(",") if one]:
        made.append(c.status.in_(statuses))
    made += [c[name] == asked.text(name) for name in ("agent", "session") if asked.text(name)]
    if kind := asked.text("kind"):
        is_call = sa.type_coerce(c.scope, sa.Text).contains(f'"{ONLY}":true')
        made.append(is_call if kind == "call" else sa.not_(is_call))
    if text := asked.text("text").strip():
        newest = sa.select(c.id).where(c.parent == "").order_by(c.created.desc()).limit(SEARCHED)
        places = (c.prompt, c.id, c.session, sa.func.coalesce(sa.type_coerce(c.result, sa.Text), ""))
        made += [
            c.id.in_(newest),
            sa.or_(*(sa.type_coerce(one, sa.Text).icontains(text, autoescape=True) for one in places)),
        ]
    if before := asked.text("before"):
        created, _, name = before.partition(" ")
        try:
            moment = float(created)
        except ValueError:
            way = "Give what was `next` in the page before."
            raise ToolError("before is no cursor of this list", ErrorKind.VALIDATION, way) from None
        made.append(sa.or_(c.created < moment, sa.and_(c.created == moment, c.id < name)))
    return made


def show_run(home: Home, asked: Asked) -> dict[str, Any]:
    store = home.runs.store
    run, *below = family(store, store.get(asked.path["id"]))
    ids = [run.id, *(one.id for one in below)]
    known = {one.id: one for one in (run, *below)}
    questions = [one for run_id in ids for one in store.questions(run_id, open=False)]
    return {
        **run_shape(run, whole=True),
        "children": [run_shape(one) for one in below],
        "questions": [question_shape(home, one, known) for one in questions],
        "files": [{"run": run_id, "name": name, "size": size} for run_id in ids for name, size in store.files(run_id)],
        "undoable": _undoable(home, run),
        **span(store, ids),
    }


def show_events(home: Home, asked: Asked) -> Events:
    ids = _ids(home, asked)
    if tail := asked.number("tail", 0, 0, MOST_EVENTS):
        return Events(tail_of_runs(home.runs.store, ids, tail), None)
    limit = asked.number("limit", 1_000, 1, MOST_EVENTS)
    return Events(*of_runs(home.runs.store, ids, asked.number("after", 0, 0, 2**62), limit))


def show_event(home: Home, asked: Asked) -> dict[str, Any]:
    return one_entry(home.runs.store, _ids(home, asked), asked.path["number"]).to_dict()


def show_attachment(home: Home, asked: Asked) -> Download:
    ids = _ids(home, asked)
    return Download(*attachment(home.runs.store, ids, asked.path["number"], asked.path["index"]))


def show_messages(home: Home, asked: Asked) -> dict[str, Any]:
    messages = home.runs.messages(asked.path["id"])
    limit = asked.number("limit", MOST_MESSAGES, 1, MOST_MESSAGES)
    shown = [message_shape(home, one) for one in messages[-limit:]]
    return {"messages": shown, "left_out": max(0, len(messages) - limit)}


def export_run(home: Home, asked: Asked) -> Download:
    run = home.runs.get(asked.path["id"])
    form = asked.text("as", "ndjson")
    if form not in ("ndjson", "markdown"):
        words = f"a run is exported as ndjson or markdown, not as {brief(form)}"
        raise ToolError(words, ErrorKind.VALIDATION, "Add ?as=ndjson or ?as=markdown.")
    ids = [one.id for one in family(home.runs.store, run)]
    if form == "ndjson":
        return Download(f"{run.id}.ndjson", as_ndjson(home.runs.store, ids))
    return Download(f"{run.id}.md", as_markdown(home.runs.store, run, ids))


def show_file(home: Home, asked: Asked) -> Download:
    name = asked.path["name"]
    return Download(name, home.runs.store.file(home.runs.get(asked.path["id"]).id, name))


def begin_run(home: Home, asked: Asked) -> Made:
    run = begin(home, asked.said("prompt"), asked.said("session", needed=False, most=200))
    return _begun(home, run)


def begin(home: Home, prompt: str, session: str = "") -> RunInfo:
    """A new run of the project's agent, in a session of its own or in one that is there. Raises `ToolError`."""
    if not home.has_model:
        raise ToolError("there is no model to chat with", ErrorKind.CONFIG, home.model_problem)
    run_id = new_run_id()
    history = _history(home, session) if session else []
    return home.runs.submit(
        prompt,
        agent=home.agent.name,
        session=session or run_id,
        version=home.version,
        run_id=run_id,
        messages=home.agent.begin(prompt, list(history), session).messages,
        scope={INITIAL_MESSAGES: len(history), **({MODEL: home.asked_model} if home.asked_model else {})},
    )


def _history(home: Home, session: str) -> list[Message]:
    store = home.runs.store
    for run in store.list(session=session, parent="", limit=20)[::-1]:
        if not run.is_over and not run.scope.get(ONLY):
            words = f"run {run.id} of the session {brief(session)} is {run.status}"
            raise ToolError(words, ErrorKind.USER, "Wait until it is over, answer it, or stop it first.")
    with session_store(home.workspace) as sessions:
        for run in store.list(session=session, parent="", status=OVER, limit=20)[::-1]:
            if not run.scope.get(ONLY):
                store_in_session(run, store, sessions)
        return sessions.open(session).messages


def call_tool(home: Home, name: str, arguments: Mapping[str, Any], *, session: str = "", agent: str = "") -> Made:
    """One call as a run of its own, through the same steps and policy as an agent's."""
    call = ToolCall(name, dict(arguments))
    run = home.runs.submit(
        f"{name} {brief(dict(arguments))}" if arguments else name,
        agent=agent or home.scope.agent,
        session=session or SESSION,
        version=home.version,
        messages=(Message("assistant", tool_calls=(call,)),),
        scope={ONLY: True, "message_id": uuid4().hex[:12]},
    )
    return _begun(home, run)


def cancel_run(home: Home, asked: Asked) -> dict[str, Any]:
    run = home.runs.cancel(home.runs.get(asked.path["id"]).id)
    for one in family(home.runs.store, run):
        if (attempt := ATTEMPTS.get(one.id)) is not None:
            home.hub.on_loop(attempt.stop)  # here at once; elsewhere at the next tick
    return _told(home, run)


def resume_run(home: Home, asked: Asked) -> dict[str, Any]:
    run = home.runs.get(asked.path["id"])
    if run.version != home.version:
        words = f"run {run.id} belongs to version {run.version} of the project, and this is {home.version}"
        raise ToolError(words, ErrorKind.USER, f"Give it to this one: forge runs migrate {run.id}")
    say = asked.said("say", needed=False)
    return _told(home, home.runs.resume(run.id, say or None))


def answer_run(home: Home, asked: Asked) -> dict[str, Any]:
    return _told(home, home.runs.answer(home.runs.get(asked.path["id"]).id, asked.said("text"), by="console"))


def show_changes(home: Home, asked: Asked) -> dict[str, Any]:
    return {"changes": _changes(home, home.runs.get(asked.path["id"]))}


def undo_run(home: Home, asked: Asked) -> Made:
    run = home.runs.get(asked.path["id"])
    call, turn = asked.said("call", needed=False, most=200), asked.said("turn", needed=False, most=200)
    wanted = {"action": "apply", "call_id": call, "turn": turn}
    arguments = {name: value for name, value in wanted.items() if value}
    agent = "" if "undo" in home.registry else UNDOER  # other workers know the project's agent alone
    return call_tool(home, "undo", arguments, session=run.session or run.id, agent=agent)


def _changes(home: Home, run: RunInfo) -> list[dict[str, Any]]:
    undo = SessionState(home.workspace).undo
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


def _undoable(home: Home, run: RunInfo) -> int:
    try:
        return sum(not one["undone"] for one in _changes(home, run))
    except ToolError as error:  # the disk is full, say: the run can be looked at all the same
        log.warning("%s", error.message)
        return 0


def _ids(home: Home, asked: Asked) -> list[str]:
    run = home.runs.store.get(asked.path["id"])
    if asked.text("family", "1") == "0":
        return [run.id]
    return [one.id for one in family(home.runs.store, run)]


def _begun(home: Home, run: RunInfo) -> Made:
    return Made(201, _told(home, run))


def _told(home: Home, run: RunInfo) -> dict[str, Any]:
    home.hub.nudge()
    return {"run": run_shape(run)}
