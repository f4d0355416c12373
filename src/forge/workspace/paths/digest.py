"""Hashes the content of a file once; large content in a thread."""

from __future__ import annotations

import threading
from hashlib import sha256

LARGE = 1024 * 1024  # bytes: larger content is hashed in a thread, since hashing releases the interpreter lock


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()  # processors have instructions for it


class Digest:
    """Starts hashing when it is made; `value` waits for the result."""

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
