"""Compiles glob patterns to regular expressions whose cost never explodes, and finds names similar to a missing one.

A `*` matches as little as possible and never backtracks: the text between two stars has a fixed length, so the first
match is as good as any other. The names between two `**` work likewise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise, product
from operator import methodcaller

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory
from forge.workspace.state import STRAY

LONGEST_PATTERN = 4_096  # characters of a pattern
MOST_ALTERNATIVES = 256
MOST_GROUPS = 64
ANYWHERE = "**"

_BRACES = re.compile(r"\\.|[{},]", re.DOTALL)
_WILD = re.compile(r"[*?\[\\]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BRACKETS = re.compile(r"\\.|[\[\]]", re.DOTALL)
_ALL_BRACKETS = re.compile(r"\\.|[\[\]{}]", re.DOTALL)
_SUFFIX = re.compile(r"\*\.\w{1,4}", re.ASCII)
_END = r"(?=/|\Z)"


class BadGlob(ValueError):
    """The pattern is invalid; the message explains the problem."""


class Glob:
    """One pattern. Paths are relative to the start of the pattern, with `/` between names."""

    def __init__(self, alternatives: list[list[str]], case_sensitive: bool = True) -> None:
        self._fold = not case_sensitive
        self.flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
        self.fits: Callable[[str], object] = self._compile([path_expression(one) for one in alternatives])
        self.fits_name = self._last_names(alternatives)
        self.decided_by_name = all(len(one) == 2 and one[0] == ANYWHERE for one in alternatives)
        self._literal_names = {
            _ESCAPE.sub(r"\1", name) for one in alternatives for name in one if not _WILD.search(_ESCAPE.sub("", name))
        }
        if self._fold:
            self._literal_names = {name.lower() for name in self._literal_names}
        self.leads_anywhere = any(one[0] == ANYWHERE for one in alternatives)
        self._ways = [(self._head_names(one), ANYWHERE in one, len(one)) for one in alternatives]

    def __contains__(self, name: object) -> bool:
        """Returns whether the pattern names this file or directory literally."""
        return (name.lower() if self._fold and isinstance(name, str) else name) in self._literal_names

    def leads_below(self, directory: str) -> bool:
        """Returns whether something below this directory may match."""
        names = directory.split("/")
        return any(
            (recursive or len(names) < depth) and all(fits(name) for fits, name in zip(head, names, strict=False))
            for head, recursive, depth in self._ways
        )

    def _last_names(self, alternatives: list[list[str]]) -> Callable[[str], object] | None:
        """Returns a matcher for the file's own name; None: any name may match."""
        lasts = dict.fromkeys(one[-1] for one in alternatives)
        if ANYWHERE in lasts:
            return None
        if all(_SUFFIX.fullmatch(last) for last in lasts):  # most patterns are suffixes, and this is faster
            suffixes = [form for last in lasts for form in (_cases(last[1:]) if self._fold else [last[1:]])]
            return methodcaller("endswith", tuple(suffixes))
        return self._compile([name_expression(last) for last in lasts])

    def _head_names(self, segments: list[str]) -> list[Callable[[str], object]]:
        head = segments[: segments.index(ANYWHERE)] if ANYWHERE in segments else segments
        return [self._compile([name_expression(name)]) for name in head]

    def _compile(self, expressions: list[str]) -> Callable[[str], object]:
        return re.compile(rf"(?:{'|'.join(expressions)})\Z", self.flags).match


@lru_cache(maxsize=256)
def compile_glob(pattern: str, case_sensitive: bool = True) -> Glob:
    """Compiles a pattern. Raises `ToolError` if it is invalid."""
    try:
        return Glob([segments_of(text) for text in alternatives_of(pattern)], case_sensitive)
    except BadGlob as error:
        raise ToolError(f"not a valid pattern: {error}", ErrorKind.VALIDATION, "Write it like src/**/*.py.") from None


def plain_readings(pattern: str) -> list[str]:
    """Returns the pattern with its brackets, and also its braces, as literal characters: `app/[slug]/*.tsx`. Empty
    without any.
    """
    readings = (_escape(_BRACKETS, pattern), _escape(_ALL_BRACKETS, pattern))
    return [reading for reading in dict.fromkeys(readings) if reading != pattern]


def compile_plain_glob(pattern: str, case_sensitive: bool = True) -> Glob | None:
    """Compiles the pattern as names that contain brackets; None if it has none."""
    try:
        alternatives = [text for reading in plain_readings(pattern) for text in alternatives_of(reading)]
        return Glob([segments_of(text) for text in alternatives], case_sensitive) if alternatives else None
    except BadGlob:
        return None


def _escape(characters: re.Pattern[str], pattern: str) -> str:
    return characters.sub(lambda found: found[0] if found[0].startswith("\\") else f"\\{found[0]}", pattern)


def literal_head(pattern: str) -> tuple[str, str]:
    """Splits a pattern into the literal directories at its start and the rest: `a/b/*.c` is `a/b` and `*.c`."""
    *above, last = pattern.split("/")
    if last in ("", ".", ".."):
        above, last = [*above, last] if last else above, ANYWHERE
    number = next((position for position, name in enumerate(above) if not is_literal(name)), len(above))
    head = "/".join(above[:number])
    return head or "/" * pattern.startswith("/"), "/".join([*above[number:], last])


def alternatives_of(pattern: str) -> list[str]:
    """Expands `a{b,c}` to `ab` and `ac`; braces may be nested; an unpaired brace is literal."""
    if len(pattern) > LONGEST_PATTERN:
        raise BadGlob(f"it has {len(pattern):,} characters, the limit is {LONGEST_PATTERN:,}")
    if not pattern or "\0" in pattern:
        raise BadGlob("it contains a NUL byte" if pattern else "it is empty")
    if "{" not in pattern:
        return [pattern]
    if pattern.count("{") > MOST_GROUPS:
        raise BadGlob(f"it has more than {MOST_GROUPS} groups in braces")
    found = list(dict.fromkeys(_expand_braces(pattern)))
    if sum(map(len, found)) > MOST_ALTERNATIVES * 256:
        raise BadGlob("its alternatives are too long")
    return found


def segments_of(pattern: str) -> list[str]:
    """Splits a pattern into names: drops `.` and doubled slashes, resolves `a/..`, and expands `x/` to everything below
    x.
    """
    segments: list[str] = []
    for name in (f"{pattern}{ANYWHERE}" if pattern.endswith("/") else pattern).split("/"):
        if name == "..":
            if not segments or _WILD.search(segments[-1]):
                raise BadGlob("it has .. at its start or after a wildcard")
            segments.pop()
        elif name not in ("", ".") and (name != ANYWHERE or segments[-1:] != [ANYWHERE]):
            segments.append(name)
    if not segments:
        raise BadGlob("it matches nothing")
    return segments


def path_expression(segments: list[str]) -> str:
    """Builds the regular expression of a whole path."""
    runs: list[list[str]] = [[]]  # of names between two `**`
    for segment in segments:
        if segment == ANYWHERE:
            runs.append([])
        else:
            runs[-1].append(name_expression(segment))
    first, *others = runs
    if not others:
        return "/".join(first)
    *middle, last = others
    start = "".join(f"{name}/" for name in first)
    between = "".join(rf"(?>(?:[^/]+/)*?{'/'.join(run)}/)" for run in middle)
    return start + between + (rf"(?:[^/]+/)*?{'/'.join(last)}\Z" if last else ".+")


def name_expression(segment: str) -> str:
    """Builds the regular expression of one name."""
    pieces = [""]
    for part in _parse_name(segment):
        if part != "*":
            pieces[-1] += part
        elif pieces[-1] or len(pieces) == 1:
            pieces.append("")
    if len(pieces) == 1:
        return pieces[0] + _END
    first, *middle, last = pieces
    if not first and not middle and not last:
        return "[^/]+"
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle) + (f"(?>[^/]*{last}{_END})" if last else "[^/]*")


def is_literal(text: str) -> bool:
    """Returns whether the text has no wildcards."""
    return not _WILD.search(text) and "{" not in text


def _parse_name(segment: str) -> Iterator[str]:
    position = 0
    while position < len(segment):
        char = segment[position]
        position += 1
        if char == "*":
            yield "*"
        elif char == "?":
            yield "[^/]"
        elif char == "[" and (end := _end_of_class(segment, position)):
            yield _class_expression(segment[position : end - 1])
            position = end
        elif char == "\\":
            if position == len(segment):
                raise BadGlob("it ends with a backslash that escapes nothing")
            yield re.escape(segment[position])
            position += 1
        else:
            yield re.escape(char)


def _end_of_class(segment: str, start: int) -> int:
    """Returns the position after the `]`; 0: there is none, and the `[` is literal."""
    first = start + 1 if segment[start : start + 1] in ("!", "^") else start
    return segment.find("]", first + 1) + 1


def _class_expression(text: str) -> str:
    negated = text[:1] in ("!", "^")
    members = text[1:] if negated else text
    shown = ""
    position = 0
    while position < len(members):
        low = high = members[position]
        position += 1
        if members[position : position + 1] == "-" and position + 1 < len(members):
            high = members[position + 1]
            position += 2
        if high < low:
            raise BadGlob(f"the range {low}-{high} goes backwards")
        shown += f"{re.escape(low)}-{re.escape(high)}"
    return f"[^/{shown}]" if negated else f"(?!/)[{shown}]"


def _expand_braces(pattern: str) -> Iterator[str]:
    pending = [pattern]
    number = 0
    while pending:
        text = pending.pop()
        group = _find_first_group(text)
        if group is None:
            number += 1
            yield text
        else:
            start, commas, end = group
            choices = pairwise([start, *commas, end])
            pending += [text[:start] + text[here + 1 : there] + text[end + 1 :] for here, there in choices][::-1]
        if number + len(pending) > MOST_ALTERNATIVES:
            raise BadGlob(f"it has more than {MOST_ALTERNATIVES} alternatives")


def _find_first_group(pattern: str) -> tuple[int, list[int], int] | None:
    """Returns the positions of the first `{` that has a partner, of its commas, and of its partner."""
    open_groups: list[tuple[int, list[int]]] = []
    found: tuple[int, list[int], int] | None = None
    for mark in _BRACES.finditer(pattern):
        if mark[0] == "{":
            open_groups.append((mark.start(), []))
        elif mark[0] == "," and open_groups:
            open_groups[-1][1].append(mark.start())
        elif mark[0] == "}" and open_groups:
            start, commas = open_groups.pop()
            if found is None or start < found[0]:
                found = (start, commas, mark.start())
            if not open_groups:
                break
    return found


def _cases(text: str) -> list[str]:
    """Returns the text in every combination of lower and upper case."""
    return ["".join(chars) for chars in product(*({char.lower(), char.upper()} for char in text))]


# Finds existing names similar to a missing file's name, in a bounded part of the tree.


MOST_NAMES = 5_000  # compared in one directory
MOST_ELSEWHERE = 5_000  # compared in the rest of the tree
ALIKE = 0.6
SKIPPED = frozenset({".git", ".forge", "node_modules", "vendor", "__pycache__", ".venv", "dist", "build"})


def find_similar_names(location: Location, most: int = 3) -> list[str]:
    """Returns paths similar to a missing one: similar names beside it, then the same name elsewhere.

    Best first. Never raises: a directory that cannot be read has no names.
    """
    beside = [entry for entry in _list_entries(location.parent, MOST_NAMES) if not entry[1]]
    found = [
        location.parent.child(name).shown for name in _rank_alike(location.name, [name for name, _ in beside], most)
    ]
    if len(found) < most:
        found += [shown for shown in _find_elsewhere(location, most) if shown not in found][: most - len(found)]
    return found


def _rank_alike(wanted: str, names: list[str], most: int) -> list[str]:
    """Returns names that differ in case, in the extension or in a few letters, in that order."""
    from difflib import get_close_matches  # slow to import, needed only here

    folded, stem = wanted.casefold(), _stem(wanted)
    same = sorted(name for name in names if name.casefold() == folded and name != wanted)
    same += sorted(name for name in names if _stem(name) == stem and name not in same and name != wanted)
    if len(same) < most:
        close = {name.casefold(): name for name in names if name not in same and name != wanted}
        same += [close[name] for name in get_close_matches(folded, close, most, ALIKE)]
    return same[:most]


def _stem(name: str) -> str:
    return os.path.splitext(name)[0].casefold()


def _find_elsewhere(location: Location, most: int) -> list[str]:
    """Returns files of the same name in other directories, those nearest to the root first."""
    found: list[str] = []
    waiting = [Location(location.root, ".", _top(location), location.writable)]
    left = MOST_ELSEWHERE
    folded = location.name.casefold()
    for directory in waiting:  # grows while it is walked
        for name, is_directory in _list_entries(directory, left):
            left -= 1
            if is_directory:
                if name not in SKIPPED:
                    waiting.append(directory.child(name))
            elif name.casefold() == folded and directory.relative != location.parent.relative:
                found.append(directory.child(name).shown)
        if left <= 0 or len(found) >= most:
            break
    return found[:most]


def _top(location: Location) -> str:
    return "." if not os.path.isabs(location.shown) else str(location.root)


def _list_entries(directory: Location, most: int) -> Iterator[tuple[str, bool]]:
    """Yields names in a directory, with True for directories; skips special files."""
    try:
        descriptor = open_directory(directory)
    except ToolError:
        return
    try:
        with os.scandir(descriptor) as entries:
            for entry, _ in zip(entries, range(most), strict=False):
                if entry.name.startswith(STRAY):
                    continue
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory or entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    yield entry.name, is_directory
    except OSError:
        return
    finally:
        os.close(descriptor)
