"""Returns every reading of a target, in the form rules are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from forge.core.context import Scope
from forge.core.spec import Permission
from forge.permissions.targets import PATHS, Opaque, hosts, paths
from forge.permissions.targets.form import TargetForm, UnreadTarget


def read_target_forms(permission: Permission | None, target: str, scope: Scope) -> list[TargetForm]:
    """Returns the readings: the real path, each command of a line, the host of a URL."""
    if not target:
        return [TargetForm()]  # only rules without a target apply
    if isinstance(target, Opaque):
        names_it = target.is_whole_number and permission in (None, Permission.EXECUTE)
        return [_TextTarget(target) if names_it else UnreadTarget()]
    if permission in PATHS:
        return list(_path_forms(target, scope))
    if permission is Permission.EXECUTE:
        from forge.permissions.command_forms import read_command_forms  # loads what reads shell lines

        return list(read_command_forms(target, scope))
    if permission is Permission.NETWORK:
        return [_HostTarget(target)]
    return [_TextTarget(target)]


class _TextTarget(TargetForm):
    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if generous and fnmatchcase(paths.fold(self.text), paths.fold(pattern)):
            return True
        return fnmatchcase(self.text, pattern)

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


def _path_forms(target: str, scope: Scope) -> Iterator[TargetForm]:
    if len(target) > paths.LONGEST:
        yield UnreadTarget()
        return
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        yield _PathTarget(path, around)
