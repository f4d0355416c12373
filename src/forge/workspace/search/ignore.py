"""Ignore files as ripgrep reads them: `.rgignore` before `.ignore` before `.gitignore`, of each the nearest first."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.workspace.paths import Place
from forge.workspace.paths.open import open_directory
from forge.workspace.search.glob import BadGlob, alternatives_of, is_literal, name_expression, path_expression

FILES = (".rgignore", ".ignore", ".gitignore")  # the first one with an opinion decides
LARGEST = 256 * 1024  # bytes of an ignore file; what comes later is not read

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUFFIX = re.compile(r"\*(\.[^*?\[\]{}\\./]+)")

Fits = Callable[[str], object]


class Rule(NamedTuple):
    """A line of an ignore file; of those that fit the last one counts."""

    number: int
    keeps: bool  # begins with `!`
    only_directories: bool
    fits: Fits | None = None  # None: found by its name or suffix


class Rules:
    """The lines of one ignore file. Whole names and suffixes, which most of them are, are looked up and not tried."""

    def __init__(self, lines: list[str]) -> None:
        self.names: dict[str, list[Rule]] = {}
        self.suffixes: dict[str, list[Rule]] = {}
        self.name_rules: list[Rule] = []
        self.path_rules: list[Rule] = []
        name_expressions: list[str] = []
        path_expressions: list[str] = []
        for number, line in enumerate(lines):
            with contextlib.suppress(BadGlob):  # ripgrep leaves such a line out, too
                self._add(number, line, name_expressions, path_expressions)
        for found in (*self.names.values(), *self.suffixes.values(), self.name_rules, self.path_rules):
            found.reverse()
        self.any_name = _any(name_expressions)
        self.any_path = _any(path_expressions)

    def verdict(self, path: str, name: str, is_directory: bool) -> bool | None:
        """Whether it is ignored; None: no line says anything about it."""
        if not path.isascii():
            path, name = _as_bytes(path), _as_bytes(name)
        found = _first(self.names.get(name, ()), is_directory, name)
        if self.suffixes and (dot := name.rfind(".")) >= 0 and (rules := self.suffixes.get(name[dot:])):
            found = _later(found, _first(rules, is_directory, name))
        if self.any_name is not None and self.any_name(name):
            found = _later(found, _first(self.name_rules, is_directory, name))
        if self.any_path is not None and self.any_path(path):
            found = _later(found, _first(self.path_rules, is_directory, path))
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
        rule = Rule(number, keeps, only_directories)
        if anchored or "/" in text:
            expression = _expression(f"{text}/*" if text.endswith("/**") else text)
            paths.append(expression)
            self.path_rules.append(rule._replace(fits=_compiled(expression)))
        elif is_literal(text):
            self.names.setdefault(text, []).append(rule)
        elif suffix := _SUFFIX.fullmatch(text):
            self.suffixes.setdefault(suffix[1], []).append(rule)
        else:
            expression = _expression(text)
            names.append(expression)
            self.name_rules.append(rule._replace(fits=_compiled(expression)))


class Ignored:
    """All rules in force in one directory."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: tuple[tuple[tuple[str, int, Rules], ...], ...] = ((), (), ())) -> None:
        self._kinds = kinds  # for each of FILES, the nearest first: what to put before a path, what to cut off, rules

    def __bool__(self) -> bool:
        return any(self._kinds)

    def verdict(self, path: str, name: str, is_directory: bool) -> bool | None:
        """Whether what is at this path, seen from the place that is walked, is ignored; None: nothing is said."""
        for levels in self._kinds:
            for before, cut, rules in levels:
                found = rules.verdict(before + path[cut:], name, is_directory)
                if found is not None:
                    return found
        return None

    def inside(self, directory: int, prefix: str, names: Collection[str] = FILES) -> Ignored | None:
        """With the ignore files of a directory below, whose path is `prefix` with a slash; None: it has no rules."""
        found = [_read(directory, name) if name in names else None for name in FILES]
        return self._with(found, "", len(prefix)) or None

    def _with(self, found: list[Rules | None], before: str, cut: int) -> Ignored:
        return Ignored(
            tuple(
                levels if rules is None else ((before, cut, rules), *levels)
                for rules, levels in zip(found, self._kinds, strict=True)
            )
        )


def rules_above(place: Place) -> Ignored | None:
    """What the directories between the root and the place say, if anything; nothing above the root counts."""
    above: list[tuple[Place, str]] = []
    before = ""
    while place.relative != ".":
        before = f"{place.name}/{before}"
        place = place.parent
        above.append((place, before))
    rules = Ignored()
    for directory, before in reversed(above):
        with contextlib.suppress(ToolError):  # it may be passed through and not be read
            descriptor = open_directory(directory)
            try:
                found = [_read(descriptor, name) for name in FILES]
            finally:
                os.close(descriptor)
            rules = rules._with(found, before, 0)
    return rules if rules else None


@lru_cache(maxsize=256)
def rules_of(content: bytes) -> Rules | None:
    """The rules of an ignore file; None if it has none."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    texts: list[str] = []
    for line in lines:
        try:
            texts.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError:  # where ripgrep stops reading
            break
    return Rules(texts) if any(text.strip() and text[0] != "#" for text in texts) else None


def _as_bytes(text: str) -> str:
    """A character for each byte, since to ripgrep and git a `?` is one byte."""
    return os.fsencode(text).decode("latin-1")


def _read(directory: int, name: str) -> Rules | None:
    try:
        file = os.open(name, _READ, dir_fd=directory)
    except OSError:  # mostly: there is none
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = b""
        while len(content) < LARGEST and (more := os.read(file, LARGEST - len(content))):
            content += more
        return rules_of(content)
    except OSError:
        return None
    finally:
        os.close(file)


def _expression(text: str) -> str:
    alternatives = [one for one in alternatives_of(text) if one] if "{" in text else [text]
    shown = [
        path_expression(_collapsed(one.split("/"))) if "/" in one else name_expression(one) for one in alternatives
    ]
    return f"(?:{'|'.join(shown)})"


def _collapsed(names: list[str]) -> list[str]:
    return [name for place, name in enumerate(names) if name != "**" or names[place - 1 : place] != ["**"]]


def _compiled(expression: str) -> Fits:
    return re.compile(rf"{expression}\Z", re.DOTALL).match


def _any(expressions: list[str]) -> Fits | None:
    """Fits what any of them fits: mostly nothing, which is then known at once."""
    return _compiled(f"(?:{'|'.join(expressions)})") if expressions else None


def _first(rules: Collection[Rule], is_directory: bool, text: str) -> Rule | None:
    for rule in rules:
        if (is_directory or not rule.only_directories) and (rule.fits is None or rule.fits(text)):
            return rule
    return None


def _later(one: Rule | None, other: Rule | None) -> Rule | None:
    if one is None or other is None:
        return one or other
    return one if one.number > other.number else other
