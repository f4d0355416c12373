"""Checks the dependencies of a run against the types that tools declare with `ToolContext[Deps]`."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from forge.core.errors import ErrorKind, ToolError

HOW = "Pass it to the run: agent.run(prompt, deps=…); without an agent: Scope(deps=…)."


def declared_type(hint: Any, context_type: type) -> Any:
    """Returns the type in `ToolContext[Db]`; None where an annotation declares no type."""
    for part in (hint, *get_args(hint)):
        if get_origin(part) is context_type:
            (declared,) = get_args(part)
            return None if declared is Any or isinstance(declared, TypeVar) else declared
    return None


def check_deps(owner: str, declared: Any, deps: Any) -> None:
    """Raises `ToolError` where `deps` is missing or not of the declared type. `owner` declares it: "the tool 'a'"."""
    if is_of_type(deps, declared):
        return
    found = "the run has none" if deps is None else f"the run was given {type(deps).__name__}"
    raise ToolError(f"{owner} needs deps of type {name_type(declared)}, and {found}", ErrorKind.CONFIG, HOW)


def check_tool_deps(name: str, declared: Any, deps: Any, *, is_isolated: bool) -> None:
    """Raises `ToolError` where a run cannot give a tool the dependencies that it declares."""
    if is_isolated:
        words = f"the tool {name!r} needs deps of type {name_type(declared)}, and isolate=True runs it in a process"
        raise ToolError(f"{words} that cannot receive them", ErrorKind.CONFIG, "Remove isolate=True, or use no deps.")
    check_deps(f"the tool {name!r}", declared, deps)


def is_of_type(deps: Any, declared: Any) -> bool:
    """Says whether `deps` is of a type. Where Python cannot check the type, any value but None is accepted."""
    if declared is Any or declared is object:
        return True
    if declared is None:
        return deps is None
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(is_of_type(deps, one) for one in get_args(declared))
    if origin is Annotated:
        return is_of_type(deps, get_args(declared)[0])
    plain = origin or getattr(declared, "__supertype__", declared)
    try:
        return isinstance(deps, plain)
    except TypeError:  # such as a protocol that is not runtime-checkable, or a TypedDict
        return deps is not None


def name_type(declared: Any) -> str:
    """Returns the name of a type as a person would write it."""
    is_plain = isinstance(declared, type) and get_origin(declared) is None
    return declared.__name__ if is_plain else str(declared).replace("typing.", "")
