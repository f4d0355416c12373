"""Takes arguments out of a wrapper that is no parameter of the tool: `{"arguments": {…}}`, `{"input": {…}}`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from forge.core.arguments.names import fold_name
from forge.core.arguments.spellings import is_written, read_written
from forge.core.spec import ToolSpec

_WRAPPERS = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "inputs",
    "kwargs",
    "tool_input",
    "function_args",
    "action_input",
    "toolInput",
    "functionArgs",
    "actionInput",
]
CALLS = frozenset({"function", "function_call", "tool_call", "functionCall", "toolCall"})  # around a name and arguments
WRAPPERS = frozenset((*_WRAPPERS, *map(str.capitalize, _WRAPPERS), *map(str.upper, _WRAPPERS)))
WRAPPERS_AND_CALLS = WRAPPERS | CALLS
DEEPEST_WRAPPERS = 3  # wrappers inside each other
_TOOL_NAMES = frozenset({"name", "tool", "toolname", "function", "functionname", "action"})
_TOOL_KINDS = {"type": ("function", "tool_use", "function_call", "tool_call")}


def unwrap(
    data: Mapping[str, Any], known: Collection[str], spec: ToolSpec, deepest: int = DEEPEST_WRAPPERS
) -> tuple[str, dict[str, Any]] | None:
    """Returns the wrapper's key and the arguments in it; None if there is no wrapper, or more than one.

    `known` are the tool's parameters. Beside the wrapper, only the name of this very tool may stand.
    """
    if len(data) > 3 or WRAPPERS_AND_CALLS.isdisjoint(data):
        return None
    spellings = _fold_names((*known, *spec.argument_aliases))
    wrappers = [key for key, value in data.items() if _is_wrapper(key, value) and fold_name(key) not in spellings]
    if len(wrappers) != 1 or not all(_names_tool(key, data[key], spec) for key in data if key != wrappers[0]):
        return None
    inner = data[wrappers[0]]
    if isinstance(inner, str) and is_written(inner) and "encoding" in spec.allowed_repairs:
        inner = read_written(inner)
    if not isinstance(inner, dict):
        return None
    deeper = unwrap(inner, known, spec, deepest - 1) if deepest > 1 else None
    if deeper is not None or wrappers[0] in CALLS:
        return deeper
    return wrappers[0], inner


def _is_wrapper(key: str, value: Any) -> bool:
    return key in WRAPPERS or (key in CALLS and isinstance(value, dict))


def are_all_known(inner: Mapping[str, Any], known: Collection[str], spec: ToolSpec) -> bool:
    """Returns whether every key is a parameter of the tool, in any spelling."""
    spellings = _fold_names((*known, *spec.argument_aliases))
    return all(fold_name(key) in spellings for key in inner)


def _fold_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(fold_name, names))


def _names_tool(key: str, value: Any, spec: ToolSpec) -> bool:
    folded = fold_name(key)
    if folded in _TOOL_KINDS:
        return value in _TOOL_KINDS[folded]
    return folded in _TOOL_NAMES and value in (spec.name, *spec.aliases)
