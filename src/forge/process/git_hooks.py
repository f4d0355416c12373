"""Finds the folders in which Git looks for hooks besides `.git/hooks`: Git runs the programs in them unasked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from stat import S_ISREG

MOST_BYTES = 1024 * 1024  # of one file of settings
MOST_FILES = 20  # with those that are included

_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)\s*("(?:[^"\\\n]|\\.)*")?\s*\]')
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b"}
_OF_HUSKY = "_"  # the folder that husky names: what is in it starts what is beside it

_Mark = tuple[str, int, int, int]


def hook_folders(root: str) -> tuple[str, ...]:
    """Returns the folders inside a work tree that `core.hooksPath` names, relative to its root, outer ones first.

    Every value counts, also one that another overrides. They need not exist.
    """
    files = tuple(mark for path in _settings(os.path.join(root, ".git")) if (mark := _mark(path)))
    return _folders(os.path.abspath(root), files) if files else ()


@lru_cache(maxsize=64)
def _folders(root: str, files: tuple[_Mark, ...]) -> tuple[str, ...]:
    """Reads the folders. `files` has marks that change with each file; included files are read at the same time."""
    found: dict[str, None] = {}
    for value in _values([path for path, *_ in files]):
        folder = os.path.normpath(os.path.join(root, os.path.expanduser(value)))
        wanted = [os.path.dirname(folder), folder] if os.path.basename(folder) == _OF_HUSKY else [folder]
        for folder in wanted:
            for spelling in (folder, os.path.realpath(folder)):
                inside = _below(spelling, root) or _below(spelling, os.path.realpath(root))
                if inside and inside.split("/")[0] != ".git":
                    found[inside] = None
    return tuple(sorted(found, key=lambda one: (one.count("/"), one)))


def _settings(git: str) -> Iterator[str]:
    """Returns the settings files of a repository, also where `.git` is a file that names it."""
    if os.path.isdir(git):
        yield from (os.path.join(git, name) for name in ("config", "config.worktree"))
        return
    pointer = _content(git)
    if not pointer.startswith("gitdir:"):
        return
    folder = os.path.join(os.path.dirname(git), pointer.removeprefix("gitdir:").strip())
    common = _content(os.path.join(folder, "commondir")).strip()
    for path in (folder, os.path.join(folder, common)) if common else (folder,):
        yield from (os.path.join(path, name) for name in ("config", "config.worktree"))


def _values(files: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    while files and len(seen) < MOST_FILES:
        path = files.pop()
        if path in seen:
            continue
        seen.add(path)
        for section, key, value in _entries(_content(path)):
            if (section, key) == ("core", "hookspath") and value:
                yield value
            elif section in ("include", "includeif") and key == "path":
                files.append(os.path.join(os.path.dirname(path), os.path.expanduser(value)))


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        while header := _SECTION.match(line):
            named = header[1].lower()
            section = named if header[2] is None or named == "includeif" else f"{named} {header[2]}"
            line = line[header.end() :]
        key, has_value, value = line.partition("=")
        if has_value:
            yield section, key.strip().lower(), _unquote(value)


def _unquote(value: str) -> str:
    found, blanks, quoted = "", "", False
    characters = iter(value.strip())
    for one in characters:
        if one == '"':
            quoted = not quoted
        elif one == "\\":
            following = next(characters, "")
            found, blanks = found + blanks + _ESCAPED.get(following, following), ""
        elif not quoted and one in "#;":
            break
        elif not quoted and one.isspace():
            blanks += one
        else:
            found, blanks = found + blanks + one, ""
    return found


def _content(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # nothing is there, or nothing that this user could run a hook by
        return ""
    with open(descriptor, "rb") as file:
        is_file = S_ISREG(os.fstat(descriptor).st_mode)
        return file.read(MOST_BYTES).decode(errors="surrogateescape") if is_file else ""


def _mark(path: str) -> _Mark | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_ino, status.st_mtime_ns, status.st_size


def _below(path: str, root: str) -> str:
    return path[len(root.rstrip("/")) + 1 :] if path.startswith(f"{root.rstrip('/')}/") else ""
