"""Measures plain data and cuts it to a size, with a note wherever something was left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_TEXT = 1024 * 1024  # characters of one text in data
DEEPEST = 100
_EACH = 8  # what a value costs beside its characters
_LEAST = 200  # characters: an entry of which less would be left is left out
_ENDLESS = 1 << 60
_TOO_DEEP = "[nested too deeply to be shown]"
_TEXTS = (str, bytes, bytearray)
_LISTS = (list, tuple, set, frozenset)


def size_of(value: Any, most: int) -> int:
    """Estimates the length in characters, counted no further than just over `most`."""
    size = 0
    waiting = [value]
    while waiting and size <= most:
        one = waiting.pop()
        size += _size_alone(one)
        if not _holds_more(one):
            continue
        if len(one) * _EACH > most - size:
            return most + 1
        waiting.extend(one)
        if not isinstance(one, _LISTS):
            waiting.extend(one.values())
    return size


def bound_data(data: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """Returns the data within about `most` characters, with each text in its limit; unchanged if it fits."""
    if size_of(data, most) > most:
        return {**_DataCutter().cut_mapping(data, most, 0), "data_truncated": True}
    return _DataCutter().cut_mapping(data, most, 0) if _longest_text(data) > LONGEST_TEXT else data


class _DataCutter:
    """Cuts data: texts are clipped, lists end early, and the entries of a mapping share the room."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # of what holds more, by identity

    def cut(self, value: Any, most: int, depth: int) -> Any:
        if isinstance(value, str):
            room = min(most, LONGEST_TEXT)
            return value if len(value) <= room else f"{value[:room]}[… {len(value) - room} more characters]"
        if isinstance(value, _TEXTS):
            return value if len(value) <= min(most, LONGEST_TEXT) else f"[{len(value)} bytes left out]"
        if not _holds_more(value):
            return value
        if depth > DEEPEST:
            return _TOO_DEEP
        return self.cut_items(value, most, depth) if isinstance(value, _LISTS) else self.cut_mapping(value, most, depth)

    def cut_items(self, items: Any, most: int, depth: int) -> list[Any]:
        cut: list[Any] = []
        for item in items:
            size = self.size(item, depth + 1)
            if size > most and cut:
                break
            cut.append(self.cut(item, most, depth + 1))
            most -= size
            if most <= 0:
                break
        left_out = len(items) - len(cut)
        return [*cut, f"[… {left_out} of {len(items)} items left out]"] if left_out else cut

    def cut_mapping(self, value: Mapping[Any, Any], most: int, depth: int) -> dict[Any, Any]:
        sizes = {key: _size_alone(key) + self.size(item, depth + 1) for key, item in value.items()}
        if sum(sizes.values()) > most:
            sizes = dict(list(sizes.items())[: max(1, most // _LEAST)])
        cut = {}
        for key, room in _shares(sizes, most).items():
            left = room - _size_alone(key)
            if room >= sizes[key] or left >= _LEAST:
                cut[key] = self.cut(value[key], left, depth + 1)
        left_out = len(value) - len(cut)
        return {**cut, "…": f"[{left_out} of {len(value)} entries left out]"} if left_out else cut

    def size(self, value: Any, depth: int) -> int:
        if not _holds_more(value):
            return _size_alone(value)
        if depth > DEEPEST:
            return len(_TOO_DEEP)
        if id(value) not in self.sizes:
            self.sizes[id(value)] = _ENDLESS  # until we know: it may hold itself
            inside = sum(self.size(item, depth + 1) for item in value)
            if not isinstance(value, _LISTS):
                inside += sum(self.size(item, depth + 1) for item in value.values())
            self.sizes[id(value)] = _EACH + inside
        return self.sizes[id(value)]


def _shares(sizes: Mapping[Any, int], most: int) -> dict[Any, int]:
    """Divides the room: each entry gets its size if there is enough; the large ones share what the small ones leave."""
    shares = dict.fromkeys(sizes, 0)
    for position, key in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[key] = min(sizes[key], most // (len(sizes) - position))
        most -= shares[key]
    return shares


def _size_alone(value: Any) -> int:
    """Returns the size of a value without its content."""
    if isinstance(value, _TEXTS):
        return _EACH + min(len(value), LONGEST_TEXT)
    return _EACH + (value.bit_length() >> 3) if isinstance(value, int) else _EACH


def _holds_more(value: Any) -> bool:
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None:  # asking an abstract class is slow
        return False
    return kind is dict or isinstance(value, (*_LISTS, Mapping))


def _longest_text(value: Any) -> int:
    """Returns the length of the longest text, in data that `size_of` found to be finite."""
    longest = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _TEXTS):
            longest = max(longest, len(one))
        elif _holds_more(one):
            waiting.extend(one if isinstance(one, _LISTS) else one.values())
    return longest
