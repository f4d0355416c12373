"""Finds shell lines that provably only read: literal words, known commands and options, paths inside."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from forge.core.context import Scope
from forge.permissions.shell.literal_line import split_literal
from forge.permissions.shell.read_only.flags import COMMANDS, PLAIN, VERSIONED
from forge.permissions.shell.read_only.git import git_reads
from forge.permissions.shell.read_only.options import paths_of
from forge.permissions.shell.read_only.special_commands import BUILTINS, SPECIAL
from forge.permissions.shell.working_directories import Area, directories

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
    """Says whether a line is one program that reads no settings and starts nothing, with literal words.

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
    """Says whether a program of that name lies where tools may write and the shell looks for programs."""
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
