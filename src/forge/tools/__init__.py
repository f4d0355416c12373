"""Holds the built-in tools: one tool or one small family per file; a new file registers itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType

from forge.core.registry import ToolRegistry
from forge.core.spec import Category, ToolSpec
from forge.core.tool import Tool

__all__ = ["GROUPS", "built_ins", "register_all", "tool_group"]

GROUPS = {
    "search": frozenset({"search", "read", "code-agent"}),
    "read": frozenset({"read", "code-agent"}),
    "write": frozenset({"write", "code-agent"}),
    "code-agent": frozenset({"code-agent"}),
    "code-mode": frozenset({"code-mode"}),
}
"""The labels of each group's tools. `search` is part of `read`; `read` and `write` are parts of `code-agent`."""


def register_all(registry: ToolRegistry) -> None:
    """Adds every built-in tool except development tools and the groups `code-agent` and `code-mode`, which are opt-in.

    Tools of that group with the label `default` are added too.

    Args:
        registry: receives the tools.

    Example:
        >>> registry = ToolRegistry()
        >>> register_all(registry)
        >>> "math_calculate" in registry
        True
    """
    registry.add(*(tool for tool in built_ins(registry) if _is_default(tool.spec)))


def tool_group(name: str) -> list[Tool]:
    """Returns new instances of a group's built-in tools.

    Args:
        name: the group, such as "read" or "code-agent".

    Example:
        >>> "file_read" in [one.spec.name for one in tool_group("code-agent")]
        True
    """
    if name not in GROUPS:
        raise ValueError(f"unknown group {name!r}; known groups: {', '.join(GROUPS)}")
    return [tool for tool in built_ins(ToolRegistry()) if name in tool.spec.groups]


def built_ins(registry: ToolRegistry) -> Iterator[Tool]:
    """Yields every tool of this folder: decorated functions, and classes with their default settings."""
    from pkgutil import iter_modules  # here: an agent with its own tools alone needs none of it

    names: set[str] = set()
    for module in iter_modules(__path__, f"{__name__}."):
        if module.name.rpartition(".")[2].startswith("_"):
            continue
        for tool in _tools_of(import_module(module.name), registry):
            if tool.spec.name not in names:
                names.add(tool.spec.name)
                yield tool


def _is_default(spec: ToolSpec) -> bool:
    if spec.category is Category.DEV:
        return False
    return not spec.groups & {"code-agent", "code-mode"} or "default" in spec.groups


def _tools_of(module: ModuleType, registry: ToolRegistry) -> Iterator[Tool]:
    for item in list(vars(module).values()):
        if isinstance(item, Tool):
            yield item
        elif isinstance(item, type) and issubclass(item, Tool) and item.__module__ == module.__name__:
            make: Callable[..., Tool] = item
            yield make(registry) if "registry" in getattr(item.__init__, "__annotations__", ()) else make()
