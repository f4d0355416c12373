"""Renders the Markdown of a model while it arrives: headings, lists, quotes, code, tables, emphasis and links.

No text is lost or moved, however the stream is cut into pieces. Text from a model must have no control characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from forge.cli.terminal.print_result import width_of

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
        self._language = ""  # of that block
        self.highlights = False  # code is coloured by its language, line by line; loads a package
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
        self._fence, self._language, self._in_list = "", "", False
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
            if self.highlights and self._language and not final and len(self._line) < LONGEST_HELD:
                return ""  # until the line is complete
            text, self._line = self._line, ""
            return highlight_code(text, self._language) if self.highlights and final else paint(text, CODE)
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
            self._fence = self._language = ""
            return self._show_fence()
        self._verbatim = True
        return ""

    def _open_fence(self, marker: str) -> str:
        self._fence = marker
        self._language = (self._line.strip().lstrip(marker[0]).split() or [""])[0]
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


# Parses the Markdown inside a line: emphasis, code, links. Text may arrive in pieces of any size.
#
# A marker counts only if its partner follows on the same line, near enough; otherwise it is text, as it was written.


LONGEST_SPAN = 300  # characters from a marker to the end of its span
DEEPEST_SPANS = 6  # spans inside spans
CODE, LINK, ADDRESS = "36", "4", "2"
_STYLES = {"*": "3", "_": "3", "**": "1", "***": "1;3", "~~": "9"}  # `__init__` is a name more often than bold
_ESCAPABLE = frozenset("\\`*_~[]<>#|!+-.(){}")
_MARKERS = re.compile(r"[\\`*_~\[<!]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)[^\s<>]+)>")
_AUTOLINK_STARTS = ("<https://", "<http://", "<mailto:")


class StyledText(NamedTuple):
    """Text of one style: the codes of a terminal, separated by semicolons; empty for plain text."""

    text: str
    style: str


class _Undecided(Exception):
    """Raised where the next characters decide."""


def parse_inline(text: str, style: str = "", *, final: bool, before: str = "") -> tuple[list[StyledText], str]:
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
        self.spans: list[StyledText] = []

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
            self.spans.append(StyledText(text, self.style if style is None else style))

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
        if end - at <= LONGEST_SPAN:
            self._peek(end)
        return self.text[at:end][:LONGEST_SPAN]

    def _missing(self, at: int) -> int:
        """Returns 0 if the span that begins here has no end; raises `_Undecided` if the end may still come."""
        if self.final or len(self.text) >= at + LONGEST_SPAN:
            return 0
        raise _Undecided

    def _parse_code(self, at: int, run: str) -> int:
        window = self.text[: at + LONGEST_SPAN]
        for found in re.finditer("`+", window[at + len(run) :]):
            end = at + len(run) + found.end()
            if end == len(window) and len(window) < at + LONGEST_SPAN:
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
        if (
            style is None
            or not follows
            or follows.isspace()
            or _is_word(self._before(at))
            or self.depth >= DEEPEST_SPANS
        ):
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
        window = self.text[: at + LONGEST_SPAN]
        position = at + len(run)
        mark = re.escape(run[0])
        if not re.compile(rf"(?<![\s{mark}]){mark}(?!{mark}*[A-Za-z0-9])").search(window, position):
            return 0  # quickly, for the many markers without a partner
        pattern = re.compile(rf"\\.|(`+)[^`]+\1(?!`)|`+|{mark}+")
        is_open = not self.final and len(self.text) < at + LONGEST_SPAN
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
        window = self.text[: at + LONGEST_SPAN]
        middle = _find_bracket(window, at, "[", "]")
        if middle < 0:
            return self._missing(at)
        if (self._peek(middle + 1) if middle + 1 < at + LONGEST_SPAN else "") != "(":
            return 0
        end = _find_bracket(window, middle + 1, "(", ")")
        label, address = window[at + 1 : middle], window[middle + 2 : end if end >= 0 else None]
        if not label or any(character.isspace() for character in address):
            return 0
        if end < 0:
            return self._missing(at)
        if not address:
            return 0
        inner = _InlineParser(label, self._with(LINK), final=True, before="[", depth=DEEPEST_SPANS)
        inner.parse()
        self.spans += inner.spans
        if label != address:
            self._add(f" ({address})", self._with(ADDRESS))
        return end + 1

    def _parse_autolink(self, at: int) -> int:
        window = self.text[at : at + LONGEST_SPAN]
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
    """Returns whether a marker beside this character belongs to a word, as in `snake_case` and `2*3*4`."""
    return character.isascii() and character.isalnum()


# Lays out a Markdown table so that it fits the terminal: wide columns are narrowed, and their cells wrapped.


NARROWEST = 4  # columns of a cell
BETWEEN = " │ "
BOLD = "1"
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_CELLS = re.compile(r"((?:\\.|`[^`]*`|[^|\\]|\\$)*)(?:\||$)")


def is_delimiter(line: str, head: str) -> bool:
    """Returns whether this line below the head makes the two a table."""
    return bool(_DELIMITER.fullmatch(line)) and "|" in line and len(split_cells(line)) == len(split_cells(head))


def split_cells(line: str) -> list[str]:
    """Returns the cells of a row; `\\|` and code do not separate."""
    inner = line.strip().removeprefix("|")
    cells = [found[1] for found in _CELLS.finditer(inner)][:-1] if inner else [""]
    if inner.endswith("|") and not inner.endswith("\\|") and len(cells) > 1 and not cells[-1].strip():
        cells.pop()
    return [cell.strip() for cell in cells]


def render_table(lines: list[str], columns: int) -> str:
    """Renders a table: its head, its delimiter row, its rows. Each line ends with a line feed."""
    head, delimiter, *rows = map(split_cells, lines)
    count = max(len(row) for row in (head, *rows))
    cells = [[_parse_cell(row[at] if at < len(row) else "", BOLD if row is head else "") for at in range(count)]
             for row in (head, *rows)]  # fmt: skip
    widths = [max(max(sum(width_of(span.text) for span in row[at]) for row in cells), 1) for at in range(count)]
    room = columns - len(BETWEEN) * (count - 1)
    if room < NARROWEST * count:
        return "".join(f"{line}\n" for line in lines)
    _narrow(widths, room)
    sides = [_side(delimiter[at] if at < len(delimiter) else "") for at in range(count)]
    drawn = [line for row in cells for line in _draw_row(row, widths, sides)]
    below_head = len(_draw_row(cells[0], widths, sides))
    drawn.insert(below_head, paint("─┼─".join("─" * width for width in widths), DIM))
    return "".join(f"{line.rstrip()}\n" for line in drawn)


def _parse_cell(text: str, style: str) -> list[StyledText]:
    return parse_inline(text, style, final=True)[0]


def _narrow(widths: list[int], room: int) -> None:
    """Takes columns from the widest until all fit."""
    while sum(widths) > room:
        widest = max(widths)
        at = widths.index(widest)
        second = max([width for width in widths if width < widest], default=0)
        share = widths.count(widest)
        widths[at] = max(second, widest - max((sum(widths) - room) // share, 1), NARROWEST)


def _side(delimiter: str) -> str:
    right, left = delimiter.endswith(":"), delimiter.startswith(":")
    return "centre" if right and left else "right" if right else "left"


def _draw_row(row: list[list[StyledText]], widths: list[int], sides: list[str]) -> list[str]:
    wrapped = [wrap_spans(spans, width) for spans, width in zip(row, widths, strict=True)]
    height = max(map(len, wrapped))
    return [
        paint(BETWEEN, DIM).join(
            _align(lines[at] if at < len(lines) else "", width, side)
            for lines, width, side in zip(wrapped, widths, sides, strict=True)
        )
        for at in range(height)
    ]


def _align(text: str, width: int, side: str) -> str:
    free = max(width - visible_width(text), 0)
    left = free if side == "right" else free // 2 if side == "centre" else 0
    return f"{' ' * left}{text}{' ' * (free - left)}"


# Wraps styled text at spaces while it arrives.


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
        self._word: list[StyledText] = []
        self._word_width = 0

    def write(self, spans: Iterable[StyledText]) -> str:
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
        self._word.append(StyledText(character, style))
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


def wrap_spans(spans: Iterable[StyledText], columns: int) -> list[str]:
    """Returns lines of at most so many columns."""
    wrapping = Wrapping(columns)
    wrapping.columns = columns
    return (wrapping.write(spans) + wrapping.finish()).split("\n")


def visible_width(text: str) -> int:
    """Returns the columns of a text that may have styles."""
    parts = text.split("\x1b[")
    return width_of(parts[0]) + sum(width_of(part.partition("m")[2]) for part in parts[1:])


def _merge(spans: list[StyledText]) -> Iterable[StyledText]:
    """Joins neighbours of one style."""
    text, style = "", ""
    for span in spans:
        if span.style != style and text:
            yield StyledText(text, style)
            text = ""
        text, style = text + span.text, span.style
    yield StyledText(text, style)


# Colours code.


_TOKENS = (  # the first that fits
    ("Comment", "2"),
    ("Literal.String", "32"),
    ("Literal.Number", "35"),
    ("Keyword", "34"),
    ("Operator.Word", "34"),
    ("Name.Function", "36"),
    ("Name.Class", "36"),
    ("Name.Decorator", "35"),
    ("Name.Builtin", "36"),
    ("Generic.Deleted", "31"),
    ("Generic.Inserted", "32"),
)


def highlight_code(line: str, language: str) -> str:
    """Returns a line of code with colours. Only colours are added; an unknown language has one for all."""
    lexer = _find_lexer(language)
    if lexer is None:
        return paint(line, CODE)
    found = [(text, str(kind).removeprefix("Token.")) for kind, text in lexer.get_tokens(line)]
    if "".join(text for text, _ in found) != line:
        return paint(line, CODE)
    return "".join(
        paint(text, next((style for name, style in _TOKENS if kind.startswith(name)), "")) for text, kind in found
    )


@cache
def _find_lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # an extra, for a conversation at a terminal
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
