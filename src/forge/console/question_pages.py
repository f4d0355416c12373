"""What waits for a person: shown with all that will run, answered once."""

from __future__ import annotations

from typing import Any

from forge.console.asking import Asked, Refused
from forge.console.home import Home
from forge.console.shapes import question_shape, run_shape, words_wanted
from forge.console.tool_pages import judged
from forge.core.errors import ErrorKind, ToolError
from forge.durable.rows import RunInfo
from forge.permissions.answers import Answer
from forge.workspace.store import StoreError

BY = "console"
MOST = 500
LONGEST_FEEDBACK = 20_000


def list_questions(home: Home, asked: Asked) -> dict[str, Any]:
    known: dict[str, RunInfo] = {}
    store = home.runs.store
    waiting = [run for run in store.list(status="waiting", limit=1_000) if any(w.kind == "question" for w in run.waits)]
    return {
        "questions": [question_shape(home, one, known) for one in store.questions()[:MOST]],
        "words": [words_wanted(home, run, known) for run in waiting[::-1][:MOST]],
    }


def show_question(home: Home, asked: Asked) -> dict[str, Any]:
    return question_shape(home, home.runs.store.question(asked.path["id"]))


def answer_question(home: Home, asked: Asked) -> dict[str, Any]:
    """Taken once: who comes second is told what was said, and by whom."""
    question = home.runs.store.question(asked.path["id"])
    kind = asked.said("kind", most=20)
    if kind not in ("once", "always", "no"):
        raise ToolError("an answer is once, always or no", ErrorKind.VALIDATION)
    arguments = asked.given("arguments", needed=False)
    if kind == "no" and arguments is not None:
        raise ToolError("a no has no arguments", ErrorKind.VALIDATION, "Leave them out, or say once.")
    feedback = asked.said("feedback", needed=False, most=LONGEST_FEEDBACK)
    try:
        home.runs.give(question, Answer(kind, feedback, arguments, by=BY), BY)  # type: ignore[arg-type]
    except StoreError as error:
        if error.kind is not ErrorKind.USER:
            raise
        raise Refused(error, 409, question=question_shape(home, home.runs.store.question(question.id))) from error
    run = home.runs.go_on(question.run)
    home.hub.nudge()
    return {"question": question_shape(home, home.runs.store.question(question.id)), "run": run_shape(run)}


def check_answer(home: Home, asked: Asked) -> dict[str, Any]:
    question = home.runs.store.question(asked.path["id"])
    agent = str(question.request.get("agent", ""))
    return {**judged(home, question.tool, asked.given("arguments") or {}, agent), "preview": ""}
