"""Wraps styled text at spaces while it arrives."""

from __future__ import annotations

from collections.abc import Iterable

from forge.cli.terminal.columns import width_of
from forge.cli.terminal.markdown.inline import Span


def paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


class Wrapping:
    """Writes the words of one line. A word is written when it is complete; wide characters are words of their own."""

    def __init__(self, columns: int, start: str = "", indent: str = "") -> None:
        """`start` begins the line, `indent` the lines that it is wrapped into; both may have styles."""
        self.columns = max(columns, 10)
        self._indent = indent
        self._indent_width = visible_width(indent)
        self._column = visible_width(start)
        self._fresh = True  # nothing but the indent is on the line
        self._space = ""
        self._word: list[Span] = []
        self._word_width = 0

    def write(self, spans: Iterable[Span]) -> str:
        """Returns what can be written by now."""
        return "".join(self._take(character, span.style) for span in spans for character in span.text)

    def finish(self) -> str:
        """Returns the last word."""
        return self._flush()

    def _take(self, character: str, style: str) -> str:
        if character in (" ", "\t"):
            written = self._flush()
            self._space += " "
            return written
        width = width_of(character)
        if width > 1:
            written = self._flush()
            self._add(character, style, width)
            return written + self._flush()
        written = ""
        if self._word_width + width > self.columns - self._indent_width:  # longer than any line: broken somewhere
            written = self._flush()
        self._add(character, style, width)
        return written

    def _add(self, character: str, style: str, width: int) -> None:
        self._word.append(Span(character, style))
        self._word_width += width

    def _flush(self) -> str:
        if not self._word:
            return ""
        before = "" if self._fresh else self._space
        if not self._fresh and self._column + len(before) + self._word_width > self.columns:
            before, self._column = f"\n{self._indent}", self._indent_width
        else:
            self._column += len(before)
        self._column += self._word_width
        word = "".join(paint(text, style) for text, style in _merge(self._word))
        self._word, self._word_width, self._space, self._fresh = [], 0, "", False
        return before + word


def wrap_spans(spans: Iterable[Span], columns: int) -> list[str]:
    """Returns lines of at most so many columns."""
    wrapping = Wrapping(columns)
    wrapping.columns = columns
    return (wrapping.write(spans) + wrapping.finish()).split("\n")


def visible_width(text: str) -> int:
    """Returns the columns of a text that may have styles."""
    parts = text.split("\x1b[")
    return width_of(parts[0]) + sum(width_of(part.partition("m")[2]) for part in parts[1:])


def _merge(spans: list[Span]) -> Iterable[Span]:
    """Joins neighbours of one style."""
    text, style = "", ""
    for span in spans:
        if span.style != style and text:
            yield Span(text, style)
            text = ""
        text, style = text + span.text, span.style
    yield Span(text, style)
