"""Asks the person behind an MCP client for approval, with the client's own form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.client import CallClient, current_client
from forge.permissions.answers import Answer, Approver, nobody
from forge.permissions.questions import request_text
from forge.permissions.request import PermissionRequest

LONGEST_FEEDBACK = 2_000  # characters


class ElicitingApprover:
    """An `Approver` for servers. A call is denied if its client cannot ask a person.

    `otherwise` decides on calls that no MCP client made; it denies them by default.
    """

    def __init__(self, otherwise: Approver = nobody) -> None:
        self.otherwise = otherwise

    async def __call__(self, request: PermissionRequest) -> Answer:
        asker = current_client.get()
        if asker is None:
            return await self.otherwise(request)
        if not asker.can("elicitation"):
            return await nobody(request)
        message = asker.mask(request_text(request))
        if request.form is not None:  # a question of an MCP server that Forge itself uses
            filled = await asker.show_form(message, request.form)
            return Answer.no(by=asker.person) if filled is None else Answer.edit(filled, by=asker.person)
        choices = _choices(request, asker)
        filled = await asker.show_form(message, _form(choices))
        return _answer(filled, choices, asker.person)


def _choices(request: PermissionRequest, asker: CallClient) -> tuple[str, ...]:
    always = asker.remembers and bool(request.rules_to_remember)
    return ("once", "always", "no") if always else ("once", "no")


def _form(choices: tuple[str, ...]) -> dict[str, Any]:
    decision = {"type": "string", "title": "Allow it?", "enum": list(choices)}
    feedback = {
        "type": "string",
        "title": "Message to the model",
        "description": "Optional. The model gets it with your answer.",
        "maxLength": LONGEST_FEEDBACK,
    }
    return {"type": "object", "properties": {"decision": decision, "feedback": feedback}, "required": ["decision"]}


def _answer(filled: Mapping[str, Any] | None, choices: tuple[str, ...], by: str) -> Answer:
    """Reads the form; anything but a clear yes is a no."""
    if filled is None:
        return Answer.no(by=by)
    text = filled.get("feedback")
    feedback = text[:LONGEST_FEEDBACK] if isinstance(text, str) else ""
    decision = filled.get("decision")
    if decision == "once":
        return Answer("once", feedback, by=by)
    if decision == "always" and decision in choices:
        return Answer("always", feedback, by=by)
    return Answer.no(feedback, by=by)
