"""Finds the place of each chunk of a patch in the lines of a file; a chunk that could stand in two is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.tools.file_parts.punctuation import PUNCTUATION
from forge.tools.file_patch.parse import Chunk, Marked

Reading = Callable[[str], str]
"""How a line is looked at: lines that look the same are the same."""


def _exact(line: str) -> str:
    return line


def _plain(line: str) -> str:
    return (line if line.isascii() else line.translate(PUNCTUATION)).rstrip()


def _unindented(line: str) -> str:
    return _plain(line).lstrip()


READINGS: tuple[Reading, ...] = (_exact, str.rstrip, _plain)  # each looser than the one before
ANCHOR_READINGS = (*READINGS, _unindented)


class Misplaced(ToolError):
    """A chunk that has no place in the file; the message names the line of the patch."""


class Place(NamedTuple):
    """Where a chunk begins, its lines, and how they and its anchors were found."""

    start: int
    marked: Sequence[Marked]  # without blank ones at its end that the file does not have
    reading: Reading
    anchors: tuple[int, ...] = ()  # the way each anchor was found
    below: int = 0  # the line below the last anchor

    @property
    def end(self) -> int:
        return self.start + sum(line.sign != "+" for line in self.marked)


def find_places(lines: Sequence[str], chunks: Sequence[Chunk], shown: str) -> list[Place]:
    """A place for every chunk, each after the one before. Raises `Misplaced`."""
    file = File(lines, shown)
    places: list[Place] = []
    position = 0
    for chunk in chunks:
        place = _place_of(file, chunk, position)
        places.append(place)
        if place.start < len(file.lines):  # what is put at the end of the file may come before others in the patch
            position = place.end
    _refuse_second_places(file, chunks, places)
    return places


class File:
    """The lines of a file, made searchable once for each reading."""

    def __init__(self, lines: Sequence[str], shown: str) -> None:
        self.shown = shown
        self.lines = [line.rstrip("\r\n") for line in lines]
        self._read: dict[Reading, tuple[str, list[int]]] = {}

    def find(self, wanted: Sequence[str], start: int, reading: Reading, near: int | None = None) -> int:
        """The first line of the first place from `start` on, or of the one nearest to `near`; -1 if there is none."""
        whole, offsets = self._searchable(reading)
        needle = "\n" + "".join(f"{reading(line)}\n" for line in wanted)
        if near is None:
            return self._line_at(whole.find(needle, offsets[start]), offsets)
        middle = offsets[min(max(near, start), len(self.lines))]
        after = self._line_at(whole.find(needle, middle), offsets)
        before = self._line_at(whole.rfind(needle, offsets[start], middle + len(needle)), offsets)
        found = [index for index in (before, after) if index >= 0]
        return min(found, key=lambda index: abs(index - near)) if found else -1

    def find_beginning(self, wanted: str, start: int, reading: Reading) -> int:
        """The first line from `start` on that begins with these words, the last of them whole; -1 if there is none."""
        whole, offsets = self._searchable(reading)
        at = whole.find(f"\n{wanted}", offsets[start])
        while at >= 0 and _is_word(wanted[-1:]) and _is_word(whole[at + 1 + len(wanted)]):
            at = whole.find(f"\n{wanted}", at + 1)
        return self._line_at(at, offsets)

    def find_anchor(self, anchor: str, start: int, way: int) -> int:
        """The first line from `start` on that looks like the anchor, or begins with it as models shorten it."""
        if way == len(ANCHOR_READINGS):
            return self.find_beginning(_unindented(anchor), start, _unindented)
        return self.find([anchor], start, ANCHOR_READINGS[way])

    def _searchable(self, reading: Reading) -> tuple[str, list[int]]:
        """One text in which each line stands between two newlines, and where the newline before each line is."""
        if reading not in self._read:
            read = [reading(line) for line in self.lines]
            offsets = list(accumulate((len(line) + 1 for line in read), initial=0))
            self._read[reading] = "\n" + "".join(f"{line}\n" for line in read), offsets
        return self._read[reading]

    def _line_at(self, offset: int, offsets: list[int]) -> int:
        return bisect_left(offsets, offset) if offset >= 0 else -1


def _place_of(file: File, chunk: Chunk, position: int) -> Place:
    """The first place from `position` on."""
    ways = []
    for anchor in chunk.anchors:
        position, way = _below_anchor(file, chunk, anchor, position)
        ways.append(way)
    kept = _without_blank_end(chunk.lines)
    sizes = {len(kept)}
    if chunk.near is not None or any(line.sign != "+" for line in kept):
        sizes |= {len(chunk.lines), len(chunk.lines) - 1}
    for size in sorted(sizes, reverse=True):
        if size < len(kept):
            break
        marked = chunk.lines[:size]
        for reading in READINGS:
            start = _start_of(file, chunk, marked, position, reading)
            if start >= 0:
                return Place(start, marked, reading, tuple(ways), position)
    raise _not_found(file, chunk, [line.text for line in kept if line.sign != "+"], position)


def _start_of(file: File, chunk: Chunk, marked: Sequence[Marked], position: int, reading: Reading) -> int:
    old = [line.text for line in marked if line.sign != "+"]
    if not old:
        return _insertion(file, chunk, position)
    if chunk.at_end:
        start = len(file.lines) - len(old)
        return start if start >= position and all(map(_same(reading), old, file.lines[start:])) else -1
    starts = [position]
    if chunk.anchors:  # the line of the anchor may be repeated as the first of the chunk
        starts.insert(0 if chunk.lines[0] == Marked(" ", file.lines[position - 1]) else 1, position - 1)
    places = (file.find(old, start, reading, chunk.near) for start in starts)
    return next((place for place in places if place >= 0), -1)


def _refuse_second_places(file: File, chunks: Sequence[Chunk], places: Sequence[Place]) -> None:
    """Raises `Misplaced` if a chunk could stand further below, with all the others where they are.

    Every chunk has the first place that is free for it. If there is any other way to place all of them, then also one
    in which only one chunk stands elsewhere.
    """
    limit = len(file.lines)
    for chunk, place in zip(reversed(chunks), reversed(places), strict=True):
        second = _second_start(file, chunk, place)
        if place.start < second and second + place.end - place.start <= limit:
            raise Misplaced(
                f"line {chunk.line} of the patch: this chunk fits more than once in {file.shown}: "
                f"at lines {place.start + 1} and {second + 1}",
                ErrorKind.USER,
                "Add more of the lines around it, or an anchor: @@ and a line above it that occurs once.",
            )
        if place.start < len(file.lines):
            limit = place.start


def _second_start(file: File, chunk: Chunk, place: Place) -> int:
    """Where the chunk begins if not at its place, read in the same way; -1 if nowhere."""
    if chunk.at_end or (chunk.near is not None and not chunk.anchors):
        return -1
    if not chunk.anchors:
        old = [line.text for line in place.marked if line.sign != "+"]
        return file.find(old, place.start + 1, place.reading) if old else -1
    for position in (place.below, place.start + 1):  # an anchor between the two may lead to the same place
        below = min(position, len(file.lines))
        for anchor, way in zip(chunk.anchors, place.anchors, strict=True):
            index = file.find_anchor(anchor, below, way)
            if index < 0:
                return -1
            below = index + 1
        start = _start_of(file, chunk, place.marked, below, place.reading)
        if start != place.start:
            return start
    return -1


def _same(reading: Reading) -> Callable[[str, str], bool]:
    return lambda one, other: reading(one) == reading(other)


def _insertion(file: File, chunk: Chunk, position: int) -> int:
    """The place of a chunk that only adds lines: below its anchor, where it counts, or at the end of the file."""
    if chunk.near is not None and not chunk.anchors:
        return chunk.near if position <= chunk.near <= len(file.lines) else -1
    return position if chunk.anchors and not chunk.at_end else len(file.lines)


def _below_anchor(file: File, chunk: Chunk, anchor: str, position: int) -> tuple[int, int]:
    """The line below the anchor, and the way it was found."""
    for way in range(len(ANCHOR_READINGS) + 1):
        index = file.find_anchor(anchor, position, way)
        if index >= 0:
            return index + 1, way
    raise Misplaced(
        f"line {chunk.line} of the patch: {file.shown} has no line {_quoted(anchor)}{_after(position)}",
        ErrorKind.USER,
        "Use a line of the file as the anchor after @@, and keep the chunks in the order of the file.",
    )


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _without_blank_end(marked: Sequence[Marked]) -> Sequence[Marked]:
    """Blank lines at the end are often only there to look at."""
    size = len(marked)
    while size and marked[size - 1].sign == " " and not marked[size - 1].text.strip():
        size -= 1
    return marked[:size]


def _not_found(file: File, chunk: Chunk, old: list[str], position: int) -> Misplaced:
    """Says how far the chunk matches, and whether it stands elsewhere or was applied already."""
    problem = f"line {chunk.line} of the patch: the lines of this chunk are not in {file.shown}{_after(position)}"
    new = [line.text for line in _without_blank_end(chunk.lines) if line.sign != "-"]
    adds = any(line.sign == "+" for line in chunk.lines)
    applied = file.find(new, 0, _plain) if adds else -1
    earlier = file.find(old, 0, _plain) if old else -1
    matching = _longest_start(file, old, position)
    if chunk.at_end and earlier >= 0:
        problem += f"; they stand at line {earlier + 1}, which is not its end"
    elif position and earlier >= 0:
        problem += f", but at line {earlier + 1}"
    elif applied >= 0:
        problem += f"; the new lines are there already, at line {applied + 1}"
    elif matching:
        start = file.find(old[:matching], position, _plain)
        there = file.lines[start + matching] if start + matching < len(file.lines) else None
        found = "the file ends" if there is None else f"it has {_quoted(there)}"
        problem += f": at line {start + matching + 1} {found} where the patch has {_quoted(old[matching])}"
    else:
        problem += f": it has no line {_quoted(old[0])}" if old else f": it has {len(file.lines)} lines"
    return Misplaced(
        problem,
        ErrorKind.USER,
        "Read the file again, copy its lines exactly, and keep the chunks in the order of the file.",
    )


def _longest_start(file: File, old: list[str], position: int) -> int:
    """How many lines of the chunk, from its first on, stand together in the file."""
    low, high = 0, len(old) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if file.find(old[:middle], position, _plain) >= 0 else (low, middle - 1)
    return low


def _after(position: int) -> str:
    return f" after line {position}" if position else ""


def _quoted(line: str) -> str:
    return f'"{line}"' if len(line) <= 120 else f'"{line[:120]}…"'
