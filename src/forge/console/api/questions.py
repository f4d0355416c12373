"""The questions of runs: shown with all that will run, answered once."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool

from forge.console.api.requests import ApiError, ApiRequest
from forge.console.api.runs import why_not_continued
from forge.console.api.tools import preview_effects, preview_tool_call
from forge.console.console_state import ConsoleState
from forge.console.response_shapes import question_shape, run_shape, waiting_text
from forge.core.errors import ErrorKind, ToolError
from forge.core.messages import ToolCall
from forge.permissions.questions import Answer
from forge.workspace.state.store import StoreError

BY = "console"
MOST_QUESTIONS = 100  # questions of each kind on a page
LONGEST_FEEDBACK = 20_000


def list_questions(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Returns a page of the open questions, with all counted. However many wait, it needs a handful of statements."""
    store = console.runs.store
    limit = request.number("limit", MOST_QUESTIONS, 1, MOST_QUESTIONS)
    asked = store.questions(limit=limit, after=request.text("after"))
    asking = store.list_asking(limit, _read_cursor(request.text("words_after")))
    known = store.find_with_roots({one.run for one in asked} | {run.id for run in asking})
    now = store.now()
    return {
        "questions": [question_shape(console, one, known, now) for one in asked],
        "total": store.count_questions(),
        "words": [waiting_text(console, run, known) for run in asking],
        "words_total": store.count_asking(),
        "words_next": f"{asking[-1].updated!r} {asking[-1].id}" if asking else request.text("words_after"),
    }


def _read_cursor(text: str) -> tuple[float, str] | None:
    moment, _, run = text.partition(" ")
    try:
        return (float(moment), run) if text else None
    except ValueError:
        hint = "Send the `words_next` of the page before."
        raise ToolError("words_after is not a cursor of this list", ErrorKind.VALIDATION, hint) from None


def show_question(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    return question_shape(console, console.runs.store.question(request.path["id"]))


def answer_question(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Accepts one answer; a second person learns the first answer and its author."""
    question = console.runs.store.question(request.path["id"])
    kind = request.body_text("kind", most=20)
    if kind not in ("once", "always", "no"):
        raise ToolError("the answer must be once, always or no", ErrorKind.VALIDATION, "Send one of them as kind.")
    arguments = request.body_object("arguments", needed=False)
    if kind == "no" and arguments is not None:
        raise ToolError(
            "a denied call takes no arguments", ErrorKind.VALIDATION, "Leave out the arguments, or send kind once."
        )
    feedback = request.body_text("feedback", needed=False, most=LONGEST_FEEDBACK)
    paths = request.body.get("paths")
    if paths is not None and (not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths)):
        raise ToolError(
            "paths must be a list of paths", ErrorKind.VALIDATION, "Send the effects to apply, or no paths."
        )
    try:
        console.runs.give(question, Answer(kind, feedback, arguments, by=BY, paths=paths), BY)  # type: ignore[arg-type]
    except StoreError as error:
        if error.kind is not ErrorKind.USER:
            raise
        raise ApiError(
            error, 409, question=question_shape(console, console.runs.store.question(question.id))
        ) from error
    run = console.runs.go_on(question.run)
    console.hub.nudge()
    taken = question_shape(console, console.runs.store.question(question.id))
    return {"question": taken, "run": run_shape(run), "note": why_not_continued(console, run)}


async def check_answer(console: ConsoleState, request: ApiRequest) -> dict[str, Any]:
    """Previews the call with other arguments, and their changes."""
    arguments = request.body_object("arguments") or {}
    question = await run_in_threadpool(console.runs.store.question, request.path["id"])
    agent = str(question.request.get("agent", ""))
    told = await run_in_threadpool(preview_tool_call, console, question.tool, arguments, agent)
    if told["problems"] or told["decision"] == "deny":
        return {**told, "preview": ""}
    run = await run_in_threadpool(console.runs.store.get, question.run)
    call = ToolCall(question.tool, arguments, question.call)
    diff, problem = await preview_effects(console, call, run.session or run.id)
    return {**told, "preview": diff or problem}
