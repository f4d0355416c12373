"""Returns every reading of a command line, in the form rules are compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from forge.core.context import Scope
from forge.permissions.shell import commands
from forge.permissions.shell.words import fits, is_known, may_fit
from forge.permissions.targets import TargetForm, UnreadTarget, paths

LONGEST_SHOWN = 80  # characters of a command in a reason


def read_command_forms(
    target: str, scope: Scope, arguments: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[TargetForm]:
    """Yields the line, its own commands, and those that it may reach.

    `arguments`: of the call. They say where the line runs, and whether it is given input.
    """
    line = _LineTarget(target)
    literal = commands.literal_commands(target, scope)
    yield from (_LiteralTarget(part, line) for part in literal) if literal else (line,)
    try:
        directory = arguments.get("working_dir")
        folder = os.path.join(scope.workspace, directory if isinstance(directory, str) else "")
        found = commands.find_commands(target, commands.RunSetting(folder, has_input=bool(arguments.get("stdin"))))
    except commands.UnreadableLine:
        yield UnreadTarget(by_default=False)
        return
    own = {part.words for part in literal}
    shorter = {(os.path.basename(words[0]), *words[1:]) for words in own if words}
    for words in found.unseen:
        yield _StarterTarget(words, bool(literal), target)
    for words in found.words:
        if words not in own:
            is_repeated = words in shorter or words in found.linked
            yield (_RepeatedTarget if is_repeated else _CommandTarget)(words, bool(literal), target)


def _show(command: str, line: str) -> str:
    """Returns a command of a line for people; empty if it is the whole line."""
    shown = "".join(char if char.isprintable() else "…" for char in command)
    if not line or shown == commands.collapse_spaces(line):
        return ""
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"


class _LineTarget(TargetForm):
    """A whole command line that is not literal. A pattern allows only exactly that text."""

    def __init__(self, line: str) -> None:
        self.line = line.strip()
        self.words = paths.fold(commands.collapse_spaces(line))

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return fits(self.words, paths.fold(pattern)) if generous else self.line == pattern

    def surely_matches(self, pattern: str) -> bool:
        return self.matches(pattern, generous=True)


class _LiteralTarget(TargetForm):
    """One command of a literal line: judged on its own, and as a part of that line."""

    def __init__(self, part: commands.LiteralCommand, line: _LineTarget) -> None:
        self.text = part.text
        self.line = line
        self.command = _show(part.text, line.line)
        self.words = _CommandTarget(part.words, simple=True)

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return fits(self.text, pattern) or self.line.matches(pattern, generous=False)
        return self.surely_matches(pattern) or self.words.matches(pattern, generous=True)

    def surely_matches(self, pattern: str) -> bool:
        folded = paths.fold(pattern)
        return (
            fits(paths.fold(self.text), folded)
            or self.line.surely_matches(pattern)
            or self.words.surely_matches(pattern)
        )


class _CommandTarget(TargetForm):
    """One command that a line may reach."""

    by_default = False

    def __init__(self, words: tuple[str, ...], simple: bool, line: str = "") -> None:
        self.words = " ".join(words)
        self.simple = simple
        self.command = _show(self.words, line)
        self.folded = [paths.fold(word) for word in words]

    def matches(self, pattern: str, *, generous: bool) -> bool:
        if not generous:
            return self.simple and fits(self.words, pattern)
        return self.surely_matches(pattern) or may_fit(self.folded, paths.fold(pattern))

    def surely_matches(self, pattern: str) -> bool:
        return is_known(self.words) and fits(" ".join(self.folded), paths.fold(pattern))


class _StarterTarget(_CommandTarget):
    """A command that may start programs the line does not show: it could hold anything forbidden.

    A rule that denies something asks here, and a rule that allows the command itself allows what it starts.
    """

    def __init__(self, words: tuple[str, ...], simple: bool, line: str = "") -> None:
        super().__init__(words, simple, line)
        self.starter = self.words.partition(" ")[0] or "the line"

    def matches(self, pattern: str, *, generous: bool) -> bool:
        return generous or super().matches(pattern, generous=False)

    def surely_matches(self, pattern: str) -> bool:
        return False


class _RepeatedTarget(_CommandTarget):
    """A command of the line itself, by its name without directories or by the name of the program that a link leads to.

    Rulings on every command include it already.
    """

    is_repeated = True
