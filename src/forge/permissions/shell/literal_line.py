"""Reads literal lines: simple commands of literal words, joined by `&&`, `||`, `;` and `|`.

Only such a line can be allowed by a pattern or count as reading only. It is read here by a few rules on which every
shell agrees, and anything beyond them is not literal: a variable, a wildcard, a tilde, braces, a backslash outside
quotes, a redirection (but `2>&1` and those to /dev/null), a comment, a control character. What single quotes hold is
literal, line breaks and `$(` included; programs that would evaluate it later are known (see `programs`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

LONGEST = 10_000  # characters of a literal line

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
    return _split_cached(line) if len(line) <= LONGEST else ()


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
