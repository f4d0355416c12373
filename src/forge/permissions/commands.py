"""Reads a shell line well enough to judge it: is it one plain command, and which commands could it reach?

Both answers err on the strict side: only a simple line can be allowed by a pattern, and denies look at all it reaches.
What a line hides in data (`echo … | sh`, a variable) or in another language cannot be seen here; a line with a pipe
or a variable is never simple, so it asks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

LONGEST = 50_000  # characters of a line that is read
MOST = 50_000  # words of all commands that are found in one line
_DEEPEST = 8  # wrappers and shells inside each other

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "fish"})
WRAPPERS = frozenset(
    "env sudo doas nice ionice nohup time timeout stdbuf setsid xargs command builtin exec watch flock busybox"
    " eval trap su ssh coproc parallel strace chroot unshare nsenter".split()
)
_KEYWORDS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!"})
_RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_POSITIONALS = {"timeout": 1, "flock": 1, "chroot": 1, "su": 1, "ssh": 1}  # words between the wrapper and its command

_OPAQUE = re.compile(r"[;&|<>$`(){}\\\x00-\x08\x0a-\x1f\x7f]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_UNPLAIN = re.compile(r"[*?\[\"']|(?:^|[ \t])#")  # outside quotes: globs, half a quote, a comment
_SPACE_OUTSIDE_QUOTES = re.compile(r"(\"[^\"]*\"|'[^']*')|[ \t]+")
_MISLEADING = re.compile(r"[$`\\#{}\n\r]")  # here quotes do not mean what they seem to
_EXPANSION = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|`[^`]*`")
_BRACES = re.compile(r"\{[^{}]*\}")
_SEPARATOR = re.compile(r"[;&|<>$`(){}\n\r]+")
_PIECE = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^;&|<>()\"'])+")
_ASSIGNMENT = re.compile(r"\w+\+?=(.*)", re.DOTALL)
_IS_A_LINE = re.compile(r"[\s;&|<>$`(){}]")


class Unreadable(Exception):
    """The line is longer or deeper than anyone writes: what it reaches is not known."""


def is_simple(line: str) -> bool:
    """Whether the line is provably one command with literal words."""
    bare = _QUOTED.sub("", line)
    return bool(line.strip()) and not (_OPAQUE.search(line) or _UNPLAIN.search(bare))


def collapsed(line: str) -> str:
    """The line with single spaces between its words; what is quoted stays as it is."""
    return _SPACE_OUTSIDE_QUOTES.sub(lambda found: found[1] or " ", line).strip()


def reached(line: str) -> list[str]:
    """Every command the line could run, without quotes, wrappers and directories. Raises `Unreadable`."""
    if len(line) > LONGEST:
        raise Unreadable
    found: dict[str, None] = {}
    total = 0
    for words in filter(None, _commands(line, 0)):
        total += len(words)
        if total > MOST:
            raise Unreadable
        found[" ".join(words)] = None
        found[" ".join([os.path.basename(words[0]) or words[0], *words[1:]])] = None
    return list(found)


def _commands(line: str, depth: int) -> Iterator[list[str]]:
    if depth > _DEEPEST:
        raise Unreadable
    for words in _segments(line):
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        yield from _reached_by(words, depth)


def _segments(line: str) -> Iterator[list[str]]:
    """The words of each command between separators, quotes removed."""
    bare = _QUOTED.sub("", line)
    if not (_MISLEADING.search(line) or "'" in bare or '"' in bare):
        yield from (shlex.split(piece) for piece in _PIECE.findall(line))
        return
    text = re.sub(r"\\\r?\n", "", line)
    listed = _BRACES.sub(lambda braces: braces[0].replace(",", " "), text)
    for spelling in dict.fromkeys((text, listed, _EXPANSION.sub("", text))):
        unquoted = re.sub(r"[\"'\\]", "", spelling)
        yield from (piece.split() for piece in _SEPARATOR.split(unquoted))


def _reached_by(words: list[str], depth: int) -> Iterator[list[str]]:
    """The command itself, then what it starts."""
    if depth > _DEEPEST:
        raise Unreadable
    yield words
    assigned = 0
    while assigned < len(words) and (value := _ASSIGNMENT.fullmatch(words[assigned])):
        assigned += 1
        yield value[1].split()  # x=rm; $x file
    if assigned:
        yield from _reached_by(words[assigned:], depth + 1) if words[assigned:] else ()
        return
    name = os.path.basename(words[0]) if words else ""
    if name in WRAPPERS or name in SHELLS:
        yield from _wrapped(name, words[1:], depth + 1)
    for index, word in enumerate(words):
        if word in _RUNS_NEXT:
            yield from _reached_by(words[index + 1 :], depth + 1)


def _wrapped(name: str, words: list[str], depth: int) -> Iterator[list[str]]:
    """What a wrapper starts: its first word that is no option, and the next where that one may be an option's value."""
    skip = _POSITIONALS.get(name, 0)
    after_option = False
    for index, word in enumerate(words):
        if word.startswith("-") or _ASSIGNMENT.fullmatch(word):
            after_option = word.startswith("-")
            if _IS_A_LINE.search(word):  # env -S'rm x', --split-string='rm x'
                yield from _commands(word.partition("=")[2] or word[2:], depth)
            continue
        if _IS_A_LINE.search(word):
            yield from _commands(word, depth)
        yield from _reached_by(words[index:], depth)
        if not after_option and not skip:
            return
        skip -= not after_option
        after_option = False
