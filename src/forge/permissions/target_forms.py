"""Returns every reading of a target, in the form rules are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from forge.core.context import Scope
from forge.core.spec import Permission
from forge.permissions.targets import (
    PATHS,
    Opaque,
    Scalar,
    TargetForm,
    UnreadTarget,
    hosts,
    is_same_number,
    paths,
    spell_number,
)


def read_target_forms(
    permission: Permission | None, target: str, scope: Scope, arguments: Mapping[str, Any] = MappingProxyType({})
) -> list[TargetForm]:
    """Returns the readings: the real path, each command of a line, the host of a URL.

    `arguments`: of the call; a command line runs in its `working_dir`, with its `stdin`.
    """
    if not target:
        return [_MissingTarget()]
    if isinstance(target, Opaque):
        return [UnreadTarget()]
    if isinstance(target, Scalar):
        return list(_scalar_forms(permission, target, scope))
    if permission in PATHS:
        return list(_path_forms(target, scope))
    if permission is Permission.EXECUTE:
        from forge.permissions.command_forms import read_command_forms  # loads what reads shell lines

        return list(read_command_forms(target, scope, arguments))
    if permission is Permission.NETWORK:
        return [_HostTarget(target)]
    return [_TextTarget(target)]


class _MissingTarget(TargetForm):
    """The call names nothing: rules without a target apply, and a deny or ask about null."""

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous and pattern == "null"

    def surely_matches(self, pattern: str) -> bool:
        return pattern == "null"


class _TextTarget(TargetForm):
    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if generous and fnmatchcase(paths.fold(self.text), paths.fold(pattern)):
            return True
        return fnmatchcase(self.text, pattern)

    def surely_matches(self, pattern: str) -> bool:
        return self.matches(pattern, generous=True)


class _ScalarTarget(TargetForm):
    """A number, a boolean or null: named by its text, a number also by its value.

    `other` is its meaning as a path or a host.
    """

    def __init__(self, text: str, other: TargetForm | None = None) -> None:
        self.text = str(text)
        self.other = other

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if is_same_number(self.text, pattern) or fnmatchcase(self.text, pattern):
            return True
        if generous and any(fnmatchcase(paths.fold(one), paths.fold(pattern)) for one in spell_number(self.text)):
            return True
        return self.other is not None and self.other.matches(pattern, generous=generous)

    def surely_matches(self, pattern: str) -> bool:
        return self.matches(pattern, generous=True)


class _HostTarget(TargetForm):
    def __init__(self, target: str) -> None:
        self.host = hosts.read_host(target)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return hosts.covers(pattern, self.host, generous=generous)

    def surely_matches(self, pattern: str) -> bool:
        return self.host.clear and self.matches(pattern, generous=True)


class _PathTarget(TargetForm):
    def __init__(self, path: str, around: tuple[str, ...]) -> None:
        self.path = path
        self.around = around

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return paths.covers(pattern, self.path, self.around)
        return self.surely_matches(pattern) or paths.names(pattern, self.path, self.around)

    def surely_matches(self, pattern: str) -> bool:
        return paths.reaches(pattern, self.path, self.around)


def _scalar_forms(permission: Permission | None, target: Scalar, scope: Scope) -> Iterator[TargetForm]:
    if permission in PATHS:  # a tool may use the number as the name of a file
        yield from (_ScalarTarget(target, path) for path in _path_forms(target, scope))
    elif permission is Permission.NETWORK:  # 2130706433 is 127.0.0.1
        host = _HostTarget(target)
        yield _ScalarTarget(target, host if host.host.names else None)
    else:
        yield _ScalarTarget(target)


def _path_forms(target: str, scope: Scope) -> Iterator[TargetForm]:
    if len(target) > paths.LONGEST_PATH:
        yield UnreadTarget()
        return
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        yield _PathTarget(path, around)
