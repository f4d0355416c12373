"""Regular expressions whose time grows with the text, never exponentially: Rust's, by way of pydantic.

They know neither look-around nor back-references. The engine only says whether something is found; where it is, is
found by asking it about parts of the text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

LONGEST = 2_000  # characters of a pattern
MOST_REPEATED = 1_000  # copies that a pattern's counts make of something
PIECE = 1024 * 1024  # characters searched at once, so that the clock is looked at in between
OVERLAP = 64 * 1024  # characters that two pieces share
SECONDS = 2.0  # of one clock
GAP = 64  # characters around a find that are tried for a longer one

_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_ERROR = re.compile(r"\n    (.*)\n    ( *)\^+.*\nerror: (.*)", re.DOTALL)
_CROSSES = re.compile(
    r"\\(?![dwSbAz]|[^A-Za-z0-9])|\[\^|\[:|\(\?[a-zA-Z-]*s|[\x00-\x1f]"
)  # rather too much than too little


class PatternError(ValueError):
    """What is wrong with a pattern, and at which character."""


class TooLong(Exception):
    """A search took more time than it may: what it looked for counts as found."""


class Clock:
    """Ends searches that take too long, all of one call together."""

    def __init__(self, seconds: float = SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = now() + seconds

    def check(self) -> None:
        if self._now() > self._end:
            raise TooLong


class Span(NamedTuple):
    start: int
    end: int


class Pattern:
    """Compiled now; `PatternError` if it is none."""

    def __init__(self, source: str) -> None:
        self.source = source
        _check(source)
        _compiled(source)  # as it is written, so that the place of an error is right
        group = f"(?m:{source}\n)" if _is_verbose(source) else f"(?m:{source})"  # ^ and $ are those of lines
        self._anywhere = _compiled(group)
        self._at_start = _compiled(rf"\A{group}")
        self._whole = _compiled(rf"\A{group}\z")
        self.crosses_lines = _CROSSES.search(source) is not None

    def is_in(self, text: str, clock: Clock) -> bool:
        """Whether it is found in a text without lone surrogates. Raises `TooLong`."""
        clock.check()
        if len(text) <= PIECE:
            return self._anywhere(text)
        for start in range(0, len(text) - OVERLAP, PIECE - OVERLAP):
            if self._anywhere(text[start : start + PIECE]):
                return True
            clock.check()
        return False

    def spans(self, text: str, clock: Clock) -> Iterator[Span]:
        """Where it is found, from left to right, each as long as it can be."""
        for line in _lines(text) if not self.crosses_lines else [Span(0, len(text))]:
            segment = text[line.start : line.end]
            if self.is_in(segment, clock):
                for found in self._within(segment, clock):
                    yield Span(line.start + found.start, line.start + found.end)

    def _within(self, text: str, clock: Clock) -> Iterator[Span]:
        start = 0
        while start < len(text):
            clock.check()
            end = self._first_end(text, start)
            if end is None:
                return
            first = self._first_start(text, start, end)
            if not self._at_start(text[first : end + GAP]) and not self._at_start(text[first:]):
                start = max(first, start) + 1  # only the cut made it look like one
                continue
            last = self._last_end(text, first, end)
            if last > first:
                yield Span(first, last)
            start = max(last, start + 1)

    def _first_end(self, text: str, start: int) -> int | None:
        """The smallest end of a find that begins at `start` or later."""
        size = 64
        while not self._anywhere(text[start : start + size]):
            if start + size >= len(text):
                return None
            size *= 2
        low, high = start, min(start + size, len(text))
        while low < high:
            middle = (low + high) // 2
            if self._anywhere(text[start:middle]):
                high = middle
            else:
                low = middle + 1
        return high

    def _first_start(self, text: str, start: int, end: int) -> int:
        """The smallest beginning of a find that ends at `end`, as far as one can be told without trying all."""
        low, high = start, end
        while low < high:  # the largest one
            middle = (low + high + 1) // 2
            if self._anywhere(text[middle:end]):
                low = middle
            else:
                high = middle - 1
        best, tried = low, low - 1
        while tried >= start and best - tried <= GAP:
            if self._whole(text[tried:end]):
                best = tried
            tried -= 1
        return best

    def _last_end(self, text: str, start: int, end: int) -> int:
        best, tried = end, end + 1
        while tried <= len(text) and tried - best <= GAP:
            if self._whole(text[start:tried]):
                best = tried
            tried += 1
        return best


def _check(source: str) -> None:
    if not source:
        raise PatternError("it is empty, and would be found everywhere")
    if len(source) > LONGEST:
        raise PatternError(f"it has {len(source):,} characters, and {LONGEST:,} are the most")
    if (repeated := _repeated(source)) > MOST_REPEATED:
        raise PatternError(f"its counts such as {{100}} repeat something {repeated:,} times; {MOST_REPEATED:,} is most")


def _repeated(source: str) -> int:
    """How many copies the counts make of what is innermost, groups within groups multiplied."""
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
    """A comment at the end of such a pattern must not swallow what is put behind it."""
    return re.match(r"\(\?[a-zA-Z]*x", source) is not None


def _compiled(source: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # heavy: only where there are guardrails

    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=source, regex_engine="rust-regex"))
    except SchemaError as error:
        raise PatternError(_explained(str(error))) from None
    return validator.isinstance_python


def _explained(words: str) -> str:
    found = _ERROR.search(words)
    if found is None:
        return "it is too large when compiled" if "size limit" in words else " ".join(words.split())[-200:]
    return f"{found[3].strip()}, at character {len(found[2]) + 1}"


def _lines(text: str) -> Iterator[Span]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield Span(start, start + len(line.rstrip("\r\n")))
        start += len(line)
