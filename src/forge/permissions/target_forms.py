"""Returns every reading of a target, in the form rules are compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Protocol

from forge.core.context import Scope
from forge.core.spec import Permission
from forge.permissions.shell import commands
from forge.permissions.shell.word_patterns import fits, is_known, may_fit
from forge.permissions.targets import PATHS, Opaque, hosts, paths


class TargetForm(Protocol):
    """One reading of a target. Rules decide about each; the strictest decision counts."""

    by_default: bool  # whether the default applies where no rule matches; a reading that only denies look at has none

    def matches(self, pattern: str, *, generous: bool) -> bool:
        """Says whether a pattern covers it. Rules that forbid or ask are generous, rules that allow take it exactly."""
        ...

    def surely_matches(self, pattern: str) -> bool:
        """Says whether a pattern surely covers it. An ask that only may cover it does not soften an earlier deny."""
        ...


def read_target_forms(permission: Permission | None, target: str, scope: Scope) -> list[TargetForm]:
    """Returns the readings: the real path, each command of a line, the host of a URL."""
    if not target:
        return [_NoTarget()]
    if isinstance(target, Opaque):
        names_it = target.is_whole_number and permission in (None, Permission.EXECUTE)
        return [_TextTarget(target) if names_it else _UnreadTarget()]
    if permission in PATHS:
        return list(_path_forms(target, scope))
    if permission is Permission.EXECUTE:
        return list(_command_forms(target, scope))
    if permission is Permission.NETWORK:
        return [_HostTarget(target)]
    return [_TextTarget(target)]


class _NoTarget:
    """There is no target: only rules without one apply."""

    by_default = True

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return False

    def surely_matches(self, pattern: str) -> bool:
        return False


class _UnreadTarget:
    """A target that cannot be read: it could hold anything forbidden, and no pattern allows it."""

    def __init__(self, *, by_default: bool = True) -> None:
        self.by_default = by_default

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous

    def surely_matches(self, pattern: str) -> bool:
        return False


class _TextTarget:
    by_default = True

    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if generous and fnmatchcase(paths.fold(self.text), paths.fold(pattern)):
            return True
        return fnmatchcase(self.text, pattern)

    def surely_matches(self, pattern: str) -> bool:
        return self.matches(pattern, generous=True)


class _HostTarget:
    by_default = True

    def __init__(self, target: str) -> None:
        self.host = hosts.read_host(target)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return hosts.covers(pattern, self.host, generous=generous)

    def surely_matches(self, pattern: str) -> bool:
        return self.host.clear and self.matches(pattern, generous=True)


class _PathTarget:
    by_default = True

    def __init__(self, path: str, around: tuple[str, ...]) -> None:
        self.path = path
        self.around = around

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return paths.covers(pattern, self.path, self.around)
        return self.surely_matches(pattern) or paths.names(pattern, self.path, self.around)

    def surely_matches(self, pattern: str) -> bool:
        return paths.reaches(pattern, self.path, self.around)


class _LineTarget:
    """A whole command line that is not literal. A pattern allows only exactly that text."""

    by_default = True

    def __init__(self, line: str) -> None:
        self.line = line.strip()
        self.words = paths.fold(commands.collapse_spaces(line))

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return fits(self.words, paths.fold(pattern)) if generous else self.line == pattern

    def surely_matches(self, pattern: str) -> bool:
        return self.matches(pattern, generous=True)


class _LiteralTarget:
    """One command of a literal line: judged on its own, and as a part of that line."""

    by_default = True

    def __init__(self, part: commands.LiteralCommand, line: _LineTarget) -> None:
        self.text = part.text
        self.line = line
        self.command = _CommandTarget(part.words, simple=True)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return fits(self.text, pattern) or self.line.matches(pattern, generous=False)
        return self.surely_matches(pattern) or self.command.matches(pattern, generous=True)

    def surely_matches(self, pattern: str) -> bool:
        folded = paths.fold(pattern)
        return (
            fits(paths.fold(self.text), folded)
            or self.line.surely_matches(pattern)
            or self.command.surely_matches(pattern)
        )


class _CommandTarget:
    """One command that a line may reach."""

    by_default = False

    def __init__(self, words: tuple[str, ...], simple: bool) -> None:
        self.words = " ".join(words)
        self.simple = simple
        self.folded = [paths.fold(word) for word in words]

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return self.simple and fits(self.words, pattern)
        return self.surely_matches(pattern) or may_fit(self.folded, paths.fold(pattern))

    def surely_matches(self, pattern: str) -> bool:
        return is_known(self.words) and fits(" ".join(self.folded), paths.fold(pattern))


class UnseenTarget(_CommandTarget):
    """A command that may start programs the line does not show: it could hold anything forbidden.

    A rule that denies something asks here, and a rule that allows the command itself allows what it starts.
    """

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous or super().matches(pattern, generous=False)

    def surely_matches(self, pattern: str) -> bool:
        return False


class RepeatedTarget(_CommandTarget):
    """A command of the line itself, by its name without directories: rulings on every command include it already."""


def _path_forms(target: str, scope: Scope) -> Iterator[TargetForm]:
    if len(target) > paths.LONGEST:
        yield _UnreadTarget()
        return
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        yield _PathTarget(path, around)


def _command_forms(target: str, scope: Scope) -> Iterator[TargetForm]:
    line = _LineTarget(target)
    literal = commands.literal_commands(target, scope)
    yield from (_LiteralTarget(part, line) for part in literal) if literal else (line,)
    try:
        reached = commands.find_reached(target)
    except commands.UnreadableLine:
        yield _UnreadTarget(by_default=False)
        return
    own = {part.words for part in literal}
    shorter = {(os.path.basename(words[0]), *words[1:]) for words in own if words}
    for words in commands.find_unseen(target):
        yield UnseenTarget(words, simple=bool(literal))
    for words in reached:
        if words not in own:
            yield (RepeatedTarget if words in shorter else _CommandTarget)(words, simple=bool(literal))
