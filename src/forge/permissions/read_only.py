"""Which shell lines provably only read, and what: literal words, every command and option known, paths inside."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from forge.core.context import Scope
from forge.permissions.read_only_flags import (
    COMMANDS,
    FIND_PATHS,
    FIND_TESTS,
    FIND_VALUED,
    GIT,
    GIT_LISTS,
    PLAIN,
    SEARCHING,
    VERSIONED,
    Flags,
    Operands,
)
from forge.permissions.shell_literal import Part, parts
from forge.permissions.shell_places import Area, destination, directories

_SAYING = frozenset({"echo", "printf", "true", "false"})  # part of the shell, and any words do
_ON_MANY_FILES = frozenset("cat egrep fgrep file grep head ls md5sum rg sha256sum stat tail wc".split())
_HARMLESS_VARIABLES = re.compile(r"(?:LANG|LC_\w+|TZ|NO_COLOR|TERM|COLUMNS|LINES)=")
_DURATION = re.compile(r"[0-9.]+[smhd]?")
# A pattern may hold a bracket expression only without the character that ends the pattern: seds differ about it.
_ADDRESS = r"(?:[0-9]+|\$|/(?:[^/\\\[]|\\.|\[[^\]\[/]+\])*/I?)"
_SED = re.compile(
    rf"\s*(?:{_ADDRESS}(?:[,~][+~]?{_ADDRESS})?)?\s*!?\s*"
    r"(?:[pdDPqQ=lnNgGhHx][0-9]*|s(?P<mark>[/|#,:@%])(?:(?!(?P=mark))[^\\\[]|\\.|\[(?:(?!(?P=mark))[^\]\[])+\])*(?P=mark)"
    r"(?:(?!(?P=mark))[^\\]|\\.)*(?P=mark)[gpiIM0-9]*)?\s*"
)
_JQ_REACHES_OUT = re.compile(r"\$__|\benv\b|\bENV\b|import|include|module|input_filename|get_search_list")


def only_reads(line: str, scope: Scope, directory: str = "") -> list[str] | None:
    """The paths that a line reads, directories with all that is in them; None unless it provably only reads.

    `directory` is where it runs, the workspace if it is empty.
    """
    found = parts(line)
    places = directories(found, directory) if found else None
    if places is None:
        return None
    area = Area(scope)
    reading: dict[str, None] = {}
    for number, (part, where) in enumerate(zip(found, places, strict=True)):
        before = found[number - 1] if part.joint == "|" else None
        paths = _paths(part.words, before, _Repository(where, directory, area))
        if paths is None or not area.has_all([*paths, "."] if any(where) else paths, where):
            return None
        reading |= dict.fromkeys(os.path.join(place, path) for place in where for path in paths)
    return list(reading)


def reads_plainly(line: str, scope: Scope, directory: str = "") -> bool:
    """Tell whether a line is one program that reads no settings and starts nothing, on literal paths inside.

    Such a line may run without a question where no sandbox can enforce that it only reads.
    """
    found = parts(line)
    return len(found) == 1 and found[0].words[0] in PLAIN and only_reads(line, scope, directory) is not None


class _Repository:
    """Whether Git may be run here: a directory that a tool filled must not pass for a repository, with its programs."""

    def __init__(self, where: tuple[str, ...], start: str, area: Area) -> None:
        self.where = where
        self.start = start
        self.area = area

    def is_safe(self) -> bool:
        if self.where != (self.start,):
            return False
        root = self.area.workspace
        place = os.path.normpath(os.path.join(root, self.start))
        while not os.path.lexists(os.path.join(place, ".git")):
            if os.path.lexists(os.path.join(place, "HEAD")):
                return False
            if place == root or place == os.path.dirname(place):
                return True
            place = os.path.dirname(place)
        return True


def _paths(words: Sequence[str], before: Part | None, repository: _Repository) -> list[str] | None:
    """The paths of one command; None if it may do more than read."""
    name, more = words[0], words[1:]
    if name in _SAYING:
        return []
    if _is_shadowed(name, repository.area):
        return None
    if more == ("--version",) and name in VERSIONED:
        return []
    if name in _UNWRAP:
        inner = _UNWRAP[name](more)
        return _paths(inner, before, repository) if inner else None
    if name == "xargs":
        return _xargs(more, before, repository)
    if name == "git":
        return _git(more) if repository.is_safe() else None
    if name in _SPECIAL:
        return _SPECIAL[name](more)
    flags = COMMANDS.get(name)
    if flags is None:
        return None
    read = _read(more, flags._replace(searches=True) if name in SEARCHING else flags)
    if name in ("grep", "egrep", "fgrep") and read == [] and _is_recursive(more):
        return ["."]
    return read


def _is_shadowed(name: str, area: Area) -> bool:
    """Whether a program of that name lies where tools may write and the shell looks for programs."""
    entries = _own_entries(os.environ.get("PATH", ""), area.workspace, area.around)
    return any(os.path.lexists(os.path.join(entry, name)) for entry in entries)


@lru_cache(maxsize=64)
def _own_entries(search: str, workspace: str, around: tuple[str, ...]) -> tuple[str, ...]:
    """The directories for programs that lie in the workspace or beside it, or are seen from there."""
    entries = [os.path.join(workspace, entry) for entry in search.split(os.pathsep)]
    inside = [
        any(place == root or place.startswith(f"{root}/") for root in around)
        for place in map(os.path.realpath, entries)
    ]
    return tuple(entry for entry, is_ours in zip(entries, inside, strict=True) if is_ours)


def _read(words: Sequence[str], flags: Flags) -> list[str] | None:
    options = _options(words, flags)
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


def _options(words: Sequence[str], flags: Flags) -> tuple[set[str], list[str]] | None:
    """The names of the options and the words that are none; None if an option is not on the list."""
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


def _cluster(letters: str, flags: Flags, given: set[str], rest: Iterator[str]) -> bool:
    """`-rn`, `-n5`, `-n 5`, `-5`."""
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


def _is_recursive(words: Sequence[str]) -> bool:
    return any(word == "--recursive" or (word.startswith("-") and "r" in word) for word in words)


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
    return operands if scripts and all(map(_is_reading_script, scripts)) else None


def _is_reading_script(script: str) -> bool:
    """Whether a sed script only prints, deletes and replaces: no `w`, `r` or `e`."""
    at = 0
    while at < len(script):
        command = _SED.match(script, at)
        if command is None or (command.end() < len(script) and script[command.end()] not in ";\n"):
            return False
        at = command.end() + 1
    return True


def _jq(words: Sequence[str]) -> list[str] | None:
    flags = Flags(
        "rcnsSMCaej",
        "",
        frozenset("raw-output compact-output null-input slurp sort-keys exit-status join-output tab".split()),
        frozenset({"indent"}),
    )
    options = _options(words, flags)
    if options is None or not options[1] or _JQ_REACHES_OUT.search(options[1][0]):
        return None
    return options[1][1:]


def _date(words: Sequence[str]) -> list[str] | None:
    """`date 01011200` sets the clock."""
    options = _options(words, COMMANDS["date"])
    return [] if options and all(word.startswith("+") for word in options[1]) else None


def _test(words: Sequence[str]) -> list[str] | None:
    return [word for word in words if not word.startswith("-")]


def _cd(words: Sequence[str]) -> list[str] | None:
    return None if destination(("cd", *words)) is None else []


def _git(words: Sequence[str]) -> list[str] | None:
    while words and words[0] in ("--no-pager", "--no-optional-locks", "-P", "--literal-pathspecs"):
        words = words[1:]
    if not words:
        return None
    name, more = words[0], words[1:]
    flags = GIT.get(name)
    if more and (two := GIT_LISTS.get(f"{name} {more[0]}")):
        flags, more = two, more[1:]
    elif flags is None and name in GIT_LISTS:
        flags = GIT_LISTS[name]
        if name in ("branch", "tag") and ("--list" in more or "-l" in more):
            flags = flags._replace(operands=Operands.TEXT)
    read = _read(more, flags) if flags else None
    return None if read is None else [*read, "."]


def _xargs(words: Sequence[str], before: Part | None, repository: _Repository) -> list[str] | None:
    """Only on files that `find -type f -print0` names: other names could be options, links or paths elsewhere."""
    if before is None or words[:1] not in (("-0",), ("--null",)) or len(words) < 2:
        return None
    found = before.words
    if found[0] != "find" or found[-1] != "-print0" or ("-type", "f") not in pairwise(found):
        return None
    if set(found) & {"!", "-not", "-o", "-or", ","} or words[1] not in _ON_MANY_FILES:
        return None
    return _paths(words[1:], None, repository)


def _env(words: Sequence[str]) -> Sequence[str]:
    while words and _HARMLESS_VARIABLES.match(words[0]):
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
_SPECIAL: dict[str, Callable[[Sequence[str]], list[str] | None]] = {
    "cd": _cd,
    "date": _date,
    "find": _find,
    "jq": _jq,
    "sed": _sed,
    "test": _test,
}
