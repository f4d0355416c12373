"""Asks the person behind an MCP client: by the client's own form, where it has one."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from forge.permissions.answers import Answer, Approver, nobody
from forge.permissions.display import request_text
from forge.permissions.request import PermissionRequest

LONGEST_FEEDBACK = 2_000  # characters


class Question(Protocol):
    """Shows a message and a form, and gives back what was filled in; None where the person declined."""

    async def __call__(self, message: str, form: Mapping[str, Any]) -> Mapping[str, Any] | None: ...


class Client(Protocol):
    """Who a call came from."""

    @property
    def person(self) -> str:
        """A name for whoever answers, for the log."""

    @property
    def remembers(self) -> bool:
        """Whether "always" can be offered: its session is this client's alone."""

    def question(self) -> Question | None:
        """How to ask; None where the client cannot, or is gone."""

    def masked(self, text: str) -> str:
        """The text without registered secrets."""


client: ContextVar[Client | None] = ContextVar("client", default=None)
"""Whose call is running: set by the server around each."""


class ElicitingApprover:
    """An `Approver` for servers. A client that cannot ask its person gets a no, as does what comes from nobody.

    `otherwise` is asked about calls that no MCP client made.
    """

    def __init__(self, otherwise: Approver = nobody) -> None:
        self.otherwise = otherwise

    async def __call__(self, request: PermissionRequest) -> Answer:
        asking = client.get()
        if asking is None:
            return await self.otherwise(request)
        question = asking.question()
        if question is None:
            return await nobody(request)
        message = asking.masked(request_text(request))
        if request.form is not None:  # what a server asks, of which ours is the client
            filled = await question(message, request.form)
            return Answer.no(by=asking.person) if filled is None else Answer.edit(filled, by=asking.person)
        choices = _choices(request, asking)
        filled = await question(message, _form(choices))
        return _answer(filled, choices, asking.person)


def _choices(request: PermissionRequest, asking: Client) -> tuple[str, ...]:
    always = asking.remembers and any(part.remember for part in request.parts)
    return ("once", "always", "no") if always else ("once", "no")


def _form(choices: tuple[str, ...]) -> dict[str, Any]:
    decision = {"type": "string", "title": "Allow it?", "enum": list(choices)}
    feedback = {
        "type": "string",
        "title": "A word to the model",
        "description": "Reaches the model with your answer; may stay empty.",
        "maxLength": LONGEST_FEEDBACK,
    }
    return {"type": "object", "properties": {"decision": decision, "feedback": feedback}, "required": ["decision"]}


def _answer(filled: Mapping[str, Any] | None, choices: tuple[str, ...], by: str) -> Answer:
    """Anything but a clear yes is a no."""
    if filled is None:
        return Answer.no(by=by)
    said = filled.get("feedback")
    feedback = said[:LONGEST_FEEDBACK] if isinstance(said, str) else ""
    decision = filled.get("decision")
    if decision == "once":
        return Answer("once", feedback, by=by)
    if decision == "always" and decision in choices:
        return Answer("always", feedback, by=by)
    return Answer.no(feedback, by=by)
