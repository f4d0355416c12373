"""Chooses the question that an answer belongs to, and checks the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.arguments.schema import check_schema, compile_parser
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.spec import ToolSpec
from forge.durable.engine.approval import TAKES
from forge.durable.store.check_input import check_name, check_text, check_words
from forge.durable.store.rows import Question, RunInfo
from forge.durable.store.step_json import object_of
from forge.permissions.answers import Answer
from forge.workspace.state.store import StoreError


def check_answer_values(answer: object, question: object, by: object) -> None:
    """Checks the types of an answer. Raises `StoreError`, as all functions here do."""
    check_name(by, "who answers", empty=True)
    if question is not None:
        check_text(question, "the id of a question")
    if isinstance(answer, Answer):
        check_text(answer.feedback, "the feedback of an answer")
        check_name(answer.by, "who answers", empty=True)
        return
    if not isinstance(answer, str):
        words = f"an answer is an Answer or words, and {brief(answer)} is neither"
        raise StoreError(words, ErrorKind.VALIDATION, 'Pass Answer.ONCE, Answer.no("why"), or the words as a str.')
    check_words(answer, "the answer")


def check_answer(question: Question, answer: Answer) -> None:
    """Checks an answer against the call that was asked about."""
    shown = question.request
    if answer.arguments is not None and not shown.get("editable") and not shown.get("form"):
        words = f"{question.tool} runs already: its arguments can no longer be changed"
        raise StoreError(words, ErrorKind.USER, "Answer with yes or no.")
    if answer.kind == "always" and not shown.get("remember"):
        words = f"nothing may be remembered about this call of {question.tool}"
        raise StoreError(words, ErrorKind.USER, "Answer with yes: it counts for this call alone.")
    if answer.arguments is not None and answer.kind != "no" and isinstance(shown.get(TAKES), Mapping):
        _check_fits(question.tool, shown[TAKES], answer.arguments)


def choose_question(run: RunInfo, asked: Sequence[Question], question: str | None) -> Question:
    """Returns the question of this id, or the only one."""
    found = [one for one in asked if question is None or one.id == question]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{one.id} ({one.tool})" for one in found)
        raise StoreError(f"run {run.id} asks for several: {names}", ErrorKind.USER, "Say which with --question ID.")
    if question is not None:
        words = f"run {run.id} asks nothing under the id {brief(question)}"
        raise StoreError(words, ErrorKind.NOT_FOUND, f"`forge runs show {run.id}` shows what it asks.")
    if any(wait.kind == "question" for wait in run.waits):
        words = f"run {run.id} has a question that is answered in words"
        raise StoreError(words, ErrorKind.USER, f'Answer it: forge runs answer {run.id} "…"')
    raise nothing_asked_error(run)


def nothing_asked_error(run: RunInfo) -> StoreError:
    state = "waits for nobody" if run.status == "waiting" else f"is {run.status}"
    words = f"run {run.id} {state}: there is nothing to answer"
    way = f'To go on with it: forge runs resume {run.id} --say "…"' if run.is_over else "Look again in a moment."
    return StoreError(words, ErrorKind.USER, way)


def _check_fits(tool: str, takes: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Checks the arguments as the tool itself will, as far as its stored schema allows."""
    try:
        schema, aliases = takes["parameters"], dict(takes.get("aliases") or {})
        check_schema(tool, schema)
        spec = ToolSpec(
            name=tool, description="", parameters=schema, argument_aliases=aliases, strict=bool(takes.get("strict"))
        )
        parse = compile_parser(spec)
    except (DefinitionError, KeyError, TypeError, ValueError):  # the tool checks them itself when it is called
        return
    try:
        parse(object_of(arguments))
    except ToolError as error:
        words = f"the arguments do not fit {tool}: {error.message}"
        raise StoreError(words, ErrorKind.VALIDATION, error.suggestion) from error
