"""Holds what every reader of a streamed answer needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from forge.core.events import ReasoningDelta, TextDelta, ToolArgumentsDelta
from forge.core.messages import Message
from forge.core.provider import ProviderError
from forge.models.http.sse import Event

Delta = TextDelta | ReasoningDelta | ToolArgumentsDelta


class StreamedAnswer(ABC):
    """Assembles an answer: `take` events as they come and get the new pieces, then read the whole `message`."""

    begun = False  # something of the answer was read
    done = False  # nothing of interest follows

    def __init__(
        self, origin: str, taken: set[str], error: Callable[[Any], ProviderError], action: str = "asking the model"
    ) -> None:
        """`taken`: ids of earlier calls. `error` returns the error for an error object inside the stream."""
        self._origin, self._taken, self._error, self._action = origin, set(taken), error, action
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Sets the reader's own state."""

    @abstractmethod
    def take(self, event: Event) -> Sequence[Delta]:
        """Returns the new pieces. Raises `ProviderError` for an error inside the stream, or unreadable data."""

    @abstractmethod
    def message(self) -> Message:
        """Returns the message. Raises `ProviderError` if the stream ended early: half an answer looks complete."""
