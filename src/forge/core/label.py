"""A label of a result: what kind of text it is, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

UNTRUSTED = "untrusted"  # others may have written it
PRIVATE = "private"  # it must not leave
KINDS = (UNTRUSTED, PRIVATE)
LONGEST_ORIGIN = 200  # characters


class Label(NamedTuple):
    """Says that a result may contain what others wrote, or what must not leave, and where the result comes from.

    Args:
        kind: "untrusted" or "private".
        origin: the tool, and the host, the server or the path.

    Example:
        >>> Label("untrusted", "web_fetch example.com").origin
        'web_fetch example.com'
    """

    kind: str
    origin: str


def read_labels(wire: Any) -> tuple[Label, ...]:
    """Reads labels from JSON, of a stored message or result. Anything unknown counts as untrusted."""
    if not isinstance(wire, list | tuple):
        return ()
    found = []
    for one in wire:
        kind, origin = one if isinstance(one, list | tuple) and len(one) == 2 else (UNTRUSTED, one)
        found.append(Label(kind if kind in KINDS else UNTRUSTED, str(origin)[:LONGEST_ORIGIN]))
    return tuple(found)


def merge_labels(*groups: Iterable[Label]) -> tuple[Label, ...]:
    """Returns each label once, in order."""
    return tuple(dict.fromkeys(label for group in groups for label in group))
