"""The runs page: lists, shows, starts, stops, answers, undoes, repeats and exports runs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import sqlalchemy as sa

from forge.console.api.requests import ApiRequest, Download, Events, StatusAnswer
from forge.console.console_state import SESSION, UNDOER, ConsoleState
from forge.console.event_entries import (
    LONGEST_WHOLE,
    EventEntry,
    attachment,
    family,
    of_runs,
    one_entry,
    span,
    tail_of_runs,
)
from forge.console.response_shapes import RERUN_OF, message_shape, question_shape, run_shape
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import Message, ToolCall
from forge.core.plain_values import brief
from forge.durable.client import new_run_id
from forge.durable.store import RunStore
from forge.durable.store.find import RunFilter
from forge.durable.store.heartbeats import list_workers
from forge.durable.store.rows import INITIAL_MESSAGES, MODEL, OVER, SINGLE_CALL, RunInfo
from forge.durable.store.tables import runs
from forge.project.runs.durable_runs import all_run_fields, store_in_session
from forge.project.runs.sessions import session_store
from forge.workspace.history.tracking import SessionState

log = logging.getLogger("forge.console")

MOST_EVENTS = 5_000
MOST_MESSAGES = 1_000
MOST_CHANGES = 200


def show_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    store = console.runs.store
    run, *below = family(store, store.get(request.path["id"]))
    ids = [run.id, *(one.id for one in below)]
    known = {one.id: one for one in (run, *below)}
    questions = [one for run_id in ids for one in store.questions(run_id, open=False)]
    return {
        **run_shape(run, whole=True, mark=store.marks([run.id]).get(run.id)),
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
    if form not in ("json", "ndjson", "markdown"):
        message = f"a run is exported as json, ndjson or markdown, not as {brief(form)}"
        raise ToolError(message, ErrorKind.VALIDATION, "Add ?as=json, ?as=ndjson or ?as=markdown.")
    if form == "json":
        whole = console.secrets.mask_everything(all_run_fields(console.runs, run))
        return Download(
            f"{run.id}.json", json.dumps(whole, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
        )
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
    for run in store.list(RunFilter(session=session, parent=""), limit=20)[::-1]:
        if not run.is_over and not run.scope.get(SINGLE_CALL):
            message = f"run {run.id} of the session {brief(session)} is {run.status}"
            raise ToolError(message, ErrorKind.USER, "Wait until it is over, answer it, or stop it first.")
    with session_store(console.workspace) as sessions:
        for run in store.list(RunFilter(session=session, parent="", status=OVER), limit=20)[::-1]:
            if not run.scope.get(SINGLE_CALL):
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
        scope={SINGLE_CALL: True, "message_id": uuid4().hex[:12]},
    )
    return _answer_started(console, run)


def cancel_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    run = console.runs.cancel(console.runs.get(request.path["id"]).id)
    attempts = console.worker.attempts if console.worker is not None else {}
    for one in family(console.runs.store, run):
        if (attempt := attempts.get(one.id)) is not None:
            console.hub.on_loop(attempt.stop)  # here at once; elsewhere at the next tick
    return _run_state(console, run)


def resume_run(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    run = console.runs.get(request.path["id"])
    check_version(console, run)
    say = request.body_text("say", needed=False)
    return _run_state(console, console.runs.resume(run.id, say or None))


def check_version(console: ConsoleState, run: RunInfo) -> None:
    """Raises `ToolError` for a run that workers of another version take."""
    if run.version != console.version:
        message = f"run {run.id} belongs to version {run.version} of the project, and this is {console.version}"
        raise ToolError(message, ErrorKind.USER, f"Move it to this version: forge runs migrate {run.id}")


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


# Repeats a run from one of its steps as a new run, and copies a session up to a message.


MOST_CALLS = 200  # calls that a preview names


def rerun(console: ConsoleState, request: ApiRequest) -> StatusAnswer | dict[str, Any]:
    """Tells what would be repeated; with `write` a new run begins there. The old run and files stay as they are."""
    run = console.runs.get(request.path["id"])
    _check_repeatable(console, run)
    messages = console.runs.messages(run.id)
    call, number = request.body_text("call", needed=False, most=200), request.body.get("message")
    kept = _position_of_call(run, messages, call) if call else _position_of_message(messages, number)
    say = request.body_text("say", needed=False).strip()
    repeated = messages[kept:]
    if request.body.get("write") is not True:
        calls = [one for message in repeated for one in message.tool_calls]
        return {
            "written": False,
            "kept": kept,
            "turns": sum(message.role == "assistant" for message in repeated),
            "calls": [{"id": one.id, "name": one.name, "arguments": one.arguments} for one in calls[:MOST_CALLS]],
            "left_out": max(0, len(calls) - MOST_CALLS),
        }
    run_id = new_run_id()
    begun = console.runs.submit(
        run.prompt,
        agent=run.agent,
        session=run_id,
        tenant=run.tenant,
        version=console.version,
        run_id=run_id,
        messages=console.agent.begin(say or None, messages[:kept], run_id).messages,
        scope={**_scope_of(run), INITIAL_MESSAGES: 0, RERUN_OF: run.id},
    )
    console.hub.nudge()
    return StatusAnswer(201, {"written": True, "run": run_shape(begun)})


def fork_session(console: ConsoleState, request: ApiRequest) -> StatusAnswer:
    """Copies the first messages of a session, as `forge session fork --upto` does; with `say` a run continues there."""
    name, upto = request.path["name"], request.body.get("upto")
    if isinstance(upto, bool) or not isinstance(upto, int) or upto < 1:
        raise ToolError("upto must be a number of messages", ErrorKind.VALIDATION, "Send 1 or more.")
    say = request.body_text("say", needed=False).strip()
    if say and not console.has_model:
        raise ToolError("no model is set, so the copy cannot be continued", ErrorKind.CONFIG, console.model_problem)
    new = request.body_text("new", needed=False, most=200).strip() or f"{name}-{uuid4().hex[:4]}"
    with session_store(console.workspace) as sessions:
        messages = sessions.fork(name, new, upto).info.messages
    console.hub.tell("sessions")
    run = run_shape(begin(console, say, new)) if say else None
    return StatusAnswer(201, {"session": {"name": new, "messages": messages}, "run": run})


def _check_repeatable(console: ConsoleState, run: RunInfo) -> None:
    if run.scope.get(SINGLE_CALL) or run.parent:
        message = f"run {run.id} was to be repeated, and it is {'a sub-agent' if run.parent else 'a single tool call'}"
        hint = "Repeat the run that started it." if run.parent else "Call the tool again from its page."
        raise ToolError(message, ErrorKind.USER, hint)
    if not console.has_model:
        raise ToolError("no model is set, so no run can be repeated", ErrorKind.CONFIG, console.model_problem)
    if run.agent != console.agent.name:
        message = f"run {run.id} was to be repeated, and its agent {brief(run.agent)} is not part of this project"
        raise ToolError(message, ErrorKind.USER, "Open the console of the project that has the agent.")


def _position_of_call(run: RunInfo, messages: Sequence[Message], call: str) -> int:
    """Returns the number of messages before the turn that made the call."""
    for number, message in enumerate(messages):
        if any(one.id == call for one in message.tool_calls):
            return number
    problem = f"call {brief(call)} of run {run.id} is not among its stored messages"
    raise ToolError(problem, ErrorKind.NOT_FOUND, "Wait until its turn is over, or choose another step.")


def _position_of_message(messages: Sequence[Message], number: Any) -> int:
    """Returns the number of messages to keep: those before a turn of the model, or up to a message of the person."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(messages):
        message = f"the run has no message {brief(number)}"
        raise ToolError(message, ErrorKind.VALIDATION, f"Send a call, or a message from 0 to {len(messages) - 1}.")
    role = messages[number].role
    if role not in ("assistant", "user"):
        message = f"a run cannot be repeated from message {number}, because its role is {role}"
        raise ToolError(message, ErrorKind.VALIDATION, "Choose a message of the model or of a person.")
    return number if role == "assistant" else number + 1


def _scope_of(run: RunInfo) -> dict[str, Any]:
    kept = (MODEL, "channel", "chat_id", "user")
    return {name: run.scope[name] for name in kept if name in run.scope}


# Exports a run: its events line by line, or as readable Markdown.


PAGE = 2_000
MOST_EXPORTED = 200_000  # events of one file
LARGEST_EXPORT = 64_000_000  # characters of it
LEFT_OUT = "export_ends"  # in place of what does not fit


def as_ndjson(store: RunStore, ids: Sequence[str]) -> bytes:
    """Writes events as `forge run --json` does, with their number and run."""
    lines = []
    for entry in _all_entries(store, ids):
        cut = {"clipped": True} if entry.clipped else {}
        lines.append(json.dumps({**entry.event, "run": entry.run, "n": entry.number, **cut}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def as_markdown(store: RunStore, run: RunInfo, ids: Sequence[str]) -> bytes:
    lines = [f"# {_line(run.prompt) or run.id}", "", f"`{run.id}` · {run.agent} · {run.status}", ""]
    for entry in _all_entries(store, ids):
        lines += _render_entry(entry, run.id)
    return "\n".join(lines).encode("utf-8", "backslashreplace")


def _all_entries(store: RunStore, ids: Sequence[str]) -> Iterator[EventEntry]:
    """Yields whole events up to the limit of a file, then one that says that there is more."""
    after: int | None = 0
    count = size = 0
    while after is not None:
        entries, after = of_runs(store, ids, after, PAGE, LONGEST_WHOLE)
        for entry in entries:
            count, size = count + 1, size + len(entry.text)
            yield entry
            if count >= MOST_EXPORTED or size >= LARGEST_EXPORT:
                yield EventEntry(entry.number, entry.run, json.dumps({"event": LEFT_OUT, "after": entry.number}))
                return


def _render_entry(entry: EventEntry, main: str) -> list[str]:
    event: dict[str, Any] = entry.event
    who = "" if entry.run == main else f" ({_line(str(event.get('agent', '')))})"
    match event.get("event"):
        case "run_started":
            return [f"## Prompt{who}", "", *_quote(str(event.get("prompt", ""))), ""]
        case "text_delta":
            return [*_quote(str(event.get("text", ""))), ""]
        case "tool_call_start":
            call = event.get("call") or {}
            arguments = json.dumps(call.get("arguments"), ensure_ascii=False, indent=2)
            return [f"### {_line(str(call.get('name', '')))}{who}", "", *_fence(arguments, "json"), ""]
        case "permission_answered":
            return [f"Answered: {_line(str(event.get('answer', '')))}, by {_line(str(event.get('by', '')))}", ""]
        case "context_shortened":
            counts = ((event.get(name), name) for name in ("outputs", "repeats", "summaries", "tokens"))
            return [f"Not sent again{who}: {', '.join(f'{count} {name}' for count, name in counts if count)}", ""]
        case "tool_call_end":
            result = event.get("result") or {}
            if event.get("waits"):
                return ["Waiting for an answer.", ""]
            return [*_fence(str(result.get("for_user") or result.get("for_llm") or "")), ""]
        case "run_finished":
            ended = f"## Ended{who}: {_line(str(event.get('reason', '')))}"
            return [ended, "", *_quote(str(event.get("text") or event.get("error") or "")), ""]
        case "export_ends":
            return [f"The export ends here: the events after {entry.number} do not fit in one file.", ""]
    return []


def _line(text: str) -> str:
    return " ".join(text.split())[:200].replace("`", "'")


def _quote(text: str) -> list[str]:
    """Quotes a text, so that it is not read as markup."""
    return [f"    {line}" for line in text[:LONGEST_WHOLE].splitlines()]


def _fence(text: str, kind: str = "") -> list[str]:
    """Puts a text behind a fence that is longer than any inside it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return [f"{fence}{kind}", text, fence]


# Runs of another version of the project: their workers, and their migration to this version.


MOST_VERSIONS = 1_000  # runs that are given at once


class AbandonedRun(NamedTuple):
    """A run that no worker continues."""

    id: str
    version: str


def abandoned_runs(console: ConsoleState) -> Sequence[AbandonedRun]:
    """Returns unfinished runs of versions for which no worker is up: they may wait forever."""
    workers = list_workers(console.runs.store.database)
    c = runs.c
    query = sa.select(c.id, c.version, c.queue, c.agent).where(
        c.status.not_in(OVER), c.parent == "", c.version != console.version
    )
    query = query.order_by(c.created.desc()).limit(MOST_VERSIONS)
    rows = console.runs.store.database.read(lambda connection: connection.execute(query).all())
    return [
        AbandonedRun(row.id, row.version)
        for row in rows
        if not any(one.takes(row.version, row.queue, row.agent) for one in workers)
    ]


def abandoned_shape(console: ConsoleState) -> dict[str, Any]:
    left = abandoned_runs(console)
    return {"runs": len(left), "versions": sorted({one.version for one in left})[:20], "version": console.version}


def why_not_continued(console: ConsoleState, run: RunInfo) -> str:
    """Returns why an answer does not reach its run yet; empty if it does."""
    if run.is_over or run.version == console.version or console.runs.is_attended(run):
        return ""
    return (
        f"The answer is saved. {run.id} continues when a worker of its version ({run.version}) runs. "
        f"To continue it with this version: forge runs migrate {run.id}"
    )


def migrate_runs(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Gives runs to this version, as `forge runs migrate` does; runs with a worker stay."""
    moved = [console.runs.migrate(one.id, console.version).id for one in abandoned_runs(console)]
    console.hub.nudge()
    return {"migrated": moved, "version": console.version, "left": len(abandoned_runs(console))}


def version_change(console: ConsoleState) -> dict[str, Any]:
    """Describes the effect of a changed project file on existing runs; `note` is empty if there is none."""
    told: dict[str, Any] = {"version": console.version, "next_version": console.next_version, "runs": 0, "note": ""}
    if console.is_version_fixed:
        return told
    c = runs.c
    query = sa.select(sa.func.count()).where(c.status.not_in(OVER), c.parent == "", c.version == console.version)
    count = console.runs.store.database.read(lambda connection: connection.execute(query).scalar_one())
    if count:
        note = (
            f"This makes a new version of the project. The current version has {_count_runs(count)} that did not end"
            " yet. This console continues them until it stops. After the next start, move them to the new version"
            " on the overview page, or with `forge runs migrate --all`."
        )
        told |= {"runs": count, "note": note}
    return told


def _count_runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"
