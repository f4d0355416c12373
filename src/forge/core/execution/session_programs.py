"""Ends what the calls of a session started and left running, such as jobs, when the session ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

End = TypeVar("End", bound=Callable[[str], None])
Owners = Callable[[], Iterable[str]]

_ends: list[tuple[Callable[[str], None], Owners]] = []


def at_session_end(owners: Owners) -> Callable[[End], End]:
    """Registers a function that ends what its module started for a session; `owners` lists the sessions."""

    def register(end: End) -> End:
        _ends.append((end, owners))
        return end

    return register


def end_started(session_id: str) -> None:
    """Ends everything that calls of this session started and that outlives them: jobs, running programs."""
    if not session_id:
        raise ValueError("end_started needs the name of a session: an empty name would mean all sessions")
    for end, _ in _ends:
        end(session_id)


def sessions_with_programs() -> set[str]:
    """Returns the sessions for which `end_started` has something to do."""
    return {session for _, owners in _ends for session in owners()}
