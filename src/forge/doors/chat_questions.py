"""A question to people in a chat: its buttons, which are signed and expire, and answers in words."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from forge.channels.channel import Button
from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import clean, one_line
from forge.doors.inbox import Inbox
from forge.permissions.questions import Answer, PermissionRequest, request_text, required_names
from forge.workspace.state.sealing import seal

LONGEST_REASON = 4_000  # characters of a reason


class PressedButton(NamedTuple):
    """A button of ours that somebody pressed."""

    choice: str
    question: str  # its id
    is_over: bool  # it has expired


class SignedButtons:
    """Makes the buttons of a channel's questions, and knows them again when they are pressed."""

    def __init__(self, channel: str, approvers: Collection[str], key: Path) -> None:
        """`key`: the file whose state has the key of the seals."""
        self.channel, self._approvers, self._key = channel, approvers, key

    def make(self, label: str, choice: str, question: str, expires: int, chat: str) -> Button:
        """Returns a button that counts for this question, in this chat, until the question expires."""
        value = f"{choice}.{question}.{expires}"
        return Button(label, f"{value}.{self.sign(value, chat)}")

    def read(self, pressed: str, chat: str) -> PressedButton | None:
        """Returns the pressed button; None if it was not made for this chat, or for other approvers."""
        value, _, signature = pressed.rpartition(".")
        choice, question, expires = [*value.split("."), "", "", ""][:3]
        if not hmac.compare_digest(signature.encode(), self.sign(value, chat).encode()):
            return None
        return PressedButton(choice, question, not expires.isdigit() or time.time() > int(expires))

    def sign(self, value: str, chat: str) -> str:
        """Signs with the key of the state's seals. The approvers belong to it: others make it another button."""
        content = ["button", self.channel, chat, value, sorted(self._approvers)]
        return seal(self._key, json.dumps(content).encode()).partition(":")[2][:32]


@dataclass(slots=True)
class ChatQuestion:
    """A question to the people of a conversation, until it is over."""

    request: PermissionRequest
    chat: str
    expires: int
    answer: asyncio.Future[Answer]
    signed: SignedButtons
    inbox: Inbox
    tell: Callable[[str], None]  # sends words to the chat
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    waits_for: str = ""  # the person whose next message is the reason, or the fields
    wants: str = ""  # reason or fields

    def press(self, choice: str, person: str) -> None:
        """Takes a pressed button of a person who may answer."""
        if choice in ("r", "f"):
            if not self.waits_for or self.waits_for == person:
                self.waits_for, self.wants = person, "reason" if choice == "r" else "fields"
                words = "Write the reason as your next message here." if choice == "r" else self._explain_fields()
                self.tell(words)
            return
        by = f"{person} in {self.signed.channel}"
        if choice in ("y", "a", "n"):
            self.end(Answer({"y": "once", "a": "always", "n": "no"}[choice], by=by))  # type: ignore[arg-type]
        elif choice[:1] == "c" and choice[1:].isdigit():
            name, choices = find_choices(self.request.form)
            if int(choice[1:]) < len(choices):
                self.end(Answer.edit({name: choices[int(choice[1:])]}, by=by))

    def take_words(self, person: str, text: str) -> bool:
        """Takes the message that the question waits for. Returns False where it is no such message."""
        if self.waits_for != person:
            return False
        by = f"{person} in {self.signed.channel}"
        if self.wants == "reason":
            self.end(Answer.no(clean(text, LONGEST_REASON), by=by))
            return True
        try:
            self.end(Answer.edit(read_fields(text, self.request.form or {}), by=by))
        except ToolError as error:
            self.tell(f"{error.message}. {error.suggestion}")
        return True

    def end(self, answer: Answer) -> None:
        if self.inbox.use_question(self.id) and not self.answer.done():
            self.answer.set_result(answer)

    def _explain_fields(self) -> str:
        fields = (self.request.form or {}).get("properties", {})
        if len(fields) == 1:
            return "Write the answer as your next message here."
        return f"Write the answers as your next message here, one a line: {', '.join(f'{one}: …' for one in fields)}"

    def buttons(self) -> list[Button]:
        """Returns the answers that the question can have."""
        request, make = self.request, self._make_button
        if request.form is not None and request.editable:
            _, choices = find_choices(request.form)
            found = [make(one_line(str(one), 60) or "-", f"c{at}") for at, one in enumerate(choices)]
            return [*(found or [make("Answer…", "f")]), make("Decline", "n")]
        if request.result is not None:
            return [make("Yes", "y"), make("No", "n")]
        yes, no = ("Apply", "Discard") if request.effects is not None else ("Yes", "No")
        always = [make("Always", "a")] if request.rules_to_remember else []
        return [make(yes, "y"), *always, make(no, "n"), make(f"{no}, because…", "r")]

    def _make_button(self, label: str, choice: str) -> Button:
        return self.signed.make(label, choice, self.id, self.expires, self.chat)

    def describe(self, answer: Answer) -> str:
        """Returns how the question ended, for everyone in the chat."""
        kind = {"once": "yes", "always": "always", "no": "no"}[answer.kind]
        if self.request.effects is not None:
            kind = "applied" if answer.kind != "no" else "discarded"
        if answer.arguments is not None:
            kind = "answered"
        reason = f": {one_line(answer.feedback, 300)}" if answer.feedback else ""
        return f"{clean(request_text(self.request), 1_500)}\n→ {kind}, by {answer.by}{reason}"


def find_choices(form: Mapping[str, Any] | None) -> tuple[str, list[Any]]:
    """Returns the name and the values of a form's only field, if they fit on buttons."""
    fields = (form or {}).get("properties", {})
    if len(fields) != 1:
        return "", []
    name, one = next(iter(fields.items()))
    values = one.get("enum") if one.get("type") == "string" else [True, False] if one.get("type") == "boolean" else None
    return name, list(values) if isinstance(values, list) and len(values) <= 8 else []


def read_fields(text: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the fields of a form from a message: the only one, lines `name: value`, or JSON. Raises `ToolError`."""
    fields = form.get("properties", {})
    if len(fields) == 1:
        written = dict.fromkeys(fields, text.strip())
    else:
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(text), dict):
                return found
        lines = (line.partition(":") for line in text.splitlines() if ":" in line)
        written = {name.strip(): value.strip() for name, _, value in lines if name.strip() in fields}
    missing = [name for name in required_names(form) if name not in written]
    if missing or not written:
        hint = f"Write one a line: {', '.join(f'{name}: …' for name in fields)}."
        raise ToolError(f"these fields are missing: {', '.join(map(str, missing)) or 'all'}", ErrorKind.USER, hint)
    return {name: _read_value(value, fields[name]) for name, value in written.items()}


def _read_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Returns a number or a boolean where the form wants one; the check of the form judges the rest."""
    if schema.get("type") in ("integer", "number", "boolean", "array"):
        with suppress(ValueError, RecursionError):
            return json.loads({"yes": "true", "no": "false"}.get(text.lower(), text.lower()))
    return text
