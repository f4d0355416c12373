"""Writes the public signatures of `forge`, one a line, so that a test sees when one changes: `make signatures`."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_origin

PUBLIC_MODULES = (
    "forge",
    "forge.agent",
    "forge.channels",
    "forge.evaluation",
    "forge.events",
    "forge.mcp",
    "forge.memory",
    "forge.models",
    "forge.permissions",
    "forge.pipeline",
    "forge.schedules",
    "forge.skills",
)
FILE = Path(__file__).parents[1] / "tests" / "public_signatures.txt"
_FORWARD = re.compile(r"ForwardRef\('([^']*)'(?:, [^)]*)?\)")  # a Python before 3.14 shows annotations so
_ADDRESS = re.compile(r"<(?:function|class|bound method) '?([\w.<>]+)'?(?: at 0x[0-9a-f]+)?>| at 0x[0-9a-f]+")


def signatures() -> list[str]:
    """Returns every public name with its parameters, and the public members of every public class, sorted."""
    return sorted({line for name, value in public_names().items() for line in _lines(name, value)})


def public_names() -> dict[str, Any]:
    """Returns every public object with the name by which it is imported: `forge.Agent`, `forge.mcp.Stdio`.

    What the subpackage has in common with `forge` counts once, in `forge`.
    """
    found: dict[str, Any] = {}
    for module in map(import_module, PUBLIC_MODULES):
        known = {id(value) for value in found.values()}
        names = {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
        found |= {name: value for name, value in names.items() if id(value) not in known}
    return found


def breaking_changes(old: list[str], new: list[str]) -> list[str]:
    """Returns the old lines that are gone or read differently now."""
    return sorted(set(old) - set(new))


def recorded() -> list[str]:
    """Returns the lines that were recorded last."""
    return FILE.read_text(encoding="utf-8").splitlines()


def _lines(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, type) or not issubclass(value, enum.Enum):
        yield from _settings_lines(value)
    if not isinstance(value, type):
        kind = type(value).__name__.removesuffix("Type")  # `X | Y` is a UnionType before Python 3.14, then a Union
        yield f"{name}{_signature(value)}" if callable(value) else f"{name}: {kind}"
        return
    if issubclass(value, enum.Enum):
        yield from (f"{name}.{one.name} = {one.value!r}" for one in value)
        return
    yield f"{name}{_signature(value)}"
    for owner in (one for one in value.__mro__ if one.__module__.startswith("forge")):
        for member, found in vars(owner).items():
            if member.startswith("_"):
                continue
            if isinstance(found, property):
                yield f"{name}.{member}: property"
            elif callable(plain := getattr(found, "__func__", found)) and not isinstance(plain, type):
                yield f"{name}.{member}{_signature(plain)}"
                yield from _settings_lines(plain)


def settings_of(value: Any) -> dict[str, str]:
    """Returns the names and types of the parameters that a function takes by `**settings: Unpack[…]`."""
    known = _typed_dict_of(value)
    hints = known.__annotations__ if known is not None else {}
    return {key: getattr(one, "__forward_arg__", str(one)) for key, one in hints.items()}


def _settings_lines(value: Any) -> Iterator[str]:
    known = _typed_dict_of(value)
    for key, kind in settings_of(value).items():
        yield f"{known.__name__ if known is not None else ''}: {key}: {kind}"


def _typed_dict_of(value: Any) -> type | None:
    function = vars(value).get("__init__") if isinstance(value, type) else value
    for annotation in getattr(function, "__annotations__", {}).values():
        if found := re.fullmatch(r"Unpack\[(\w+)\]", str(annotation)):
            made: type = getattr(sys.modules[function.__module__], found[1])
            return made
    return None


def _signature(value: Any) -> str:
    if get_origin(value) is not None or getattr(value, "_is_protocol", False):  # differs between Pythons
        return ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):  # an alias of a type
        return ""
    return _FORWARD.sub(r"\1", _ADDRESS.sub(lambda found: found[1] or "", text))


def main() -> int:
    lines = signatures()
    old = recorded() if FILE.exists() else []
    for line in breaking_changes(old, lines):
        print(f"gone or changed: {line}")
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} signatures written to {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
