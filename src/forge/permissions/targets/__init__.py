"""Finds the targets in a call's arguments, and the permissions it asks for on them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Any

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions.targets import paths

PATHS = frozenset({Permission.READ, Permission.WRITE})


class Opaque(str):
    """A target that is not text: its JSON, for people. Its effect is not known, except that of a whole number."""

    __slots__ = ()

    @property
    def is_whole_number(self) -> bool:
        """Says whether rules can name it: `allow execute 7` for order 7. As a path or host a number means nothing."""
        return self.removeprefix("-").isdecimal()


def find_requests(
    spec: ToolSpec, arguments: Mapping[str, Any], tool: object = None, scope: Scope | None = None
) -> list[tuple[Permission | None, str]]:
    """Returns the permissions a call asks for before it runs: each declared one (else None) on every target.

    The targets of a tool that declares none belong to its optional permissions: a call that names a target asks for
    them at once. A call of which the tool says that it touches nothing asks for nothing. A tool that knows better
    names its requests itself, where the call's `scope` is known.
    """
    say = getattr(type(tool), "wants", None)
    requests = say(tool, arguments, scope) if say is not None and scope is not None else None
    if requests is not None:
        return list(dict.fromkeys(requests))
    if own_targets(arguments, tool) == []:
        return [(None, "")]
    targets = targets_of(spec, arguments, tool)
    named = [target for target in targets if target]
    if named and spec.optional_permissions and not spec.permissions:
        return [(permission, target) for permission in sorted(spec.optional_permissions) for target in named]
    permissions: Sequence[Permission | None] = sorted(spec.permissions) or (None,)
    return [(permission, target) for permission in permissions for target in targets]


def targets_of(spec: ToolSpec, arguments: Mapping[str, Any], tool: object = None) -> list[str]:
    """Returns the targets that the tool names, or else the texts in its target parameters, each element of a list on
    its own; one empty text if there is none.

    Of a parameter that was left out, the default that the schema promises. Values that are no texts are `Opaque`.
    """
    own = own_targets(arguments, tool)
    if own is not None:
        return list(dict.fromkeys(own)) or [""]
    texts = (text for name in spec.targets for text in _texts(_value(spec, arguments, name)))
    return list({(type(text), text): text for text in texts}.values()) or [""]


def own_targets(arguments: Mapping[str, Any], tool: object) -> list[str] | None:
    """Returns the targets that the tool itself names: none, if the list is empty; None where it does not say."""
    say = getattr(type(tool), "targets", None)  # of the class: an instance may have something else by that name
    found: list[str] | None = say(tool, arguments) if say is not None else None
    return found


def identity(permission: Permission | None, target: str, scope: Scope) -> Hashable:
    """Returns the current meaning of a target: it differs as soon as a link on the way leads elsewhere."""
    if isinstance(target, Opaque):
        return Opaque, target
    if permission not in PATHS or not target or len(target) > paths.LONGEST:
        return target
    return frozenset(paths.spellings(target, paths.roots(str(scope.workspace))[0]))


def _value(spec: ToolSpec, arguments: Mapping[str, Any], name: str) -> Any:
    if (value := arguments.get(name)) is not None:
        return value
    schema = (spec.parameters.get("properties") or {}).get(name)
    return schema.get("default") if isinstance(schema, Mapping) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield _text(item)
    elif value is not None:
        yield _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    return str(value) if isinstance(value, PurePath) else Opaque(_to_text(value))


def _to_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of several types, cyclic, or too deep
        return f"a value of type {type(value).__name__}"
