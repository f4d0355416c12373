"""Errors that tools raise, in words a model can act on.

ToolError                 raise it inside a tool; it reaches the model as written
  Waiting                 not now: the call is run again when what it waits for is there
DefinitionError           a tool that cannot be defined: said once, where it is defined
  DuplicateToolError      two tools want the same name
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class ErrorKind(StrEnum):
    """Says who has to act on a failure: the caller, the person, or the tool's author."""

    VALIDATION = "validation_error"
    USER = "user_error"
    SYSTEM = "system_error"
    PERMISSION = "permission_error"
    SECURITY = "security_error"
    NOT_FOUND = "not_found"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    CONFIG = "config_error"
    CANCELLED = "cancelled"


class ToolError(Exception):
    """Raise this inside a tool to report a failure the model can recover from.

    `passing=True` says that nothing happened and the same call may work in a moment: only such failures are retried.
    """

    def __init__(
        self,
        message: str,
        kind: ErrorKind | str = ErrorKind.USER,
        suggestion: str = "",
        *,
        passing: bool = False,
    ) -> None:
        self.message = message
        self.kind = kind if type(kind) is ErrorKind else ErrorKind(kind)
        self.suggestion = suggestion
        self.passing = passing
        if suggestion:
            self.add_note(suggestion)  # a traceback shows it, too

    def __str__(self) -> str:
        return self.message


class Waiting(ToolError):
    """The call needs an event outside before it can continue: its run may be stored, and the call runs again later.

    `what` describes the event as data. Nothing happened yet, and the model sees nothing.
    """

    def __init__(self, message: str, **what: Any) -> None:
        super().__init__(message, ErrorKind.USER, "The run goes on once it is there.")
        self.what = what


class DefinitionError(TypeError):
    """A tool cannot be made of this; the message says what to write instead."""


class DuplicateToolError(DefinitionError):
    """Two tools want the same name."""
