"""How programs and the like end with their session: whoever starts one says here how it is ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

End = TypeVar("End", bound=Callable[[str], None])

_ends: list[Callable[[str], None]] = []


def at_session_end(end: End) -> End:
    """A decorator for the function that ends what its module started for a session."""
    _ends.append(end)
    return end


def end_started(session_id: str) -> None:
    """End everything that calls of this session started and that outlives them: jobs, programs left running."""
    if not session_id:
        raise ValueError("end_started needs the name of a session: an empty one would mean all of them")
    for end in _ends:
        end(session_id)
