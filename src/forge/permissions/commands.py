"""Reads a shell line well enough to judge it: is it one plain command, and which commands could it reach?

Both answers err on the strict side: only a simple line can be allowed by a pattern, and denies look at all it reaches.
A word that is known only when the line runs (`$x`, `r$1m`, `$(…)`) counts as anything it could be. What a line hides in
data (`echo … | sh`) or in another language cannot be seen here; a line with a pipe is never simple, so it asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from forge.permissions import shell
from forge.permissions.globs import ANY, SOME, is_known

LONGEST = 50_000  # characters of a line that is read
MOST = 200_000  # words of all commands that are found in one line
LARGEST = 1_000_000  # characters of all of them
_DEEPEST = 8  # wrappers and shells inside each other

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"})
_POSITIONALS = {  # words between a wrapper and its command, its options aside
    **dict.fromkeys("chroot chrt flock runuser script setarch setuidgid sg ssh su taskset timeout".split(), 1),
    **dict.fromkeys("gosu mosh perf screen su-exec tmux".split(), 1),
    **dict.fromkeys("bundle conda hatch mise pdm pipenv pipx poetry rye uv".split(), 1),  # uv run …
}
WRAPPERS = frozenset(_POSITIONALS) | frozenset(
    "aa-exec builtin busybox bwrap cgexec chpst command coproc daemonize dbus-run-session doas dumb-init entr env eval"
    " exec fakechroot fakeroot firejail gdb ionice linux32 linux64 ltrace nice nohup nsenter numactl parallel pkexec"
    " prlimit proot rlwrap rr setpriv setsid softlimit start-stop-daemon stdbuf strace sudo systemd-run time tini"
    " torsocks toybox trap tsocks unbuffer unshare uvx npx bunx valgrind watch xargs xvfb-run proxychains4".split()
)
_TAKES_LINES = SHELLS | frozenset("env eval flock parallel runuser script sg ssh su trap watch".split())
_KEYWORDS = frozenset({"if", "then", "elif", "else", "do", "while", "until", "!"})
_RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

_OPAQUE = re.compile(r"[;&|<>$`(){}\\\x00-\x08\x0a-\x1f\x7f]")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_UNPLAIN = re.compile(r"[*?\[\"']|(?:^|[ \t])#")  # outside quotes: globs, half a quote, a comment
_SPACE_OUTSIDE_QUOTES = re.compile(r"(\"[^\"]*\"|'[^']*')|[ \t]+")
_MISLEADING = re.compile(r"[$`\\#{}\n\r]")  # here shells differ about what quotes mean
_EXPANSION = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|`[^`]*`")
_QUOTES = re.compile(r"[\"'\\]")
_BRACES = re.compile(r"\{[^{}]*\}")
_REDIRECTION = re.compile(r"(?:[0-9]+|&|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>])[ \t]*[^\s;&|<>()`]*")
_SEPARATOR = re.compile(r"[;&|<>$`(){}\n\r]+")
_WILDCARD = re.compile(r"[*?]+|\[[^\]]+\]")
_ASSIGNMENT = re.compile(r"\w+\+?=(.*)", re.DOTALL)
_IS_A_LINE = re.compile(r"[\s;&|<>$`(){}]")


class Unreadable(Exception):
    """The line is longer or deeper than anyone writes, or no shell would run it: what it reaches is not known."""


def is_simple(line: str) -> bool:
    """Whether the line is provably one command with literal words."""
    bare = _QUOTED.sub("", line)
    return bool(line.strip()) and not (_OPAQUE.search(line) or _UNPLAIN.search(bare))


def collapsed(line: str) -> str:
    """The line with single spaces between its words; what is quoted stays as it is."""
    return _SPACE_OUTSIDE_QUOTES.sub(lambda found: found[1] or " ", line).strip()


def reached(line: str) -> list[tuple[str, ...]]:
    """The words of every command the line could run, without quotes, wrappers and directories. Raises `Unreadable`.

    `ANY` and `SOME` in a word stand for what is not known.
    """
    if len(line) > LONGEST:
        raise Unreadable
    found: dict[tuple[str, ...], None] = {}
    total = size = 0
    for words in map(tuple, filter(None, _commands(line, 0))):
        total += len(words)
        size += sum(map(len, words))
        if total > MOST or size > LARGEST:
            raise Unreadable
        found[words] = None
        found[os.path.basename(words[0]) or words[0], *words[1:]] = None
    return list(found)


def _commands(line: str, depth: int) -> Iterator[list[str]]:
    if depth > _DEEPEST:
        raise Unreadable
    for words in _segments(line, depth):
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        yield from _reached_by(words, depth)


def _segments(line: str, depth: int) -> Iterator[list[str]]:
    """The words of each command, quotes and redirections removed: as a shell reads them, and where shells differ."""
    try:
        parts = shell.split(line)
        if "&>" in line:  # one redirection to bash, the end of a command to others
            yield from shell.split(line.replace("&>", "& >")).commands
    except shell.Unclosed:
        if depth == 0:
            raise Unreadable from None
        yield from _loosely(line)  # perhaps no line at all, but a text in an argument
        return
    yield from parts.commands
    for inner in parts.lines:
        yield from _commands(inner, depth + 1)
    for text in [line] if _MISLEADING.search(line) else parts.data:
        yield from _loosely(text)


def _loosely(line: str) -> Iterator[list[str]]:
    """The words between anything that separates commands, quoted or not."""
    text = line.replace("\\\n", "")
    listed = _BRACES.sub(lambda braces: braces[0].replace(",", " "), text)
    unquoted = [_QUOTES.sub("", spelling) for spelling in (text, listed, _EXPANSION.sub("", text))]
    for spelling in dict.fromkeys((*unquoted, _EXPANSION.sub("", unquoted[0]))):
        for reading in dict.fromkeys((spelling, _REDIRECTION.sub(" ", spelling))):
            for piece in _SEPARATOR.split(reading):
                yield [_WILDCARD.sub(ANY, word) if word.strip("*?") else word for word in piece.split()]


def _reached_by(words: list[str], depth: int) -> Iterator[list[str]]:
    """The command itself, then what it starts."""
    if depth > _DEEPEST:
        raise Unreadable
    yield words
    assigned = 0
    while assigned < len(words) and (value := _ASSIGNMENT.fullmatch(words[assigned])):
        assigned += 1
        if is_known(value[1]):
            yield value[1].split()  # PAGER=rm man x
    if assigned:
        yield from _reached_by(words[assigned:], depth + 1) if words[assigned:] else ()
        return
    name = os.path.basename(words[0]) if words else ""
    if name in WRAPPERS or name in SHELLS:
        yield from _wrapped(name, words[1:], depth + 1)
    elif name == "alias":
        for word in words[1:]:
            yield from _commands(word.partition("=")[2], depth + 1)
    for index, word in enumerate(words):
        if word in _RUNS_NEXT:
            yield from _reached_by(words[index + 1 :], depth + 1)


def _wrapped(name: str, words: list[str], depth: int) -> Iterator[list[str]]:
    """What a wrapper starts: its first word that is no option, and the next where that one may be an option's value."""
    if name in _TAKES_LINES:
        words = [word.replace(SOME, ANY) for word in words]  # several words, once it is read as a line
    if name == "eval":
        yield from _commands(" ".join(words), depth)
    skip = _POSITIONALS.get(name, 0)
    after_option = False
    for index, word in enumerate(words):
        if word.startswith("-"):
            after_option = "=" not in word and word not in ("--", "--args")
            yield from _in_option(word, words[index + 1 :], depth)
            continue
        assigned = _ASSIGNMENT.fullmatch(word)
        if _IS_A_LINE.search(word):
            yield from _commands(assigned[1] if assigned else word, depth)
        if assigned or not word:
            after_option = False
            continue
        yield from _reached_by(words[index:], depth)
        if not after_option and not skip:
            return
        skip -= not after_option
        after_option = False


def _in_option(word: str, more: list[str], depth: int) -> Iterator[list[str]]:
    """What starts in the option itself: env -Srm x, script -qc'rm x' log, --split-string='rm x'."""
    if word.startswith("--"):
        values = [word.partition("=")[2]]
    else:
        values = [word[start:] for start in range(2, min(len(word), 5))]
    for value in filter(None, values):
        if _IS_A_LINE.search(value):
            yield from _commands(value, depth)
        else:
            yield from _reached_by([value, *more], depth)
