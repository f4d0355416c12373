"""How large plain data is, and the same data cut to a size, with a note wherever something was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_TEXT = 1024 * 1024  # characters of one text in data
DEEPEST = 100
_EACH = 8  # what a value costs beside its characters
_LEAST = 200  # characters: an entry of which less would be left is left out
_LISTS = (list, tuple, set, frozenset)


def size_of(value: Any, most: int) -> int:
    """About how many characters it is long, counted no further than just over `most`."""
    size = 0
    waiting = [value]
    while waiting and size <= most:
        one = waiting.pop()
        size += _EACH
        if isinstance(one, str | bytes | bytearray):
            size += min(len(one), LONGEST_TEXT)
        elif isinstance(one, int):
            size += one.bit_length() >> 3
        elif isinstance(one, Mapping | list | tuple | set | frozenset):
            if len(one) * _EACH > most - size:
                return most + 1
            waiting.extend(one)
            if isinstance(one, Mapping):
                waiting.extend(one.values())
    return size


def longest_text(value: Any) -> int:
    """The length of the longest text in data of which `size_of` knows that it ends."""
    longest = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str | bytes | bytearray):
            longest = max(longest, len(one))
        elif isinstance(one, Mapping):
            waiting.extend(one.values())
        elif isinstance(one, _LISTS):
            waiting.extend(one)
    return longest


def cut(value: Any, most: int, depth: int = 0) -> Any:
    """The value within about `most` characters: texts are clipped, lists end early, mappings share the room."""
    if isinstance(value, str):
        room = min(most, LONGEST_TEXT)
        return value if len(value) <= room else f"{value[:room]}[… {len(value) - room} more characters]"
    if isinstance(value, bytes | bytearray):
        return value if len(value) <= min(most, LONGEST_TEXT) else f"[{len(value)} bytes left out]"
    if depth > DEEPEST:
        return "[nested too deeply to be shown]"
    if isinstance(value, Mapping):
        return _cut_mapping(value, most, depth)
    return _cut_list(list(value), most, depth) if isinstance(value, _LISTS) else value


def _cut_list(items: Sequence[Any], most: int, depth: int) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        size = size_of(item, most)
        if size > most and kept:
            break
        kept.append(cut(item, most, depth + 1))
        most -= size
        if most <= 0:
            break
    left_out = len(items) - len(kept)
    return [*kept, f"[… {left_out} of {len(items)} items left out]"] if left_out else kept


def _cut_mapping(value: Mapping[Any, Any], most: int, depth: int) -> dict[Any, Any]:
    sizes = {key: size_of(key, most) + size_of(item, most) for key, item in value.items()}
    if sum(sizes.values()) > most:
        sizes = dict(list(sizes.items())[: max(1, most // _LEAST)])
    kept = {}
    room = _shares(sizes, most)
    for key, size in sizes.items():
        share = room[key] - size_of(key, most)
        if room[key] >= size or share >= _LEAST:
            kept[key] = cut(value[key], share, depth + 1)
    left_out = len(value) - len(kept)
    return {**kept, "…": f"[{left_out} of {len(value)} entries left out]"} if left_out else kept


def _shares(sizes: Mapping[Any, int], most: int) -> dict[Any, int]:
    """Each gets what it needs, as long as there is enough; the large ones share what the small ones leave."""
    shares = {}
    for position, key in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[key] = min(sizes[key], most // (len(sizes) - position))
        most -= shares[key]
    return shares
