"""Makes, begins, closes and resumes runs as rows. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.events import RunFinished
from forge.core.messages import Message, export_message, unanswered_calls
from forge.core.plain_values import brief
from forge.durable.store import inbox
from forge.durable.store.attempts import is_lost
from forge.durable.store.carried import CarriedState
from forge.durable.store.check_input import check_new
from forge.durable.store.database import seal_row
from forge.durable.store.encoding import figures_of, object_of, wait_to_json
from forge.durable.store.events import insert_events, lock_events
from forge.durable.store.find import COLUMNS, clamp_limit, find_run, insert_into, insert_rows, last_turn, now, run_info
from forge.durable.store.rows import OPEN, OVER, SEAL, NewRun, Outcome, RunInfo, Status
from forge.durable.store.tables import HAS_PARENT, background, messages, questions, runs
from forge.durable.store.waits import Wait
from forge.workspace.state.store import StoreError

MESSAGES_IN_ROW = 50  # that were said together
GRACE = 5.0  # seconds for the process that answered a run, or ended what it waits for, to resume it


def make_run(connection: sa.Connection, run: NewRun) -> RunInfo:
    check_new(run)
    moment = now(connection)
    values: dict[str, Any] = {
        "id": run.id,
        "agent": run.agent,
        "session": run.session,
        "tenant": run.tenant,
        "queue": run.queue,
        "priority": run.priority,
        "version": run.version,
        "prompt": run.prompt,
        "status": "queued",
        "segment": 1,
        "waits": [],
        "spent": {},
        "scope": object_of(run.scope),
        "carrier": object_of(run.carrier),
        "parent": run.parent,
        "parent_call": run.parent_call,
        "worker": "",
        "created": moment,
        "updated": moment,
        "cancelling": False,
        "result": None,
        "look": moment,
        "attempt": "",
        **figures_of(run.scope, {}, None),
    }
    new = connection.execute(
        insert_into(connection, runs).values(values).on_conflict_do_nothing().returning(*COLUMNS)
    ).first()
    if new is not None:
        append_messages(connection, run.id, 1, run.messages)
        return run_info(new)
    old = find_run(connection, run.id)
    if (old.agent, old.prompt) != (run.agent, run.prompt):
        message = f"run {run.id} already exists with another prompt ({brief(old.prompt)})"
        raise StoreError(message, ErrorKind.VALIDATION, "Use another id for the new run, or omit it.")
    return old


def append_messages(connection: sa.Connection, run_id: str, slot: int, said: Sequence[Message]) -> None:
    """Appends messages. `slot`: twice the segment's number for messages in it, or one less for those just before it."""
    if said:
        there = sa.select(sa.func.max(messages.c.position)).where(messages.c.run == run_id, messages.c.place == slot)
        last = connection.execute(there).scalar()
        wires = [export_message(message) for message in said]
        rows = [
            {"run": run_id, "place": slot, "position": position, "message": some[0] if len(some) == 1 else some}
            for position, some in enumerate(_portions(wires), 0 if last is None else last + 1)
        ]
        insert_rows(connection, messages, rows)


def _portions(wires: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields messages that are stored in one row: some, so that the end of a long history can be read by itself."""
    for start in range(0, len(wires), MESSAGES_IN_ROW):
        yield list(wires[start : start + MESSAGES_IN_ROW])


def close_segment(
    connection: sa.Connection, run_id: str, segment: int, outcome: Outcome, attempt: str | None = None
) -> RunInfo | None:
    """Stores the outcome; with `attempt`, only if that attempt still runs the segment: None, if another one does."""
    run = find_run(connection, run_id, lock=True)
    if run.segment != segment or run.status not in OPEN:  # closed before
        return run
    if attempt is not None and is_lost(connection, run_id, attempt):
        return None
    append_messages(connection, run.id, 2 * segment, outcome.messages)
    if outcome.held:
        held = insert_into(connection, background).values(run=run.id, segment=segment, worker=outcome.held)
        connection.execute(held.on_conflict_do_nothing())
    ending = outcome.status
    if ending in ("continue", "finished") and not run.cancelling:
        # others may end between a call and its result: a resumed run hears them
        moved = inbox.move_messages(connection, run.id, 2 * segment + 1)  # heard by the next segment, or late
        if moved and outcome.answers_messages:
            ending = "continue"
    if run.cancelling or ending not in ("waiting", "continue"):
        _stop_children(connection, run.id)  # their results have no receiver; some began after the cancellation
    if ending in ("waiting", "continue") and run.cancelling:
        return _end_cancelled(connection, run, outcome.spent)
    if ending == "continue" or (ending == "waiting" and _has_arrived(connection, outcome.waits)):
        return change_run(connection, run, status="queued", segment=segment + 1, spent=outcome.spent)
    if ending == "waiting":
        return change_run(connection, run, status="waiting", spent=outcome.spent, waits=outcome.waits)
    result = outcome.result
    if result is None and ending == "cancelled":
        result = _cancelled_result("", outcome.spent)
    if outcome.last_event is not None:
        lock_events(connection, run.id)
        insert_events(connection, {(run.id, segment): [outcome.last_event]})
    return change_run(connection, run, status=ending, spent=outcome.spent, result=result)


def advance_run(
    connection: sa.Connection, run_id: str, said: Sequence[Message], from_segment: int | None, revive: bool
) -> RunInfo | None:
    run = find_run(connection, run_id, lock=True)
    ready: tuple[Status, ...] = ("waiting", "finished", "failed", *(("cancelled",) if revive else ()))
    if run.status not in ready or (from_segment is not None and run.segment != from_segment):
        return None
    if said:
        said = [*_give_up_calls(connection, run.id), *said]
    append_messages(connection, run.id, 2 * run.segment + 1, said)
    # only on a resume: ended background work must not grant it more
    spent = CarriedState.read(run.spent).resume().to_json() if run.is_over and revive else run.spent
    return change_run(connection, run, status="queued", segment=run.segment + 1, spent=spent)


def _give_up_calls(connection: sa.Connection, run_id: str) -> list[Message]:
    """Returns results for calls that still waited when a new message came: nothing may stand between call and
    result.
    """
    message = "not run: the run got a new message while this call waited."
    waited = unanswered_calls(last_turn(connection, run_id))
    theirs = sa.and_(questions.c.run == run_id, questions.c.call.in_([call.id for call in waited]))
    no = {"kind": "no", "feedback": message}
    open_ones = sa.select(questions.c.id).where(theirs, questions.c.answered.is_(None))
    for question_id in connection.execute(open_ones).scalars().all():
        sealed = seal_answer(connection, question_id, run_id, no, "forge", None)
        change = sa.update(questions).where(questions.c.id == question_id, questions.c.answered.is_(None))
        connection.execute(change.values(answer=sealed, answered=now(connection), by="forge"))
    return [Message("tool", f"{call.name}: {message}", call_id=call.id, is_error=True) for call in waited]


def seal_answer(
    connection: sa.Connection, question_id: str, run_id: str, answer: dict[str, Any], by: str, always: list[str] | None
) -> dict[str, Any]:
    """Adds the seal of an answer, where programs may reach the file."""
    seal = seal_row(connection, "answer", question_id, run_id, answer, by, always)
    return {**answer, SEAL: seal} if seal else answer


def cancel_run(connection: sa.Connection, run_id: str) -> RunInfo:
    """Cancels the run and its sub-runs; a running one is marked for its worker to stop."""
    run = find_run(connection, run_id, lock=True)
    if run.status == "running":
        run = _mark_cancelling(connection, run)
    elif not run.is_over:
        run = _end_cancelled(connection, run, run.spent)
    _stop_children(connection, run.id)
    return run


def _stop_children(connection: sa.Connection, run_id: str) -> None:
    children = sa.select(runs.c.id).where(runs.c.parent == run_id, HAS_PARENT)
    going_on = children.where(runs.c.status.not_in(OVER), sa.not_(runs.c.cancelling))
    for child in connection.execute(going_on).scalars().all():
        cancel_run(connection, child)


def update_run(connection: sa.Connection, run_id: str, **values: Any) -> RunInfo:
    run = find_run(connection, run_id, lock=True)
    change = sa.update(runs).where(runs.c.id == run.id).values(values)
    return run_info(connection.execute(change.returning(*COLUMNS)).one())


def change_run(
    connection: sa.Connection,
    run: RunInfo,
    *,
    status: Status,
    spent: Mapping[str, Any],
    segment: int | None = None,
    waits: Sequence[Wait] = (),
    result: Mapping[str, Any] | None = None,
) -> RunInfo:
    """Moves the run to its next state; fields that are not given are cleared."""
    moment = now(connection)
    change = sa.update(runs).where(runs.c.id == run.id)
    values = {
        "status": status,
        "segment": run.segment if segment is None else segment,
        "spent": object_of(spent),
        "waits": [wait_to_json(wait) for wait in waits],
        "result": None if result is None else object_of(result),
        "cancelling": False,
        "updated": moment,
        **figures_of(run.scope, spent, result),
        "look": moment if status == "queued" else moment + GRACE if status in OVER and run.parent else _wake(waits),
    }
    if run.status == "waiting":
        values["waited"] = runs.c.waited + moment - runs.c.updated
    after = run_info(connection.execute(change.values(values).returning(*COLUMNS)).one())
    if after.is_over and after.parent:
        wake_soon(connection, after.parent)
    if status == "cancelled":  # its worker stops the work, and no run is notified
        connection.execute(sa.delete(background).where(background.c.run == run.id))
    return after


def wake_soon(connection: sa.Connection, run_id: str) -> None:
    """Makes a waiting run due soon, unless it is resumed before."""
    soon = now(connection) + GRACE
    look = sa.case((sa.or_(runs.c.look.is_(None), runs.c.look > soon), soon), else_=runs.c.look)
    connection.execute(sa.update(runs).where(runs.c.id == run_id, runs.c.status == "waiting").values(look=look))


def has_stranded(connection: sa.Connection, older: float) -> bool:
    """Returns whether `claim_stranded` would find a run."""
    query = sa.select(runs.c.id).where(runs.c.status == "queued", runs.c.look <= now(connection) - older).limit(1)
    return connection.execute(query).first() is not None


def claim_stranded(connection: sa.Connection, older: float, limit: int) -> list[RunInfo]:
    """Claims queued runs that are due for a check; the longer one waits, the rarer. Each is given to one caller."""
    moment = now(connection)
    turn = (
        sa.select(runs.c.id)
        # by the index alone: of many runs that were queued just now, none is read
        .where(runs.c.status == "queued", runs.c.look <= moment - older)
        .order_by(runs.c.look)
        .limit(clamp_limit(limit))
        .with_for_update(skip_locked=True)
    )
    ids = connection.execute(turn).scalars().all()
    if not ids:
        return []
    wait = sa.case((moment - runs.c.updated > 2 * older, (moment - runs.c.updated) / 2), else_=older)
    change = sa.update(runs).where(runs.c.id.in_(ids)).values(look=moment + wait - older)
    return [run_info(row) for row in connection.execute(change.returning(*COLUMNS))]


def _end_cancelled(connection: sa.Connection, run: RunInfo, spent: Mapping[str, Any]) -> RunInfo:
    """Ends a run that no worker works on, with its last event."""
    said = (one.text for one in reversed(last_turn(connection, run.id)) if one.role == "assistant")
    result = _cancelled_result(next(said, "") if spent.get("turns") else "", spent)
    figures = {name: result[name] for name in ("text", "reason", "turns", "usage", "calls", "cost")}
    event = RunFinished(**figures, run=run.id, session=run.session or run.id, agent=run.agent)
    lock_events(connection, run.id)
    insert_events(connection, {(run.id, run.segment): [(None, event.to_dict())]})
    return change_run(connection, run, status="cancelled", spent=spent, result=result)


def _cancelled_result(text: str, spent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": text,
        "reason": "cancelled",
        "turns": spent.get("turns", 0),
        "calls": spent.get("calls", 0),
        "usage": spent.get("usage", {}),
        "cost": spent.get("cost"),
        "output": None,
        "error": None,
    }


def _mark_cancelling(connection: sa.Connection, run: RunInfo) -> RunInfo:
    change = sa.update(runs).where(runs.c.id == run.id).values(cancelling=True)
    return run_info(connection.execute(change.returning(*COLUMNS)).one())


def _wake(waits: Sequence[Wait]) -> float | None:
    return min((wait.until for wait in waits if wait.until is not None), default=None)


def _has_arrived(connection: sa.Connection, waits: Sequence[Wait]) -> bool:
    """Returns whether something it would wait for arrived while the segment was ending."""
    asked = {wait.question_id for wait in waits if wait.question_id}
    started = {wait.run_id for wait in waits if wait.run_id}
    update_run = sa.select(questions.c.id).where(questions.c.id.in_(asked), questions.c.answered.is_not(None))
    ended = sa.select(runs.c.id).where(runs.c.id.in_(started), runs.c.status.in_(OVER))
    return bool(
        (asked and connection.execute(update_run.limit(1)).first())
        or (started and connection.execute(ended.limit(1)).first())
    )
