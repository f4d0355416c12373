"""What waits for a person: shown with all that will run, answered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from forge.console.api.asking import Asked, Refused
from forge.console.api.tools import judged
from forge.console.api.versions import goes_on
from forge.console.console_state import Home
from forge.console.shapes import question_shape, run_shape, words_wanted
from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.executor import Next, ToolExecutor
from forge.core.messages import ToolCall
from forge.core.result import ToolResult
from forge.durable.store.rows import Question, RunInfo
from forge.permissions.answers import Answer
from forge.pipeline.dry_run import describe_effects
from forge.workspace.state.store import StoreError

BY = "console"
MOST = 500
LONGEST_FEEDBACK = 20_000
AROUND_A_PREVIEW = ("forge.pipeline.redact", "forge.pipeline.track_files")


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
        raise ToolError("an answer is once, always or no", ErrorKind.VALIDATION, "Send one of the three as kind.")
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
    taken = question_shape(home, home.runs.store.question(question.id))
    return {"question": taken, "run": run_shape(run), "note": goes_on(home, run)}


async def check_answer(home: Home, asked: Asked) -> dict[str, Any]:
    """What would happen to the call with other arguments, and what they would change."""
    arguments = asked.given("arguments") or {}
    question = await run_in_threadpool(home.runs.store.question, asked.path["id"])
    agent = str(question.request.get("agent", ""))
    told = await run_in_threadpool(judged, home, question.tool, arguments, agent)
    if told["problems"] or told["decision"] == "deny":
        return {**told, "preview": ""}
    run = await run_in_threadpool(home.runs.store.get, question.run)
    return {**told, "preview": await _foreseen(home, question, arguments, run.session or run.id)}


async def _foreseen(home: Home, question: Question, arguments: Mapping[str, Any], session: str) -> str:
    """As the gate would show it: with what the run has read, and nothing that a step before it would do."""
    around = [step for step in home.agents[0].steps if getattr(step, "__module__", "") in AROUND_A_PREVIEW]

    async def look(ctx: ToolContext, proceed: Next) -> ToolResult:
        return await describe_effects(ctx)

    executor = ToolExecutor(home.registry, [*around, look], secrets=home.secrets)
    call = ToolCall(question.tool, arguments, question.call)
    result = await executor.execute(call, replace(home.scope, session_id=session))
    return result.for_user or str(result.data.get("problem", ""))
