"""A history that only grows, and the part of it that the model sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from forge.core.messages import Message, Usage


class Conversation:
    """`messages` holds the whole history. `shown` is the same list, until older parts become a summary."""

    def __init__(self, messages: list[Message], store: Callable[[tuple[Message, ...]], None] | None = None) -> None:
        self.messages = messages
        self.shown = messages
        self.paid = Usage()  # for summaries, beside what the turns cost
        self._store = store  # stores messages, and appends them to `messages`

    def say(self, *messages: Message) -> None:
        if self._store is not None:
            self._store(messages)
        else:
            self.messages.extend(messages)
        if self.shown is not self.messages:
            self.shown.extend(messages)

    def show(self, messages: Iterable[Message]) -> None:
        """Sets the messages that the model sees instead of the history so far."""
        self.shown = list(messages)


Prepare = Callable[[Conversation], Awaitable[None]]
"""Called before every turn: may shorten what the model is shown."""
