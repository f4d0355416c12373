"""Finds names that a model may have meant: another spelling of the name, or a close one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from forge.core.lazy import lazy_pattern

LONGEST = 100  # characters of a name that are compared
SHORTEST_EDITED = 5  # characters: an edit in a shorter name often makes another name
SHORTEST_CLOSE = 4
CLOSE = 0.8  # of difflib's ratio

_WORD = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")


def find_meant_name(
    key: str, names: Iterable[str], aliases: Mapping[str, str], required: Collection[str], others: Collection[str]
) -> str:
    """Returns the one known name that `key` can only be another spelling of, or nothing.

    `others` are the keys that were sent: a name that was sent itself is not meant, and one that two keys may mean is
    not clear. One edit is accepted only in a long name that is required and was not sent.
    """
    known = {**{name: name for name in names}, **aliases}
    folded = fold_name(key)
    for fits in (_same_spelling, _one_edit_away):
        found = {
            right
            for name, right in known.items()
            if (fold_name(name) == folded if fits is _same_spelling else fits(key, name)) and right not in others
        }
        if fits is _one_edit_away:
            found = {name for name in found if name in required and len(name) >= SHORTEST_EDITED}
        if len(found) > 1:
            return ""
        for right in found:
            spelt = [name for name, one in known.items() if one == right]
            rivals = (
                one for one in others if one != key and one not in known and any(fits(one, name) for name in spelt)
            )
            return "" if any(True for _ in rivals) else right
    return ""


@lru_cache(maxsize=1_000)  # models repeat their mistakes
def close_names(key: str, names: tuple[str, ...], widely: bool) -> list[str]:
    """Returns the names that `key` resembles so much that one of them was probably meant.

    Narrowly: another spelling, or one edit. Widely: also alike as a whole, or one made of some words of the other.
    """
    if len(key) > LONGEST:
        return []
    return [name for name in names if _is_close(key, name, widely)]


def _is_close(key: str, name: str, widely: bool) -> bool:
    if _same_spelling(key, name):
        return True
    if min(len(key), len(name)) < SHORTEST_CLOSE:
        return False
    if _one_edit_away(key, name):
        return True
    if not widely:
        return False
    return _shares_words(key, name) or _ratio_is_high(fold_name(key), fold_name(name))


def _shares_words(key: str, name: str) -> bool:
    """Says whether all the words of one name are in the other: `file` and `file_path`, `path` and `fullPath`."""
    first, second = _words(key), _words(name)
    fewer = min(first, second, key=len)
    return first & second == fewer and sum(map(len, fewer)) >= SHORTEST_CLOSE


def _words(name: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(name))


def _ratio_is_high(first: str, second: str) -> bool:
    longer = max(len(first), len(second))
    if 2 * min(len(first), len(second)) < CLOSE * (len(first) + len(second)) or longer > LONGEST:
        return False
    letters = set(first)
    if 2 * len(letters & set(second)) < len(letters):
        return False
    from difflib import SequenceMatcher  # only where something is unknown

    match = SequenceMatcher(None, first, second, autojunk=False)
    return match.quick_ratio() >= CLOSE and match.ratio() >= CLOSE


def _same_spelling(first: str, second: str) -> bool:
    return fold_name(first) == fold_name(second)


def fold_name(name: str) -> str:
    """Removes the differences of spellings: `orderStatus`, `order-status` and `Order_Status` are one name."""
    return _fold(name[: LONGEST + 1])


@lru_cache(maxsize=4_000)  # every name of a tool is compared with every unknown key
def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold() or name


def _one_edit_away(first: str, second: str) -> bool:
    """Says whether one letter was added, removed or changed, or two were swapped. Digits never differ."""
    short, long = sorted((fold_name(first), fold_name(second)), key=len)
    if len(long) - len(short) > 1 or len(long) > LONGEST:
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
