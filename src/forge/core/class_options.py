"""Reads options that a class states as attributes: `name = "deploy"`, `requires_confirmation = True`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forge.core.arguments.spelling import close_names
from forge.core.errors import DefinitionError
from forge.core.spec import ToolOptions, ToolSpec, ToolTraits, collect_values

OPTIONS = frozenset({*ToolOptions.__annotations__, *ToolTraits.__annotations__})
_OTHER_NAMES = {"requires_confirmation": "confirm", "suppress_execution_animation": "animate"}
_OPPOSITES = frozenset({"suppress_execution_animation"})
_DEFAULT = ToolSpec(name="default", description="", parameters={})
_SAFETY = ("requires_confirmation", "confirm", "permissions", "isolate", "timeout", "description", "strict")
_OWN = frozenset({"name", "aliases", "description", "description_file", "harmless"})
_SHORTEST_MISSPELT = 6  # characters
_NEVER = {
    "parameters": "they are the parameters of `run`; for your own schema use Tool.from_schema",
    "schema": "it is made from the parameters of `run`; for your own schema use Tool.from_schema",
}


def class_options(made: type, base: type) -> dict[str, Any]:
    """Returns the options of the class and its bases, the class first, without those of `base`."""
    found: dict[str, Any] = {}
    for owner in made.__mro__:
        if owner in base.__mro__:
            continue
        for key, value in own_options(owner, is_tool=issubclass(owner, base)).items():
            found[key] = found.get(key, False) or value if key == "confirm" else found.get(key, value)
    return found


def inherited_options(made: Any, run: Any) -> dict[str, Any]:
    """Returns the options that were given with the classes above, the nearest first, where they fit the new `run`.

    A name, an alias and a description belong to the class that has them, and so do the parameters that are harmless.
    """
    found: dict[str, Any] = {}
    for owner in made.__mro__[1:]:
        given = owner._given_options if "_given_options" in vars(owner) else {}
        for key, value in given.items():
            found[key] = found.get(key, False) or value if key == "confirm" else found.get(key, value)
    taken = getattr(getattr(run, "__code__", None), "co_varnames", ())
    if "argument_aliases" in found:
        found["argument_aliases"] = {key: name for key, name in found["argument_aliases"].items() if name in taken}
    return {key: value for key, value in found.items() if key not in _OWN}


def own_options(owner: type, *, is_tool: bool = True) -> dict[str, Any]:
    """Returns the options of the class itself. Raises `DefinitionError` for an attribute that would be ignored."""
    found: dict[str, Any] = {}
    for key, value in vars(owner).items():
        option = _OTHER_NAMES.get(key, key)
        is_code = callable(value) or hasattr(value, "__get__")
        if is_code and key == "reconcile":  # a method: the class says it
            continue
        if is_tool and key in _NEVER and not is_code and "run" in vars(owner):
            raise DefinitionError(f"class {owner.__name__}: `{key}` is not read; {_NEVER[key]}")
        if option not in OPTIONS:
            if is_tool and not is_code and (meant := _find_misspelt(key)):
                raise DefinitionError(
                    f"class {owner.__name__}: `{key}` is not read; did you mean `{meant}`? If it is for your own use, "
                    f"call it `_{key}`"
                )
            continue
        if is_code:
            if not is_tool:
                continue
            raise DefinitionError(
                f"class {owner.__name__}: `{key}` must be known before an object exists; write it as a value, "
                f"{key} = …, or give the object a spec: self.spec = self.spec.changed({option}=…)"
            )
        found[option] = not value if key in _OPPOSITES else value
    return found


def _find_misspelt(key: str) -> str:
    """Returns the option that an attribute probably misspells: a tool that wants confirmation must not run without."""
    if key.startswith("_") or len(key) < _SHORTEST_MISSPELT:
        return ""
    return next(iter(close_names(key, _SAFETY, False)), "")


def with_attributes(spec: ToolSpec, stated: Mapping[str, Any], own: Mapping[str, Any]) -> ToolSpec:
    """Adds to the spec of an object the options that its class (`stated`) and the object (`own`) state.

    Raises `DefinitionError` where the two disagree about the name.
    """
    name = own.get("name", stated.get("name"))
    if isinstance(name, str) and name != spec.name:
        raise DefinitionError(f"tool {spec.name!r}: an attribute gives it the name {name!r}; keep one of the two")
    changes: dict[str, Any] = {}
    for key in stated.keys() - {"name", "description", "description_file"}:
        if key in ("permissions", "optional_permissions"):
            changes[key] = getattr(spec, key) | collect_values(f"tool {spec.name!r}", key, stated[key])
        elif getattr(spec, key) == getattr(_DEFAULT, key):
            changes[key] = stated[key]
    if own.get("requires_confirmation") is True:
        changes["confirm"] = True
    return spec.changed(**changes) if changes else spec
