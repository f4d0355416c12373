"""Chooses the question that an answer belongs to, and checks the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forge.core.arguments.schema import check_schema, compile_parser
from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.plain_values import brief
from forge.core.spec import ToolSpec
from forge.durable.store.check_input import check_name, check_text, check_words
from forge.durable.store.rows import TAKES, Question, RunInfo
from forge.durable.store.step_json import object_of
from forge.permissions.answers import Answer
from forge.workspace.state.store import StoreError


def check_answer_values(answer: object, question: object, by: object) -> None:
    """Checks the types of an answer. Raises `StoreError`, as all functions here do."""
    check_name(by, "the name of the person who answers", empty=True)
    if question is not None:
        check_text(question, "the id of a question")
    if isinstance(answer, Answer):
        check_text(answer.feedback, "the feedback of an answer")
        check_name(answer.by, "the name of the person who answers", empty=True)
        return
    if not isinstance(answer, str):
        words = f"an answer must be an Answer or a text, not {brief(answer)}"
        raise StoreError(words, ErrorKind.VALIDATION, 'Pass Answer.ONCE, Answer.no("why"), or a str.')
    check_words(answer, "the answer")


def check_answer(question: Question, answer: Answer) -> None:
    """Checks an answer against the call that was asked about."""
    shown = question.request
    if answer.arguments is not None and not shown.get("editable") and not shown.get("form"):
        words = f"{question.tool} asks for this during its call, so its arguments can no longer be changed"
        raise StoreError(words, ErrorKind.USER, "Answer with yes or no.")
    if answer.kind == "always" and not shown.get("remember"):
        words = f"this call of {question.tool} cannot be approved for always"
        raise StoreError(words, ErrorKind.USER, "Answer with yes, which approves this call only.")
    if answer.arguments is not None and answer.kind != "no" and isinstance(shown.get(TAKES), Mapping):
        _check_fits(question.tool, shown[TAKES], answer.arguments)


def choose_question(run: RunInfo, asked: Sequence[Question], question: str | None) -> Question:
    """Returns the question of this id, or the only one."""
    found = [one for one in asked if question is None or one.id == question]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{one.id} ({one.tool})" for one in found)
        raise StoreError(
            f"run {run.id} has several open questions: {names}", ErrorKind.USER, "Choose one with --question ID."
        )
    if question is not None:
        words = f"run {run.id} has no question with the id {brief(question)}"
        raise StoreError(words, ErrorKind.NOT_FOUND, f"`forge runs show {run.id}` shows its questions.")
    if any(wait.kind == "question" for wait in run.waits):
        words = f"run {run.id} asks a question that needs a text as answer"
        raise StoreError(words, ErrorKind.USER, f'Answer it: forge runs answer {run.id} "…"')
    raise nothing_asked_error(run)


def nothing_asked_error(run: RunInfo) -> StoreError:
    state = "does not wait for a person" if run.status == "waiting" else f"is {run.status}"
    words = f"run {run.id} {state}: there is nothing to answer"
    way = f'To resume it: forge runs resume {run.id} --say "…"' if run.is_over else "Check again in a moment."
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
        words = f"the arguments are not valid for {tool}: {error.message}"
        raise StoreError(words, ErrorKind.VALIDATION, error.suggestion) from error
