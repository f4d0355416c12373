"""Checks the input of programs before the database is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from forge.core.errors import ErrorKind
from forge.core.messages import Message, Role, ToolCall
from forge.core.plain_values import brief, is_sendable
from forge.core.result import Attachment
from forge.durable.store.rows import NewRun
from forge.workspace.state.store import StoreError

LONGEST_ID = 200  # characters
LONGEST_NAME = 255  # indexes cannot hold longer ones
LOWEST, HIGHEST = -(2**31), 2**31 - 1  # priorities that a column holds

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
_ROLES = frozenset(get_args(Role))


def check_new(run: NewRun) -> None:
    """Checks a new run. Raises `StoreError`, as all functions here do."""
    check_id(run.id)
    for name in ("agent", "queue"):
        check_name(getattr(run, name), f"the {name} of run {run.id}")
    for name in ("session", "tenant", "version", "parent"):
        check_name(getattr(run, name), f"the {name} of run {run.id}", empty=True)
    for name in ("prompt", "parent_call"):
        check_text(getattr(run, name), f"the {name} of run {run.id}")
    for name in ("scope", "carrier"):
        if not isinstance(getattr(run, name), Mapping):
            raise _input_error(
                f"the {name} of run {run.id}", getattr(run, name), "is not a mapping", "Pass a dict with names as keys."
            )
    check_messages(run.messages)
    _check_priority(run)


def check_id(run_id: object) -> None:
    """Checks an id for a new run."""
    if not is_id(run_id) or len(str(run_id)) > LONGEST_ID:
        message = f"{brief(run_id)} cannot be the id of a run"
        suggestion = f"Use at most {LONGEST_ID} letters, digits and _.:- and begin with a letter or a digit."
        raise StoreError(message, ErrorKind.VALIDATION, suggestion)


def is_id(run_id: object) -> bool:
    return isinstance(run_id, str) and _ID.fullmatch(run_id) is not None


def check_lookup(run_id: object) -> None:
    """Checks an id to look up."""
    check_text(run_id, "the id of a run")


def check_name(name: object, what: str, *, empty: bool = False) -> None:
    check_text(name, what)
    text = str(name)
    if not text and not empty:
        raise StoreError(f"{what} is empty", ErrorKind.VALIDATION, "Pass a non-empty name.")
    if len(text) > LONGEST_NAME:
        raise StoreError(f"{what} has {len(text)} characters", ErrorKind.VALIDATION, f"Use at most {LONGEST_NAME}.")
    if "\0" in text or not is_sendable(text):
        raise _input_error(what, text, "has characters that a database cannot store", "Remove NUL and lone surrogates.")


def check_words(words: object, what: str) -> None:
    """Checks a message for a model."""
    check_text(words, what)
    if not str(words).strip():
        raise StoreError(f"{what} is empty", ErrorKind.VALIDATION, "Write the message for the model.")


def check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise _input_error(what, text, "is not a string", "Pass a str.")


def check_messages(messages: object) -> None:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise _input_error("messages", messages, "is not a list of messages", 'Pass [Message("user", "…")].')
    for position, message in enumerate(messages):
        problem = _problem_of(message)
        if problem:
            what = f"message {position + 1} of {len(messages)}"
            raise _input_error(
                what, message, problem, 'Pass Message("user", "…") of forge, or a Message that Forge returned.'
            )


def _problem_of(message: Any) -> str:
    """Returns the problem with a message; empty if there is none."""
    if not isinstance(message, Message):
        return "is not a Message"
    if not isinstance(message.role, str) or message.role not in _ROLES:
        return f"has a role that is not one of {', '.join(sorted(_ROLES))}"
    if not isinstance(message.text, str) or not isinstance(message.call_id, str):
        return "has a text or a call_id that is not a string"
    if not _are_all(message.tool_calls, _is_call):
        return "has a call that is not a valid ToolCall"
    if not _are_all(message.attachments, _is_attachment):
        return "has an attachment that is not an Attachment"
    return "" if isinstance(message.extra, Mapping) else "has an extra that is not a mapping"


def _are_all(found: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(found, tuple | list) and all(is_right(one) for one in found)


def _is_call(call: Any) -> bool:
    if not isinstance(call, ToolCall):
        return False
    texts = isinstance(call.name, str) and isinstance(call.id, str) and isinstance(call.server, str)
    return texts and isinstance(call.arguments, str | Mapping)


def _is_attachment(one: Any) -> bool:
    if not isinstance(one, Attachment):
        return False
    return isinstance(one.data, bytes) and isinstance(one.media_type, str) and isinstance(one.name, str)


def _check_priority(run: NewRun) -> None:
    # not `in range(…)`: for other types than int, Python would iterate over it
    is_whole = isinstance(run.priority, int) and not isinstance(run.priority, bool)
    if not is_whole or not LOWEST <= run.priority <= HIGHEST:
        message = f"run {run.id} has a priority that cannot be stored: {brief(run.priority)}"
        raise StoreError(message, ErrorKind.VALIDATION, "Use a whole number from -10 to 10; higher numbers run first.")


def _input_error(what: str, value: object, problem: str, way: str) -> StoreError:
    return StoreError(f"{what} {problem}: {brief(value)}", ErrorKind.VALIDATION, way)
