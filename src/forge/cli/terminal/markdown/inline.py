"""Parses the Markdown inside a line: emphasis, code, links. Text may arrive in pieces of any size.

A marker counts only if its partner follows on the same line, near enough; otherwise it is text, as it was written.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 300  # characters from a marker to the end of its span
DEEPEST = 6  # spans inside spans
CODE, LINK, ADDRESS = "36", "4", "2"
_STYLES = {"*": "3", "_": "3", "**": "1", "***": "1;3", "~~": "9"}  # `__init__` is a name more often than bold
_ESCAPABLE = frozenset("\\`*_~[]<>#|!+-.(){}")
_MARKERS = re.compile(r"[\\`*_~\[<!]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]+)>")
_AUTOLINK_STARTS = ("<https://", "<http://", "<mailto:")


class Span(NamedTuple):
    """Text of one style: the codes of a terminal, separated by semicolons; empty for plain text."""

    text: str
    style: str


class _Undecided(Exception):
    """Raised where the next characters decide."""


def parse_inline(text: str, style: str = "", *, final: bool, before: str = "") -> tuple[list[Span], str]:
    """Returns the spans that are decided, and the rest. `final`: the line ends here, so that nothing is left.

    `before` is the character in front of the text.
    """
    parser = _InlineParser(text, style, final=final, before=before)
    return parser.spans, text[parser.parse() :]


class _InlineParser:
    def __init__(self, text: str, style: str, *, final: bool, before: str, depth: int = 0) -> None:
        self.text = text
        self.style = style
        self.final = final
        self.before = before
        self.depth = depth
        self.spans: list[Span] = []

    def parse(self) -> int:
        """Fills `spans`; returns the position up to which everything is decided."""
        position = 0
        while position < len(self.text):
            marker = _MARKERS.search(self.text, position)
            start = marker.start() if marker else len(self.text)
            self._add(self.text[position:start])
            if start == len(self.text):
                return start
            try:
                position = self._parse_marker(start)
            except _Undecided:
                return start
        return position

    def _parse_marker(self, at: int) -> int:
        """Adds what begins with this marker; returns its end. Raises `_Undecided`."""
        character = self.text[at]
        if character == "\\":
            follows = self._peek(at + 1)
            self._add(follows if follows in _ESCAPABLE and follows else f"\\{follows}")
            return at + 1 + len(follows)
        if character == "!" and self._peek(at + 1) != "[":
            self._add("!")
            return at + 1
        if character in "[!":
            return self._parse_link(at + (character == "!")) or self._literal(at, character)
        if character == "<":
            return self._parse_autolink(at) or self._literal(at, "<")
        run = self._run(at)
        if character == "`":
            return self._parse_code(at, run) or self._literal(at, run)
        return self._parse_emphasis(at, run) or self._literal(at, run)

    def _literal(self, at: int, text: str) -> int:
        self._add(text)
        return at + len(text)

    def _add(self, text: str, style: str | None = None) -> None:
        if text:
            self.spans.append(Span(text, self.style if style is None else style))

    def _with(self, style: str) -> str:
        return f"{self.style};{style}" if self.style else style

    def _peek(self, at: int) -> str:
        """Returns the character there; empty at the end of the line. Raises `_Undecided`."""
        if at < len(self.text):
            return self.text[at]
        if not self.final:
            raise _Undecided
        return ""

    def _run(self, at: int) -> str:
        """Returns the characters there that are the same."""
        end = at + 1
        while end < len(self.text) and self.text[end] == self.text[at]:
            end += 1
        if end - at <= LONGEST:
            self._peek(end)
        return self.text[at:end][:LONGEST]

    def _missing(self, at: int) -> int:
        """Returns 0 if the span that begins here has no end; raises `_Undecided` if the end may still come."""
        if self.final or len(self.text) >= at + LONGEST:
            return 0
        raise _Undecided

    def _parse_code(self, at: int, run: str) -> int:
        window = self.text[: at + LONGEST]
        for found in re.finditer("`+", window[at + len(run) :]):
            end = at + len(run) + found.end()
            if end == len(window) and len(window) < at + LONGEST:
                self._peek(end)
            if found[0] == run:
                code = window[at + len(run) : end - len(run)]
                if code.strip() and code[0] == code[-1] == " ":
                    code = code[1:-1]
                self._add(code, self._with(CODE))
                return end
        return self._missing(at)

    def _parse_emphasis(self, at: int, run: str) -> int:
        style = _STYLES.get(run)
        follows = self._peek(at + len(run))
        if style is None or not follows or follows.isspace() or _is_word(self._before(at)) or self.depth >= DEEPEST:
            return 0
        end = self._find_closer(at, run)
        if not end:
            return self._missing(at)
        inner = _InlineParser(
            self.text[at + len(run) : end - len(run)],
            self._with(style),
            final=True,
            before=run[0],
            depth=self.depth + 1,
        )
        inner.parse()
        self.spans += inner.spans
        return end

    def _find_closer(self, at: int, run: str) -> int:
        """Returns the end of the run that closes this one; 0: none so far. Code and escapes are skipped."""
        window = self.text[: at + LONGEST]
        position = at + len(run)
        mark = re.escape(run[0])
        if not re.compile(rf"(?<![\s{mark}]){mark}(?!{mark}*[A-Za-z0-9])").search(window, position):
            return 0  # quickly, for the many markers without a partner
        pattern = re.compile(rf"\\.|(`+)[^`]+\1(?!`)|`+|{mark}+")
        is_open = not self.final and len(self.text) < at + LONGEST
        while found := pattern.search(window, position):
            position = found.end()
            if found[0][0] == "`" and is_open and (not found[1] or position == len(window)):
                raise _Undecided  # code may begin here, or go on
            if found[0][0] != run[0]:
                continue
            follows = self._peek(position)
            closes = found[0] == run and not window[found.start() - 1].isspace()
            if closes and not _is_word(follows) and found.start() > at + len(run):
                return position
        return 0

    def _before(self, at: int) -> str:
        return self.text[at - 1] if at else self.before

    def _parse_link(self, at: int) -> int:
        """Parses `[text](address)` and shows both."""
        window = self.text[: at + LONGEST]
        middle = _find_bracket(window, at, "[", "]")
        if middle < 0:
            return self._missing(at)
        if (self._peek(middle + 1) if middle + 1 < at + LONGEST else "") != "(":
            return 0
        end = _find_bracket(window, middle + 1, "(", ")")
        label, address = window[at + 1 : middle], window[middle + 2 : end if end >= 0 else None]
        if not label or any(character.isspace() for character in address):
            return 0
        if end < 0:
            return self._missing(at)
        if not address:
            return 0
        inner = _InlineParser(label, self._with(LINK), final=True, before="[", depth=DEEPEST)
        inner.parse()
        self.spans += inner.spans
        if label != address:
            self._add(f" ({address})", self._with(ADDRESS))
        return end + 1

    def _parse_autolink(self, at: int) -> int:
        window = self.text[at : at + LONGEST]
        if found := _AUTOLINK.match(window):
            self._add(found[1], self._with(LINK))
            return at + found.end()
        if not any(window.startswith(start) or start.startswith(window) for start in _AUTOLINK_STARTS):
            return 0
        if any(character.isspace() or character in "<>" for character in window[1:]):
            return 0
        return self._missing(at)


def _find_bracket(text: str, at: int, opening: str, closing: str) -> int:
    """Returns the position of the partner of the bracket there; -1: there is none so far."""
    if text.find(closing, at) < 0:
        return -1
    depth, position = 0, at
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
            if not depth:
                return position
        position += 1
    return -1


def _is_word(character: str) -> bool:
    """Says whether a marker beside this character belongs to a word, as in `snake_case` and `2*3*4`."""
    return character.isascii() and character.isalnum()
