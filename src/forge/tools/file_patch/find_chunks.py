"""Finds the place of each chunk of a patch in a file, and applies it; an ambiguous chunk is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.tools.file_patch.parse import PatchChunk, SignedLine
from forge.tools.shared.model_habits import PUNCTUATION
from forge.workspace.text import line_ending_of, split_lines


def apply_chunks(text: str, chunks: Sequence[PatchChunk], shown: str) -> str:
    """Returns the text with every chunk applied, in order, each after the previous one. Raises `Misplaced`."""
    lines = split_lines(text)
    matches = find_matches(lines, chunks, shown)
    unended = any(
        chunk.unended and match.end == len(lines) and [line.sign for line in match.marked[-1:]] == ["+"]
        for chunk, match in zip(chunks, matches, strict=True)
    )
    result = list(_edit_lines(lines, sorted(matches, key=lambda match: match.start), line_ending_of(text)))
    _repair_last_line(lines, result, unended=unended)
    return "".join(result)


def _edit_lines(lines: list[str], matches: Sequence[ChunkMatch], usual: str) -> Iterator[str]:
    """Yields the lines of the new text. Unchanged lines are taken from the file, not from the patch."""
    here = 0
    before = ""
    for match in matches:
        yield from lines[here : match.start]
        before = lines[match.start - 1] if match.start > here else before
        here = match.start
        removed: list[str] = []  # together, in front of the lines that replace them
        for sign, text in match.marked:
            if sign == "+":
                model = removed.pop(0) if len(removed) > 1 else removed[0] if removed else before
                following = lines[here] if here < len(lines) else ""
                before = text + (_line_ending(model) or _line_ending(before) or _line_ending(following) or usual)
                yield before
                continue
            if sign == " ":
                removed.clear()
                before = lines[here]
                yield before
            else:
                removed.append(lines[here])
            here += 1
    yield from lines[here:]


def _repair_last_line(lines: list[str], result: list[str], *, unended: bool) -> None:
    """Keeps a missing last newline missing, unless the last line was replaced."""
    stays = bool(lines) and not _line_ending(lines[-1])
    for index in range(len(result) - 2, -1, -1) if stays else ():
        if not _line_ending(result[index]):  # what was the last line has others below it now
            result[index] += _line_ending(result[index + 1])
            result[-1] = result[-1].rstrip("\r\n")
            return
    if unended and result:
        result[-1] = result[-1].rstrip("\r\n")


def _line_ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


# Finds the position of each chunk of a patch in the lines of a file; an ambiguous chunk is refused.

Normalise = Callable[[str], str]
"""Normalises a line: lines with the same result count as equal."""


def _keep_line(line: str) -> str:
    return line


def _normalise_punctuation(line: str) -> str:
    return (line if line.isascii() else line.translate(PUNCTUATION)).rstrip()


def _strip_indent(line: str) -> str:
    return _normalise_punctuation(line).lstrip()


READINGS: tuple[Normalise, ...] = (_keep_line, str.rstrip, _normalise_punctuation)  # each looser than the one before
ANCHOR_READINGS = (*READINGS, _strip_indent)


class Misplaced(ToolError):
    """A chunk was not found in the file; the message names the line of the patch."""


class ChunkMatch(NamedTuple):
    """A chunk's position and lines, and the way they and its anchors were found."""

    start: int
    marked: Sequence[SignedLine]  # without blank ones at its end that the file does not have
    reading: Normalise
    anchors: tuple[int, ...] = ()  # the way each anchor was found
    below: int = 0  # the line below the last anchor

    @property
    def end(self) -> int:
        return self.start + sum(line.sign != "+" for line in self.marked)


def find_matches(lines: Sequence[str], chunks: Sequence[PatchChunk], shown: str) -> list[ChunkMatch]:
    """Returns a match for every chunk, each after the one before. Raises `Misplaced`."""
    file = FileLines(lines, shown)
    matches: list[ChunkMatch] = []
    position = 0
    for chunk in chunks:
        match = _find_match(file, chunk, position)
        matches.append(match)
        if match.start < len(file.lines):  # what is put at the end of the file may come before others in the patch
            position = match.end
    _refuse_second_matches(file, chunks, matches)
    return matches


class FileLines:
    """The lines of a file, made searchable once for each reading."""

    def __init__(self, lines: Sequence[str], shown: str) -> None:
        self.shown = shown
        self.lines = [line.rstrip("\r\n") for line in lines]
        self._read: dict[Normalise, tuple[str, list[int]]] = {}

    def find(self, wanted: Sequence[str], start: int, reading: Normalise, near: int | None = None) -> int:
        """Returns the first line of the first match from `start` on, or of the one nearest to `near`; -1 if none."""
        whole, offsets = self._searchable(reading)
        needle = "\n" + "".join(f"{reading(line)}\n" for line in wanted)
        if near is None:
            return self._line_at(whole.find(needle, offsets[start]), offsets)
        middle = offsets[min(max(near, start), len(self.lines))]
        after = self._line_at(whole.find(needle, middle), offsets)
        before = self._line_at(whole.rfind(needle, offsets[start], middle + len(needle)), offsets)
        found = [index for index in (before, after) if index >= 0]
        return min(found, key=lambda index: abs(index - near)) if found else -1

    def find_beginning(self, wanted: str, start: int, reading: Normalise) -> int:
        """Returns the first line from `start` on that begins with these whole words; -1 if there is none."""
        whole, offsets = self._searchable(reading)
        at = whole.find(f"\n{wanted}", offsets[start])
        while at >= 0 and _is_word(wanted[-1:]) and _is_word(whole[at + 1 + len(wanted)]):
            at = whole.find(f"\n{wanted}", at + 1)
        return self._line_at(at, offsets)

    def find_anchor(self, anchor: str, start: int, way: int) -> int:
        """Returns the first line from `start` on that equals the anchor, or begins with it: models shorten anchors."""
        if way == len(ANCHOR_READINGS):
            return self.find_beginning(_strip_indent(anchor), start, _strip_indent)
        return self.find([anchor], start, ANCHOR_READINGS[way])

    def _searchable(self, reading: Normalise) -> tuple[str, list[int]]:
        """Returns one text with a newline around each line, and the position of the newline before each line."""
        if reading not in self._read:
            read = [reading(line) for line in self.lines]
            offsets = list(accumulate((len(line) + 1 for line in read), initial=0))
            self._read[reading] = "\n" + "".join(f"{line}\n" for line in read), offsets
        return self._read[reading]

    def _line_at(self, offset: int, offsets: list[int]) -> int:
        return bisect_left(offsets, offset) if offset >= 0 else -1


def _find_match(file: FileLines, chunk: PatchChunk, position: int) -> ChunkMatch:
    """Returns the first match from `position` on."""
    ways = []
    for anchor in chunk.anchors:
        position, way = _find_below_anchor(file, chunk, anchor, position)
        ways.append(way)
    trimmed = _drop_blank_end(chunk.lines)
    sizes = {len(trimmed)}
    if chunk.near is not None or any(line.sign != "+" for line in trimmed):
        sizes |= {len(chunk.lines), len(chunk.lines) - 1}
    for size in sorted(sizes, reverse=True):
        if size < len(trimmed):
            break
        marked = chunk.lines[:size]
        for reading in READINGS:
            start = _find_start(file, chunk, marked, position, reading)
            if start >= 0:
                return ChunkMatch(start, marked, reading, tuple(ways), position)
    raise _not_found(file, chunk, [line.text for line in trimmed if line.sign != "+"], position)


def _find_start(
    file: FileLines, chunk: PatchChunk, marked: Sequence[SignedLine], position: int, reading: Normalise
) -> int:
    old = [line.text for line in marked if line.sign != "+"]
    if not old:
        return _find_insertion(file, chunk, position)
    if chunk.at_end:
        start = len(file.lines) - len(old)
        return start if start >= position and all(map(_same(reading), old, file.lines[start:])) else -1
    starts = [position]
    if chunk.anchors:  # the line of the anchor may be repeated as the first of the chunk
        starts.insert(0 if chunk.lines[0] == SignedLine(" ", file.lines[position - 1]) else 1, position - 1)
    matches = (file.find(old, start, reading, chunk.near) for start in starts)
    return next((match for match in matches if match >= 0), -1)


def _refuse_second_matches(file: FileLines, chunks: Sequence[PatchChunk], matches: Sequence[ChunkMatch]) -> None:
    """Raises `Misplaced` if a chunk could stand further below, with all the others where they are.

    Every chunk has the first place that is free for it. If there is any other way to place all of them, then also one
    in which only one chunk stands elsewhere.
    """
    limit = len(file.lines)
    for chunk, match in zip(reversed(chunks), reversed(matches), strict=True):
        second = _find_second_start(file, chunk, match)
        if match.start < second and second + match.end - match.start <= limit:
            raise Misplaced(
                f"line {chunk.line} of the patch: this chunk fits more than once in {file.shown}: "
                f"at lines {match.start + 1} and {second + 1}",
                ErrorKind.USER,
                "Add more of the lines around it, or an anchor: @@ and a line above it that occurs once.",
            )
        if match.start < len(file.lines):
            limit = match.start


def _find_second_start(file: FileLines, chunk: PatchChunk, match: ChunkMatch) -> int:
    """Returns another start of the chunk, found in the same way; -1 if there is none."""
    if chunk.at_end or (chunk.near is not None and not chunk.anchors):
        return -1
    if not chunk.anchors:
        old = [line.text for line in match.marked if line.sign != "+"]
        return file.find(old, match.start + 1, match.reading) if old else -1
    for position in (match.below, match.start + 1):  # an anchor between the two may lead to the same place
        below = min(position, len(file.lines))
        for anchor, way in zip(chunk.anchors, match.anchors, strict=True):
            index = file.find_anchor(anchor, below, way)
            if index < 0:
                return -1
            below = index + 1
        start = _find_start(file, chunk, match.marked, below, match.reading)
        if start != match.start:
            return start
    return -1


def _same(reading: Normalise) -> Callable[[str, str], bool]:
    return lambda one, other: reading(one) == reading(other)


def _find_insertion(file: FileLines, chunk: PatchChunk, position: int) -> int:
    """Returns the position of a chunk that only adds lines: below its anchor, at its line number, or at the end."""
    if chunk.near is not None and not chunk.anchors:
        return chunk.near if position <= chunk.near <= len(file.lines) else -1
    return position if chunk.anchors and not chunk.at_end else len(file.lines)


def _find_below_anchor(file: FileLines, chunk: PatchChunk, anchor: str, position: int) -> tuple[int, int]:
    """Returns the line below the anchor, and how the anchor was found."""
    for way in range(len(ANCHOR_READINGS) + 1):
        index = file.find_anchor(anchor, position, way)
        if index >= 0:
            return index + 1, way
    raise Misplaced(
        f"line {chunk.line} of the patch: {file.shown} has no line {_quote_line(anchor)}{_after(position)}",
        ErrorKind.USER,
        "Use a line of the file as the anchor after @@, and keep the chunks in the order of the file.",
    )


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _drop_blank_end(marked: Sequence[SignedLine]) -> Sequence[SignedLine]:
    """Drops blank lines at the end, which are often only decoration."""
    size = len(marked)
    while size and marked[size - 1].sign == " " and not marked[size - 1].text.strip():
        size -= 1
    return marked[:size]


def _not_found(file: FileLines, chunk: PatchChunk, old: list[str], position: int) -> Misplaced:
    """Describes how far the chunk matches, and whether it is elsewhere or already applied."""
    problem = f"line {chunk.line} of the patch: the lines of this chunk are not in {file.shown}{_after(position)}"
    new = [line.text for line in _drop_blank_end(chunk.lines) if line.sign != "-"]
    adds = any(line.sign == "+" for line in chunk.lines)
    applied = file.find(new, 0, _normalise_punctuation) if adds else -1
    earlier = file.find(old, 0, _normalise_punctuation) if old else -1
    matching = _count_matching(file, old, position)
    if chunk.at_end and earlier >= 0:
        problem += f"; they stand at line {earlier + 1}, which is not its end"
    elif position and earlier >= 0:
        problem += f", but at line {earlier + 1}"
    elif applied >= 0:
        problem += f"; the new lines are there already, at line {applied + 1}"
    elif matching:
        start = file.find(old[:matching], position, _normalise_punctuation)
        there = file.lines[start + matching] if start + matching < len(file.lines) else None
        found = "the file ends" if there is None else f"it has {_quote_line(there)}"
        problem += f": at line {start + matching + 1} {found} where the patch has {_quote_line(old[matching])}"
    else:
        problem += f": it has no line {_quote_line(old[0])}" if old else f": it has {len(file.lines)} lines"
    return Misplaced(
        problem,
        ErrorKind.USER,
        "Read the file again, copy its lines exactly, and keep the chunks in the order of the file.",
    )


def _count_matching(file: FileLines, old: list[str], position: int) -> int:
    """Counts the lines of the chunk, from its first on, that stand together in the file."""
    low, high = 0, len(old) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if file.find(old[:middle], position, _normalise_punctuation) >= 0 else (low, middle - 1)
        )
    return low


def _after(position: int) -> str:
    return f" after line {position}" if position else ""


def _quote_line(line: str) -> str:
    return f'"{line}"' if len(line) <= 120 else f'"{line[:120]}…"'
