"""Matches command patterns against words that are partly known only when the line runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache

ANY = "\0"  # in a word: any text, or several words, or none
SOME = "\1"  # in a word: any text without blanks
MOST_MASKS = 1_000  # characters whose places in a pattern are kept

_PIECE = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


def fits(words: str, pattern: str) -> bool:
    """Says whether the words fit a pattern; `git log *` also fits `git log`."""
    return fnmatchcase(words, pattern) or (pattern.endswith(" *") and fnmatchcase(words, pattern[:-2]))


def may_fit(words: Sequence[str], pattern: str) -> bool:
    """Says whether the words fit for some text in the place of every `ANY` and `SOME`.

    Options between the words may be left out, with the word behind them or without: `git -C . push` fits `git push *`.
    """
    if all(is_known(word) and not word.startswith("-") for word in words):
        return fits(" ".join(words), pattern)
    return _may_fit(words, pattern) or (pattern.endswith(" *") and _may_fit(words, pattern[:-2]))


def is_known(word: str) -> bool:
    """Says whether a word is complete before the line runs."""
    return ANY not in word and SOME not in word


def _may_fit(words: Sequence[str], pattern: str) -> bool:
    glob = _compile(pattern)
    positions = [1, *[0] * (len(words) + 1)]  # where in the pattern one may be before each word
    needed = max((index for index, word in enumerate(words) if word != ANY), default=0)
    for index, word in enumerate(words):
        if not positions[index]:
            continue
        reached = glob.advance(positions[index], f" {word}" if index else word)
        if index >= needed and reached & glob.end:
            return True
        positions[index + 1] |= reached
        if index and word.startswith(("-", ANY, SOME)):
            positions[index + 1] |= positions[index]
            positions[index + 2] |= positions[index] if "=" not in word and word != "--" else 0
    return False


class _Glob:
    """A pattern as a set of positions, one bit each, so that a character moves all of them at once."""

    def __init__(self, pattern: str) -> None:
        pieces: list[str | re.Pattern[str]] = []
        self.loops = 0  # places at a `*`, where every character may stay
        for piece in _PIECE.findall(pattern):
            if piece == "*":
                self.loops |= 1 << len(pieces)
            else:
                pieces.append(re.compile(translate(piece)) if piece[0] in "[?" else piece)
        self.pieces = pieces
        self.end = 1 << len(pieces)
        self.blanks = sum(1 << position for position, piece in enumerate(pieces) if piece == " ")
        self._masks: dict[str, int] = {}

    def advance(self, positions: int, text: str) -> int:
        """Returns the possible positions after the text."""
        for char in text:
            if char == ANY:
                positions = -(positions & -positions) & (2 * self.end - 1)  # anywhere from the first place on
            elif char == SOME:
                positions = self._to_blanks(positions)
            else:
                positions = ((positions & self._mask(char)) << 1) | (positions & self.loops)
            if not positions:
                break
        return positions

    def _to_blanks(self, positions: int) -> int:
        before = 0
        while positions != before:
            before = positions
            positions |= ((positions & ~self.blanks) << 1) & (2 * self.end - 1)
        return positions

    def _mask(self, char: str) -> int:
        found = self._masks.get(char)
        if found is None:
            taken = (piece == char if isinstance(piece, str) else piece.match(char) for piece in self.pieces)
            found = sum(1 << position for position, takes in enumerate(taken) if takes)
            if len(self._masks) < MOST_MASKS:
                self._masks[char] = found
        return found


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> _Glob:
    return _Glob(pattern)
