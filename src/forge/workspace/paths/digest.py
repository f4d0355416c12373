"""The hash of a file's content: computed once, and of a large one beside whatever else is to be done."""

from __future__ import annotations

import threading
from hashlib import sha256

LARGE = 1024 * 1024  # bytes from which a thread is worth its while: hashing does not hold up other threads


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()  # the one that processors help with


class Digest:
    """Begun when it is made, waited for when its value is asked for."""

    def __init__(self, content: bytes) -> None:
        self._value = ""
        self._thread: threading.Thread | None = None
        if len(content) < LARGE:
            self._value = digest_of(content)
            return
        self._thread = threading.Thread(target=self._compute, args=(content,), name="forge-digest", daemon=True)
        self._thread.start()

    @property
    def value(self) -> str:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._value

    def _compute(self, content: bytes) -> None:
        self._value = digest_of(content)
