"""What surrounds a call and goes along into another process: context variables, by the module they are found in."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any

_variables: dict[str, ContextVar[Any]] = {}
_UNSET = object()


def register_variable(module: str, variable: ContextVar[Any]) -> None:
    """Its value, which must be one that can be pickled, holds in the process of an isolated call as it does here."""
    _variables[module] = variable


def capture_context() -> dict[str, Any]:
    """The values that are set around this call, by module."""
    values = {module: variable.get(_UNSET) for module, variable in _variables.items()}
    return {module: value for module, value in values.items() if value is not _UNSET}


def restore_context(values: Mapping[str, Any]) -> None:
    """Set them here, for what follows."""
    for module, value in values.items():
        import_module(module)
        _variables[module].set(value)
