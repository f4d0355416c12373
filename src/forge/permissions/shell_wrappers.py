"""What a command starts: the command behind `sudo`, `env`, `xargs` or `find -exec`, the line behind `bash -c`.

Rules that forbid look at all of it, so wherever a word may be an option's value or the command, it counts as both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from forge.permissions.globs import ANY, SOME, is_known
from forge.permissions.shell_words import GLOB

DEEPEST = 8  # wrappers and shells inside each other

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
_APPENDS = frozenset({"xargs", "parallel"})
_RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_IS_A_LINE = re.compile(r"[\s;&|<>$`(){}]")
_ASSIGNMENT = re.compile(rf"\w+(?:\[[^\]]*\]|[{GLOB}{ANY}])?\+?=(.*)", re.DOTALL)  # a[0]=b
_GROUPS = frozenset({"{", "(", "!", "if", "while", "until", "then", "do"})  # time { a; }


class Text(str):
    """A line inside a line."""

    __slots__ = ()


class TooDeep(Exception):
    """More wrappers inside each other than anyone writes."""


Started = Sequence[str] | Text


def starts(words: Sequence[str], depth: int = 0) -> Iterator[tuple[Started, int]]:
    """The command itself, then all that it starts: words of commands and whole lines, with how deep they are."""
    if depth > DEEPEST:
        raise TooDeep
    yield words, depth
    assigned = 0
    while assigned < len(words) and (value := _ASSIGNMENT.fullmatch(words[assigned])):
        assigned += 1
        if is_known(value[1]):
            yield value[1].split(), depth  # PAGER=rm man x
    if assigned:
        yield from starts(words[assigned:], depth + 1) if words[assigned:] else ()
        return
    name = os.path.basename(words[0]) if words else ""
    if name in WRAPPERS or name in SHELLS:
        yield from _wrapped(name, words[1:], depth + 1)
    elif name == "alias":
        for word in words[1:]:
            yield Text(word.partition("=")[2]), depth + 1
    for index, word in enumerate(words):
        if word in _RUNS_NEXT:
            yield from starts([more.replace("{}", SOME) for more in words[index + 1 :]], depth + 1)


def _wrapped(name: str, words: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """What a wrapper starts: its first word that is no option, and the next where that one may be an option's value."""
    if name in _TAKES_LINES:  # several words, once it is read as a line
        words = [word.replace(SOME, ANY).replace(GLOB, ANY) for word in words]
    if name in _APPENDS and any(not word.startswith("-") for word in words):
        words = [*(word.replace("{}", SOME) for word in words), ANY]  # what they read, as further words
    if name == "eval":
        yield Text(" ".join(words)), depth
    skip = _POSITIONALS.get(name, 0)
    after_option = False
    for index, word in enumerate(words):
        if word.startswith("-"):
            after_option = "=" not in word and word not in ("--", "--args")
            yield from _in_option(word, words[index + 1 :], depth)
            continue
        assigned = _ASSIGNMENT.fullmatch(word)
        if _IS_A_LINE.search(word):
            yield Text(assigned[1] if assigned else word), depth
        if assigned or not word or word in _GROUPS:
            after_option = False
            continue
        yield from starts(words[index:], depth)
        if not after_option and not skip:
            return
        skip -= not after_option
        after_option = False


def _in_option(word: str, more: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """What starts in the option itself: env -Srm x, script -qc'rm x' log, --split-string='rm x'."""
    if word.startswith("--"):
        values = [word.partition("=")[2]]
    else:
        values = [word[start:] for start in range(2, min(len(word), 5))]
    for value in filter(None, values):
        if _IS_A_LINE.search(value):
            yield Text(value), depth
        else:
            yield from starts([value, *more], depth)
