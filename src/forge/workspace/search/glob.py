"""Glob patterns over whole paths, compiled once to expressions whose cost never explodes.

A `*` matches as little as it can and never tries again: what stands between two stars has a fixed length, so the first
place where it fits is as good as any other. The same holds for the names between two `**`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise, product
from operator import methodcaller

from forge.core.errors import ErrorKind, ToolError

LONGEST = 4_096  # characters of a pattern
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
    """The words say what is wrong with the pattern."""


class Glob:
    """One pattern. Paths are relative to where the pattern starts, with `/` between names."""

    def __init__(self, alternatives: list[list[str]], case_sensitive: bool = True) -> None:
        self._fold = not case_sensitive
        self.flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
        self.fits: Callable[[str], object] = self._compiled([path_expression(one) for one in alternatives])
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
        """Whether the pattern names this file or directory literally."""
        return (name.lower() if self._fold and isinstance(name, str) else name) in self._literal_names

    def leads_below(self, directory: str) -> bool:
        """Whether something below this directory may fit."""
        names = directory.split("/")
        return any(
            (recursive or len(names) < depth) and all(fits(name) for fits, name in zip(head, names, strict=False))
            for head, recursive, depth in self._ways
        )

    def _last_names(self, alternatives: list[list[str]]) -> Callable[[str], object] | None:
        """What the file's own name must fit; None: any name may."""
        lasts = dict.fromkeys(one[-1] for one in alternatives)
        if ANYWHERE in lasts:
            return None
        if all(_SUFFIX.fullmatch(last) for last in lasts):  # most patterns are like that, and this is quicker
            suffixes = [form for last in lasts for form in (_cases(last[1:]) if self._fold else [last[1:]])]
            return methodcaller("endswith", tuple(suffixes))
        return self._compiled([name_expression(last) for last in lasts])

    def _head_names(self, segments: list[str]) -> list[Callable[[str], object]]:
        head = segments[: segments.index(ANYWHERE)] if ANYWHERE in segments else segments
        return [self._compiled([name_expression(name)]) for name in head]

    def _compiled(self, expressions: list[str]) -> Callable[[str], object]:
        return re.compile(rf"(?:{'|'.join(expressions)})\Z", self.flags).match


@lru_cache(maxsize=256)
def compiled(pattern: str, case_sensitive: bool = True) -> Glob:
    """The pattern, or a `ToolError` that says what is wrong with it."""
    try:
        return Glob([segments_of(text) for text in alternatives_of(pattern)], case_sensitive)
    except BadGlob as error:
        raise ToolError(f"not a valid pattern: {error}", ErrorKind.VALIDATION, "Write it like src/**/*.py.") from None


def plain_readings(pattern: str) -> list[str]:
    """The pattern with its brackets, and with its braces too, as parts of names: `app/[slug]/*.tsx`. Empty without."""
    readings = (_escaped(_BRACKETS, pattern), _escaped(_ALL_BRACKETS, pattern))
    return [reading for reading in dict.fromkeys(readings) if reading != pattern]


def compiled_plain(pattern: str, case_sensitive: bool = True) -> Glob | None:
    """What the pattern may also mean: names that have brackets in them."""
    try:
        alternatives = [text for reading in plain_readings(pattern) for text in alternatives_of(reading)]
        return Glob([segments_of(text) for text in alternatives], case_sensitive) if alternatives else None
    except BadGlob:
        return None


def _escaped(characters: re.Pattern[str], pattern: str) -> str:
    return characters.sub(lambda found: found[0] if found[0].startswith("\\") else f"\\{found[0]}", pattern)


def literal_head(pattern: str) -> tuple[str, str]:
    """The directories a pattern begins with, as a path, and the pattern below them: `a/b/*.c` is `a/b` and `*.c`."""
    *above, last = pattern.split("/")
    if last in ("", ".", ".."):
        above, last = [*above, last] if last else above, ANYWHERE
    number = next((place for place, name in enumerate(above) if not is_literal(name)), len(above))
    head = "/".join(above[:number])
    return head or "/" * pattern.startswith("/"), "/".join([*above[number:], last])


def alternatives_of(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`; braces may be nested, and those without a partner stand for themselves."""
    if len(pattern) > LONGEST:
        raise BadGlob(f"it has {len(pattern):,} characters, the limit is {LONGEST:,}")
    if not pattern or "\0" in pattern:
        raise BadGlob("it contains a NUL byte" if pattern else "it is empty")
    if "{" not in pattern:
        return [pattern]
    if pattern.count("{") > MOST_GROUPS:
        raise BadGlob(f"it has more than {MOST_GROUPS} groups in braces")
    found = list(dict.fromkeys(_expanded(pattern)))
    if sum(map(len, found)) > MOST_ALTERNATIVES * 256:
        raise BadGlob("its alternatives are too long")
    return found


def segments_of(pattern: str) -> list[str]:
    """The names of a pattern; `.` and doubled slashes are gone, `a/..` cancels out, `x/` is all below x."""
    segments: list[str] = []
    for name in (f"{pattern}{ANYWHERE}" if pattern.endswith("/") else pattern).split("/"):
        if name == "..":
            if not segments or _WILD.search(segments[-1]):
                raise BadGlob("it goes up with .. from a place that is not known")
            segments.pop()
        elif name not in ("", ".") and (name != ANYWHERE or segments[-1:] != [ANYWHERE]):
            segments.append(name)
    if not segments:
        raise BadGlob("it names nothing")
    return segments


def path_expression(segments: list[str]) -> str:
    """The regular expression of a whole path."""
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
    """The regular expression of one name."""
    pieces = [""]
    for part in _parts(segment):
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
    """Whether it means itself and nothing else."""
    return not _WILD.search(text) and "{" not in text


def _parts(segment: str) -> Iterator[str]:
    place = 0
    while place < len(segment):
        char = segment[place]
        place += 1
        if char == "*":
            yield "*"
        elif char == "?":
            yield "[^/]"
        elif char == "[" and (end := _end_of_class(segment, place)):
            yield _class(segment[place : end - 1])
            place = end
        elif char == "\\":
            if place == len(segment):
                raise BadGlob("it ends with a backslash that escapes nothing")
            yield re.escape(segment[place])
            place += 1
        else:
            yield re.escape(char)


def _end_of_class(segment: str, start: int) -> int:
    """The place behind the `]`; 0: there is none, and the `[` stands for itself."""
    first = start + 1 if segment[start : start + 1] in ("!", "^") else start
    return segment.find("]", first + 1) + 1


def _class(text: str) -> str:
    negated = text[:1] in ("!", "^")
    members = text[1:] if negated else text
    shown = ""
    place = 0
    while place < len(members):
        low = high = members[place]
        place += 1
        if members[place : place + 1] == "-" and place + 1 < len(members):
            high = members[place + 1]
            place += 2
        if high < low:
            raise BadGlob(f"the range {low}-{high} goes backwards")
        shown += f"{re.escape(low)}-{re.escape(high)}"
    return f"[^/{shown}]" if negated else f"(?!/)[{shown}]"


def _expanded(pattern: str) -> Iterator[str]:
    pending = [pattern]
    number = 0
    while pending:
        text = pending.pop()
        group = _first_group(text)
        if group is None:
            number += 1
            yield text
        else:
            start, commas, end = group
            choices = pairwise([start, *commas, end])
            pending += [text[:start] + text[here + 1 : there] + text[end + 1 :] for here, there in choices][::-1]
        if number + len(pending) > MOST_ALTERNATIVES:
            raise BadGlob(f"it has more than {MOST_ALTERNATIVES} alternatives")


def _first_group(pattern: str) -> tuple[int, list[int], int] | None:
    """Where the first `{` that has a partner stands, the commas of its own, and the partner."""
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
    """A few characters in every way to write them small and large."""
    return ["".join(chars) for chars in product(*({char.lower(), char.upper()} for char in text))]
