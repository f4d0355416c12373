"""Checks the answers of a model before anyone sees them, and the messages that a model is to see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, cast

from forge.agent.conversation import Conversation
from forge.core.errors import ToolError
from forge.core.events import ReasoningDelta, Retrying, TextDelta
from forge.core.messages import SENT, Message
from forge.core.provider import ModelRequest, Provider, StreamPart
from forge.pipeline.guard import MARK

WITHHELD = f"{MARK} The person sent a message here. A guardrail denies it, so its text is not shown."


class ConversationRules(Protocol):
    """Rules about prompts and answers. The checks raise `ToolError`."""

    @property
    def responses(self) -> Any: ...  # empty: every answer may be given

    def check_prompt(self, text: str) -> None: ...
    def check_response(self, text: str) -> None: ...


class SessionGuard(Protocol):
    """Knows the rules of each session."""

    def rules(self, session_id: str) -> ConversationRules | None: ...


class GuardedProvider:
    """Emits nothing until an answer is complete and not refused: streamed text cannot be taken back."""

    def __init__(self, provider: Provider, guard: SessionGuard, session: str) -> None:
        self.provider = provider
        self._guard = guard
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        is_checked = _has_response_rules(self._guard, self._session)
        held: list[StreamPart] = []
        async with aclosing(cast(Any, self.provider.stream(request))) as parts:
            async for part in parts:
                if is_checked and not isinstance(part, Retrying):
                    held.append(part)
                else:
                    yield part
        if not is_checked:
            return
        answer = next((part.text for part in held if isinstance(part, Message)), "")
        streamed = "".join(part.text for part in held if isinstance(part, TextDelta))
        thoughts = "".join(part.text for part in held if isinstance(part, ReasoningDelta))
        if not any(is_denied(self._guard, self._session, text) for text in (answer, streamed)):
            hides_thoughts = is_denied(self._guard, self._session, thoughts)
            for part in held:
                if not (hides_thoughts and isinstance(part, ReasoningDelta)):
                    yield part
            return
        yield TextDelta(MARK)
        for part in held:
            if isinstance(part, Message):
                yield replace(part, text=MARK)


def check_prompt(guard: SessionGuard, session: str, text: str) -> None:
    """Raises `ToolError` for a prompt that is denied."""
    rules = guard.rules(session)
    if rules is not None:
        rules.check_prompt(text)


def withhold_denied(guard: SessionGuard, session: str, conversation: Conversation) -> None:
    """Hides denied messages that a person sent to a stored run: their sender may not have known the rules.

    The history keeps the text, for the people who read it.
    """

    def is_shown(message: Message) -> bool:
        try:
            if message.extra.get(SENT):
                check_prompt(guard, session, message.text)
        except ToolError:
            return False
        return True

    shown = [message if is_shown(message) else replace(message, text=WITHHELD) for message in conversation.shown]
    if any(now is not before for now, before in zip(shown, conversation.shown, strict=True)):
        conversation.show(shown)


def is_denied(guard: SessionGuard, session: str, text: str) -> bool:
    """Returns whether an answer must not be shown."""
    rules = guard.rules(session)
    if rules is None or not rules.responses:
        return False
    try:
        rules.check_response(text)
    except ToolError:
        return True
    return False


def _has_response_rules(guard: SessionGuard, session: str) -> bool:
    rules = guard.rules(session)
    return rules is not None and bool(rules.responses)
