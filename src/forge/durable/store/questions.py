"""Stores approvals and files of a run. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.plain_values import brief
from forge.durable.store.check_input import LONGEST_NAME
from forge.durable.store.find import find_run, insert_into, now
from forge.durable.store.rows import COVERS, OVER, Question
from forge.durable.store.run_rows import wake_soon
from forge.durable.store.step_json import object_of
from forge.durable.store.tables import files, questions, runs
from forge.workspace.state.store import StoreError

LARGEST_FILE = 16 * 1024 * 1024  # bytes
_SHOWN = [questions.c[name] for name in Question.__dataclass_fields__]


def add_question(connection: sa.Connection, question: Question, segment: int = 0, worker: str = "") -> Question:
    """Stores a question. With `segment` and `worker`: only if that worker still works on that segment."""
    if not 0 < len(question.id) <= LONGEST_NAME:
        words = f"{brief(question.id)} cannot be the id of a question"
        raise StoreError(words, ErrorKind.VALIDATION, f"Use 1 to {LONGEST_NAME} characters.")
    run = find_run(connection, question.run, lock=True)
    if segment and (run.segment, run.worker, run.status) != (segment, worker, "running"):
        words = f"the question of {question.tool} in run {run.id} is not stored: the run is {run.status}"
        raise StoreError(
            f"{words}, or another worker runs it", ErrorKind.CANCELLED, "The other worker asks, if need be."
        )
    values = {
        "id": question.id,
        "run": run.id,
        "call": question.call,
        "tool": question.tool,
        "digest": question.digest,
        "request": object_of(question.request),
        "asked": now(connection),
        "answer": None,
        "answered": None,
        "by": "",
    }
    connection.execute(insert_into(connection, questions).values(values).on_conflict_do_nothing())
    return question_of(connection, question.id)


def question_of(connection: sa.Connection, question_id: str) -> Question:
    row = connection.execute(sa.select(*_SHOWN).where(questions.c.id == question_id)).first()
    if row is None:
        words = f"there is no question {brief(question_id)}"
        raise StoreError(words, ErrorKind.NOT_FOUND, "`forge runs list --status waiting` shows the waiting runs.")
    return _question(row)


def questions_of(
    connection: sa.Connection, run_id: str | None, open: bool, limit: int | None = None, after: str = ""
) -> list[Question]:
    """`after`: the id of the last question that is known; the next ones are returned."""
    query = sa.select(*_SHOWN).order_by(questions.c.asked, questions.c.id)
    if run_id is not None:
        query = query.where(questions.c.run == find_run(connection, run_id).id)
    if open:
        query = _only_open(query)
    if after:
        asked = connection.execute(sa.select(questions.c.asked).where(questions.c.id == after)).scalar()
        if asked is not None:
            is_later = sa.and_(questions.c.asked == asked, questions.c.id > after)
            query = query.where(questions.c.asked >= asked, sa.or_(questions.c.asked > asked, is_later))
    return [_question(row) for row in connection.execute(query.limit(limit))]


def count_open(connection: sa.Connection) -> int:
    """Counts the questions that runs wait for."""
    return int(connection.execute(_only_open(sa.select(sa.func.count()).select_from(questions))).scalar_one())


def _only_open(query: sa.Select[Any]) -> sa.Select[Any]:
    query = query.join(runs, runs.c.id == questions.c.run)
    return query.where(questions.c.answered.is_(None), runs.c.status.not_in(OVER))


def answer_question(connection: sa.Connection, question_id: str, answer: Mapping[str, Any], by: str) -> bool:
    question = question_of(connection, question_id)
    run = find_run(connection, question.run, lock=True)  # orders the answer with a segment that ends right now
    change = sa.update(questions).where(questions.c.id == question_id, questions.c.answered.is_(None))
    if question.answer is None and run.is_over:
        words = f"run {run.id} is {run.status}: nothing waits for this answer"
        raise StoreError(words, ErrorKind.USER, f"`forge runs resume {run.id}` continues it.")
    always = _allowed_always(question, answer)
    taken = change.values(answer=object_of(answer), answered=now(connection), by=by, always=always)
    if not connection.execute(taken).rowcount:
        return False
    if any(wait.detail.get("question") == question_id for wait in run.waits):
        wake_soon(connection, run.id)
    return True


def _allowed_always(question: Question, answer: Mapping[str, Any]) -> list[str] | None:
    """Returns the digests that the answer allows from now on. For changed arguments only the worker that runs the call
    remembers it.
    """
    if answer.get("kind") != "always" or answer.get("arguments") is not None:
        return None
    return [str(one) for one in question.request.get(COVERS, ())] or None


def always_of(connection: sa.Connection, run_id: str) -> set[str]:
    query = sa.select(questions.c.always).where(questions.c.run == run_id, questions.c.always.is_not(None))
    return {digest for covered in connection.execute(query).scalars() for digest in covered}


def put_file(connection: sa.Connection, run_id: str, name: str, data: bytes) -> None:
    if len(data) > LARGEST_FILE:
        words = f"file {brief(name)} of a run may have {LARGEST_FILE} bytes, and has {len(data)}"
        raise StoreError(words, ErrorKind.VALIDATION, "Store only the beginning, and note where the rest is.")
    if not name or len(name) > LONGEST_NAME:
        words = f"{brief(name)} cannot be the name of a file"
        raise StoreError(words, ErrorKind.VALIDATION, f"Use 1 to {LONGEST_NAME} characters.")
    values = {"run": find_run(connection, run_id, lock=True).id, "name": name, "size": len(data), "data": data}
    new = insert_into(connection, files).values(values)
    connection.execute(
        new.on_conflict_do_update(
            index_elements=[files.c.run, files.c.name], set_={"size": new.excluded.size, "data": new.excluded.data}
        )
    )


def files_of(connection: sa.Connection, run_id: str) -> list[tuple[str, int]]:
    query = sa.select(files.c.name, files.c.size).where(files.c.run == find_run(connection, run_id).id)
    return [(name, size) for name, size in connection.execute(query.order_by(files.c.name))]


def file_of(connection: sa.Connection, run_id: str, name: str) -> bytes:
    run = find_run(connection, run_id)
    query = sa.select(files.c.data).where(files.c.run == run.id, files.c.name == name)
    data = connection.execute(query).scalar()
    if data is None:
        words = f"run {run.id} has no file {brief(name)}"
        raise StoreError(words, ErrorKind.NOT_FOUND, f"`forge runs files {run.id}` lists its files.")
    return bytes(data)


def _question(row: sa.Row[Any]) -> Question:
    values = dict(row._mapping)
    values["answered"] = values["answered"] or 0.0
    return Question(**values)
