"""Hashes the content of a file once; large content in a thread."""

from __future__ import annotations

import threading
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple

LARGE = 1024 * 1024  # bytes: larger content is hashed in a thread, since hashing releases the interpreter lock
REMEMBERED = 16 * 1024 * 1024  # bytes: the last large content stays in memory if it is no larger


def digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()  # processors have instructions for it


class _Hashed(NamedTuple):
    """A content, its digest, and the state of the hash after each whole piece of `LARGE` bytes."""

    content: bytes
    digest: str
    states: list[Any]


_last = _Hashed(b"", "", [])


class Digest:
    """Starts hashing when it is made; `value` waits for the result.

    An edit usually finds what the edit before it wrote, and leaves most of it as it is. So the last large content is
    remembered, and only what comes after an equal beginning is hashed: to compare is much faster than to hash. Without
    this, an edit of a 10 MB file takes 2.3 times a bare read, replace and write instead of 1.6; the limit is 2.
    """

    def __init__(self, content: bytes) -> None:
        self._value = ""
        self._thread: threading.Thread | None = None
        last = _last
        if len(content) < LARGE:
            self._value = digest_of(content)
        elif content == last.content:
            self._value = last.digest
        else:
            self._thread = threading.Thread(
                target=self._compute, args=(content, last), name="forge-digest", daemon=True
            )
            self._thread.start()

    @classmethod
    def of_file(cls, file: BinaryIO) -> Digest:
        """Hashes a file that may be too large for the memory."""
        digest, state = cls(b""), sha256()
        while piece := file.read(LARGE):
            state.update(piece)
        digest._value = state.hexdigest()
        return digest

    @property
    def value(self) -> str:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._value

    def _compute(self, content: bytes, last: _Hashed) -> None:
        global _last
        if len(content) > REMEMBERED:
            self._value = digest_of(content)
            return
        states, view = _equal_beginning(content, last), memoryview(content)
        state = states[-1].copy() if states else sha256()
        for at in range(len(states) * LARGE, len(content) // LARGE * LARGE, LARGE):
            state.update(view[at : at + LARGE])
            states.append(state.copy())
        state.update(view[len(states) * LARGE :])
        self._value = state.hexdigest()
        _last = _Hashed(content, self._value, states)


def _equal_beginning(content: bytes, last: _Hashed) -> list[Any]:
    """Returns the states after the pieces at the beginning that both contents share."""
    view = memoryview(last.content)
    for number in range(len(last.states)):
        at = number * LARGE
        if not content.startswith(view[at : at + LARGE], at):
            return last.states[:number]
    return list(last.states)
