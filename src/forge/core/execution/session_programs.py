"""Programs of a session: they end with it, and get the context variables of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

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


# Transfers the context variables of a call to another process, by the module that defines them.


_variables: dict[str, ContextVar[Any]] = {}
_UNSET = object()


def register_variable(module: str, variable: ContextVar[Any]) -> None:
    """Registers a variable whose value, which must be picklable, is also set in the process of an isolated call."""
    _variables[module] = variable


def capture_context() -> dict[str, Any]:
    """Returns the values that are set around this call, by module."""
    values = {module: variable.get(_UNSET) for module, variable in _variables.items()}
    return {module: value for module, value in values.items() if value is not _UNSET}


def restore_context(values: Mapping[str, Any]) -> None:
    """Sets the values in this context."""
    for module, value in values.items():
        import_module(module)
        _variables[module].set(value)
