"""Keeps the paths in a command's arguments inside the workspace and the declared roots."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from forge.core.errors import ErrorKind, ToolError
from forge.tools.cli_execute.binaries import Binary
from forge.tools.cli_execute.code import find_patterns
from forge.workspace.paths import MAX_NAME, MAX_PATH, PathValidator, quote_path

MOST_LOOKED_UP = 200  # parts of one argument

_MOST_WHOLE = 20  # parts of an argument that are looked at to its end, though that is more than a path can have
_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_SEPARATOR = re.compile(r"[=:,;@<>]")
_URL = re.compile(
    r"(?<![a-z0-9+.\-])(?:https?|wss?|ftps?|sftp|ssh|git|git\+ssh|git\+https|svn|rsync|s3|gs|az|oci|docker|redis"
    r"|postgres(?:ql)?|mysql)(?P<colon>:)//[^/\s,][^\s,]*",
    re.IGNORECASE,
)
_DELIMITING = {"cut": "-d", "sort": "-t", "join": "-t", "paste": "-d", "column": "-s", "awk": "-F", "mawk": "-F"}


def confine_paths(binary: Binary, args: Sequence[str], paths: PathValidator) -> list[str]:
    """Layer 6: every possible path in every argument stays inside. Returns those paths."""
    named: dict[str, None] = {}
    spared = find_patterns(binary, args) | _find_delimiters(binary, args)
    for index, argument in enumerate(args):
        if index in spared:
            continue
        looked_up = 0
        for piece in dict.fromkeys(find_paths(argument)):
            if piece in _DEVICES or not _may_lead_somewhere(piece, paths):
                continue
            looked_up += 1
            if looked_up > MOST_LOOKED_UP or leads_outside(piece, paths):
                raise _outside_error(index, argument if looked_up > MOST_LOOKED_UP else piece)
            named[piece] = None
    return list(named)


def find_paths(argument: str) -> Iterator[str]:
    """Yields the possible paths: the whole argument, and the text after `-x`, `--flag=`, `key=`, `@` or `host:`."""
    yield from _cut_at_separators(argument)
    if argument.startswith("-") and not argument.startswith("--"):
        end = argument.find("/") if "/" in argument else len(argument)
        for start in range(max(1, end - MAX_NAME), end + 1):  # after a cluster of flags of any length
            yield from _cut_at_separators(argument[start : start + MAX_PATH + 1])
    for number, separator in enumerate(_find_separators(argument)):
        yield from _cut_at_separators(argument, separator, whole=number < _MOST_WHOLE)


def leads_outside(piece: str, paths: PathValidator) -> bool:
    """Returns True if the path leaves the roots, as the kernel follows it or after normalisation."""
    for spelling in dict.fromkeys((piece, os.path.normpath(piece))):
        try:
            paths.resolve(spelling)
        except ToolError as error:
            if error.kind is ErrorKind.SECURITY:
                return True
            if error.kind is ErrorKind.VALIDATION and paths.location_of(paths.normalize(piece)) is None:
                return True  # too long for the kernel, but not once it is tidied up
    return False


def _cut_at_separators(argument: str, start: int = 0, *, whole: bool = True) -> Iterator[str]:
    """Yields the text from `start` to the end, and to the next separator, where a program may end a path."""
    if whole or len(argument) - start <= MAX_PATH:
        yield argument[start:]
    if separator := _SEPARATOR.search(argument, start + 1):
        yield argument[start : separator.start()]


def _find_separators(argument: str) -> Iterator[int]:
    """Yields possible starts; inside a URL only after a colon, where a list of paths could continue."""
    urls = _URL.finditer(argument) if "://" in argument else iter(())
    url = next(urls, None)
    for separator in _SEPARATOR.finditer(argument):
        while url is not None and url.end() <= separator.start():
            url = next(urls, None)
        is_inside = url is not None and url.start() <= separator.start()
        if not is_inside or (separator[0] == ":" and url is not None and separator.start() != url.start("colon")):
            yield separator.end()


def _may_lead_somewhere(piece: str, paths: PathValidator) -> bool:
    """Returns True if the path must be looked up: a missing name can only lie in the workspace."""
    if not piece.strip():
        return False
    if piece.startswith(("/", "~")) or ".." in piece:
        return True
    first = piece.partition("/")[0]
    return len(first) <= MAX_NAME and os.path.lexists(os.path.join(paths.workspace, first))


def _find_delimiters(binary: Binary, args: Sequence[str]) -> set[int]:
    """Returns the indexes of slashes that only delimit fields."""
    flags = {_DELIMITING[name] for name in binary.names if name in _DELIMITING}
    return {
        index
        for index, argument in enumerate(args)
        if any(argument == f"{flag}/" or (argument == "/" and index and args[index - 1] == flag) for flag in flags)
    }


def _outside_error(index: int, piece: str) -> ToolError:
    return ToolError(
        f"argument {index}: {quote_path(piece)} resolves outside the working directory",
        ErrorKind.SECURITY,
        "Use a path inside the workspace, relative to it.",
    )
