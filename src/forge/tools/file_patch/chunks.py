"""Applies the chunks of a patch to a text; what they do not touch stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forge.tools.file_patch.find_chunks import Place, find_places
from forge.tools.file_patch.parse import Chunk
from forge.workspace.text import line_ending_of, split_lines


def patched(text: str, chunks: Sequence[Chunk], shown: str) -> str:
    """The text with every chunk applied, in order, each after the one before. Raises `Misplaced`."""
    lines = split_lines(text)
    places = find_places(lines, chunks, shown)
    unended = any(
        chunk.unended and place.end == len(lines) and [line.sign for line in place.marked[-1:]] == ["+"]
        for chunk, place in zip(chunks, places, strict=True)
    )
    result = list(_edited(lines, sorted(places, key=lambda place: place.start), line_ending_of(text)))
    _mend_last_line(lines, result, unended=unended)
    return "".join(result)


def _edited(lines: list[str], places: Sequence[Place], usual: str) -> Iterator[str]:
    """The lines of the new text. Those that stay are taken from the file, whatever they look like in the patch."""
    here = 0
    before = ""
    for place in places:
        yield from lines[here : place.start]
        before = lines[place.start - 1] if place.start > here else before
        here = place.start
        removed: list[str] = []  # together, in front of the lines that replace them
        for sign, text in place.marked:
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
