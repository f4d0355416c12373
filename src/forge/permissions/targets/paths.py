"""Paths as rules see them: every place a spelling leads to, and the patterns that cover it.

A pattern is relative to the workspace, unless it begins with `/` or `~`; `*` stays within a name, `**` stands for any
number of them. Rules that allow take it exactly. For rules that deny or ask

- a directory stands for all that is in it: `secret`, `sec*` and `secret/*` reach `secret/a/b`;
- a pattern without a slash before its end is found at any depth, as in a .gitignore: `.env`, `*.key`, `build/`;
- upper and lower case, composed and decomposed letters and invisible characters make no difference, and a link stands
  for what it leads to.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache

LONGEST_PATH = 4_096  # characters: no system opens a longer path

PatternPart = str | re.Pattern[str] | None
"""One component of a pattern: a name, a name with wildcards, or None for `**`."""

_WILD = re.compile(r"[*?\[]")


def spellings(target: str, workspace: str) -> tuple[str, ...]:
    """Returns the absolute paths a target may mean: as written, and where links lead, with `..` taken either way."""
    raw = os.path.join(workspace, target)
    lexical = normalise(raw)
    found = dict.fromkeys((lexical, resolve_links(lexical)))
    if ".." in target:
        found[resolve_links(raw)] = None
    if target.startswith("~") and (expanded := os.path.expanduser(target)) != target:
        found |= dict.fromkeys(spellings(expanded, workspace))
    return tuple(found)


def roots(workspace: str) -> tuple[str, ...]:
    """Returns the spellings of the workspace itself."""
    start = normalise(os.path.abspath(workspace))
    return tuple(dict.fromkeys((start, resolve_links(start))))


def covers(pattern: str, path: str, around: tuple[str, ...]) -> bool:
    """Returns whether the pattern, taken relative to the roots `around`, is exactly about an absolute path."""
    parts = _names(path)
    return any(_fit(found, parts) for found in _anchor_pattern(pattern, around, folded=False))


def reaches(pattern: str, path: str, around: tuple[str, ...]) -> bool:
    """Returns whether the pattern, as rules that forbid or ask take it, is about the path or a directory around it."""
    if covers(pattern, path, around):
        return True
    loose = _names(fold(path))
    anywhere = (*around, "/") if pattern.startswith("**") else around
    if any(_fit(_with_content(found), loose) for found in _anchor_pattern(pattern, anywhere, folded=True)):
        return True
    return any(_fit(_with_content(found), loose) for found in _resolve_pattern_links(pattern, around))


def names(pattern: str, path: str, around: tuple[str, ...]) -> bool:
    """Returns whether a pattern without a slash names the path, or a directory around it, at any depth.

    Of a path in the workspace only the names below the workspace count.
    """
    name = pattern.rstrip("/")
    if "/" in name or name.startswith("~") or name in ("", ".", ".."):
        return False
    folded = fold(path)
    inside = tuple(root for root in map(fold, around) if folded == root or folded.startswith(f"{root.rstrip('/')}/"))
    floating = _anchor_pattern(f"**/{name}", inside or ("/",), folded=True)
    return any(_fit(_with_content(found), _names(folded)) for found in floating)


def problem_with(pattern: str) -> str:
    """Returns the mistake in a path pattern, if there is one."""
    names = pattern.split("/")
    wild = next((index for index, name in enumerate(names) if _WILD.search(name)), len(names))
    if ".." in names[wild:]:
        return "`..` after a wildcard has no fixed meaning; write the path without it"
    return "a path cannot hold a NUL character; remove it" if "\0" in pattern else ""


def normalise(path: str) -> str:
    """Removes `.`, `..`, and repeated or trailing slashes."""
    return "/" + os.path.normpath(path).lstrip("/") if path.startswith("/") else os.path.normpath(path)


def fold(text: str) -> str:
    """Returns the form in which two names are equal that some file system, or some eye, takes for equal."""
    if text.isascii():
        return text.lower()

    visible = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFC", visible.casefold())


def resolve_links(path: str) -> str:
    """Resolves links; returns the path as it is written where that fails."""
    try:
        return normalise(os.path.realpath(path))
    except (OSError, ValueError):  # NUL, lone surrogates, a link of /proc that may not be read
        return normalise(path)


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _anchor_pattern(pattern: str, around: tuple[str, ...], *, folded: bool) -> Iterator[tuple[PatternPart, ...]]:
    """Yields the pattern's components from the file system's root on."""
    text = os.path.expanduser(pattern) if pattern.startswith("~") else pattern
    own = _compile_pattern(text, folded)
    if text.startswith("/"):
        yield own
        return
    up = next((index for index, part in enumerate(own) if part != ".."), len(own))
    for root in around:
        start = _names(fold(root) if folded else root)
        yield (*start[: len(start) - up], *own[up:])


def _resolve_pattern_links(pattern: str, around: tuple[str, ...]) -> Iterator[tuple[PatternPart, ...]]:
    """Yields the pattern with the fixed names at its start resolved, where links are among them."""
    both = zip(
        _anchor_pattern(pattern, around, folded=False), _anchor_pattern(pattern, around, folded=True), strict=True
    )
    for exact, loose in both:
        fixed = next((index for index, part in enumerate(exact) if not isinstance(part, str)), len(exact))
        named = "/" + "/".join(str(part) for part in exact[:fixed])
        resolved = resolve_links(named)
        if resolved != named:
            yield (*_names(fold(resolved)), *loose[fixed:])


def _with_content(pattern: tuple[PatternPart, ...]) -> tuple[PatternPart, ...]:
    return pattern if pattern and pattern[-1] is None else (*pattern, None)


@lru_cache(maxsize=4_096)
def _compile_pattern(pattern: str, folded: bool) -> tuple[PatternPart, ...]:
    text = f"{pattern}**" if pattern.endswith("/") else pattern
    return tuple(_part(fold(name) if folded else name) for name in _names(os.path.normpath(text)) if name != ".")


def _part(name: str) -> PatternPart:
    if name == "**":
        return None
    return re.compile(translate(name)) if _WILD.search(name) else name


def _fit(pattern: tuple[PatternPart, ...], names: tuple[str, ...]) -> bool:
    """Returns whether the names fit the components, `**` for any number of them, in names × components steps."""
    positions = _skip_wildcards(pattern, {0})
    for name in names:
        reached = set()
        for position in positions:
            part = pattern[position] if position < len(pattern) else ""
            if part is None:
                reached.add(position)
            elif part == name if isinstance(part, str) else part.match(name):
                reached.add(position + 1)
        positions = _skip_wildcards(pattern, reached)
        if not positions:
            return False
    return len(pattern) in positions


def _skip_wildcards(pattern: tuple[PatternPart, ...], positions: set[int]) -> set[int]:
    """Adds the positions behind every `**`, which may stand for nothing."""
    found = set(positions)
    for position in positions:
        while position < len(pattern) and pattern[position] is None:
            position += 1
            found.add(position)
    return found


def home_directory() -> str:
    """Returns the target of `~`; the root where it is not set, as in a shell."""
    found = os.path.expanduser("~")
    return found if os.path.isabs(found) else "/"
