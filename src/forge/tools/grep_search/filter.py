"""Filters the files that ripgrep finds: by globs, the person's rules, and ignore files above."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache

from forge.core.errors import ToolError
from forge.workspace.paths import Location
from forge.workspace.paths.open import open_directory, status_of
from forge.workspace.search.glob import Glob, compile_glob, plain_readings
from forge.workspace.search.ignore import EffectiveRules, read_rules_above
from forge.workspace.state import STRAY

Globs = str | list[str]


class FileFilter:
    """Decides for every file found, by its path relative to the searched location."""

    def __init__(
        self, location: Location, include: Globs, exclude: Globs, is_denied: Callable[[str], bool] | None = None
    ) -> None:
        included, excluded = _as_list(include), _as_list(exclude)
        self.include = [_read_glob(text) for text in included if not text.startswith("!")]
        self.exclude = [
            _read_glob(text) for text in (*excluded, *(text[1:] for text in included if text.startswith("!")))
        ]
        self.is_denied = is_denied
        self.is_all = not (self.include or self.exclude or is_denied)
        self._above = "" if location.shown == "." else f"{location.shown}/"

    def __call__(self, path: str) -> bool:
        if STRAY in path and path.rpartition("/")[2].startswith(STRAY):
            return False
        return self.is_all or (self.fits(path) and not self.denies(path))

    def denies(self, path: str) -> bool:
        """Returns True if a rule of the person forbids reading the file."""
        return self.is_denied is not None and self.is_denied(self._above + path)

    def fits(self, path: str) -> bool:
        """Matches globs from the searched location or from the workspace: models mean either."""
        spellings = (path, self._above + path) if self._above else (path,)
        if self.include and not any(glob.fits(one) for glob in self.include for one in spellings):
            return False
        return not self.exclude or not any(self._is_excluded(one) for one in spellings)

    def _is_excluded(self, path: str) -> bool:
        """Returns True if the file, or a directory that contains it, is excluded."""
        ends = [index for index, char in enumerate(path) if char == "/"]
        return any(glob.fits(path[:end]) for glob in self.exclude for end in (*ends, len(path)))


def _as_list(globs: Globs) -> list[str]:
    return [text for text in ([globs] if isinstance(globs, str) else globs) if text.strip()]


def _read_glob(text: str) -> Glob:
    """Makes a name alone match at any depth, as in ignore files."""
    return compile_glob(text if "/" in text.rstrip("/") else f"**/{text}")


def make_readable(include: Globs) -> Globs:
    """Returns the globs; brackets that are not valid, such as `[2024-01-15]`, are plain characters."""
    try:
        for text in _as_list(include):
            _read_glob(text.removeprefix("!"))
    except ToolError:
        plain = escape_brackets(include)
        if not plain:
            raise
        return plain
    return include


def escape_brackets(include: Globs) -> list[str]:
    """Returns the globs with brackets as plain characters, `app/[slug]/*.tsx`; empty if none has any."""
    listed = _as_list(include)
    readings = [[text] if text.startswith("!") else plain_readings(text) or [text] for text in listed]
    plain = [text for reading in readings for text in reading]
    return plain if plain != listed else []


def names_for_ripgrep(globs: Iterable[Glob], texts: Globs) -> list[str]:
    """Returns the globs if all are for names alone: ripgrep can then leave out other files itself."""
    listed = [text for text in _as_list(texts) if not text.startswith("!")]
    simple = all(text.isascii() and not set(text) & set("/\\[]!,: ") for text in listed)
    return listed if simple and all(glob.decided_by_name for glob in globs) else []


class RulesAbove:
    """The ignore files between the root and the searched directory. ripgrep does not read them.

    (It would also read those above the root.) A rule counts only if no ignore file nearer to a file overrides it, so
    the whole chain decides about every file found.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.top = read_rules_above(location)
        self.decides_alone = False  # ripgrep reads no ignore file

    @property
    def are_beyond_ripgrep(self) -> bool:
        """True if these files override every .gitignore, also those that ripgrep reads on its way down.

        Then ripgrep searches everything, and `ignores` alone decides.
        """
        if self.decides_alone:
            return True
        above = self.location
        while self.top is not None and above.relative != ".":
            above = above.parent
            if any(status_of(above.child(name)) is not None for name in (".rgignore", ".ignore")):
                return True
        return False

    def ignores(self, path: str) -> bool:
        if self.top is None and not self.decides_alone:
            return False
        directory, _, name = path.rpartition("/")
        rules, is_ignored = self._of(directory)
        return is_ignored or (rules is not None and rules.verdict(path, name, False) is True)

    @lru_cache(maxsize=4_096)  # noqa: B019 - lives as long as one search
    def _of(self, directory: str) -> tuple[EffectiveRules | None, bool]:
        """Returns the rules in a directory, and True if the directory itself is ignored."""
        rules, prefix = self.top, ""
        if directory:
            above, _, name = directory.rpartition("/")
            rules, is_ignored = self._of(above)
            if is_ignored or (rules is not None and rules.verdict(directory, name, True)):
                return rules, True
            prefix = f"{directory}/"
        try:
            file = open_directory(self.location.child(directory) if directory else self.location)
        except ToolError:  # it is gone, or a link by now
            return rules, True
        try:
            return (rules or EffectiveRules()).inside(file, prefix), False
        finally:
            os.close(file)
