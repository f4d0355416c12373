"""Decodes text files so that encoding them again gives the same bytes, and finds the lines that two texts share."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import ne
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError

HEAD = 4096  # bytes that decide whether a file is text
_MARKS = (  # the longer first: a UTF-32 mark begins with a UTF-16 one
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_CONTROL = bytes(byte for byte in [*range(32), 127] if byte not in b"\b\t\n\f\r\x1b")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A decoded file, without its byte order mark and with its own line endings."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    def encode_whole(self, text: str) -> bytes:
        """Encodes another text as this file: with the same encoding and mark."""
        return self.mark + self.encode_part(text) if self.mark else self.encode_part(text)

    def encode_part(self, text: str) -> bytes:
        """Encodes a part of the file, without the mark."""
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            line = text.count("\n", 0, error.start) + 1
            raise ToolError(
                f"line {line} of the new text contains half a surrogate pair ({text[error.start]!a}), "
                f"which {self.encoding.upper()} cannot encode",
                ErrorKind.VALIDATION,
                "Write the whole character.",
            ) from None


def decode(content: bytes) -> DecodedText:
    """Decodes a file. Raises `ToolError` if it is not text, or if encoding it again would change its bytes."""
    if is_binary(content[:HEAD]):
        raise ToolError("it is a binary file, not text", ErrorKind.USER, "Only text files can be used here.")
    encoding, mark = encoding_of(content)
    try:
        # these codecs are strict both ways: no two contents have the same text
        return DecodedText(str(memoryview(content)[len(mark) :], encoding), encoding, mark)
    except UnicodeDecodeError as error:
        raise ToolError(
            f"it is not {encoding[:6].rstrip('-').upper()} text: "
            f"byte {error.start + len(mark):,} cannot be decoded, and writing it back would change it",
            ErrorKind.USER,
            "Convert it to UTF-8 first.",
        ) from None


def encoding_of(content: bytes) -> tuple[str, bytes]:
    """Returns the encoding that the byte order mark names, and the mark; UTF-8 without a mark."""
    return next(((encoding, mark) for mark, encoding in _MARKS if content.startswith(mark)), ("utf-8", b""))


def is_binary(head: bytes) -> bool:
    """Returns whether the first bytes of a file are not text: a NUL byte, or more than 30 % control bytes."""
    head = head[:HEAD]
    if encoding_of(head)[0] != "utf-8":
        return False
    return b"\0" in head or (len(head) - len(head.translate(None, _CONTROL))) * 10 > len(head) * 3


def split_lines(text: str) -> list[str]:
    """Splits text into lines with their ends. Only \\n, \\r\\n and \\r end a line, unlike `splitlines`."""
    return io.StringIO(text, newline="").readlines()


def line_ending_of(text: str) -> str:
    """Returns the most frequent line ending."""
    if "\r" not in text:
        return "\n"
    both = text.count("\r\n")
    counts = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    return max(counts, key=lambda ending: counts[ending])


def with_endings_of(old: str, new: str) -> str:
    """Returns `new` with the line endings of `old`: an unchanged line keeps its own, a new line takes its neighbour's.

    A `new` with a carriage return anywhere stays as it is.
    """
    if "\r" in new or "\r" not in old:
        return new
    both = old.count("\r\n")
    if both == old.count("\n") == old.count("\r"):
        return new.replace("\n", "\r\n")
    if "\n" not in old:
        return new.replace("\n", "\r")
    return _restore_endings(split_lines(old), new)


def _restore_endings(old: list[str], new: str) -> str:
    bare = [line.rstrip("\r\n") for line in old]
    endings = [line[len(content) :] for line, content in zip(old, bare, strict=True)]
    lines = new.split("\n")
    chosen: list[str] = []
    here = there = 0
    for start, position, size in find_shared_blocks(bare, lines):
        chosen += _endings_between(endings, here, start, position - there)
        chosen += endings[start : start + size]
        here, there = start + size, position + size
    chosen[-1] = ""  # the text after the last \n has no ending
    for index in range(len(chosen) - 1):  # the former last line, without an ending, may have moved
        chosen[index] = chosen[index] or (chosen[index - 1] if index else next(filter(None, endings)))
        if index and not lines[index] and chosen[index - 1 : index + 1] == ["\r", "\n"]:
            chosen[index] = "\r"  # the two would be one ending
    return "".join([line + ending for line, ending in zip(lines, chosen, strict=True)])


def _endings_between(endings: list[str], start: int, end: int, count: int) -> list[str]:
    """Returns endings for `count` lines that replace the lines of `endings[start:end]`."""
    replaced = [ending for ending in endings[start:end] if ending][:count]
    # of two lines before, one has an ending: only the last line of a file may lack it
    neighbours = [*replaced[-1:], *reversed(endings[max(start - 2, 0) : start]), *endings[end : end + 1]]
    return replaced + [next(filter(None, neighbours), "\n")] * (count - len(replaced))


# Finds the lines that two texts share, in less than quadratic time.


SMALL = 250_000  # pairs of lines that difflib may compare; larger spans are split at unique lines
PROBES = 4  # lines in the middle to look for on the other side
DEEPEST_SPLITS = 12  # nested splits


class Block(NamedTuple):
    """`before[start:start + size]` equals `after[position:position + size]`."""

    start: int
    position: int
    size: int


class _Span(NamedTuple):
    start: int
    end: int
    position: int
    until: int
    depth: int


def find_shared_blocks(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Returns the runs of lines that both texts have, in order; the last one is empty and stands at the end of both."""
    found: list[Block] = []
    parts = [_Span(0, len(before), 0, len(after), 0)]
    while parts:
        part = parts.pop()
        head, tail, middle = _trim(before, after, part)
        found += [block for block in (head, tail) if block.size]
        if middle.start == middle.end or middle.position == middle.until:
            continue
        if (middle.end - middle.start) * (middle.until - middle.position) <= SMALL:
            found += _compare(before, after, middle)
        elif blocks := _match_in_place(before, after, middle):
            found += blocks
        elif middle.depth < DEEPEST_SPLITS:
            parts += _split_around_middle(before, after, middle) or _split_at_unique_lines(before, after, middle)
    return [*_join_blocks(sorted(found)), Block(len(before), len(after), 0)]


def _trim(before: Sequence[str], after: Sequence[str], part: _Span) -> tuple[Block, Block, _Span]:
    """Returns the common lines at the start and at the end, and the span between them."""
    start, end, position, until, depth = part
    while start < end and position < until and before[start] == after[position]:
        start, position = start + 1, position + 1
    while start < end and position < until and before[end - 1] == after[until - 1]:
        end, until = end - 1, until - 1
    head = Block(part.start, part.position, start - part.start)
    tail = Block(end, until, part.end - end)
    return head, tail, _Span(start, end, position, until, depth)


def _compare(before: Sequence[str], after: Sequence[str], part: _Span) -> list[Block]:
    from difflib import SequenceMatcher  # slow to import, needed once there is something to compare

    matcher = SequenceMatcher(None, before[part.start : part.end], after[part.position : part.until], autojunk=False)
    return [Block(part.start + a, part.position + b, size) for a, b, size in matcher.get_matching_blocks() if size]


def _split_around_middle(before: Sequence[str], after: Sequence[str], part: _Span) -> list[_Span]:
    """Splits the span where a long common run through its middle begins: this finds few changes far apart."""
    middle = (part.start + part.end) // 2
    for index in range(middle, min(middle + PROBES, part.end)):
        line = before[index]
        try:
            other_index = after.index(line, part.position, part.until)
        except ValueError:
            continue
        start, position = index, other_index
        while start > part.start and position > part.position and before[start - 1] == after[position - 1]:
            start, position = start - 1, position - 1
        if middle - start > (part.end - part.start) // 8:
            first = _Span(part.start, start, part.position, position, part.depth + 1)
            return [first, _Span(start, part.end, position, part.until, part.depth + 1)]
    return []


def _split_at_unique_lines(before: Sequence[str], after: Sequence[str], part: _Span) -> list[_Span]:
    """Splits the span at lines that occur once on each side and in the same order; empty if there are none."""
    positions = _index_unique_lines(after, part.position, part.until)
    pairs = [
        (index, positions[line])
        for line, index in _index_unique_lines(before, part.start, part.end).items()
        if line in positions  # a dictionary keeps the order of the lines
    ]
    pieces: list[_Span] = []
    start, position = part.start, part.position
    last = (-1, -1)
    for index, other_index in _longest_rising_run(pairs):
        if (index - 1, other_index - 1) != last:
            pieces.append(_Span(start, index, position, other_index, part.depth + 1))
            start, position = index, other_index  # the anchor itself is trimmed off the head of its piece
        last = (index, other_index)
    if pieces:
        pieces.append(_Span(start, part.end, position, part.until, part.depth + 1))
    return pieces


def _index_unique_lines(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    counts = Counter(lines[start:end])
    return {line: index for index, line in enumerate(lines[start:end], start) if counts[line] == 1}


def _longest_rising_run(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the longest run of pairs in which the second number rises, too."""
    ends: list[int] = []  # the smallest second number that ends a run of each length
    holders: list[int] = []  # the pair which holds it
    before: list[int] = []  # the pair that comes before each pair
    for number, (_, other_index) in enumerate(pairs):
        length = bisect_left(ends, other_index)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [other_index]
        holders[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = holders[-1] if holders else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _match_in_place(before: Sequence[str], after: Sequence[str], part: _Span) -> list[Block]:
    """Returns the equal lines at equal positions, if both spans have the same length and most lines are equal."""
    size = part.end - part.start
    if size != part.until - part.position:
        return []
    pairs = map(ne, before[part.start : part.end], after[part.position : part.until])
    different = [index for index, differs in enumerate(pairs) if differs]
    if len(different) * 2 > size:
        return []
    gaps = zip([-1, *different], [*different, size], strict=True)
    return [Block(part.start + a + 1, part.position + a + 1, b - a - 1) for a, b in gaps if b - a > 1]


def _join_blocks(blocks: list[Block]) -> Iterator[Block]:
    held: Block | None = None
    for block in blocks:
        if held and held.start + held.size == block.start and held.position + held.size == block.position:
            held = Block(held.start, held.position, held.size + block.size)
            continue
        if held:
            yield held
        held = block
    if held:
        yield held
