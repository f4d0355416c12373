"""Finds the files of a project that may be scripts; no file is opened here."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forge.core.errors import ToolError
from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import open_directory

LANGUAGES = (".py", ".ts", ".js")
MOST = 1_000  # files of a directory that are read, in the order of their names

_SHELLS = (
    ".sh",
    ".bash",
    ".zsh",
    ".rb",
    ".pl",
    ".php",
    ".lua",
    ".mjs",
    ".cjs",
    ".tsx",
)  # reported if it lacks something
_NO_TOOLS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a script. Two candidates are equal if the file did not change in between."""

    path: str  # below the root
    name: str  # the tool's name by its path
    mark: tuple[int, ...]
    is_meant: bool  # its path marks it as a script, so that anything else is an error
    in_root: bool  # among the project's other files, where only the header identifies a script


def find_candidates(paths: PathValidator, folder: str, *, in_root: bool) -> list[Candidate]:
    """Lists the candidates in the folder and then in the root; `MOST` + 1 of either means that there are more.

    A folder that does not exist holds none; a folder outside the project is an error.
    """
    found = [*_list_folder(paths, folder, _folder_candidates)]
    if in_root and paths.resolve(folder, blank=True).relative != ".":
        found += _list_folder(paths, ".", _root_candidates)
    return found


def _list_folder(
    paths: PathValidator, folder: str, each: Callable[[int, str, str], Iterator[Candidate]]
) -> list[Candidate]:
    try:
        descriptor = open_directory(paths.resolve(folder, blank=True))
    except ToolError as error:
        if error.kind == "not_found":
            return []
        raise
    try:
        names = sorted(entry for entry in os.listdir(descriptor) if not entry.startswith((".", "_")))
        prefix = "" if folder in (".", "") else f"{folder.rstrip('/')}/"
        likely = [one for name in names for one in each(descriptor, prefix, name)]
        return likely[: MOST + 1]
    finally:
        os.close(descriptor)


def _folder_candidates(within: int, prefix: str, name: str) -> Iterator[Candidate]:
    status = _status(within, name)
    if status is None or name in _NO_TOOLS:
        return
    stem, suffix = os.path.splitext(name)
    if stat.S_ISDIR(status.st_mode):
        for inner in (f"{name}/tool{suffix}" for suffix in LANGUAGES):
            if inside := _status(within, inner):
                yield Candidate(prefix + inner, name, _mark(inside), True, False)
    elif suffix in LANGUAGES:
        if not name.endswith(".d.ts"):
            yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), stem.startswith("tool_"), False)
    elif stat.S_ISREG(status.st_mode) and (status.st_mode & 0o111 or suffix in _SHELLS or not suffix):
        yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), stem.startswith("tool_"), False)


def _root_candidates(within: int, prefix: str, name: str) -> Iterator[Candidate]:
    stem, suffix = os.path.splitext(name)
    if suffix in LANGUAGES and (status := _status(within, name)) and stat.S_ISREG(status.st_mode):
        yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), False, True)


def _status(within: int, name: str) -> os.stat_result | None:
    """Returns the status of a file, following links; of the link itself if its target does not exist."""
    try:
        return os.stat(name, dir_fd=within)
    except OSError:
        pass
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=False)
    except OSError:
        return None


def _mark(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode
