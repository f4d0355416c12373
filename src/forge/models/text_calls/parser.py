"""Finds `<tool>…</tool>` in text that arrives in pieces, with the same result however the text was cut.

These rules define a call:
- `<tool>` begins one, unless a backtick stands right before it (that only talks about calls) or it stands in a fenced
  code block. A fence that holds calls and nothing else is decoration: its calls count, and the fence is dropped.
- `</tool>` ends one, but not inside a JSON string or a CDATA section.
- A call that never ends is no call. It is stored separately, and neither shown nor run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

LARGEST = 4 * 1024 * 1024  # characters of a call, or of all calls in one fence
LONGEST_REST = 64 * 1024  # characters stored of a call that is larger, or cut
_PIECE = 64 * 1024  # searched at once, so that no pattern has to remember more
_LONGEST_TOKEN = len("<![CDATA[")
_LONGEST_FENCE = 256  # characters that can belong to the line of a fence

_OPENING = re.compile(r"<tool>|(?<![^\n]) {0,3}(?:`{3,32}|~{3,32})")
_HALF_AN_OPENING = re.compile(r"(?:<(?:t(?:o(?:ol?)?)?)?|(?<![^\n]) {0,3}(?:`{0,2}|~{0,2}))\Z")
_FENCE = re.compile(r" {0,3}(`{3,32}(?=[^`])|~{3,32}(?=[^~]))[^`\n]{0,100}\n")
_HALF_A_FENCE = re.compile(r" {0,3}(?:`{3,32}|~{3,32})[^`\n]{0,100}\Z")
_SPACE = re.compile(r"\s*")
_SOME_SPACE = re.compile(r"\s{0,100}")
# Python before 3.11.4 gets possessive quantifiers wrong. Nothing follows the outer loops, so they never go back.
_STRING = re.compile(r'[^"\\]*(?:\\[\s\S][^"\\]*)*')
_JSON = re.compile(
    r'(?:[^"<]+|"[^"\\]*(?:\\[\s\S][^"\\]*)*"|<(?!/|\Z))*'
)  # whole strings at once; what may end the call is left
_IN_JSON = re.compile(r'"|</tool>')
_IN_XML = re.compile(r"<!\[CDATA\[|</tool>")
_IN_CDATA = re.compile(r"\]\]>")
_IN_INFO = re.compile(r"\n|</tool>")
_IN_OTHER = re.compile(r"</tool>")


class Body(NamedTuple):
    """The text between `<tool>` and `</tool>`."""

    text: str
    is_too_large: bool = False


class CallScanner:
    """Splits streamed text into texts to show and the bodies of calls, in order: `feed` pieces, then `finish`.

    Holds at most one call (or one fence of calls) back, in linear time.
    """

    def __init__(self) -> None:
        self.unterminated = ""  # a call that never ended, from its `<tool>` on
        self._text = ""  # one character of context, then the undecided text
        self._at = 0
        self._is_last = False
        self._step: Callable[[], bool] = self._outside
        self._out: list[str | Body] = []
        self._parts: list[str] = []  # of the call we are in
        self._size = 0
        self._fence = ""  # the marks that opened the fence we are in
        self._held: list[str | Body] = []  # a fence that has held nothing but calls so far

    def feed(self, piece: str) -> list[str | Body]:
        for start in range(0, len(piece), _PIECE):
            self._text = self._text[max(0, self._at - 1) :] + piece[start : start + _PIECE]
            self._at = min(1, self._at)
            while self._step():
                pass
        return self._take_output()

    def finish(self) -> list[str | Body]:
        self._is_last = True
        while self._step():
            pass
        return self._take_output()

    def _take_output(self) -> list[str | Body]:
        out, self._out = self._out, []
        return out

    def _show(self, until: int) -> None:
        if until > self._at:
            self._out.append(self._text[self._at : until])
            self._at = until

    def _wait(self, half: re.Pattern[str]) -> bool:
        """Shows everything except an end that may be half a token."""
        end = len(self._text)
        found = None if self._is_last else half.search(self._text, max(self._at, end - _LONGEST_FENCE))
        self._show(found.start() if found else end)
        return False

    def _outside(self) -> bool:
        found = _OPENING.search(self._text, self._at)
        if found is None:
            return self._wait(_HALF_AN_OPENING)
        self._show(found.start())
        if found[0] == "<tool>":
            if self._text[found.start() - 1 : found.start()] == "`":
                self._show(found.end())
            else:
                self._begin(found.end())
            return True
        fence = _FENCE.match(self._text, self._at)
        if fence is not None:
            self._fence, self._held, self._size = fence[1], [fence[0]], 0
            self._at = fence.end()
            self._step = self._in_pure_fence
        elif not self._is_last and _HALF_A_FENCE.match(self._text, self._at):
            return False
        else:
            self._show(found.end())
        return True

    def _in_fence(self) -> bool:
        found = _marks(self._fence).closing.search(self._text, self._at)
        if found is None:
            return self._wait(_marks(self._fence).half_a_closing)
        self._show(found.end())
        self._step = self._outside
        return True

    def _in_pure_fence(self) -> bool:
        """Continues in a fence that so far holds only calls: it may continue, end, or contain something else."""
        space = _SOME_SPACE.match(self._text, self._at)
        start = space.end() if space else self._at
        rest = self._text[start : start + len("<tool>")]
        has_calls = any(isinstance(item, Body) for item in self._held)
        if rest == "<tool>":
            self._held.append(self._text[self._at : start])
            self._begin(start + len(rest), self._fence)
        elif has_calls and (closed := _marks(self._fence).end.match(self._text, start)):
            self._release(closed.end(), shown=False)
        elif has_calls and _marks(self._fence).half_an_end.match(self._text, start):
            if not self._is_last:
                return False
            self._release(len(self._text), shown=False)
        elif not self._is_last and "<tool>".startswith(rest):
            return False
        else:
            self._release(self._at, shown=True)
        return True

    def _release(self, at: int, *, shown: bool) -> None:
        """Decides the fence: shows it as text, or drops it and keeps its calls."""
        for item in self._held:
            if isinstance(item, Body) and (item.is_too_large or not shown):
                self._out.append(item)
            elif shown:
                self._out.append(f"<tool>{item.text}</tool>" if isinstance(item, Body) else item)
        self._held, self._at = [], at
        self._step = self._in_fence if shown else self._outside

    def _begin(self, at: int, fence: str = "") -> None:
        self._size = self._size if fence else 0
        self._fence, self._parts, self._at = fence, [], at
        self._step = self._at_start

    def _take(self, until: int) -> None:
        if until <= self._at:
            return
        was_too_large = self._size > LARGEST
        self._size += until - self._at
        if not was_too_large:
            self._parts.append(self._text[self._at : until])
            if self._size > LARGEST:
                self._parts = ["".join(self._parts)[:LONGEST_REST]]
        self._at = until

    def _end(self, at: int) -> bool:
        body = Body("".join(self._parts), self._size > LARGEST)
        self._parts, self._at = [], at
        if self._fence:
            self._held.append(body)
            self._step = self._in_pure_fence
        else:
            self._out.append(body)
            self._step = self._outside
        return True

    def _end_early(self) -> bool:
        """Ends the input. The complete calls of an unfinished fence still count."""
        if self._is_last:
            self._take(len(self._text))
            self.unterminated = f"<tool>{''.join(self._parts)}"[:LONGEST_REST]
            self._out += [item for item in self._held if isinstance(item, Body)]
            self._held = []
        return False

    def _at_start(self) -> bool:
        """Detects the form of the call: JSON, XML, or something else."""
        found = _SPACE.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        if self._at == len(self._text):
            return self._end_early()
        kinds = {"{": self._in_json, "<": self._in_xml, "`": self._in_info}
        self._step = kinds.get(self._text[self._at], self._in_other)
        return True

    def _in_json(self) -> bool:
        found = _JSON.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        return self._until(_IN_JSON, self._in_string)

    def _in_string(self) -> bool:
        found = _STRING.match(self._text, self._at)
        self._take(found.end() if found else self._at)
        if not self._text.startswith('"', self._at):
            return self._end_early()
        self._take(self._at + 1)
        self._step = self._in_json
        return True

    def _in_xml(self) -> bool:
        return self._until(_IN_XML, self._in_cdata)

    def _in_cdata(self) -> bool:
        return self._until(_IN_CDATA, self._in_xml)

    def _in_info(self) -> bool:
        return self._until(_IN_INFO, self._at_start)

    def _in_other(self) -> bool:
        return self._until(_IN_OTHER, self._in_other)

    def _until(self, token: re.Pattern[str], then: Callable[[], bool]) -> bool:
        found = token.search(self._text, self._at)
        if found is None:
            self._take(max(self._at, len(self._text) - _LONGEST_TOKEN + 1))
            return self._end_early()
        if found[0] == "</tool>":
            self._take(found.start())
            return self._end(found.end())
        self._take(found.end())
        self._step = then
        return True


class _Marks(NamedTuple):
    """Patterns for the end of a fence: on its own line in text, or directly after a call."""

    closing: re.Pattern[str]
    half_a_closing: re.Pattern[str]
    end: re.Pattern[str]
    half_an_end: re.Pattern[str]


@cache
def _marks(opening: str) -> _Marks:
    mark, least = opening[0], len(opening)
    return _Marks(
        closing=re.compile(rf"(?<![^\n]) {{0,3}}{mark}{{{least},64}}[ \t]{{0,100}}\n"),
        half_a_closing=re.compile(rf"(?<![^\n]) {{0,3}}{mark}{{0,64}}[ \t]{{0,100}}\Z"),
        end=re.compile(rf"{mark}{{{least},64}}[ \t]{{0,100}}\n"),
        half_an_end=re.compile(rf"{mark}{{0,64}}[ \t]{{0,100}}\Z"),
    )
