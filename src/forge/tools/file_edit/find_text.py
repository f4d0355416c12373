"""Finds the text to replace: exactly, or, rung by rung, allowing models' usual mistakes. Never by similarity."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.tools.shared.model_habits import PUNCTUATION
from forge.workspace.text import find_shared_blocks, with_endings_of

MOST_PLACES = 100  # places that are counted before an ambiguity is reported
MOST_COMPARED = 1_000_000  # lines, before a rung gives up
MANY = 1_000  # places of one text from which on they are replaced together
LEAST = 3  # visible characters of a text that may match other than exactly
_NUMBERED = re.compile(r" *(\d{1,9})(?:\t|→| ?\| ?|$)")  # what file_read writes, and others
_ESCAPE = re.compile(r"\\([ntr\"'`\\])")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


class Span(NamedTuple):
    """A range `text[start:end]` and its replacement."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Match:
    """The ranges found, the rung that found them, and their replacements."""

    rung: str
    spans: tuple[Span, ...]
    times: int = 0  # places, where one span holds several

    @property
    def count(self) -> int:
        return self.times or len(self.spans)

    def apply_to(self, text: str) -> str:
        parts, position = [], 0
        for span in self.spans:
            parts += [text[position : span.start], span.replacement]
            position = span.end
        return "".join([*parts, text[position:]])


def find(text: str, old: str, new: str, *, replace_all: bool = False) -> Match | None:
    """Returns the match of `old` in `text`; all matches with `replace_all`. None without one; ambiguity is an error."""
    source = Newlines(text)
    if replace_all and (many := _replace_many(source, old, new)):
        return many
    if "\r" in old:
        if spans := _find_occurrences(text, old, new, replace_all):
            _refuse_several(text, spans, "exact", replace_all)
            return Match("exact", tuple(span._replace(replacement=source.adopt_endings(*span)) for span in spans))
        new = normalise_newlines(new)  # its writer did not see what ends the lines here
    for rung, spans in _try_rungs(source.text, normalise_newlines(old), new, replace_all):
        if spans:
            _refuse_several(source.text, spans, rung, replace_all)
            return Match(rung, tuple(_original_span(source, span) for span in spans))
    return None


def _replace_many(source: Newlines, old: str, new: str) -> Match | None:
    """Replaces very many exact matches in one span: a span for each would cost more than the file."""
    text = source.original
    is_within_lines = not any(end in part for end in "\r\n" for part in (old, new))
    times = text.count(old) if old and (source.plain or is_within_lines) else 0
    if times < MANY:
        return None
    start = text.find(old)
    return Match("exact", (Span(start, len(text), text[start:].replace(old, new)),), times)


def _original_span(source: Newlines, span: Span) -> Span:
    start, end = source.original_offset(span.start), source.original_offset(span.end)
    return Span(start, end, source.adopt_endings(start, end, span.replacement))


def _refuse_several(text: str, spans: list[Span], rung: str, replace_all: bool) -> None:
    if len(spans) == 1 or replace_all:
        return
    lines = list(dict.fromkeys(text.count("\n", 0, span.start) + 1 for span in spans[:10]))
    times = f"{len(spans)} times" if len(spans) < MOST_PLACES else f"at least {MOST_PLACES} times"
    more = ", …" if len(spans) > 10 else ""
    how = "" if rung == "exact" else f" (not exactly, but {RUNG_TEXTS[rung]})"
    raise ToolError(
        f"old_text occurs {times}{how}: on line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}{more}",
        ErrorKind.USER,
        "Include more of the lines around the one you mean, or set replace_all to change all.",
    )


RUNG_TEXTS = {
    "exact": "exactly",
    "line numbers": "without the line numbers in front",
    "trailing whitespace": "apart from trailing whitespace",
    "indentation": "apart from its indentation",
    "whitespace": "apart from whitespace",
    "punctuation": "apart from typographic punctuation",
    "escapes": "with its escapes read as characters",
    "blank lines": "without the blank line at its start or end",
}


def _try_rungs(text: str, old: str, new: str, replace_all: bool) -> Iterator[tuple[str, list[Span]]]:
    yield "exact", _find_occurrences(text, old, new, replace_all)
    if bare := _strip_numbers(old):
        old, new = bare, "\n".join([_strip_line(line) for line in new.split("\n")])
        yield "line numbers", _find_occurrences(text, old, new, replace_all)
    if not _is_long_enough(old):
        return
    lines = _Lines(text, replace_all)
    piece = _Piece.of(old, normalise_newlines(new))
    yield "trailing whitespace", lines.find_matching(piece, str.rstrip)
    yield (
        "indentation",
        lines.find_matching(piece, str.strip, lambda found: find_uniform_shift(piece.old, piece.new, found)),
    )
    yield (
        "whitespace",
        lines.find_matching(
            piece, _collapse_space, lambda found: convert_units(lambda: lines.unit, piece.old, piece.new, found)
        ),
    )
    yield (
        "punctuation",
        lines.find_matching(piece, _plain_punctuation, lambda found: _keep_known_lines(piece.old, found)),
    )
    if (unescaped := _decode_escapes(old)) != old:
        escaped_too = "\n" in old or "\n" not in new
        meant = _Piece.of(
            normalise_newlines(unescaped), normalise_newlines(_decode_escapes(new) if escaped_too else new)
        )
        yield "escapes", lines.find_matching(meant, str.rstrip)
    if (trimmed := piece.without_blank_ends()) != piece:
        yield "blank lines", lines.find_matching(trimmed, str.rstrip)


def _find_occurrences(text: str, old: str, new: str, replace_all: bool) -> list[Span]:
    """Returns every occurrence, or the first few: overlapping ones are ambiguous, too."""
    spans: list[Span] = []
    position = text.find(old) if old else -1
    while position >= 0 and (replace_all or len(spans) < MOST_PLACES):
        spans.append(Span(position, position + len(old), new))
        position = text.find(old, position + (len(old) if replace_all else 1))
    return spans


@dataclass(frozen=True, slots=True)
class _Piece:
    """The text to replace and its replacement, as lines."""

    old: list[str]
    new: list[str]
    old_ends: bool  # with a newline
    new_ends: bool

    @classmethod
    def of(cls, old: str, new: str) -> _Piece:
        return cls(_split(old), _split(new), old.endswith("\n"), new.endswith("\n"))

    def without_blank_ends(self) -> _Piece:
        """Drops blank first and last lines, also from the replacement if it has them."""
        first, last = _blank_ends(self.old)
        new_first, new_last = _blank_ends(self.new)
        last_new = len(self.new) - min(last, new_last)
        old_ends = self.old_ends and not (last and self.new and not self.new_ends)  # or two lines would become one
        return _Piece(
            self.old[first : len(self.old) - last], self.new[min(first, new_first) : last_new], old_ends, self.new_ends
        )


class _Lines:
    """A text as lines, compared after a key function was applied to each."""

    def __init__(self, text: str, replace_all: bool) -> None:
        self._text = text
        self._replace_all = replace_all

    @cached_property
    def lines(self) -> list[str]:
        return _split(self._text)

    @cached_property
    def unit(self) -> str:
        """One level of the file's indentation."""
        return find_unit(self.lines[:10_000])

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate([len(line) + 1 for line in self.lines])]

    def find_matching(
        self,
        piece: _Piece,
        key: Callable[[str], str],
        fit: Callable[[Sequence[str]], Reindent | None] = lambda found: _keep_line,
    ) -> list[Span]:
        """Finds lines that are equal by `key`, one to one; `fit` decides the replacement's indentation."""
        spans: list[Span] = []
        if not any(line.strip() for line in piece.old):
            return spans
        next_free = compared = 0
        for first in self._windows([key(line) for line in piece.old], key):
            if self._replace_all and first < next_free:
                continue
            compared += len(piece.old)
            if compared > MOST_COMPARED and not spans:
                break  # a text of nothing but repetitions
            found = self.lines[first : first + len(piece.old)]
            reindent = fit(found)
            if reindent is None or _is_far_longer(found, piece.old):
                continue
            spans.append(self._span(first, found, piece, reindent))
            next_free = first + len(found)
            if len(spans) >= MOST_PLACES and not self._replace_all:
                break
        return spans

    def _windows(self, wanted: list[str], key: Callable[[str], str]) -> Iterator[int]:
        """Yields the first line of every match. It is one search in one long text: no text makes it slow."""
        haystack = "\n" + "\n".join([key(line) for line in self.lines]) + "\n"
        needle = "\n" + "\n".join(wanted) + "\n"
        counted = line = 0
        position = haystack.find(needle)
        while position >= 0:
            line += haystack.count("\n", counted, position)
            counted = position
            yield line
            position = haystack.find(needle, position + 1)

    def _span(self, first: int, found: list[str], piece: _Piece, reindent: Reindent) -> Span:
        start = self._starts[first]
        end = min(self._starts[first + len(found)] - (not piece.old_ends), len(self._text))
        made = [reindent(line) for line in piece.new]
        for here, there, size in find_shared_blocks(piece.old, piece.new):  # what is not meant to change stays as it is
            made[there : there + size] = found[here : here + size]
        return Span(start, end, "\n".join(made) + "\n" * piece.new_ends)


def _keep_line(line: str) -> str:
    return line


def _keep_known_lines(old: Sequence[str], found: Sequence[str]) -> Reindent:
    """Writes a line of the old text as the file has it, wherever the replacement has it: also a line that moved."""
    known = dict(zip(old, found, strict=True))
    return lambda line: known.get(line, line)


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _is_long_enough(old: str) -> bool:
    visible = "".join(old.split())
    return len(visible) >= LEAST and any(map(str.isalnum, visible))


def _is_far_longer(found: Sequence[str], old: Sequence[str]) -> bool:
    return sum(map(len, found)) > 3 * sum(map(len, old)) + 100 * len(old)


def _strip_numbers(text: str) -> str:
    """Returns the text without its line numbers, if each line has one and they count up; otherwise nothing."""
    lines = _split(text)
    numbers = [match for match in map(_NUMBERED.match, lines) if match]
    first = int(numbers[0][1]) if numbers else 0
    if len(numbers) < len(lines) or any(int(match[1]) != first + index for index, match in enumerate(numbers)):
        return ""
    bare = "\n".join([line[match.end() :] for line, match in zip(lines, numbers, strict=True)])
    return bare + "\n" * text.endswith("\n") if bare.strip() else ""


def _strip_line(line: str) -> str:
    match = _NUMBERED.match(line)
    return line[match.end() :] if match and match.end() > match.end(1) else line


def _collapse_space(line: str) -> str:
    return " ".join(line.split())


def _plain_punctuation(line: str) -> str:
    return line.translate(PUNCTUATION).rstrip()


def _decode_escapes(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text) if "\\" in text else text


def _blank_ends(lines: Sequence[str]) -> tuple[int, int]:
    """Returns the numbers of blank lines at the start and at the end."""
    full = [index for index, line in enumerate(lines) if line.strip()]
    return (full[0], len(lines) - full[-1] - 1) if full else (0, 0)


# Indents a replacement whose writer used another indentation than the file.

Reindent = Callable[[str], str]
"""A line of the replacement, as it belongs into the file."""

TAB = 4  # columns, where tabs stand beside spaces


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def find_uniform_shift(old: Sequence[str], new: Sequence[str], found: Sequence[str]) -> Reindent | None:
    """Returns the shift if every line that is not blank moved by the same whitespace; None otherwise.

    None, too, if a new line stands at the margin and would have to move left: the text was written for another place.
    """
    pairs = [(indentation(a), indentation(b)) for a, b in zip(old, found, strict=True) if a.strip()]
    if not pairs:
        return None
    here, there = pairs[0]
    if there.endswith(here):
        added = there[: len(there) - len(here)]
        if all(b == added + a for a, b in pairs):
            return lambda line: added + line if line.strip() else line
    if here.endswith(there):
        removed = here[: len(here) - len(there)]
        fits = all(line.startswith(removed[:1]) for line in new if line.strip())
        if fits and all(a == removed + b for a, b in pairs):
            return lambda line: _remove_indent(line, removed)
    return None


def _remove_indent(line: str, removed: str) -> str:
    """Removes as much of the whitespace as the line begins with."""
    for size in range(len(removed), 0, -1):
        if line.startswith(removed[:size]):
            return line[size:]
    return line


def convert_units(
    file_unit: Callable[[], str], old: Sequence[str], new: Sequence[str], found: Sequence[str]
) -> Reindent | None:
    """Converts lines indented like `old` to the file's indentation: known levels, or its unit for deeper ones.

    None if that cannot be said: one indentation of `old` is two in the file, or a deeper one is less deep there.
    """
    pairs = {(indentation(a), indentation(b)) for a, b in zip(old, found, strict=True) if a.strip()}
    known = dict(pairs)
    depths = [_count_columns(known[indent]) for indent in sorted(known, key=_count_columns)]
    if len(pairs) > len(known) or depths != sorted(depths):
        return None
    if unknown := {indentation(line) for line in new if line.strip()} - known.keys():
        has_tabs = any("\t" in one for one in known.values())
        units = find_unit([*old, *new]), "\t" if has_tabs else file_unit()
        translated = {indent: _translate_indent(indent, known, *units) for indent in unknown}
        if any(len(ways) != 1 for ways in translated.values()):
            return None
        known |= {indent: ways.pop() for indent, ways in translated.items()}
    return lambda line: known[indent] + line[len(indent) :] if (indent := indentation(line)) in known else line


def _translate_indent(indent: str, known: Mapping[str, str], unit: str, file_unit: str) -> set[str]:
    """Returns the candidate indentations, counted in units from the nearest known ones; none: there is no such one."""
    columns = _count_columns(indent)
    shallower = [one for one in known if _count_columns(one) <= columns]
    deeper = [one for one in known if _count_columns(one) > columns]
    ways = set()
    if shallower:
        start = max(shallower, key=_count_columns)
        levels, rest = divmod(columns - _count_columns(start), max(_count_columns(unit), 1))
        ways.add(known[start] + file_unit * levels + " " * rest)
    if deeper:
        start = min(deeper, key=_count_columns)
        levels, rest = divmod(_count_columns(start) - columns, max(_count_columns(unit), 1))
        left = known[start]
        for part in [file_unit] * levels + [" " * rest if shallower else file_unit] * bool(rest):
            if not left.endswith(part):
                return set()
            left = left.removesuffix(part)
        ways.add(left)
    return ways


def find_unit(lines: Sequence[str]) -> str:
    """Returns one level: a tab if most lines use tabs, else the most common number of spaces per step."""
    indents = [indentation(line) for line in lines if line.strip()]
    used = Counter(indent[0] for indent in indents if indent)
    if used["\t"] > used[" "]:
        return "\t"
    widths = [len(indent) for indent in indents]
    steps = Counter(abs(b - a) for a, b in pairwise(widths) if 1 < abs(b - a) <= 8)
    if steps:
        return " " * min(steps, key=lambda size: (-steps[size], size))
    return " " * next((size for size in (TAB, 2) if all(width % size == 0 for width in widths)), TAB)


def _count_columns(indent: str) -> int:
    return len(indent.expandtabs(TAB))


# Normalises a text to \n line endings, and maps offsets back to the original text.

FEW = 100  # places that are looked up by counting; for more a list of all endings is made
_ENDING = re.compile(r"\r\n|\n|\r")


class Newlines:
    """Compares in `text` and maps offsets to `original`, whose bytes stay unchanged."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.plain = "\r" not in original  # then both are the same, and nothing need be mapped
        self.text = original if self.plain else normalise_newlines(original)
        self._asked = 0

    def original_offset(self, offset: int) -> int:
        """Converts an offset in the text to an offset in the original."""
        if self.plain:
            return offset
        self._asked += 1
        if self._asked <= FEW and self._are_pairs:
            return offset + self.text.count("\n", 0, offset)
        return offset + bisect_left(self._pairs, offset)

    @cached_property
    def _are_pairs(self) -> bool:
        """True if every line ends with a pair, as in almost every file that has any."""
        return self.original.count("\r\n") == self.text.count("\n")

    @cached_property
    def _pairs(self) -> list[int]:
        return [match.start() - before for before, match in enumerate(re.finditer("\r\n", self.original))]

    def adopt_endings(self, start: int, end: int, replacement: str) -> str:
        """A replacement for `original[start:end]`, with the line endings of the lines that it replaces.

        One that says its endings itself, with a carriage return somewhere, stays as it is.
        """
        if self.plain or "\n" not in replacement or "\r" in replacement:
            return replacement
        replaced = self.original[start:end]
        if replaced.endswith(("\n", "\r")):
            return with_endings_of(replaced, replacement)
        # the last line continues after the end: its ending applies to the new lines before it
        made = with_endings_of(f"{replaced}\0{self._find_ending(start, end)}", f"{replacement}\0\n")
        return made[: made.rindex("\0")]

    def _find_ending(self, start: int, end: int) -> str:
        following = _ENDING.search(self.original, end)
        if following is not None:
            return following[0]
        last = max(self.original.rfind("\n", 0, start), self.original.rfind("\r", 0, start))
        before = _ENDING.search(self.original, max(last - 1, 0))  # it may be the second half of a pair
        return "\n" if last < 0 or before is None else before[0]


def normalise_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
