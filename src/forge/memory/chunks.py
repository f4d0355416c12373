"""Cuts a note into searchable pieces: a section, or a few of its paragraphs."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

ENOUGH = 500  # characters after which a blank line ends a piece
MOST = 1_000  # characters of a piece; an embedding model reads hardly more

_HEADING = re.compile(r"#{1,6}\s")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


class Chunk(NamedTuple):
    """A piece of a note and its lines, counted from 1."""

    text: str
    line_start: int
    line_end: int

    @property
    def digest(self) -> bytes:
        return digest_of(self.text.encode("utf-8", "surrogatepass"))


def digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def split_note(text: str) -> list[Chunk]:
    """Returns the pieces of a note, in order. Every line that is not blank is in one of them."""
    found: list[Chunk] = []
    for lines in _groups(text):
        found += _cut_group(lines)
    return found


def _groups(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yields groups of numbered lines: a group ends before a heading, or at a blank line once it is long enough."""
    group: list[tuple[int, str]] = []
    size, in_code, has_body = 0, False, False
    for number, raw in enumerate(io.StringIO(text, newline=""), 1):  # splits lines as editors do
        line = raw.rstrip("\r\n")
        is_heading = not in_code and _HEADING.match(line) is not None
        is_blank = not line.strip()
        if group and ((is_heading and has_body) or (is_blank and size >= ENOUGH) or size + len(line) > MOST):
            yield group
            group, size, has_body = [], 0, False
        if is_blank and not group:
            continue
        group.append((number, line))
        size += len(line) + 1
        in_code ^= _FENCE.match(line) is not None
        has_body |= not is_heading and not is_blank
    if group:
        yield group


def _cut_group(lines: list[tuple[int, str]]) -> Iterator[Chunk]:
    while lines and not lines[-1][1].strip():
        lines = lines[:-1]
    if not lines:
        return
    text = "\n".join(line for _, line in lines)
    for start in range(0, len(text), MOST):  # several only if a single line is too long
        piece = text[start : start + MOST]
        if piece.strip():
            yield Chunk(piece, lines[0][0], lines[-1][0])
