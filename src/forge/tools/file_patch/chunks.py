"""Applies the chunks of a patch to a text; untouched lines stay unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forge.tools.file_patch.find_chunks import ChunkMatch, find_matches
from forge.tools.file_patch.parse import Chunk
from forge.workspace.text import line_ending_of, split_lines


def apply_chunks(text: str, chunks: Sequence[Chunk], shown: str) -> str:
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
