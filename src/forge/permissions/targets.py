"""What a call touches, in the form rules are compared with."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any, Protocol

from forge.core.context import Scope
from forge.core.spec import Permission, ToolSpec
from forge.permissions import commands, hosts, paths

PATHS = frozenset({Permission.READ, Permission.WRITE})


class Subject(Protocol):
    """One reading of a target. Rules decide about each; the strictest decision counts."""

    by_default: bool  # whether the default applies where no rule matches; a reading that only denies look at has none

    def matches(self, pattern: str, *, generous: bool) -> bool:
        """Whether a pattern covers it. Rules that forbid or ask are generous, rules that allow take it exactly."""
        ...


def subjects(permission: Permission | None, target: str, scope: Scope) -> list[Subject]:
    """Every reading of a target: where a path really leads, each command of a line, the host of a URL."""
    if not target:
        return [_Nothing()]
    if permission in PATHS:
        return list(_paths(target, scope))
    if permission is Permission.EXECUTE:
        return list(_commands(target))
    if permission is Permission.NETWORK:
        return [_Server(target)]
    return [_Text(target)]


def identity(permission: Permission | None, target: str, scope: Scope) -> Hashable:
    """What a target means right now: different as soon as a link on the way leads elsewhere."""
    if permission not in PATHS or not target or len(target) > paths.LONGEST:
        return target
    return frozenset(paths.spellings(target, paths.roots(str(scope.workspace))[0]))


def targets_of(spec: ToolSpec, arguments: Mapping[str, Any]) -> list[str]:
    """The texts in the tool's target parameters, each element of a list on its own; one empty text if there is none."""
    found = dict.fromkeys(text for name in spec.targets for text in _texts(arguments.get(name)))
    return list(found) or [""]


def _texts(value: Any) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, str | PurePath):
        yield str(value)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield str(item) if isinstance(item, str | PurePath) else _written(item)
    else:
        yield _written(value)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


class _Nothing:
    """No target: only rules without one apply."""

    by_default = True

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return False


class _Text:
    by_default = True

    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if generous and fnmatchcase(paths.fold(self.text), paths.fold(pattern)):
            return True
        return fnmatchcase(self.text, pattern)


class _Server(_Text):
    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.host = hosts.read_host(target)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return hosts.covers(pattern, self.host, generous=generous)


class _Place:
    by_default = True

    def __init__(self, path: str, around: tuple[str, ...]) -> None:
        self.path = path
        self.around = around

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return paths.covers(pattern, self.path, self.around, generous=generous)


class _Unread:
    """Too long to be read: whatever is forbidden could be in it, and nothing in it is allowed by a pattern."""

    by_default = True

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous


class _Line:
    """A whole command line. A pattern allows it only if it is one simple command, or exactly that text."""

    by_default = True

    def __init__(self, line: str) -> None:
        self.line = line.strip()
        self.simple = commands.is_simple(line)
        self.words = commands.collapsed(line)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if generous:
            return _fits(paths.fold(self.words), paths.fold(pattern))
        return _fits(self.words, pattern) if self.simple else self.line == pattern


class _Command:
    """One command that a line may reach."""

    by_default = False

    def __init__(self, words: str, simple: bool) -> None:
        self.words = words
        self.simple = simple

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return self.simple and _fits(self.words, pattern)
        words, wanted = paths.fold(self.words), paths.fold(pattern)
        if _fits(words, wanted):
            return True
        first, space, rest = words.partition(" ")
        name = wanted.partition(" ")[0]
        return any(sign in first for sign in "*?[") and fnmatchcase(name, first) and _fits(name + space + rest, wanted)


def _fits(words: str, pattern: str) -> bool:
    """`git log *` also fits `git log`."""
    return fnmatchcase(words, pattern) or (pattern.endswith(" *") and fnmatchcase(words, pattern[:-2]))


def _paths(target: str, scope: Scope) -> Iterator[Subject]:
    if len(target) > paths.LONGEST:
        yield _Unread()
        return
    around = paths.roots(str(scope.workspace))
    for path in paths.spellings(target, around[0]):
        yield _Place(path, around)


def _commands(target: str) -> Iterator[Subject]:
    whole = _Line(target)
    yield whole
    try:
        reached = commands.reached(target)
    except commands.Unreadable:
        yield _Unread()
        return
    for words in reached:
        yield _Command(words, whole.simple)
