"""Stores approvals and files of a run. Every function works inside the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from forge.core.errors import ErrorKind
from forge.core.plain_values import brief
from forge.durable.store.check_input import LONGEST_NAME
from forge.durable.store.database import find_row_problem, is_sealed_file, seal_row
from forge.durable.store.encoding import object_of
from forge.durable.store.find import find_run, insert_into, now
from forge.durable.store.rows import COVERS, OVER, SEAL, Question
from forge.durable.store.run_lifecycle import seal_answer, wake_soon
from forge.durable.store.tables import files, questions, runs
from forge.workspace.state.store import StoreError

LARGEST_FILE = 16 * 1024 * 1024  # bytes
_SHOWN = [column for column in questions.c if column.name in Question.__dataclass_fields__]

log = logging.getLogger("forge.durable")


def add_question(connection: sa.Connection, question: Question, segment: int = 0, worker: str = "") -> Question:
    """Stores a question. With `segment` and `worker`: only if that worker still works on that segment."""
    if not 0 < len(question.id) <= LONGEST_NAME:
        message = f"{brief(question.id)} cannot be the id of a question"
        raise StoreError(message, ErrorKind.VALIDATION, f"Use 1 to {LONGEST_NAME} characters.")
    run = find_run(connection, question.run, lock=True)
    if segment and (run.segment, run.worker, run.status) != (segment, worker, "running"):
        message = f"the question of {question.tool} in run {run.id} is not stored: the run is {run.status}"
        raise StoreError(
            f"{message}, or another worker runs it", ErrorKind.CANCELLED, "The other worker asks, if need be."
        )
    values = {
        "id": question.id,
        "run": run.id,
        "call": question.call,
        "tool": question.tool,
        "digest": question.digest,
        "request": _seal_request(connection, question, run.id),
        "asked": now(connection),
        "answer": None,
        "answered": None,
        "by": "",
        "always": None,
    }
    connection.execute(insert_into(connection, questions).values(values).on_conflict_do_nothing())
    stored = question_of(connection, question.id)
    if not stored.problem:
        return stored
    log.warning("question %s of run %s is asked again: %s", question.id, run.id, stored.problem)
    told = {**question.request, "reason": _join(question.request.get("reason"), stored.problem)}
    values["request"] = _seal_request(connection, replace(question, request=told), run.id)
    connection.execute(sa.update(questions).where(questions.c.id == question.id).values(values))
    return question_of(connection, question.id)


def withdraw_question(connection: sa.Connection, question_id: str) -> None:
    """Forgets a question that nobody answered: whoever asked no longer waits, and may ask again."""
    is_open = sa.and_(questions.c.id == question_id, questions.c.answered.is_(None))
    connection.execute(sa.delete(questions).where(is_open))


def _seal_request(connection: sa.Connection, question: Question, run_id: str) -> dict[str, Any]:
    request = object_of(question.request)
    seal = seal_row(connection, "question", question.id, run_id, question.call, question.tool, question.digest, request)
    return {**request, SEAL: seal} if seal else request


def _select(connection: sa.Connection) -> sa.Select[Any]:
    return sa.select(*_SHOWN, questions.c.always) if is_sealed_file(connection) else sa.select(*_SHOWN)


def question_of(connection: sa.Connection, question_id: str) -> Question:
    row = connection.execute(_select(connection).where(questions.c.id == question_id)).first()
    if row is None:
        message = f"there is no question {brief(question_id)}"
        raise StoreError(message, ErrorKind.NOT_FOUND, "`forge runs list --status waiting` shows the waiting runs.")
    return _question(connection, row)


def questions_of(
    connection: sa.Connection, run_id: str | None, open: bool, limit: int | None = None, after: str = ""
) -> list[Question]:
    """`after`: the id of the last question that is known; the next ones are returned."""
    query = _select(connection).order_by(questions.c.asked, questions.c.id)
    if run_id is not None:
        query = query.where(questions.c.run == find_run(connection, run_id).id)
    if after:
        asked = connection.execute(sa.select(questions.c.asked).where(questions.c.id == after)).scalar()
        if asked is not None:
            is_later = sa.and_(questions.c.asked == asked, questions.c.id > after)
            query = query.where(questions.c.asked >= asked, sa.or_(questions.c.asked > asked, is_later))
    if open:
        return list(islice(_find_open(connection, query, limit), limit))
    return [_question(connection, row) for row in connection.execute(query.limit(limit))]


def count_open(connection: sa.Connection) -> int:
    """Counts the questions that runs wait for."""
    count = sa.select(sa.func.count()).select_from(questions).join(runs, runs.c.id == questions.c.run)
    found = int(connection.execute(count.where(*_IS_OPEN)).scalar_one())
    if is_sealed_file(connection):  # an answer that Forge did not store leaves its question open
        answered = _select(connection).where(questions.c.answered.is_not(None))
        found += sum(1 for _ in _find_open(connection, answered, None))
    return found


_IS_OPEN = (questions.c.answered.is_(None), runs.c.status.not_in(OVER))


def _find_open(connection: sa.Connection, query: sa.Select[Any], limit: int | None) -> Iterator[Question]:
    """Yields open questions. Where programs may reach the file, an answer that Forge did not store leaves it open."""
    query = query.join(runs, runs.c.id == questions.c.run)
    query = query.where(_IS_OPEN[1]) if is_sealed_file(connection) else query.where(*_IS_OPEN).limit(limit)
    found = (_question(connection, row) for row in connection.execute(query))
    return (question for question in found if question.answer is None)


def answer_question(connection: sa.Connection, question_id: str, answer: Mapping[str, Any], by: str) -> bool:
    question = question_of(connection, question_id)
    run = find_run(connection, question.run, lock=True)  # orders the answer with a segment that ends right now
    change = sa.update(questions).where(questions.c.id == question_id)
    if not question.problem:
        change = change.where(questions.c.answered.is_(None))
    if not question.can_answer:
        message = f"question {question_id} of run {run.id} cannot be answered: {question.problem}"
        raise StoreError(message, ErrorKind.SECURITY, f"`forge runs resume {run.id}` has it asked again.")
    if question.answer is None and run.is_over:
        message = f"run {run.id} is {run.status}: nothing waits for this answer"
        raise StoreError(message, ErrorKind.USER, f"`forge runs resume {run.id}` continues it.")
    always = _allowed_always(question, answer)
    sealed = seal_answer(connection, question_id, run.id, object_of(answer), by, always)
    taken = change.values(answer=sealed, answered=now(connection), by=by, always=always)
    if not connection.execute(taken).rowcount:
        return False
    if any(wait.question_id == question_id for wait in run.waits):
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
    columns = [questions.c[name] for name in ("always", "id", "run", "answer", "by")]
    query = sa.select(*columns).where(questions.c.run == run_id, questions.c.always.is_not(None))
    rows = [row for row in connection.execute(query) if not _find_answer_problem(connection, row._mapping)]
    return {digest for row in rows for digest in row.always}


def put_file(connection: sa.Connection, run_id: str, name: str, data: bytes) -> None:
    if len(data) > LARGEST_FILE:
        message = f"file {brief(name)} of a run may have {LARGEST_FILE} bytes, and has {len(data)}"
        raise StoreError(message, ErrorKind.VALIDATION, "Store only the beginning, and note where the rest is.")
    if not name or len(name) > LONGEST_NAME:
        message = f"{brief(name)} cannot be the name of a file"
        raise StoreError(message, ErrorKind.VALIDATION, f"Use 1 to {LONGEST_NAME} characters.")
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
        message = f"run {run.id} has no file {brief(name)}"
        raise StoreError(message, ErrorKind.NOT_FOUND, f"`forge runs files {run.id}` lists its files.")
    return bytes(data)


def _question(connection: sa.Connection, row: sa.Row[Any]) -> Question:
    """Returns a stored question. An answer that Forge did not store is left out, with the reason."""
    values = {name: value for name, value in row._mapping.items() if name != "always"}
    values["answered"] = values["answered"] or 0.0
    if not is_sealed_file(connection):
        return Question(**values)
    request = values["request"] if isinstance(values["request"], dict) else {}
    values["request"] = shown = _without_seal(request)
    bound = [values[name] for name in ("id", "run", "call", "tool", "digest")]
    can_answer = True
    if problem := find_row_problem(connection, request.get(SEAL), "question", *bound, shown):
        problem, can_answer = f"what is stored about it does not count: {problem}", False
    elif values["answered"] or values["answer"] is not None:
        problem = _find_answer_problem(connection, row._mapping)
    if not problem:
        return Question(**{**values, "answer": _without_seal(values["answer"])})
    told = {**shown, "reason": _join(shown.get("reason"), problem)}
    values |= {"request": told, "answer": None, "answered": 0.0, "by": ""}
    return Question(**values, problem=problem, can_answer=can_answer)


def _find_answer_problem(connection: sa.Connection, row: Mapping[Any, Any]) -> str:
    """Returns why a stored answer does not count; "" if it does."""
    if not is_sealed_file(connection):
        return ""
    answer = row["answer"] if isinstance(row["answer"], dict) else {}
    content = ("answer", row["id"], row["run"], _without_seal(answer), row["by"], row["always"])
    problem = find_row_problem(connection, answer.get(SEAL), *content)
    return f"a stored answer does not count: {problem}" if problem else ""


def _without_seal(stored: Any) -> Any:
    return {key: value for key, value in stored.items() if key != SEAL} if isinstance(stored, dict) else stored


def _join(*words: object) -> str:
    return "; ".join(str(one) for one in words if one)
