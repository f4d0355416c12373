"""Reads literal lines: simple commands of literal words, joined by `&&`, `||`, `;` and `|`.

Only such a line can be allowed by a pattern or count as reading only. It is read here by a few rules on which every
shell agrees, and anything beyond them is not literal: a variable, a wildcard, a tilde, braces, a backslash outside
quotes, a redirection (but `2>&1` and those to /dev/null), a comment, a control character. What single quotes hold is
literal, line breaks and `$(` included; programs that would evaluate it later are known (see `programs`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.targets import paths

LONGEST_LINE = 10_000  # characters of a literal line

_TOKEN = re.compile(
    r"""
      (?P<blank>   [ ]+ | \t+ )
    | (?P<joint>   && | \|\|? (?!&) | ; (?!;) )
    | (?P<harmless> (?<![^ \t]) (?: [12]?>[ ]?/dev/null | 2>&1 ) (?![^ \t;|]) )
    | (?P<single>  '[^']*' )
    | (?P<double>  "(?: [^"\\$`] | \\[^\n] )*" )
    | (?P<plain>   [^\s;&|<>$`(){}\\*?\[\]"'~\#!]+ | (?<=[^ \t;&|=:]) [~\#!] | !(?=[\w-]) )
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r'\\(["\\$`])')
_BLANKS = str.maketrans("\t\n", "  ")  # outside quotes a line break is not literal
_ASSIGNS = re.compile(r"%[^%A-Za-z]*[hlLjzt]*n")
_ASSIGNMENT = re.compile(r"\w+\+?=")
_RESERVED = frozenset(
    "! [[ ]] if then elif else fi case esac for select while until do done in function coproc".split()
)
# What they do changes what the commands behind them mean, or which programs those are.
_CHANGES_THE_SHELL = frozenset(
    ". alias bind builtin command compgen complete compopt coproc declare disown enable eval exec export fc"
    " getopts hash history jobs let local mapfile popd pushd read readarray readonly set shift shopt source"
    " trap typeset ulimit umask unalias unset wait".split()
)


class LiteralCommand(NamedTuple):
    """One simple command of a literal line."""

    text: str  # as it is written, with single spaces and without harmless redirections
    words: tuple[str, ...]
    joint: str  # what stands before it: "", "&&", "||", ";" or "|"


def split_literal(line: str) -> tuple[LiteralCommand, ...]:
    """Returns the commands of a literal line; empty for other lines."""
    return _split_cached(line) if len(line) <= LONGEST_LINE else ()


@lru_cache(maxsize=1_024)
def _split_cached(line: str) -> tuple[LiteralCommand, ...]:
    if not (line.isprintable() or line.translate(_BLANKS).isprintable()):
        return ()
    reader = _LiteralReader()
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None or not reader.take(str(token.lastgroup), token[0]):
            return ()
        at = token.end()
    return reader.finish()


class _LiteralReader:
    def __init__(self) -> None:
        self.parts: list[LiteralCommand] = []
        self.joint = ""
        self.words: list[str] = []
        self.texts: list[str] = []
        self.is_in_word = False

    def take(self, kind: str, text: str) -> bool:
        """Takes a token. Returns whether the line may still be literal."""
        match kind:
            case "blank" | "harmless":
                self.is_in_word = False
                return kind == "blank" or bool(self.words)
            case "joint":
                return self.end(text)
            case "single":
                return self.add(text[1:-1], text)
            case "double":
                return self.add(_ESCAPED.sub(r"\1", text[1:-1]), text)
        return self.add(text, text)

    def add(self, value: str, text: str) -> bool:
        if self.is_in_word:
            self.words[-1] += value
            self.texts[-1] += text
        else:
            self.words.append(value)
            self.texts.append(text)
        self.is_in_word = True
        return True

    def end(self, joint: str) -> bool:
        first = self.texts[0] if self.texts else ""
        if not first or first in _RESERVED or _ASSIGNMENT.match(first):
            return False
        self.parts.append(LiteralCommand(" ".join(self.texts), tuple(self.words), self.joint))
        self.joint, self.words, self.texts, self.is_in_word = joint, [], [], False
        return True

    def finish(self) -> tuple[LiteralCommand, ...]:
        is_complete = self.end("") if self.words or self.joint != ";" else True
        if not is_complete or any(_changes_the_shell(part.words) for part in self.parts[:-1]):
            return ()
        return tuple(self.parts)


def _changes_the_shell(words: tuple[str, ...]) -> bool:
    if words[0] == "printf":
        return any(word.startswith("-v") or _ASSIGNS.search(word) for word in words)  # printf -v PATH …, printf %n PATH
    if words[0] == "test":
        return "-v" in words or "-R" in words  # test -v 'a[PATH=0]'
    return words[0] in _CHANGES_THE_SHELL


# Finds the directories in which the commands of a literal line run, with `cd` among them.


_SAME_SHELL = frozenset({"time", "command", "builtin", "!"})
MOST_DIRECTORIES = 16  # directories a command may run in, `cd` by `cd`


def directories(parts: Sequence[LiteralCommand], start: str) -> list[tuple[str, ...]] | None:
    """Returns the directories each command may run in; None if they are not known."""
    found: list[tuple[str, ...]] = [(start,)]
    before: tuple[str, ...] = (start,)  # where the line is if the last `cd` failed
    here = before  # … and if it did not
    for part, following in pairwise(parts):
        if following.joint != "&&":
            here = before = tuple(dict.fromkeys((*before, *here)))
        words = unwrap_builtin(part.words)
        if words[:1] in (("cd",), ("pushd",), ("popd",), ("chdir",)):
            target = destination(words) if words[0] == "cd" else None
            if target is None or len(here) > MOST_DIRECTORIES:
                return None
            there = tuple(dict.fromkeys(os.path.join(path, target) for path in here))
            is_sure = part.joint != "||" and following.joint == "&&"
            before = tuple(dict.fromkeys((*before, *here)))
            here = there if is_sure else tuple(dict.fromkeys((*here, *there)))
            before = before if is_sure else here
        found.append(here)
    return found


def unwrap_builtin(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the words behind those that run a command in the same shell: `time -p cd src` is `cd src`."""
    while words and words[0] in _SAME_SHELL:
        words = words[1:]
        while words and words[0] in ("-p", "--"):
            words = words[1:]
    return tuple(words)


def destination(words: Sequence[str]) -> str | None:
    """Returns the target of a `cd`; None if it is not known."""
    operands = [word for word in words[1:] if word not in ("-P", "-L", "-e", "-@", "--")]
    if not operands:
        return paths.home_directory()
    return operands[0] if len(operands) == 1 and not operands[0].startswith("-") and operands[0] else None


class Area:
    """The workspace and the roots beside it, for comparing paths."""

    def __init__(self, scope: Scope) -> None:
        areas = [paths.roots(str(path)) for path in (scope.workspace, *(root.path for root in scope.roots))]
        self.workspace = areas[0][0]
        self.around = tuple(root for area in areas for root in area)

    def has(self, target: str, start: str = "") -> bool:
        """Returns whether every path that a target may mean, seen from a directory, lies inside."""
        if len(target) > paths.LONGEST_PATH or "\0" in target:
            return False
        found = paths.spellings(target, os.path.join(self.workspace, start))
        return all(any(_is_below(path, root) for root in self.around) for path in found)

    def has_all(self, targets: Iterable[str], starts: Sequence[str]) -> bool:
        """Returns whether all targets lie inside, seen from any of the directories."""
        return all(self.has(target, start) for target in targets for start in starts)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
