"""The answers of a person, and how they are asked: any failure means no."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from forge.core.errors import Waiting
from forge.core.secrets import Secrets
from forge.permissions.request import PermissionRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer. `Answer.ONCE`, `Answer.ALWAYS`, `Answer.NO`, `Answer.no("why")` and `Answer.edit({…})` make
    one.

    Args:
        kind: "once", "always" or "no".
        feedback: a text for the model, with a yes too.
        arguments: all arguments, where they shall be others.
        review: show the result to the person before the model sees it.
        by: who answered.

    Example:
        >>> Answer.no("Not on a Friday.").feedback
        'Not on a Friday.'
    """

    kind: Literal["once", "always", "no"]
    feedback: str = ""
    arguments: Mapping[str, Any] | None = None
    review: bool = False
    by: str = ""

    ONCE: ClassVar[Answer]
    ALWAYS: ClassVar[Answer]
    NO: ClassVar[Answer]

    def __post_init__(self) -> None:
        if self.kind not in ("once", "always", "no"):
            raise ValueError(f"Answer({self.kind!r}): the kind must be once, always or no")
        if self.arguments is not None and not isinstance(self.arguments, Mapping):
            raise TypeError(f"Answer(arguments={self.arguments!r}): pass a dictionary of arguments")

    @classmethod
    def no(cls, feedback: str = "", by: str = "") -> Answer:
        return cls("no", feedback, by=by)

    @classmethod
    def edit(cls, arguments: Mapping[str, Any], feedback: str = "", by: str = "") -> Answer:
        """Answers that the call shall run with these arguments instead."""
        return cls("once", feedback, arguments, by=by)


Answer.ONCE = Answer("once")
Answer.ALWAYS = Answer("always")
Answer.NO = Answer("no")

Approver = Callable[[PermissionRequest], Awaitable[Answer]]
"""Answers what the policy asks: an async function of a `PermissionRequest` that returns an `Answer`.

Example:
    >>> async def ask(request: PermissionRequest) -> Answer:
    ...     return Answer.ONCE if request.target == "web" else Answer.no("Only web.")
    >>> approver: Approver = ask
"""


async def nobody(request: PermissionRequest) -> Answer:
    """Refuses every request: the default approver, because no one is there to ask.

    Args:
        request: the request.

    Example:
        >>> Agent(Scripted("Hello!"), approve=nobody).run_sync("Hi").text
        'Hello!'
    """
    return Answer.no(by="nobody")


async def approve_all(request: PermissionRequest) -> Answer:
    """Approves every request once, as `--yes` does, except those that only a person can answer.

    Args:
        request: the request.

    Example:
        >>> Agent(Scripted("Hello!"), approve=approve_all).run_sync("Hi").text
        'Hello!'
    """
    if request.personal:
        return Answer.no(by="--yes")
    return Answer("once", by="--yes")


async def answer_of(approve: Approver, request: PermissionRequest, secrets: Secrets) -> Answer:
    """Returns the approver's answer; no, if it fails or gives no answer. Raises only `Waiting` or a cancellation."""
    try:
        answer: object = approve(request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Waiting:
        raise
    except (Exception, SystemExit) as error:
        log.error("the approver failed on %s: %s", request.spec.name, secrets.mask_all(describe_failure(error)))
        return Answer.no(f"the question could not be asked ({type(error).__name__})", by="error")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Answer.no("the question was closed without an answer", by="error")  # its own future was cancelled
    if isinstance(answer, Answer):
        return answer
    log.error("the approver answered with %s, which is not an Answer", secrets.mask_all(type(answer).__name__))
    return Answer.no("the question got no clear answer", by="error")


# Describes exceptions of a custom policy or approver for the log: type and position, never the message.


def describe_failure(error: BaseException) -> str:
    """Returns the type and the innermost position: messages and source lines may hold the arguments."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error).__name__ + (
        f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    )
