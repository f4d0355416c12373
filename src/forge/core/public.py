"""The public names of a package, loaded when they are used.

A package imports them under `if TYPE_CHECKING:`, for editors and type checkers, and says `expose(__name__)` otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any

_EXTRAS = {"forge.durable.": "durable"}  # names of these modules need an extra that a base install does not have


def expose(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of the package that calls it. `__all__` has the names that are installed."""
    code, space = sys._getframe(1).f_code, sys.modules[package].__dict__

    def get(name: str) -> Any:
        if name == "__all__":
            return _installed(code)
        try:
            module = _find_homes(code)[name]
        except KeyError:
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        value = space[name] = getattr(import_module(module), name)
        return value

    return get, lambda: [*space, "__all__", *_installed(code)]


@cache
def _find_homes(code: CodeType) -> dict[str, str]:
    """Returns the module of every public name: reads the imports of a package, which never run, from its code."""
    from dis import get_instructions  # `import forge` does without

    homes: dict[str, str] = {}
    module = ""
    for step in get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
        elif step.opname == "IMPORT_FROM" and module.startswith("forge.") and module != __name__:
            homes[step.argval] = module
    return homes


def _installed(code: CodeType) -> list[str]:
    """Looked up each time: a package may be installed meanwhile, and `import forge` does without."""
    from forge.core.extras import is_installed

    missing = tuple(prefix for prefix, extra in _EXTRAS.items() if not is_installed(extra))
    return sorted(name for name, module in _find_homes(code).items() if not module.startswith(missing))
