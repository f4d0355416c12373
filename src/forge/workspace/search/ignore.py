"""Applies ignore files as ripgrep does: `.rgignore` before `.ignore` before `.gitignore`, the nearest of each first."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory
from forge.workspace.search.glob import BadGlob, alternatives_of, is_literal, name_expression, path_expression

FILES = (".rgignore", ".ignore", ".gitignore")  # the first one with a matching rule decides
LARGEST_FILE = 256 * 1024  # bytes of an ignore file; the rest is not read

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUFFIX = re.compile(r"\*(\.[^*?\[\]{}\\./]+)")

Fits = Callable[[str], object]


class IgnoreRule(NamedTuple):
    """A line of an ignore file; the last matching line decides."""

    number: int
    keeps: bool  # begins with `!`
    only_directories: bool
    fits: Fits | None = None  # None: looked up by its name or suffix


class IgnoreRules:
    """The lines of one ignore file. Whole names and suffixes, the most common kinds, are looked up in dictionaries."""

    def __init__(self, lines: list[str]) -> None:
        self.names: dict[str, list[IgnoreRule]] = {}
        self.suffixes: dict[str, list[IgnoreRule]] = {}
        self.name_rules: list[IgnoreRule] = []
        self.path_rules: list[IgnoreRule] = []
        name_expressions: list[str] = []
        path_expressions: list[str] = []
        for number, line in enumerate(lines):
            with contextlib.suppress(BadGlob):  # ripgrep skips such a line, too
                self._add(number, line, name_expressions, path_expressions)
        for found in (*self.names.values(), *self.suffixes.values(), self.name_rules, self.path_rules):
            found.reverse()
        self.any_name = _compile_any(name_expressions)
        self.any_path = _compile_any(path_expressions)

    def verdict(self, path: str, name: str, is_directory: bool) -> bool | None:
        """Returns whether the path is ignored; False if a line keeps it; None: no line matches."""
        if not path.isascii():
            path, name = _as_bytes(path), _as_bytes(name)
        found = _first_match(self.names.get(name, ()), is_directory, name)
        if self.suffixes and (dot := name.rfind(".")) >= 0 and (rules := self.suffixes.get(name[dot:])):
            found = _later(found, _first_match(rules, is_directory, name))
        if self.any_name is not None and self.any_name(name):
            found = _later(found, _first_match(self.name_rules, is_directory, name))
        if self.any_path is not None and self.any_path(path):
            found = _later(found, _first_match(self.path_rules, is_directory, path))
        return None if found is None else not found.keeps

    def _add(self, number: int, line: str, names: list[str], paths: list[str]) -> None:
        text = line if line.endswith("\\ ") else line.rstrip()
        if not text or line.startswith("#"):
            return
        text = text if text.isascii() else _as_bytes(text)
        keeps = text.startswith("!")
        text = text[1:] if keeps or text.startswith(("\\!", "\\#")) else text
        anchored = text.startswith("/")
        text = text[1:] if anchored else text
        only_directories = text.endswith("/")
        text = text[:-1].removesuffix("\\") if only_directories else text
        rule = IgnoreRule(number, keeps, only_directories)
        if anchored or "/" in text:
            expression = _expression(f"{text}/*" if text.endswith("/**") else text)
            paths.append(expression)
            self.path_rules.append(rule._replace(fits=_compile(expression)))
        elif is_literal(text):
            self.names.setdefault(text, []).append(rule)
        elif suffix := _SUFFIX.fullmatch(text):
            self.suffixes.setdefault(suffix[1], []).append(rule)
        else:
            expression = _expression(text)
            names.append(expression)
            self.name_rules.append(rule._replace(fits=_compile(expression)))


class EffectiveRules:
    """All rules in effect in one directory."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: tuple[tuple[tuple[str, int, IgnoreRules], ...], ...] = ((), (), ())) -> None:
        self._kinds = (
            kinds  # for each of FILES, the nearest first: the prefix to add to a path, the length to cut off, rules
        )

    def __bool__(self) -> bool:
        return any(self._kinds)

    def verdict(self, path: str, name: str, is_directory: bool) -> bool | None:
        """Returns whether the path, relative to the start of the walk, is ignored; None: no rule matches."""
        for levels in self._kinds:
            for before, cut, rules in levels:
                found = rules.verdict(before + path[cut:], name, is_directory)
                if found is not None:
                    return found
        return None

    def inside(self, directory: int, prefix: str, names: Collection[str] = FILES) -> EffectiveRules | None:
        """Adds the ignore files of a subdirectory, whose path is `prefix` with a slash; None: there are no rules."""
        found = [_read_rules(directory, name) if name in names else None for name in FILES]
        return self._add_rules(found, "", len(prefix)) or None

    def _add_rules(self, found: list[IgnoreRules | None], before: str, cut: int) -> EffectiveRules:
        return EffectiveRules(
            tuple(
                levels if rules is None else ((before, cut, rules), *levels)
                for rules, levels in zip(found, self._kinds, strict=True)
            )
        )


def read_rules_above(location: Location) -> EffectiveRules | None:
    """Reads the ignore files between the root and the location; those above the root do not count."""
    above: list[tuple[Location, str]] = []
    before = ""
    while location.relative != ".":
        before = f"{location.name}/{before}"
        location = location.parent
        above.append((location, before))
    rules = EffectiveRules()
    for directory, before in reversed(above):
        with contextlib.suppress(ToolError):  # the directory may be traversable but not readable
            descriptor = open_directory(directory)
            try:
                found = [_read_rules(descriptor, name) for name in FILES]
            finally:
                os.close(descriptor)
            rules = rules._add_rules(found, before, 0)
    return rules if rules else None


@lru_cache(maxsize=256)
def parse_rules(content: bytes) -> IgnoreRules | None:
    """Parses an ignore file; None if it has no rules."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    texts: list[str] = []
    for line in lines:
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError:  # where ripgrep stops reading
            break
    return IgnoreRules(texts) if any(text.strip() and text[0] != "#" for text in texts) else None


def _as_bytes(text: str) -> str:
    """Maps each byte to one character: to ripgrep and git a `?` is one byte."""
    return os.fsencode(text).decode("latin-1")


def _read_rules(directory: int, name: str) -> IgnoreRules | None:
    try:
        file = os.open(name, _READ, dir_fd=directory)
    except OSError:  # mostly: there is none
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = b""
        while len(content) < LARGEST_FILE and (more := os.read(file, LARGEST_FILE - len(content))):
            content += more
        return parse_rules(content)
    except OSError:
        return None
    finally:
        os.close(file)


def find_unread_rules(directory: int, names: Collection[str] = FILES) -> list[str]:
    """Returns the names of ignore files of a directory that are, or lead to, a FIFO or the like: no rule is read."""
    found = []
    for name in FILES:
        if name in names:
            with contextlib.suppress(OSError):
                kind = os.stat(name, dir_fd=directory).st_mode
                if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                    found.append(name)
    return found


def _expression(text: str) -> str:
    alternatives = [one for one in alternatives_of(text) if one] if "{" in text else [text]
    shown = [
        path_expression(_collapse_stars(one.split("/"))) if "/" in one else name_expression(one) for one in alternatives
    ]
    return f"(?:{'|'.join(shown)})"


def _collapse_stars(names: list[str]) -> list[str]:
    return [name for index, name in enumerate(names) if name != "**" or names[index - 1 : index] != ["**"]]


def _compile(expression: str) -> Fits:
    return re.compile(rf"{expression}\Z", re.DOTALL).match


def _compile_any(expressions: list[str]) -> Fits | None:
    """Builds a matcher for any of the expressions: most names match none, which is then known at once."""
    return _compile(f"(?:{'|'.join(expressions)})") if expressions else None


def _first_match(rules: Collection[IgnoreRule], is_directory: bool, text: str) -> IgnoreRule | None:
    for rule in rules:
        if (is_directory or not rule.only_directories) and (rule.fits is None or rule.fits(text)):
            return rule
    return None


def _later(one: IgnoreRule | None, other: IgnoreRule | None) -> IgnoreRule | None:
    if one is None or other is None:
        return one or other
    return one if one.number > other.number else other
