"""Tracks the calls that may still run in this process, after their attempts were given up, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind
from forge.core.result import ToolResult
from forge.core.tool import Tool
from forge.durable.engine.attempt import Attempt

CallKey = tuple[str, int, str]
"""A run, a segment, and the id of a call."""

_open_calls: dict[CallKey, set[str]] = {}
"""Calls that may still run in this process, with the attempts that run them. One whose task was cancelled stays: its
thread cannot be stopped.
"""


def is_open(attempt: Attempt, ctx: ToolContext) -> bool:
    """Returns True if an attempt of this process may still run the call."""
    return (attempt.run.id, attempt.run.segment, ctx.call.id) in _open_calls


@contextmanager
def track_call(attempt: Attempt, ctx: ToolContext) -> Iterator[TrackedCall]:
    """Notes as long as a call may run in this process, also after its attempt was given up."""
    tracked = TrackedCall((attempt.run.id, attempt.run.segment, ctx.call.id), attempt.token)
    if not cast(Tool, ctx.tool).reconciles:
        yield tracked
        return
    calls = _open_calls.setdefault(tracked.key, set())
    calls.add(tracked.token)  # before its intent is stored: another attempt may see the intent at once
    yield tracked  # an exception from outside leaves it open
    if tracked.has_ended:
        calls.discard(tracked.token)
        if not calls and _open_calls.get(tracked.key) is calls:
            del _open_calls[tracked.key]


@dataclass(slots=True, eq=False)
class TrackedCall:
    """A call in this process. `token` is the attempt that runs it."""

    key: CallKey
    token: str
    has_ended: bool = False

    def end(self, result: ToolResult) -> ToolResult:
        """Returns the result. A call that ran out of time, or continues in the background, has not ended with it."""
        is_late = result.failure is not None and result.failure.kind in (ErrorKind.TIMEOUT, ErrorKind.CANCELLED)
        self.has_ended = not is_late and not result.pending
        return result
