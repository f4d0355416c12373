"""Renders Markdown line by line as it arrives: headings, lists, quotes, code, tables, and the text inside them.

No text is lost or moved, however the stream is cut into pieces. Text from a model must have no control characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from forge.cli.terminal.columns import width_of
from forge.cli.terminal.markdown.inline import CODE, parse_inline
from forge.cli.terminal.markdown.table import is_delimiter, render_table
from forge.cli.terminal.markdown.wrapping import Wrapping, paint

MOST_ROWS = 200  # rows of a table that are held back until its end
LONGEST_HELD = 2_000  # characters of a line whose kind is not known yet: then it is text
DIM, RULE = "2", "─"
_HEADING = {1: "1;4"}  # further levels are bold
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_BULLET = re.compile(r"([-*+])[ \t]+(?=\S)")
_NUMBER = re.compile(r"(\d{1,9}[.)])[ \t]+(?=\S)")
_RULE_LINE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*")
_MAYBE_RULE = re.compile(r"([-*_])(?:[ \t]*\1)*[ \t]*")
_MAYBE_MARKER = re.compile(r"(?:\d{1,9}|\d{1,9}[.)][ \t]*|[#]+[ \t]*|[+][ \t]*)")
_HASHES = re.compile(r"(#{1,6})[ \t]+(?=\S)")


class MarkdownStream:
    """Takes text in pieces and returns what the terminal shows next."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._line = ""  # of the current line: what is not decided yet
        self._wrapping: Wrapping | None = None  # set once the kind of the line is known
        self._style = ""
        self._before = ""  # the character in front of `_line`
        self._verbatim = False  # the line is code
        self._fence = ""  # the marker of an open block of code
        self._in_list = False
        self._table: list[str] = []

    def feed(self, text: str) -> str:
        first, *rest = text.split("\n")
        written = [self._more(first)]
        for line in rest:
            written += [self._end_line(), self._more(line)]
        return "".join(written)

    def flush(self) -> str:
        """Returns all that was held back. An open block of code stays open."""
        is_open = self._line or self._wrapping is not None or self._verbatim
        written = self._end_line() if is_open else ""
        return (written + self._flush_table()).removesuffix("\n")

    def finish(self) -> str:
        """Returns all that was held back, and begins a new text."""
        written = self.flush()
        self._fence, self._in_list = "", False
        return written

    def _more(self, text: str) -> str:
        """Takes text of the current line."""
        written = ""
        if text and self._wrapping is None and not self._verbatim:
            room = LONGEST_HELD - len(self._line)
            self._line, text = self._line + text[:room], text[room:]
            written = self._begin_line(final=len(self._line) == LONGEST_HELD)
        self._line += text
        return written + self._write(final=False)

    def _end_line(self) -> str:
        """Ends the current line."""
        written = ""
        if self._wrapping is None and not self._verbatim:
            if (held := self._hold_table_line()) is not None:
                return held
            written = self._begin_line(final=True)
        is_shown = self._wrapping is not None or self._verbatim
        written += self._write(final=True)
        self._line, self._wrapping, self._verbatim, self._before, self._style = "", None, False, "", ""
        return f"{written}\n" if is_shown else written

    def _write(self, *, final: bool) -> str:
        if self._verbatim:
            text, self._line = self._line, ""
            return paint(text, CODE)
        if self._wrapping is None:
            return ""
        spans, rest = parse_inline(self._line, self._style, final=final, before=self._before)
        taken = self._line[: len(self._line) - len(rest)]
        self._line, self._before = rest, taken[-1:] or self._before
        return self._wrapping.write(spans) + (self._wrapping.finish() if final else "")

    def _begin_line(self, *, final: bool) -> str:
        """Finds out what kind of line this is; returns its beginning. Nothing, while that is not known."""
        if self._fence:
            return self._begin_code_line(final=final)
        body = self._line.lstrip(" \t")
        if not body and not final:
            return ""
        if not final and body.startswith("|") and len(self._table) < MOST_ROWS:
            return ""
        written = self._flush_table()
        if not body:
            self._wrapping, self._line = Wrapping(self._columns()), ""
            return written
        indent = self._line[: len(self._line) - len(body)].replace("\t", "    ")
        if found := _FENCE.match(self._line):
            return written + (self._open_fence(found[1]) if final else "")
        if not final and set(body) <= {body[0]} and body[0] in "`~":
            return written
        if len(indent) >= 4 and not self._in_list:
            self._verbatim = True
            return written
        started = self._begin_block(indent, body, final=final)
        return written + started if started is not None else written

    def _begin_block(self, indent: str, body: str, *, final: bool) -> str | None:
        """Begins a quote, a heading, an item, a rule or a paragraph; None while that is not known."""
        bars = ""
        while body.startswith(">"):
            inner = body[1:].lstrip(" \t")
            bars += "│ " + body[2 : len(body) - len(inner)].replace("\t", "    ")
            body = inner
        if not body:
            return self._start(indent, bars, "", "") if final else None
        if not final and (_MAYBE_RULE.fullmatch(body) or _MAYBE_MARKER.fullmatch(body)):
            return None
        if _RULE_LINE.fullmatch(body):
            self._in_list = False
            width = max(self._columns() - width_of(indent + bars), 3)
            self._start_at("")
            return indent + paint(bars + RULE * width, DIM)
        if found := _HASHES.match(body):
            self._in_list = False
            self._style = _HEADING.get(len(found[1]), "1")
            return self._start(indent, bars, "", body[found.end() :])
        if found := _BULLET.match(body):
            self._in_list = True
            return self._start(indent, bars, "• ", body[found.end() :])
        if found := _NUMBER.match(body):
            self._in_list = True
            return self._start(indent, bars, f"{found[1]} ", body[found.end() :])
        self._in_list = self._in_list and bool(indent)
        return self._start(indent, bars, "", body)

    def _start(self, indent: str, bars: str, marker: str, body: str) -> str:
        """Begins a line of text: what is in front of it, and what is in front of the lines that it is wrapped into."""
        bar = paint(bars, DIM)
        self._start_at(body, indent + bar + marker, indent + bar + " " * width_of(marker))
        return indent + bar + marker

    def _start_at(self, body: str, start: str = "", indent: str = "") -> None:
        self._line, self._before = body, ""
        self._wrapping = Wrapping(self._columns(), start, indent)

    def _begin_code_line(self, *, final: bool) -> str:
        body = self._line.strip(" \t")
        may_close = not body or (set(body) == {self._fence[0]})
        if may_close and not final:
            return ""
        if may_close and len(body) >= len(self._fence):
            self._fence = ""
            return self._show_fence()
        self._verbatim = True
        return ""

    def _open_fence(self, marker: str) -> str:
        self._fence = marker
        return self._show_fence()

    def _show_fence(self) -> str:
        text, self._line = self._line, ""
        self._start_at("")
        return paint(text, DIM)

    def _hold_table_line(self) -> str | None:
        """Holds back a complete line of a table; None if this line is something else."""
        line = self._line
        if self._fence or not line.lstrip(" \t").startswith("|") or len(self._table) >= MOST_ROWS:
            return None
        if len(self._table) == 1 and not is_delimiter(line, self._table[0]):
            first, self._table = self._table[0], []
            self._line = first
            written = self._show_as_text()
            self._line = line
            held = self._hold_table_line()
            return written + (held or "")
        self._table.append(line)
        self._line = ""
        return ""

    def _flush_table(self) -> str:
        table, self._table = self._table, []
        if len(table) > 1:
            return render_table(table, self._columns())
        if not table:
            return ""
        line, self._line = self._line, table[0]
        written = self._show_as_text()
        self._line = line
        return written

    def _show_as_text(self) -> str:
        """Shows a line that only looked like a table's."""
        self._start("", "", "", self._line)
        written = self._write(final=True)
        self._line, self._wrapping, self._before, self._style = "", None, "", ""
        return f"{written}\n"
