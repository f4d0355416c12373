"""Reads the words of a command that only reads: its options, each of which must be known, and its paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forge.permissions.shell.read_only.flags import Operands, ReadOnlyFlags


def paths_of(words: Sequence[str], flags: ReadOnlyFlags) -> list[str] | None:
    options = options_of(words, flags)
    if options is None:
        return None
    given, operands = options
    match flags.operands:
        case Operands.TEXT:
            return []
        case Operands.NONE:
            return None if operands else []
        case Operands.ONE_PATH if len(operands) > 1:
            return None
        case Operands.PATTERN if not given & {"e", "regexp", "files", "type-list"}:
            operands = operands[1:]
    paths = [path for path in operands if path not in ("-", "/dev/null")]
    return paths or (["."] if flags.searches and not operands else [])


def options_of(words: Sequence[str], flags: ReadOnlyFlags) -> tuple[set[str], list[str]] | None:
    """Returns the names of the options and the words that are none; None if an option is not on the list."""
    given: set[str] = set()
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return given, [*operands, *rest]
        if word.startswith("--"):
            name, has_value, _ = word[2:].partition("=")
            if name in flags.long_valued and not has_value and name not in flags.long:
                next(rest, None)
            elif name not in (flags.long_valued if has_value else flags.long):
                return None
            given.add(name)
        elif word.startswith("-") and word != "-":
            if not _cluster(word[1:], flags, given, rest):
                return None
        else:
            operands.append(word)
    return given, operands


def _cluster(letters: str, flags: ReadOnlyFlags, given: set[str], rest: Iterator[str]) -> bool:
    """Reads a cluster: `-rn`, `-n5`, `-n 5`, `-5`."""
    if flags.numbers and letters.isdecimal():
        return True
    for index, letter in enumerate(letters):
        if letter in flags.valued:
            given.add(letter)
            if index == len(letters) - 1:
                next(rest, None)
            return True
        if letter not in flags.short:
            return False
        given.add(letter)
    return True
