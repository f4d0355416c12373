"""The answer to the question whether a call of a lost worker took effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

ReconciledState = Literal["done", "not_done", "unknown"]


class Reconciled(NamedTuple):
    """Answers whether a call took effect, after the worker that ran it was lost.

    Args:
        state: "done", "not_done" or "unknown".
        result: the result of a call that was done: what the tool would have returned.
        reason: how this is known, or why it is not. People and the event log see it.
        final: of "not_done": the call cannot take effect any more, even if the worker that began it still runs. Without
            it, Forge repeats the call only if the process of that worker has certainly ended.

    Example:
        >>> def find_transfer(key: str, arguments: dict[str, object]) -> Reconciled:
        ...     sent = {"run-1/run-1.2/call-7": "receipt 12"}  # ask the bank
        ...     return Reconciled.done(sent[key]) if key in sent else Reconciled.not_done()
        >>> find_transfer("run-1/run-1.2/call-7", {}).state, find_transfer("other", {}).state
        ('done', 'not_done')
    """

    state: ReconciledState
    result: Any = None
    reason: str = ""
    final: bool = False

    @classmethod
    def done(cls, result: Any = None, reason: str = "") -> Reconciled:
        """The call took effect, once. `result` is what the tool would have returned."""
        return cls("done", result, reason)

    @classmethod
    def not_done(cls, reason: str = "", *, final: bool = False) -> Reconciled:
        """The call took no effect, and no request of it is under way: it may run."""
        return cls("not_done", None, reason, final)

    @classmethod
    def unknown(cls, reason: str = "") -> Reconciled:
        """It cannot be found out: the call does not run, and the model learns that its state is unknown."""
        return cls("unknown", None, reason)


Reconcile = Callable[..., Reconciled | Awaitable[Reconciled]]
"""A function of the call's key and arguments, and of its `ToolContext` if it has a third parameter. It changes
nothing.
"""
