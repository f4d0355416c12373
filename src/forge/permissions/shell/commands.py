"""Finds the commands that a shell line could reach, and tells whether the line is literal.

Both answers err on the strict side: only a literal line can be allowed by a pattern, and denies look at all it reaches.
A word that is known only when the line runs (`$x`, `r$1m`, `$(…)`) counts as anything it could be, and so does what a
shell reads from a pipe. What other languages do (`python -c …`) cannot be seen here; such commands are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from forge.core.context import Scope
from forge.permissions import shell
from forge.permissions.shell.hidden_programs import hides
from forge.permissions.shell.literal_line import LiteralCommand, split_literal
from forge.permissions.shell.parsed_line import ShellLine
from forge.permissions.shell.programs import (
    FETCHERS,
    FETCHING_COMMANDS,
    POSITIONALS,
    READS_COMMANDS,
    READS_LINES,
    SHELL_WITHOUT_COMMAND,
    SHELLS,
    SOMETIMES_FETCHERS,
    WRAPPERS,
)
from forge.permissions.shell.word_patterns import ANY, is_known, may_fit
from forge.permissions.shell.words import GLOB
from forge.permissions.shell.working_directories import Area, directories
from forge.permissions.shell.wrappers import InnerLine, Started, TooDeep, starts

__all__ = [
    "SHELLS",
    "WRAPPERS",
    "LiteralCommand",
    "UnreadableLine",
    "collapse_spaces",
    "find_reached",
    "find_unseen",
    "is_simple",
    "literal_commands",
    "may_fetch",
    "split_literal",
]

LONGEST = shell.LONGEST
MOST = 200_000  # words of all commands that are found in one line
LARGEST = 1_000_000  # characters of all of them
_DEEPEST = 8  # lines inside each other
_CACHED = 2_000  # characters of a line whose commands are remembered

_KEYWORDS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!"})
_SAYS = frozenset({"echo", "printf"})
_FORMATTED = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)|%[^a-zA-Z%]*.")  # what printf makes of it
_ESCAPED = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,4}|.)")  # what `echo -e` makes of it
_SHELL_OPTION = re.compile(r"-[A-Za-z]*[si]")  # of sudo
_OPTION_OF_ECHO = re.compile(r"-[neE]+|--")
_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_SPACE_OUTSIDE_QUOTES = re.compile(r"(\"[^\"]*\"|'[^']*')|[ \t]+")
_MISLEADING = re.compile(r"[$`\\#{}\n\r]")  # here shells, and the grammar, differ about what quotes mean
_EXPANSION = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|`[^`]*`")
_QUOTES = re.compile(r"[\"'\\]")
_BRACES = re.compile(r"\{[^{}]*\}")
_REDIRECTION = re.compile(r"(?:[0-9]+|&|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>])[ \t]*[^\s;&|<>()`]*")
_SEPARATOR = re.compile(r"[;&|<>$`(){}\n\r]+")
_WILDCARD = re.compile(r"[*?]+|\[[^\]]+\]")


class UnreadableLine(Exception):
    """The line is too long or too deep, or no shell would run it: its commands are not known."""


def is_simple(line: str) -> bool:
    """Says whether the line is provably one command with literal words."""
    return len(split_literal(line)) == 1


def literal_commands(line: str, scope: Scope) -> tuple[LiteralCommand, ...]:
    """Returns the commands of a literal line that means the same wherever it runs; empty for other lines.

    A `cd` must stay in the workspace, and behind it no program may be named by a relative path.
    """
    found = split_literal(line)
    if all(part.words[0] != "cd" for part in found[:-1]):
        return found
    run_in = directories(found, "")
    if run_in is None:
        return ()
    area = Area(scope)
    for part, where in zip(found, run_in, strict=True):
        name = part.words[0]
        if any(where) and (("/" in name and not name.startswith("/")) or not area.has_all(["."], where)):
            return ()
    return found


def collapse_spaces(line: str) -> str:
    """Returns the line with single spaces between its words; quoted text stays as it is."""
    return _SPACE_OUTSIDE_QUOTES.sub(lambda found: found[1] or " ", line).strip()


def find_reached(line: str) -> tuple[tuple[str, ...], ...]:
    """Returns the words of every command the line could run, without quotes, wrappers and directories.

    `ANY` and `SOME` in a word stand for what is not known.
    """
    return _read_cached(line)[0]


def find_unseen(line: str) -> tuple[tuple[str, ...], ...]:
    """Returns the words of every command that may start something the line does not show. Raises `UnreadableLine`."""
    return _read_cached(line)[1]


def may_fetch(line: str) -> bool:
    """Says whether the line may print what a server sends. A line or a program that is not known may."""
    try:
        reached = find_reached(line)
    except UnreadableLine:
        return True
    return any(
        not is_known(words[0])
        or words[0] in FETCHERS
        or (words[0] in SOMETIMES_FETCHERS and any(may_fit(words, f"{command} *") for command in FETCHING_COMMANDS))
        for words in reached
    )


Words = tuple[tuple[str, ...], ...]


def _read_cached(line: str) -> tuple[Words, Words]:
    if len(line) > LONGEST:
        raise UnreadableLine
    found = _remembered(line) if len(line) <= _CACHED else _find_commands(line)
    if found is None:
        raise UnreadableLine
    return found


def _find_commands(line: str) -> tuple[Words, Words] | None:
    found: dict[tuple[str, ...], None] = {}
    total = size = 0
    try:
        for words in filter(None, _read_commands(line, 0)):
            known = tuple(word.replace(GLOB, ANY) for word in words)
            total += len(known)
            size += sum(map(len, known))
            if total > MOST or size > LARGEST:
                return None
            found[known] = None
            found[os.path.basename(known[0]) or known[0], *known[1:]] = None
    except (UnreadableLine, TooDeep):
        return None
    return tuple(found), tuple(words for words in found if hides(words))


_remembered = lru_cache(maxsize=1_024)(_find_commands)


def _read_commands(line: str, depth: int) -> Iterator[list[str]]:
    if depth > _DEEPEST:
        raise UnreadableLine
    for words in _split_segments(line, depth):
        if isinstance(words, InnerLine):
            yield from _read_commands(words, depth + 1)
            continue
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        for started, level in starts(words, depth):
            yield from _read_commands(started, level) if isinstance(started, InnerLine) else [list(started)]


def _split_segments(line: str, depth: int) -> Iterator[Started]:
    """Returns the words of each command, without quotes and redirections, in each reading that shells have."""
    plain = split_literal(line)
    if plain:
        yield from (part.words for part in plain)
        for before, part in pairwise(plain):
            if part.joint == "|" and runs_input(part.words):
                yield from _read_from_pipe(before.words)
            if part.joint == "|":
                yield from _add_unknown_input(part.words)
        return
    found = shell.read_inner(line) if depth else shell.read(line)
    if found.is_broken:
        if depth == 0:
            raise UnreadableLine
        yield from split_loosely(line)  # perhaps no line at all, but a text in an argument
        return
    yield from _words_of(found)
    if "&>" in line:  # one redirection to bash, the end of a command to others
        yield from _words_of(shell.read_inner(line.replace("&>", "& >")))
    if _MISLEADING.search(line):
        yield from split_loosely(line)


def _words_of(found: ShellLine) -> Iterator[Started]:
    for command in found.commands:
        yield command.words
        for name, value in command.assignments:
            yield [f"{name}={value}"]
        for redirection in command.redirections:
            if redirection.operator in ("<", "<<", "<<<"):
                yield from _add_unknown_input(command.words)
            if redirection.operator in ("<<", "<<<"):
                yield from split_loosely(redirection.target)
                if runs_input(command.words):
                    yield from _read_input(redirection.target)
            elif redirection.operator == "<" and not is_known(redirection.target) and runs_input(command.words):
                inside = found.commands[command.inside.start : command.inside.end]
                yield from (one for inner in inside for one in _read_from_pipe(inner.words))  # bash < <(echo rm x)
    for stages in found.pipes:
        for before, stage in pairwise(stages):
            if any(runs_input(command.words) for command in found.commands[stage.start : stage.end]):
                for command in found.commands[before.start : before.end]:
                    yield from _read_from_pipe(command.words)
            for command in found.commands[stage.start : stage.end]:
                yield from _add_unknown_input(command.words)


def _read_from_pipe(words: Sequence[str]) -> Iterator[Started]:
    """Returns the commands that a shell reads from a pipe: the words of `echo`, or anything."""
    text = find_printed_text(words)
    yield from [[ANY]] if text is None else _read_input(text)


def _add_unknown_input(words: Sequence[str]) -> Iterator[Started]:
    """Returns commands that read commands of their own, with an unknown word added."""
    for started, _ in starts(words):
        if started and not isinstance(started, InnerLine) and os.path.basename(started[0]) in READS_COMMANDS:
            yield [*started, ANY]


def _read_input(text: str) -> Iterator[Started]:
    """Returns the commands in a shell's input."""
    yield InnerLine(text)
    if shell.read_inner(text).is_broken:
        yield [ANY]


def find_printed_text(words: Sequence[str]) -> str | None:
    """Returns the text that `echo` and `printf` print; None for all other commands."""
    name, more = os.path.basename(words[0]) if words else "", list(words[1:])
    if name not in _SAYS:
        return None
    while more and _OPTION_OF_ECHO.fullmatch(more[0]) and (name == "echo" or more[0] == "--"):
        del more[0]
    text = " ".join(more).replace("\\n", "\n")
    return (_FORMATTED if name == "printf" else _ESCAPED).sub(ANY, text)  # of `echo` it depends on the shell


def runs_input(words: Sequence[str]) -> bool:
    """Says whether the command, or one it starts, is a shell that runs its input."""
    try:
        return any(not isinstance(started, InnerLine) and _is_reading_shell(started) for started, _ in starts(words))
    except TooDeep:
        return True


def _is_reading_shell(words: Sequence[str]) -> bool:
    name = os.path.basename(words[0]) if words else ""
    if name in (".", "source"):
        return any(word in _INPUT for word in words[1:])
    if name in READS_LINES or (name in SHELL_WITHOUT_COMMAND and _has_no_command(name, words[1:])):
        return True
    if name not in SHELLS:
        return False
    options = [word for word in words[1:] if word.startswith("-") and not word.startswith("--")]
    if any("c" in option for option in options):
        return False
    values = {value for option, value in pairwise(words[1:]) if option.startswith(("-", "+")) and option[-1] in "oO"}
    operands = [word for word in words[1:] if word == "-" or not (word.startswith(("-", "+")) or word in values)]
    return not operands or operands[0] in _INPUT or any("s" in option for option in options)


def _has_no_command(name: str, words: Sequence[str]) -> bool:
    """Recognises `su`, `sudo -s`, `script log`: they start a shell. A word behind an option may be its value."""
    if name in ("sudo", "doas") and not any(
        word in ("--shell", "--login") or _SHELL_OPTION.match(word) for word in words
    ):
        return False
    before = ("", *words)
    operands = [
        word for option, word in zip(before, words, strict=False) if not word.startswith("-") and option[:1] != "-"
    ]
    return len(operands) <= POSITIONALS.get(name, 0)


def split_loosely(line: str) -> Iterator[list[str]]:
    """Splits a line at anything that separates commands, quoted or not."""
    text = line.replace("\\\n", "")
    listed = _BRACES.sub(lambda braces: braces[0].replace(",", " "), text)
    unquoted = [_QUOTES.sub("", spelling) for spelling in (text, listed, _EXPANSION.sub("", text))]
    for spelling in dict.fromkeys((*unquoted, _EXPANSION.sub("", unquoted[0]))):
        for reading in dict.fromkeys((spelling, _REDIRECTION.sub(" ", spelling))):
            for piece in _SEPARATOR.split(reading):
                yield [_WILDCARD.sub(ANY, word) if word.strip("*?") else word for word in piece.split()]
