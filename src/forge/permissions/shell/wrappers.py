"""Finds what a command starts: the command behind `sudo`, `env`, `xargs` or `find -exec`, the line behind `bash -c`.

Rules that forbid look at all of it, so wherever a word may be an option's value or the command, it counts as both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from forge.permissions.shell.programs import (
    ANYWHERE,
    APPENDS,
    EVALUATING,
    LINE_OPTIONS,
    LOADER,
    POSITIONALS,
    PROGRAM_VARIABLE,
    RUNS_NEXT,
    SHELLS,
    TAKES_LINES,
    WRAPPERS,
    base_name,
)
from forge.permissions.shell.words import ANY, GLOB, SOME, is_known

DEEPEST_WRAPPERS = 8  # wrappers and shells inside each other

_SPLITS = re.compile(r"-\w*S|--s")  # of env
_IS_A_LINE = re.compile(r"[\s;&|<>$`(){}]")
_IS_A_LINE_IN_VALUE = re.compile(r"[\s;&|<>$`(){}\"'\\]")
_ASSIGNMENT = re.compile(rf"\w+(?:\[[^\]]*\]|[{GLOB}{ANY}])?\+?=(.*)", re.DOTALL)  # a[0]=b
_GIVES_PATHS = frozenset({"-x", "-X", "--exec", "--exec-batch"})  # fd adds what it finds
_SUBSTITUTES = re.compile(r"\$\(|`")
_GROUPS = frozenset({"{", "(", "!", "if", "while", "until", "then", "do", ":::", ":::+"})  # time { a; }, parallel ::: a


class InnerLine(str):
    """A line inside a line."""

    __slots__ = ()


class VariableValue(tuple[str, ...]):
    """The words of a variable's value that no program is known to run."""

    __slots__ = ()


class WrappedTooDeep(Exception):
    """The line nests more wrappers than anyone writes."""


Started = Sequence[str] | InnerLine


def starts(words: Sequence[str], depth: int = 0) -> Iterator[tuple[Started, int]]:
    """Yields the command itself, then all that it starts: words of commands and whole lines, with their depth."""
    if depth > DEEPEST_WRAPPERS:
        raise WrappedTooDeep
    yield words, depth
    assigned = 0
    while assigned < len(words) and (value := _ASSIGNMENT.fullmatch(words[assigned])):
        yield from _starts_in_value(words[assigned].partition("=")[0], value[1], depth)  # PAGER=rm man x
        assigned += 1
    if assigned:
        yield from starts(words[assigned:], depth + 1) if words[assigned:] else ()
        return
    name = base_name(os.path.basename(words[0])) if words else ""
    if name in WRAPPERS or name in SHELLS or LOADER.fullmatch(name):
        yield from _starts_behind_wrapper(name, words[1:], depth + 1)
    if name == "alias":
        for word in words[1:]:
            yield InnerLine(word.partition("=")[2]), depth + 1
    elif name in EVALUATING:
        yield from _starts_in_words(words[1:], depth + 1)
    if name in LINE_OPTIONS:
        yield from _starts_in_options(name, words[1:], depth + 1)
    if name in ANYWHERE:
        yield from _starts_anywhere(ANYWHERE[name], words[1:], depth + 1)
    for index, word in enumerate(words):
        if word in RUNS_NEXT:
            yield from starts([more.replace("{}", SOME) for more in words[index + 1 :]], depth + 1)


def _starts_in_value(name: str, value: str, depth: int) -> Iterator[tuple[Started, int]]:
    """Yields a program or a line in a variable."""
    line = value.lstrip("!|- ")
    runs = bool(PROGRAM_VARIABLE.fullmatch(name.removesuffix("+")))
    if is_known(value):
        yield line.split() if runs else VariableValue(line.split()), depth
    if _SUBSTITUTES.search(value) or (runs and line and _IS_A_LINE_IN_VALUE.search(line)):
        yield InnerLine(line if runs else value), depth  # PS4='$(rm x)', GIT_EXTERNAL_DIFF='r""m x'


def _starts_in_words(words: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """Reads `export PAGER='rm x'`, `test -v 'a[$(rm x)]'`."""
    for word in words:
        if _SUBSTITUTES.search(word):
            yield InnerLine(f": {word}"), depth  # what is substituted runs, the word itself does not
        if value := _ASSIGNMENT.fullmatch(word):
            yield from _starts_in_value(word.partition("=")[0], value[1].strip("\"'"), depth)


def _starts_anywhere(behind: frozenset[str], words: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """Reads `docker run … rm x`: any word behind the subcommand may be the program."""
    start = next((number for number, word in enumerate(words) if word in behind), len(words))
    if start < len(words) and words[start] in _GIVES_PATHS:
        words = [*words, ANY]
    for number in range(start + 1, len(words)):
        word = words[number]
        if not word.startswith("-") and word:
            yield from starts(words[number:], depth)
            if _IS_A_LINE.search(word):
                yield InnerLine(word), depth


def _starts_in_options(name: str, words: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """Reads `tar -I 'rm x'`, `ssh -o ProxyCommand='rm x'`, `git -c alias.x='!rm x'`."""
    for value in option_values(name, words):
        for text in dict.fromkeys((value, value.partition("=")[2], value.partition(":")[2], value.partition(" ")[2])):
            line = text.strip("\"'[] \t\n").lstrip("!|@-")
            if not line:
                continue
            if _IS_A_LINE_IN_VALUE.search(line):
                yield InnerLine(line), depth
            if is_known(line):
                yield from starts(line.replace(",", " ").split() or [line], depth)


def option_values(name: str, words: Sequence[str], table: Mapping[str, frozenset[str]] = LINE_OPTIONS) -> Iterator[str]:
    """Yields the values of the options that the table lists for a program."""
    options = table.get(name, frozenset())
    letters = {option[1] for option in options if len(option) == 2 and option[0] == "-"}
    for number, word in enumerate(words):
        following = words[number + 1] if number + 1 < len(words) else ""
        head, has_value, value = word.partition("=")
        if word.startswith("--"):
            if len(head) > 3 and any(option.startswith(head) for option in options):
                yield value if has_value else following
        elif word in options:
            yield following
        elif word.startswith("-"):
            if head in options:
                yield value
            yield from (
                word[len(one) :] for one in options if 2 < len(one) < len(word) and word.startswith(one)
            )  # -TTrm
            for position, letter in enumerate(word[1:], 1):
                if letter in letters:
                    yield word[position + 1 :] or following
                    break
        elif any(not option.startswith("-") and word.upper().startswith(f"{option}:") for option in options):
            yield word.partition(":")[2]
    if table is LINE_OPTIONS:
        yield from _own_values(name, words)


def _own_values(name: str, words: Sequence[str]) -> Iterator[str]:
    """Returns values outside of options: git -c, git config, remotes of git, tar's letters without a dash."""
    if name == "git":
        settings = (more for word, more in pairwise(words) if word in ("-c", "--config", "--config-env"))
        yield from (more.partition("=")[2] for more in settings if "=" in more)
        yield from (word.partition("=")[2] for word in words if word.startswith("-c") and "=" in word)
        yield from (word[5:] for word in words if word.startswith("ext::"))
        if "config" in words:
            yield from words[words.index("config") + 1 :]
    elif name == "tar" and words and not words[0].startswith("-") and set(words[0]) & {"I", "F"}:
        yield from words[1:]
    elif name == "hash" and "-p" in words:
        yield from words


def _starts_behind_wrapper(name: str, words: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """Yields what a wrapper starts: its first word that is not an option, and the next if that one may be a value."""
    if name in TAKES_LINES:  # several words, once it is read as a line
        words = [word.replace(SOME, ANY).replace(GLOB, ANY) for word in words]
    if name == "env" and any(map(_SPLITS.match, words)):
        words = [word.replace("\\_", " ") for word in words]  # env -S 'rm\\_x'
    if name in APPENDS and any(not word.startswith("-") for word in words):
        words = [*(word.replace("{}", SOME) for word in words), ANY]  # what they read, as further words
    if name == "eval":
        yield InnerLine(" ".join(words)), depth
    skip = POSITIONALS.get(name, 0)
    after_option = False
    for index, word in enumerate(words):
        if word.startswith("-") or (word.startswith("+") and name in SHELLS):
            after_option = _takes_value(word, name)
            yield from _starts_in_option(word, words[index + 1 :], depth)
            continue
        assigned = _ASSIGNMENT.fullmatch(word)
        if _IS_A_LINE_IN_VALUE.search(word):
            yield InnerLine(assigned[1] if assigned else word), depth
        if assigned or not word or word in _GROUPS:
            after_option = False
            continue
        yield from starts(words[index:], depth)
        if not after_option and not skip:
            return
        skip -= not after_option
        after_option = False


def _takes_value(option: str, name: str) -> bool:
    """Returns whether the word behind an option may be its value; for shells this is known."""
    if name in SHELLS:
        return option.startswith(("--rcfile", "--init-file")) or (
            option[:2] != "--" and bool(set(option) & set("coOC"))
        )
    return "=" not in option and option not in ("--", "--args")


def _starts_in_option(word: str, more: Sequence[str], depth: int) -> Iterator[tuple[Started, int]]:
    """Yields commands in the option itself: env -Srm x, script -qc'rm x' log, --split-string='rm x'."""
    if word.startswith("--"):
        values = [word.partition("=")[2]]
    else:
        values = [word[start:] for start in range(2, min(len(word), 5))]
    for value in filter(None, values):
        if _IS_A_LINE_IN_VALUE.search(value):
            yield InnerLine(value), depth
        else:
            yield from starts([value, *more], depth)
