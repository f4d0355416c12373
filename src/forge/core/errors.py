"""Errors that tools raise, in words a model can act on.

ToolError                 raise it inside a tool; it reaches the model as written
  Waiting                 not yet: the call runs again when the event it waits for has happened
  Retry                   raise it inside an output validator; the model gets the words and answers again
DefinitionError           a tool cannot be defined; raised where it is defined
  DuplicateToolError      two tools want the same name
"""

from __future__ import annotations

import dis
from enum import StrEnum
from typing import Any, TypeVar

Cancelled = TypeVar("Cancelled", bound=BaseException)
Done = TypeVar("Done")


class ErrorKind(StrEnum):
    """The kind of a failure: it says who has to act, the caller, the person or the tool's author.

    Example:
        >>> ErrorKind.PERMISSION == "permission_error"
        True
    """

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
    """Raise this inside a tool to report a failure that the model can recover from.

    Args:
        message: what went wrong. The model reads it.
        kind: who has to act.
        suggestion: what to do next. The model reads it too.
        passing: True: nothing happened, and the same call may work in a moment. Only such failures are retried.

    Example:
        >>> @tool
        ... def find_user(number: int) -> str:
        ...     "Find a user."
        ...     raise ToolError(f"there is no user {number}", ErrorKind.NOT_FOUND, "List the users first.")
        >>> print(asyncio.run(Agent(None, tools=[find_user]).call("find_user", {"number": 7})).for_llm)
        find_user(number=7): there is no user 7
        List the users first.
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
            self.__notes__ = [suggestion]  # a traceback shows it, too; `add_note` costs twice as much

    def __str__(self) -> str:
        return self.message


class Waiting(ToolError):
    """A call needs an event outside before it can continue: its run may be stored, and the call runs again later.

    Nothing happened yet, and the model sees nothing.

    Args:
        message: what the call waits for.
        what: the event as data.

    Example:
        >>> Waiting("it waits for the payment", kind="payment", order=7).what
        {'kind': 'payment', 'order': 7}
    """

    def __init__(self, message: str, **what: Any) -> None:
        super().__init__(message, ErrorKind.USER, "The run continues when it is available.")
        self.what = what


class Retry(ToolError):
    """Raise this inside an output validator: the model gets the message and answers again, at most three times.

    In a tool it is a failure like any `ToolError`.

    Args:
        message: what is wrong with the answer. The model reads it.

    Example:
        >>> agent = Agent(Scripted("7", "8"), output=int)
        >>> @agent.output_validator
        ... def check(value: int) -> int:
        ...     if value % 2:
        ...         raise Retry("The number must be even.")
        ...     return value
        >>> agent.run_sync("A number?").output
        8
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorKind.VALIDATION)


class DefinitionError(TypeError):
    """A tool cannot be made of this; the message says what to write instead.

    Example:
        >>> @tool
        ... def greet(name):
        ...     "Greet somebody."
        Traceback (most recent call last):
        forge.core.errors.DefinitionError: tool 'greet': parameter 'name' has no type; write for example `name: str`
    """


class DuplicateToolError(DefinitionError):
    """Two tools want the same name. `registry.add(tool, replace=True)` replaces the first.

    Example:
        >>> @tool(name="task_completion")
        ... def finish(text: str) -> str:
        ...     "Finish."
        ...     return text
        >>> Agent(None, tools=[finish])
        Traceback (most recent call last):
        ...
        forge.core.errors.DuplicateToolError: ...
    """


# Tells a person's Ctrl-C from a `KeyboardInterrupt` that code raised.


def is_interrupt(error: BaseException) -> bool:
    """Returns whether the error came from outside: a person pressed Ctrl-C, or the coroutine is being closed."""
    return isinstance(error, KeyboardInterrupt | GeneratorExit) and not _raised_by_code(error)


def _raised_by_code(error: BaseException) -> bool:
    """Returns whether a `raise` statement is the origin; a signal interrupts any running instruction."""
    import signal

    trace = error.__traceback__
    handler = getattr(signal.getsignal(signal.SIGINT), "__code__", None)  # a program's own may raise, too
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        if trace.tb_frame.f_code is handler:
            return False
    if trace is None:
        return True
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


class UntilThen:
    """Holds what a cancelled call had done, as an argument of its `CancelledError`. A traceback shows nothing of it."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def add_until_then(error: Cancelled, value: object) -> Cancelled:
    """Returns a cancellation that carries what was done until then, instead of what it carried before."""
    others = [one for one in error.args if not isinstance(one, UntilThen)]
    return type(error)(*others, UntilThen(value))


def find_until_then(error: BaseException, kind: type[Done]) -> Done | None:
    """Returns what a cancelled call had done; None where the error carries nothing of this type."""
    found = (one.value for one in error.args if isinstance(one, UntilThen))
    return next((value for value in found if isinstance(value, kind)), None)
