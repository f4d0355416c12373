"""Finds shell lines that provably only read: literal words, known commands and options, paths inside."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.shell.literal_line import Area, destination, directories, split_literal
from forge.permissions.shell.read_only.flags import (
    COMMANDS,
    FIND_PATHS,
    FIND_TESTS,
    FIND_VALUED,
    PLAIN,
    VERSIONED,
    ReadOnlyFlags,
    options_of,
    paths_of,
)
from forge.permissions.shell.read_only.git import git_reads

_SAYING = frozenset({"echo", "true", "false"})  # part of the shell, and any words do
_HARMLESS_VARIABLES = re.compile(
    r"(?:(?:LANG|LC_[A-Z]+|NO_COLOR|TERM|COLUMNS|LINES)=[\w.@,:+-]*|TZ=[A-Za-z_]+(?:/[A-Za-z_]+)*[0-9+-]*)"
)
_DURATION = re.compile(r"[0-9.]+[smhd]?")


def only_reads(line: str, scope: Scope, directory: str = "") -> list[str] | None:
    """Returns the paths that a line reads, directories with all their content; None unless it provably only reads.

    `directory` is where it runs, the workspace if it is empty.
    """
    found = split_literal(line)
    run_in = directories(found, directory) if found else None
    if run_in is None:
        return None
    area = Area(scope)
    reading: dict[str, None] = {}
    for part, where in zip(found, run_in, strict=True):
        paths = _paths(part.words, _RunLocation(where, directory, area))
        if paths is None or not area.has_all([*paths, "."] if any(where) else paths, where):
            return None
        reading |= dict.fromkeys(os.path.join(start, path) for start in where for path in paths)
    return list(reading)


def is_plain(line: str) -> bool:
    """Returns whether a line is one program that reads no settings and starts nothing, with literal words.

    Such a line that only reads may run without a question where no sandbox can enforce it.
    """
    found = split_literal(line)
    return len(found) == 1 and found[0].words[0] in PLAIN


class _RunLocation(NamedTuple):
    """The directories a command may run in, and where the line began."""

    where: tuple[str, ...]
    start: str
    area: Area


def _paths(words: Sequence[str], location: _RunLocation) -> list[str] | None:
    """Returns the paths of one command; None if it may do more than read."""
    name, more = words[0], words[1:]
    if name in _SAYING:
        return []
    if name in BUILTINS:
        return BUILTINS[name](more)
    if _is_shadowed(name, location.area):
        return None
    if more == ("--version",) and name in VERSIONED:
        return []
    if name in _UNWRAP:
        inner = _UNWRAP[name](more)
        return _paths(inner, location) if inner else None
    if name == "git":
        return _git(more, location)
    if name in SPECIAL:
        return SPECIAL[name](more)
    flags = COMMANDS.get(name)
    read = None if flags is None else paths_of(more, flags)
    if read is None or (name in _CHECKS and not _CHECKS[name](more, read, location)):
        return None
    if name in ("grep", "egrep", "fgrep") and read == [] and _is_recursive(more):
        return ["."]
    return read


def _git(words: Sequence[str], location: _RunLocation) -> list[str] | None:
    """Returns the paths of a Git command. Behind a `cd` it could use a repository that is not checked here."""
    if location.where != (location.start,):
        return None
    root = location.area.workspace
    return git_reads(words, os.path.normpath(os.path.join(root, location.start)), root)


def _is_shadowed(name: str, area: Area) -> bool:
    """Returns whether a program of that name lies where tools may write and the shell looks for programs."""
    entries = _own_entries(os.environ.get("PATH", ""), area.workspace, area.around)
    return any(os.path.lexists(os.path.join(entry, name)) for entry in entries)


@lru_cache(maxsize=64)
def _own_entries(search: str, workspace: str, around: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the directories for programs that lie in the workspace or beside it, or are reachable from there."""
    entries = [os.path.join(workspace, entry) for entry in search.split(os.pathsep)]
    inside = [
        any(entry == root or entry.startswith(f"{root}/") for root in around)
        for entry in map(os.path.realpath, entries)
    ]
    return tuple(entry for entry, is_ours in zip(entries, inside, strict=True) if is_ours)


def _is_recursive(words: Sequence[str]) -> bool:
    return any(word == "--recursive" or (word.startswith("-") and "r" in word) for word in words)


def _env(words: Sequence[str]) -> Sequence[str]:
    while words and _HARMLESS_VARIABLES.fullmatch(words[0]):
        words = words[1:]
    return words


def _timeout(words: Sequence[str]) -> Sequence[str]:
    return words[1:] if words and _DURATION.fullmatch(words[0]) else ()


def _nice(words: Sequence[str]) -> Sequence[str]:
    return words[2:] if words[:1] == ("-n",) else words


def _stdbuf(words: Sequence[str]) -> Sequence[str]:
    while words and words[0] in ("-oL", "-o0", "-eL", "-e0"):
        words = words[1:]
    return words


def _command(words: Sequence[str]) -> Sequence[str]:
    return ("which", *words[1:]) if words[:1] in (("-v",), ("-V",)) else words


_UNWRAP: dict[str, Callable[[Sequence[str]], Sequence[str]]] = {
    "command": _command,
    "env": _env,
    "nice": _nice,
    "stdbuf": _stdbuf,
    "time": lambda words: words[1:] if words[:1] == ("-p",) else words,
    "timeout": _timeout,
}


def _has_no_folder(words: Sequence[str], paths: Sequence[str], location: _RunLocation) -> bool:
    """Refuses directories, in which `diff` follows links wherever they lead."""
    folders = (os.path.join(location.area.workspace, where, path) for where in location.where for path in paths)
    return "--no-dereference" in words or not any(map(os.path.isdir, folders))


def _has_no_list(words: Sequence[str], paths: Sequence[str], location: _RunLocation) -> bool:
    """Refuses `strings @file`, which takes further words from a file."""
    return not any(word.startswith("@") for word in words)


def _has_no_settings(words: Sequence[str], paths: Sequence[str], location: _RunLocation) -> bool:
    """Refuses a settings file, which can name a program for rg to start."""
    return "--no-config" in words or "RIPGREP_CONFIG_PATH" not in os.environ


_CHECKS: dict[str, Callable[[Sequence[str], Sequence[str], _RunLocation], bool]] = {
    "diff": _has_no_folder,
    "rg": _has_no_settings,
    "strings": _has_no_list,
}


# Reads commands that only read, but have a language of their own: find, sed, jq, test, printf, date and cd.


# Every conversion of a format that is known to assign nothing: `%n` sets a variable.
_FORMAT = re.compile(
    r"(?:[^%]|%%|%[-+ #0']*(?:\*|[0-9]+)?(?:\.(?:\*|[0-9]*))?(?:hh?|ll?|[jztL])?[diouxXeEfFgGaAcsbq]|%\([^()%]*\)T)*"
)
_UNARY_OF_FILES = frozenset("-b -c -d -e -f -g -h -k -L -p -r -s -S -u -w -x -O -G -N".split())
_UNARY = frozenset({"-n", "-z"})
_BINARY_OF_FILES = frozenset({"-nt", "-ot", "-ef"})
_BINARY = frozenset("= == != < > -eq -ne -lt -le -gt -ge".split())
_NUMBER = re.compile(r"[+-]?[0-9]+")
# A pattern may hold a bracket expression only without the character that ends the pattern: seds differ about it.
_ADDRESS = r"(?:[0-9]+|\$|/(?:[^/\\\[\n]|\\.|\[[^\]\[/\n]+\])*/I?)"
_SED = re.compile(
    rf"\s*(?:{_ADDRESS}(?:[,~][+~]?{_ADDRESS})?)?\s*!?\s*"
    r"(?:[pdDPqQ=lnNgGhHx][0-9]*|s(?P<mark>[/|#,:@%])(?:(?!(?P=mark))[^\\\[\n]|\\.|\[(?:(?!(?P=mark))[^\]\[\n])+\])*(?P=mark)"
    r"(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gpiIM0-9]*)?\s*"
)
_JQ_REACHES_OUT = re.compile(r"\$__|\benv\b|\bENV\b|import|include|module|input_filename|get_search_list")


def _find(words: Sequence[str]) -> list[str] | None:
    start = next((i for i, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    paths = list(words[:start])
    rest = iter(words[start:])
    for word in rest:
        if word in FIND_VALUED:
            next(rest, None)
        elif word in FIND_PATHS:
            paths.append(next(rest, "/"))
        elif word not in FIND_TESTS:
            return None
    return paths or ["."]


def _sed(words: Sequence[str]) -> list[str] | None:
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("-e", "-ne", "-nEe", "-Ee", "--expression"):
            scripts.append(next(rest, "w"))
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("-"):
            if word.strip("-nErsuz") and word not in ("--quiet", "--silent", "--regexp-extended"):
                return None
        else:
            operands.append(word)
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    return operands if scripts and all(map(is_reading_script, scripts)) else None


def is_reading_script(script: str) -> bool:
    """Returns whether a sed script only prints, deletes and replaces: no `w`, `r` or `e`."""
    at = 0
    while at < len(script):
        command = _SED.match(script, at)
        if command is None or (command.end() < len(script) and script[command.end()] not in ";\n"):
            return False
        at = command.end() + 1
    return True


def _jq(words: Sequence[str]) -> list[str] | None:
    flags = ReadOnlyFlags(
        "rcnsSMCaej",
        "",
        frozenset("raw-output compact-output null-input slurp sort-keys exit-status join-output tab".split()),
        frozenset({"indent"}),
    )
    options = options_of(words, flags)
    if options is None or not options[1] or _JQ_REACHES_OUT.search(options[1][0]):
        return None
    return options[1][1:]


def _date(words: Sequence[str]) -> list[str] | None:
    """Refuses `date 01011200`, which sets the clock."""
    options = options_of(words, COMMANDS["date"])
    return [] if options and all(word.startswith("+") for word in options[1]) else None


def _printf(words: Sequence[str]) -> list[str] | None:
    """Refuses `printf -v PATH` and `printf %n PATH`, which assign."""
    words = words[1:] if words[:1] == ("--",) else words
    return [] if words and not words[0].startswith("-") and _FORMAT.fullmatch(words[0]) else None


def _test(words: Sequence[str]) -> list[str] | None:
    """Refuses `test -v 'a[…]'`, which evaluates the brackets."""
    match [*(words[1:] if words[:1] == ("!",) else words)]:
        case [_]:
            return []
        case [operator, path] if operator in _UNARY_OF_FILES:
            return [path]
        case [operator, _] if operator in _UNARY:
            return []
        case [one, operator, other] if operator in _BINARY_OF_FILES:
            return [one, other]
        case [one, operator, other] if operator in _BINARY:
            are_numbers = bool(_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other))
            return [] if are_numbers or not operator.startswith("-") else None
    return None


def _cd(words: Sequence[str]) -> list[str] | None:
    return None if destination(("cd", *words)) is None else []


BUILTINS: dict[str, Callable[[Sequence[str]], list[str] | None]] = {"cd": _cd, "printf": _printf, "test": _test}
SPECIAL: dict[str, Callable[[Sequence[str]], list[str] | None]] = {
    "date": _date,
    "find": _find,
    "jq": _jq,
    "sed": _sed,
}
