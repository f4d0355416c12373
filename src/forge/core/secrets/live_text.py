"""Texts that hold secrets which change while Forge runs: a header with a token that a command prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from weakref import WeakSet

from forge.core.errors import ToolError
from forge.core.secrets import Secrets

FAILED_SECONDS = 5.0  # in which a source that failed is not asked again: its readers would wait one after the other


class SecretSource:
    """Reads a secret where it is kept, and again when its lifetime is over. Any thread may call it.

    Args:
        read: returns the value. It may take a while, and raise `ToolError`.
        lifetime: seconds for which a value is used.

    Example:
        >>> values = iter(["the first value", "the second value"])
        >>> source = SecretSource(lambda: next(values), 300)
        >>> source.read(), source.read()
        ('the first value', 'the first value')
        >>> source.expire()
        >>> source.read()
        'the second value'
    """

    def __init__(self, read: Callable[[], str], lifetime: float) -> None:
        self._read, self._lifetime = read, lifetime
        self._value = ""
        self._problem: ToolError | None = None
        self._until = 0.0
        self._lock = threading.Lock()  # held while it reads
        self._masks: WeakSet[Secrets] = WeakSet()
        self._masks_lock = threading.Lock()

    def read(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._read_now()
            if self._problem is not None:
                raise ToolError(self._problem.message, self._problem.kind, self._problem.suggestion)
            return self._value

    def latest(self) -> str:
        """Returns the value that was read last, however old it is; reads it if there is none yet."""
        return self._value or self.read()

    def _read_now(self) -> None:
        try:
            self._value, self._problem = self._read(), None
        except ToolError as error:
            self._problem = error
            self._until = time.monotonic() + min(FAILED_SECONDS, self._lifetime)
            return
        self._until = time.monotonic() + self._lifetime
        with self._masks_lock:
            for masks in self._masks:
                masks.learn_next(self, [self._value])

    def expire(self) -> None:
        """Forgets the value: a server did not accept it."""
        self._until = 0.0

    def mask_in(self, masks: Secrets) -> None:
        """Registers the value, and each that is read later. It does not wait for a value that is being read."""
        with self._masks_lock:
            masks.learn_next(self, [self._value])
            self._masks.add(masks)


class LiveText:
    """A text around secrets, each of which is read when the text is needed.

    Args:
        parts: plain text and sources, in their order.

    Example:
        >>> LiveText(["Bearer ", SecretSource(lambda: "a-token-of-ours", 300)]).read()
        'Bearer a-token-of-ours'
    """

    def __init__(self, parts: Sequence[str | SecretSource]) -> None:
        self._parts = tuple(parts)

    def read(self) -> str:
        """Returns the text. It may take a while, so a loop calls it in a thread. Raises `ToolError`."""
        return "".join(one if isinstance(one, str) else one.read() for one in self._parts)

    def latest(self) -> str:
        """Returns the text with the values that were read last: a loop need not wait for a command."""
        return "".join(one if isinstance(one, str) else one.latest() for one in self._parts)

    def mask_in(self, masks: Secrets) -> None:
        """Registers the values, and each that is read later."""
        for one in self._parts:
            if not isinstance(one, str):
                one.mask_in(masks)

    def expire(self) -> None:
        """Forgets the values: a server did not accept them."""
        for one in self._parts:
            if not isinstance(one, str):
                one.expire()


def read_text(text: str | LiveText) -> str:
    """Returns a text as it is now."""
    return text if isinstance(text, str) else text.read()
