"""Finds the place of each chunk of a patch in a text, and makes the new text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from forge.core.errors import ErrorKind, ToolError
from forge.tools._patch_text import Chunk, Marked
from forge.tools._punctuation import PUNCTUATION
from forge.workspace.text import ending_of, split_lines

Reading = Callable[[str], str]
"""How a line is looked at: lines that look the same are the same."""


def _exact(line: str) -> str:
    return line


def _plain(line: str) -> str:
    return (line if line.isascii() else line.translate(PUNCTUATION)).rstrip()


def _unindented(line: str) -> str:
    return _plain(line).lstrip()


READINGS: tuple[Reading, ...] = (_exact, str.rstrip, _plain)  # each looser than the one before


class Misplaced(ToolError):
    """A chunk that has no place in the file; the message names the line of the patch."""


def patched(text: str, chunks: Sequence[Chunk], shown: str) -> str:
    """The text with every chunk applied, in order, each after the one before. Raises `Misplaced`."""
    lines = split_lines(text)
    file = _File(lines, shown)
    edits: list[tuple[int, Sequence[Marked]]] = []
    position = 0
    unended = False
    for chunk in chunks:
        start, marked = _placed(file, chunk, position)
        edits.append((start, marked))
        end = start + sum(line.sign != "+" for line in marked)
        unended = unended or (chunk.unended and end == len(lines) and [line.sign for line in marked[-1:]] == ["+"])
        if start < len(lines):  # what is put at the end of the file may come before others in the patch
            position = end
    edits.sort(key=lambda edit: edit[0])
    result = list(_edited(lines, edits, ending_of(text)))
    _mend_last_line(lines, result, unended=unended)
    return "".join(result)


class _File:
    """The lines of a file, made searchable once for each reading."""

    def __init__(self, lines: list[str], shown: str) -> None:
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

    def _searchable(self, reading: Reading) -> tuple[str, list[int]]:
        """One text in which each line stands between two newlines, and where the newline before each line is."""
        if reading not in self._read:
            read = [reading(line) for line in self.lines]
            offsets = list(accumulate((len(line) + 1 for line in read), initial=0))
            self._read[reading] = "\n" + "".join(f"{line}\n" for line in read), offsets
        return self._read[reading]

    def _line_at(self, offset: int, offsets: list[int]) -> int:
        return bisect_left(offsets, offset) if offset >= 0 else -1


def _placed(file: _File, chunk: Chunk, position: int) -> tuple[int, Sequence[Marked]]:
    """Where the chunk begins, and its lines: without blank ones at its end that the file does not have."""
    for anchor in chunk.anchors:
        position = _after_anchor(file, chunk, anchor, position)
    kept = _without_blank_end(chunk.lines)
    sizes = {len(kept)}
    if chunk.near is not None or any(line.sign != "+" for line in kept):
        sizes |= {len(chunk.lines), len(chunk.lines) - 1}
    for size in sorted(sizes, reverse=True):
        if size < len(kept):
            break
        marked = chunk.lines[:size]
        old = [line.text for line in marked if line.sign != "+"]
        start = _found(file, chunk, old, position) if old else _insertion(file, chunk, position)
        if start >= 0:
            return start, marked
    raise _not_found(file, chunk, [line.text for line in kept if line.sign != "+"], position)


def _found(file: _File, chunk: Chunk, old: list[str], position: int) -> int:
    if chunk.at_end:
        start = len(file.lines) - len(old)
        ends = (all(map(_same(reading), old, file.lines[start:])) for reading in READINGS)
        return start if start >= position and any(ends) else -1
    starts = [position]
    if chunk.anchors:  # the line of the anchor may be repeated as the first of the chunk
        starts.insert(0 if chunk.lines[0] == Marked(" ", file.lines[position - 1]) else 1, position - 1)
    places = (file.find(old, start, reading, chunk.near) for start in starts for reading in READINGS)
    return next((place for place in places if place >= 0), -1)


def _same(reading: Reading) -> Callable[[str, str], bool]:
    return lambda one, other: reading(one) == reading(other)


def _insertion(file: _File, chunk: Chunk, position: int) -> int:
    """The place of a chunk that only adds lines: below its anchor, where it counts, or at the end of the file."""
    if chunk.near is not None and not chunk.anchors:
        return chunk.near if position <= chunk.near <= len(file.lines) else -1
    return position if chunk.anchors and not chunk.at_end else len(file.lines)


def _after_anchor(file: _File, chunk: Chunk, anchor: str, position: int) -> int:
    """The line below the first that looks like the anchor, or begins with it as models shorten it."""
    for reading in (*READINGS, _unindented):
        index = file.find([anchor], position, reading)
        if index >= 0:
            return index + 1
    index = file.find_beginning(_unindented(anchor), position, _unindented)
    if index >= 0:
        return index + 1
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


def _not_found(file: _File, chunk: Chunk, old: list[str], position: int) -> Misplaced:
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


def _longest_start(file: _File, old: list[str], position: int) -> int:
    """How many lines of the chunk, from its first on, stand together in the file."""
    low, high = 0, len(old) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if file.find(old[:middle], position, _plain) >= 0 else (low, middle - 1)
    return low


def _edited(lines: list[str], edits: Sequence[tuple[int, Sequence[Marked]]], usual: str) -> Iterator[str]:
    """The lines of the new text. Those that stay are taken from the file, whatever they look like in the patch."""
    here = 0
    before = ""
    for start, marked in edits:
        yield from lines[here:start]
        before = lines[start - 1] if start > here else before
        here = start
        removed: list[str] = []  # together, in front of the lines that replace them
        for sign, text in marked:
            if sign == "+":
                model = removed.pop(0) if len(removed) > 1 else removed[0] if removed else before
                following = lines[here] if here < len(lines) else ""
                before = text + (_ending(model) or _ending(before) or _ending(following) or usual)
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


def _mend_last_line(lines: list[str], result: list[str], *, unended: bool) -> None:
    """A missing last newline stays missing, unless the last line was replaced."""
    stays = bool(lines) and not _ending(lines[-1])
    for index in range(len(result) - 2, -1, -1) if stays else ():
        if not _ending(result[index]):  # what was the last line has others below it now
            result[index] += _ending(result[index + 1])
            result[-1] = result[-1].rstrip("\r\n")
            return
    if unended and result:
        result[-1] = result[-1].rstrip("\r\n")


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _after(position: int) -> str:
    return f" after line {position}" if position else ""


def _quoted(line: str) -> str:
    return f'"{line}"' if len(line) <= 120 else f'"{line[:120]}…"'
