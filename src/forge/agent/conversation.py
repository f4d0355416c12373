"""A history that only grows, and the part of it that the model sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from forge.core.events import ContextShortened
from forge.core.messages import Message, Usage


class Conversation:
    """A history that only grows, and the part of it that the model sees.

    Args:
        messages: the whole history. `shown` is the same list, until older parts become a summary.
        store: stores new messages and appends them to `messages`; by default they are only appended.

    Example:
        >>> conversation = Conversation([])
        >>> conversation.append(Message("user", "Hello"))
        >>> [message.text for message in conversation.shown]
        ['Hello']
    """

    def __init__(self, messages: list[Message], store: Callable[[tuple[Message, ...]], None] | None = None) -> None:
        self.messages = messages
        self.shown = messages
        self.given = len(messages)  # how many there were when its last run began
        self.paid = Usage()  # for summaries, beside what the turns cost
        self.billed = Usage()  # the part of `paid` that is in the usage of a finished run
        self._shortened: list[ContextShortened] = []  # since it was last taken
        self._store = store  # stores messages, and appends them to `messages`

    @property
    def unbilled(self) -> Usage:
        """The usage of summaries that no finished run has counted: a conversation may have several runs."""
        return self.paid.minus(self.billed)

    def append(self, *messages: Message) -> None:
        if self._store is not None:
            self._store(messages)
        else:
            self.messages.extend(messages)
        if self.shown is not self.messages:
            self.shown.extend(messages)

    def show(self, messages: Iterable[Message]) -> None:
        """Sets the messages that the model sees instead of the history so far."""
        self.shown = list(messages)

    def note_shortened(self, event: ContextShortened | None) -> None:
        """Notes that the model is shown less than before."""
        if event is not None:
            self._shortened.append(event)

    def take_shortened(self) -> list[ContextShortened]:
        """Returns what was shortened since the last time."""
        if not self._shortened:
            return []
        taken, self._shortened = self._shortened, []
        return taken

    def __repr__(self) -> str:
        return f"<Conversation of {len(self.messages)} messages, {len(self.shown)} shown>"


Prepare = Callable[[Conversation], Awaitable[None]]
"""Called before every turn: may shorten what the model is shown."""
