"""Transfers context variables to the process of an isolated call, so that they hold there too: the egress rules.

Each variable is known by the module that defines it, which the other process imports. The core imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any

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
