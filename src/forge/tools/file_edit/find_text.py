"""Finds the text to replace: exactly, or, rung by rung, allowing models' usual mistakes. Never by similarity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.tools.file_edit.indentation import Reindent, convert_units, find_uniform_shift, find_unit
from forge.tools.file_edit.newlines import Newlines, normalise_newlines
from forge.tools.file_parts.punctuation import PUNCTUATION
from forge.workspace.text import find_shared_blocks

MOST = 100  # places that are counted before an ambiguity is reported
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
    times = f"{len(spans)} times" if len(spans) < MOST else f"at least {MOST} times"
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
    yield "indentation", lines.find_matching(piece, str.strip, lambda found: find_uniform_shift(piece.old, found))
    yield (
        "whitespace",
        lines.find_matching(
            piece, _collapse_space, lambda found: convert_units(lambda: lines.unit, piece.old, piece.new, found)
        ),
    )
    yield "punctuation", lines.find_matching(piece, _plain_punctuation)
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
    while position >= 0 and (replace_all or len(spans) < MOST):
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
            if len(spans) >= MOST and not self._replace_all:
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
