"""What is kept of a line that is too long to be read: enough to answer it under its own id."""

from __future__ import annotations

import json
import re
from typing import Any

EDGE = 4 * 1024  # bytes of its beginning and of its end
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|-?[0-9]{1,1000})'
_MEMBER = rf'"(?:id|name)"\s*:\s*{_VALUE}'
_FIRST = re.compile(rf"\s*\{{((?:\s*{_MEMBER}\s*,){{1,2}})")
_LAST = re.compile(rf"((?:,\s*{_MEMBER}\s*){{1,2}})\}}\s*\Z")


class TooLong:
    """The beginning and the end of a line; the rest is not kept."""

    def __init__(self, beginning: bytes) -> None:
        self.first = beginning[:EDGE]
        self.last = beginning[-EDGE:]

    def add(self, part: bytes) -> None:
        self.last = (self.last + part[-EDGE:])[-EDGE:]

    def named(self) -> dict[str, Any]:
        """Its id and name, where they stand before or after the arguments, at the top of the object."""
        first = _FIRST.match(self.first.decode(errors="replace").removeprefix("\ufeff"))
        last = _LAST.search(self.last.decode(errors="replace"))
        found: dict[str, Any] = {}
        for members in (first[1] if first else "", last[1] if last else ""):
            found |= _object(members)
        return found


def _object(members: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(f"{{{members.strip().strip(',')}}}")
    except ValueError:
        return {}
    return read
