"""Regular expressions whose time grows with the text, never exponentially.

Two engines read each pattern. Rust's, which pydantic brings, says whether a text holds it: it knows all of Unicode. RE2
says where. Neither knows look-around and back-references. Where RE2 is not installed, or does not know a pattern, whole
lines are taken for what was found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

LONGEST_PATTERN = 2_000  # characters of a pattern
MOST_REPEATED = 1_000  # copies that a pattern's counts make of something
PIECE = 1024 * 1024  # characters searched at once, so that the clock is looked at in between
OVERLAP = 64 * 1024  # characters that two pieces share
CLOCK_SECONDS = 2.0  # of one clock
MOST_SPANS = 10_000  # matches of one pattern in one text that are kept apart; more become one

_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_ERROR = re.compile(r"\n    (.*)\n    ( *)\^+.*\nerror: (.*)", re.DOTALL)
_CROSSES = re.compile(
    r"\\(?![dwSbAz]|[^A-Za-z0-9])|\[\^|\[:|\(\?[a-zA-Z-]*s|[\x00-\x1f]"
)  # rather too much than too little
_PIECES = re.compile(r"\\.|\[:\^?\w+:\]|\[\^?\]|\[\^?|&&|--|~~|.", re.DOTALL)
_SET_SIGNS = frozenset({"&&", "--", "~~"})
_UNICODE = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{N}\p{Pc}", "s": r"\t-\r\x{85}\p{Z}"}  # RE2's own are those of ASCII


class PatternError(ValueError):
    """A pattern has a mistake; the message names the character."""


class TooLong(Exception):
    """A search took more time than allowed: its pattern counts as found."""


class SearchClock:
    """Ends searches that take too long, all of one call together."""

    def __init__(self, seconds: float = CLOCK_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = now() + seconds

    def check(self) -> None:
        if self._now() > self._end:
            raise TooLong


class MatchSpan(NamedTuple):
    start: int
    end: int


class Pattern:
    """A compiled pattern. Raises `PatternError` if it is not valid."""

    def __init__(self, source: str) -> None:
        self.source = source
        _check(source)
        _compile(source)  # as it is written, so that the place of an error is right
        group = f"(?m:{source}\n)" if _is_verbose(source) else f"(?m:{source})"  # ^ and $ are those of lines
        self._anywhere = _compile(group)
        self.crosses_lines = _CROSSES.search(source) is not None
        self._has_boundary = re.search(r"\\[bB]", source) is not None

    @property
    def tells_where(self) -> bool:
        """Returns whether `spans` can locate matches."""
        return _make_finder(self.source) is not None

    def is_in(self, text: str, clock: SearchClock) -> bool:
        """Returns whether the pattern is found in a text without lone surrogates. Raises `TooLong`."""
        clock.check()
        if len(text) <= PIECE:
            return self._anywhere(text)
        for start in range(0, len(text) - OVERLAP, PIECE - OVERLAP):
            if self._anywhere(text[start : start + PIECE]):
                return True
            clock.check()
        return False

    def spans(self, text: str, clock: SearchClock) -> Iterator[MatchSpan]:
        """Returns RE2's matches from left to right; nothing where there is no RE2. Raises `TooLong`."""
        finder = _make_finder(self.source)
        if finder is None:
            return
        clock.check()
        widens = self._has_boundary and not text.isascii()
        for number, found in enumerate(finder.finditer(text)):
            clock.check()
            start, end = found.span()
            if number == MOST_SPANS:
                yield MatchSpan(start, len(text))
                return
            if end > start:
                yield _widen(text, start, end) if widens else MatchSpan(start, end)


def _check(source: str) -> None:
    if not source:
        raise PatternError("it is empty, and would match everywhere")
    if len(source) > LONGEST_PATTERN:
        raise PatternError(f"it has {len(source):,} characters; the limit is {LONGEST_PATTERN:,}")
    if (repeated := _count_repeats(source)) > MOST_REPEATED:
        raise PatternError(
            f"its counts such as {{100}} repeat a part {repeated:,} times; the limit is {MOST_REPEATED:,}"
        )


def _count_repeats(source: str) -> int:
    """Returns how many copies the counts make of the innermost part, nested groups multiplied."""
    plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "_", source, flags=re.DOTALL)
    most: list[int] = [1]  # of each open group
    position = 0
    closed = 1  # of what was just closed
    while position < len(plain):
        letter = plain[position]
        count = _COUNT.match(plain, position)
        if count:
            times = max(int(count[1][:9]), int((count[2] or "0")[:9]), 1)
            closed *= times
            most[-1] = max(most[-1], closed)
            position = count.end()
            continue
        if letter == "(":
            most.append(1)
        elif letter == ")" and len(most) > 1:
            closed = most.pop()
            most[-1] = max(most[-1], closed)
            position += 1
            continue
        closed = 1
        position += 1
    return most[0]


def _is_verbose(source: str) -> bool:
    """Returns whether the pattern is verbose: a comment at its end must not swallow the text behind it."""
    return re.match(r"\(\?[a-zA-Z]*x", source) is not None


def _compile(source: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # heavy: only where there are guardrails

    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=source, regex_engine="rust-regex"))
    except SchemaError as error:
        raise PatternError(_explain_error(str(error))) from None
    return validator.isinstance_python


def _explain_error(words: str) -> str:
    found = _ERROR.search(words)
    if found is None:
        return "it is too large when compiled" if "size limit" in words else " ".join(words.split())[-200:]
    return f"{found[3].strip()}, at character {len(found[2]) + 1}"


@cache
def _make_finder(source: str) -> Any | None:
    """Returns RE2's reading of a pattern; None where RE2 is missing, or would read it in another way."""
    try:
        import re2
    except ImportError:  # the extra "guardrails" is not installed; there is no wheel for musl
        return None
    translated = _translate_for_re2(source)
    if translated is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"(?m:{translated})", options)
    except re2.error:
        return None


def _translate_for_re2(source: str) -> str | None:
    r"""Replaces `\d`, `\w`, `\s` and their opposites by Unicode's, as in Rust. None where Rust has signs of its own."""
    parts, inside, negated = [], False, False
    for piece in _PIECES.findall(source):
        letter = piece[1:]
        if inside and negated and piece in (r"\D", r"\W", r"\S"):
            return None  # RE2 would take letters beyond ASCII out
        if inside and (piece == "[" or piece in _SET_SIGNS):
            return None  # a class within a class, or the difference of two
        if piece[0] == "\\" and letter in _UNICODE:
            parts.append(_UNICODE[letter] if inside else f"[{_UNICODE[letter]}]")
        elif piece[0] == "\\" and letter.lower() in _UNICODE and not inside:
            parts.append(f"[^{_UNICODE[letter.lower()]}]")
        else:
            parts.append(piece)
            negated = piece.startswith("[^") if piece[0] == "[" and not inside else negated
            inside = piece[0] == "[" or (inside and piece != "]") if not piece.startswith("[:") else inside
    return "".join(parts)


def _widen(text: str, start: int, end: int) -> MatchSpan:
    """Widens a match to the ends of words: RE2 takes letters beyond ASCII for the end of one."""
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return MatchSpan(start, end)
