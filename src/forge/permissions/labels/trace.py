"""The origin of a value in a call, for people and for rules."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Trace(NamedTuple):
    """The origin of a value in a call's arguments.

    Args:
        argument: the argument that holds the value.
        value: the value.
        kind: "untrusted" or "private".
        origin: where the text comes from.
        quote: the words around the value; the value is between « and ».
        returns: True: the value is an address of the very host that the text comes from.

    Example:
        >>> Trace("to", "eve@example.com", "untrusted", "inbox", "write to «eve@example.com»").origin
        'inbox'
    """

    argument: str
    value: str
    kind: str
    origin: str
    quote: str = ""
    returns: bool = False

    def __str__(self) -> str:
        words = f": “{self.quote}”" if self.quote else ""
        return f"{self.argument} comes from {self.kind} text of {self.origin}{words}"

    def comes_from(self, pattern: str) -> bool:
        """Says whether its origin matches a pattern: the tool, the host, the server or the path."""
        pattern = pattern.lower()
        return any(fnmatchcase(word, pattern) for word in (self.origin.lower(), *self.origin.lower().split()))
