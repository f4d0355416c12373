"""Finds the names that someone may have meant: another spelling of a name, or a close one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

LONGEST_NAME = 100  # characters of a name that are compared
SHORTEST_EDITED = 5  # characters: an edit in a shorter name often makes another name
SHORTEST_CLOSE = 4
CLOSE = 0.8  # of difflib's ratio

_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+"  # compiled at its first use: everything loads this file


def near(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Returns the names that someone who wrote `name` may have meant."""
    wanted = name[:LONGEST_NAME].casefold()
    letters = set(wanted)
    folded = {known.casefold(): known for known in names}
    likely = [known for known in folded if 2 * len(letters & set(known)) > len(letters)]
    if not likely:
        return []
    from difflib import get_close_matches  # only where something is wrong

    return [folded[hit] for hit in get_close_matches(wanted, likely, n=most, cutoff=0.6)]


class Names:
    """The names that the keys of one object may have. `aliases` are other names of some of them."""

    def __init__(self, known: tuple[str, ...], required: tuple[str, ...], aliases: Mapping[str, str]) -> None:
        self.known, self.required = known, required
        self._right = {**{name: name for name in known}, **aliases}  # by every name that is accepted
        self._by_spelling: dict[str, set[str]] = {}
        for spelt, name in self._right.items():
            self._by_spelling.setdefault(fold_name(spelt), set()).add(name)

    def find_meant(self, key: str, sent: Mapping[str, Any]) -> str:
        """Returns the one known name that `key` can only be another spelling of, or nothing.

        A name that was sent itself is not meant, and one that two keys may mean is not clear. One edit is accepted only
        in a long name that is required and was not sent.
        """
        for find in (self._find_spelt_alike, self._find_one_edit_away):
            found = find(key) - sent.keys()
            if len(found) == 1:
                strange = [other for other in sent if other != key and other not in self._right]
                return "" if any(found <= find(other) for other in strange) else found.pop()
            if found:
                return ""
        return ""

    def _find_spelt_alike(self, key: str) -> set[str]:
        return self._by_spelling.get(fold_name(key), set())

    def _find_one_edit_away(self, key: str) -> set[str]:
        found = {right for name, right in self._right.items() if _is_one_edit_away(key, name)}
        return {name for name in found if name in self.required and len(name) >= SHORTEST_EDITED}

    def suggest(self, key: str) -> str:
        """Returns a hint for an unknown key: the names that may have been meant, or all names."""
        others = tuple(name for name in self._right if name != key)  # it may be known in another branch
        hints = find_close_names(key, others, True)[:3] or near(key, others, 1)
        if not hints:
            return f"known: {', '.join(name for name in self.known if name != key) or 'none'}"
        meant = dict.fromkeys(f'"{self._right[hint]}"' for hint in hints)
        return f"did you mean {' or '.join(meant)}?"


def find_close_names(key: str, names: tuple[str, ...], widely: bool) -> list[str]:
    """Returns the names that `key` resembles so much that one of them was probably meant.

    Narrowly: another spelling, or one edit. Widely: also alike as a whole, or one made of some words of the other.
    """
    return _find_close(key, names, widely) if len(key) <= LONGEST_NAME else []


@lru_cache(maxsize=1_000)  # a raw schema of 20 parameters takes 4 instead of 980 µs for a key that it does not know
def _find_close(key: str, names: tuple[str, ...], widely: bool) -> list[str]:
    return [name for name in names if _is_close(key, name, widely)]


def _is_close(key: str, name: str, widely: bool) -> bool:
    if fold_name(key) == fold_name(name):
        return True
    if min(len(key), len(name)) < SHORTEST_CLOSE:
        return False
    if _is_one_edit_away(key, name):
        return True
    if not widely:
        return False
    return _shares_words(key, name) or _ratio_is_high(fold_name(key), fold_name(name))


def _shares_words(key: str, name: str) -> bool:
    """Returns whether all the words of one name are in the other: `file` and `file_path`, `path` and `fullPath`."""
    first, second = _words(key), _words(name)
    fewer = min(first, second, key=len)
    return first & second == fewer and sum(map(len, fewer)) >= SHORTEST_CLOSE


def _words(name: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in re.findall(_WORD, name))


def _ratio_is_high(first: str, second: str) -> bool:
    longer = max(len(first), len(second))
    if 2 * min(len(first), len(second)) < CLOSE * (len(first) + len(second)) or longer > LONGEST_NAME:
        return False
    letters = set(first)
    if 2 * len(letters & set(second)) < len(letters):
        return False
    from difflib import SequenceMatcher  # only where something is unknown

    match = SequenceMatcher(None, first, second, autojunk=False)
    return match.quick_ratio() >= CLOSE and match.ratio() >= CLOSE


def fold_name(name: str) -> str:
    """Removes the differences of spellings: `orderStatus`, `order-status` and `Order_Status` are one name."""
    name = name[: LONGEST_NAME + 1]
    return name.replace("_", "").replace("-", "").casefold() or name


def _is_one_edit_away(first: str, second: str) -> bool:
    """Returns whether one letter was added, removed or changed, or two were swapped. Digits never differ."""
    short, long = sorted((fold_name(first), fold_name(second)), key=len)
    if len(long) - len(short) > 1 or len(long) > LONGEST_NAME:
        return False
    same = 0
    while same < len(short) and short[same] == long[same]:
        same += 1
    ends, others = short[same:], long[same:]
    if len(short) < len(long):
        return ends == others[1:] and not others[0].isdigit()
    if not ends:
        return False  # the same
    if ends[1:] == others[1:]:
        return not (ends[0].isdigit() or others[0].isdigit())
    swapped = ends[:2] == others[1::-1] and ends[2:] == others[2:]
    return swapped and not any(letter.isdigit() for letter in ends[:2])
