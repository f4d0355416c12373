"""Writes the turns of a scripted model: `Scripted(calls("file_read", path="a.txt"), says("Done."))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.errors import ErrorKind
from forge.core.messages import ToolCall
from forge.core.provider import ProviderError
from forge.models.scripted import ReplyPart


def says(*parts: str | ToolCall) -> list[ReplyPart]:
    """One turn: a text, and calls with it. `says("Let me look.", calls("file_read", path="a.txt"))`."""
    for part in parts:
        if not isinstance(part, str | ToolCall):
            raise TypeError(f"says({part!r}): expected texts and calls; `fails(…)` is a separate turn")
    if not parts:
        raise TypeError("says(): pass a text or a call; for a model that says nothing, pass an empty text")
    return list(parts)


def calls(name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> ToolCall:
    """A call with its arguments by name, or as they are: an object, or a text such as JSON that is broken."""
    if isinstance(arguments, str):
        if named:
            raise TypeError(f"calls({name!r}, …): if the arguments are a text, no others can be passed")
        return ToolCall(name, arguments)
    return ToolCall(name, {**(arguments or {}), **named})


def fails(
    message: str = "overloaded",
    kind: ErrorKind | str = ErrorKind.SYSTEM,
    *,
    passing: bool = False,
    status: int = 0,
) -> ProviderError:
    """A turn in which the model cannot be reached. `passing`: a retry may succeed; `status`: the HTTP status."""
    return ProviderError(message, kind, passing=passing, status=status)
