"""Which lines two texts share, in time that does not grow with the square of their length."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import ne
from typing import NamedTuple

SMALL = 250_000  # pairs of lines that difflib may compare; everything larger is split at lines that occur once
PROBES = 4  # lines in the middle that are looked for on the other side
DEEPEST = 12  # times a part is split further


class Block(NamedTuple):
    """`before[start:start + size]` equals `after[position:position + size]`."""

    start: int
    position: int
    size: int


class _Part(NamedTuple):
    start: int
    end: int
    position: int
    until: int
    depth: int


def shared_blocks(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """The runs of lines both have, in order; the last one is empty and stands at the end of both."""
    found: list[Block] = []
    parts = [_Part(0, len(before), 0, len(after), 0)]
    while parts:
        part = parts.pop()
        head, tail, middle = _trimmed(before, after, part)
        found += [block for block in (head, tail) if block.size]
        if middle.start == middle.end or middle.position == middle.until:
            continue
        if (middle.end - middle.start) * (middle.until - middle.position) <= SMALL:
            found += _compared(before, after, middle)
        elif blocks := _in_place(before, after, middle):
            found += blocks
        elif middle.depth < DEEPEST:
            parts += _around_the_middle(before, after, middle) or _split(before, after, middle)
    return [*_joined(sorted(found)), Block(len(before), len(after), 0)]


def _trimmed(before: Sequence[str], after: Sequence[str], part: _Part) -> tuple[Block, Block, _Part]:
    """What both begin and end with, and what is left between."""
    start, end, position, until, depth = part
    while start < end and position < until and before[start] == after[position]:
        start, position = start + 1, position + 1
    while start < end and position < until and before[end - 1] == after[until - 1]:
        end, until = end - 1, until - 1
    head = Block(part.start, part.position, start - part.start)
    tail = Block(end, until, part.end - end)
    return head, tail, _Part(start, end, position, until, depth)


def _compared(before: Sequence[str], after: Sequence[str], part: _Part) -> list[Block]:
    from difflib import SequenceMatcher  # slow to import, needed once there is something to compare

    matcher = SequenceMatcher(None, before[part.start : part.end], after[part.position : part.until], autojunk=False)
    return [Block(part.start + a, part.position + b, size) for a, b, size in matcher.get_matching_blocks() if size]


def _around_the_middle(before: Sequence[str], after: Sequence[str], part: _Part) -> list[_Part]:
    """The part cut where a run through its middle begins, if that is long: few changes far apart are found so."""
    middle = (part.start + part.end) // 2
    for index in range(middle, min(middle + PROBES, part.end)):
        line = before[index]
        try:
            place = after.index(line, part.position, part.until)
        except ValueError:
            continue
        start, position = index, place
        while start > part.start and position > part.position and before[start - 1] == after[position - 1]:
            start, position = start - 1, position - 1
        if middle - start > (part.end - part.start) // 8:
            first = _Part(part.start, start, part.position, position, part.depth + 1)
            return [first, _Part(start, part.end, position, part.until, part.depth + 1)]
    return []


def _split(before: Sequence[str], after: Sequence[str], part: _Part) -> list[_Part]:
    """The part cut at the lines that occur once on each side and in the same order; empty when there are none."""
    places = _once(after, part.position, part.until)
    pairs = [
        (index, places[line])
        for line, index in _once(before, part.start, part.end).items()
        if line in places  # a dictionary keeps the order of the lines
    ]
    pieces: list[_Part] = []
    start, position = part.start, part.position
    last = (-1, -1)
    for index, place in _rising(pairs):
        if (index - 1, place - 1) != last:
            pieces.append(_Part(start, index, position, place, part.depth + 1))
            start, position = index, place  # the anchor itself is trimmed off the head of its piece
        last = (index, place)
    if pieces:
        pieces.append(_Part(start, part.end, position, part.until, part.depth + 1))
    return pieces


def _once(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    counts = Counter(lines[start:end])
    return {line: index for index, line in enumerate(lines[start:end], start) if counts[line] == 1}


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs in which the second number rises, too."""
    ends: list[int] = []  # the smallest second number that ends a run of each length
    holders: list[int] = []  # the pair which holds it
    before: list[int] = []  # the pair that comes before each pair
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        holders[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = holders[-1] if holders else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _in_place(before: Sequence[str], after: Sequence[str], part: _Part) -> list[Block]:
    """What stands at the same place and is the same, where both are equally long and most of it is."""
    size = part.end - part.start
    if size != part.until - part.position:
        return []
    pairs = map(ne, before[part.start : part.end], after[part.position : part.until])
    different = [index for index, differs in enumerate(pairs) if differs]
    if len(different) * 2 > size:
        return []
    gaps = zip([-1, *different], [*different, size], strict=True)
    return [Block(part.start + a + 1, part.position + a + 1, b - a - 1) for a, b in gaps if b - a > 1]


def _joined(blocks: list[Block]) -> Iterator[Block]:
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
