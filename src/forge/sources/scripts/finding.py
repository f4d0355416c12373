"""Which files of a project may be scripts, and what each of them looks like from outside: nothing is opened here."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forge.core.errors import ToolError
from forge.workspace.paths import PathValidator
from forge.workspace.paths.open import open_directory

LANGUAGES = (".py", ".ts", ".js")
MOST = 1_000  # files of a directory that are looked at, the first by name

_SHELLS = (".sh", ".bash", ".zsh", ".rb", ".pl", ".php", ".lua", ".mjs", ".cjs", ".tsx")  # told if it lacks something
_NO_TOOLS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a script. Equal as long as nothing about the file changed."""

    path: str  # below the root, as it is written
    name: str  # that its place gives the tool
    mark: tuple[int, ...]
    is_meant: bool  # its place says that it is one, so that it is an error if it is not
    in_root: bool  # beside the project's other files, where only the header tells


def candidates(paths: PathValidator, folder: str, *, in_root: bool) -> list[Candidate]:
    """In the folder, and then in the root; one more than `MOST` of a place tells that there are others.

    A folder that does not exist holds none; one that leads out is an error.
    """
    found = [*_below(paths, folder, _of_folder)]
    if in_root and paths.resolve(folder, blank=True).relative != ".":
        found += _below(paths, ".", _of_root)
    return found


def _below(paths: PathValidator, folder: str, each: Callable[[int, str, str], Iterator[Candidate]]) -> list[Candidate]:
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


def _of_folder(within: int, prefix: str, name: str) -> Iterator[Candidate]:
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


def _of_root(within: int, prefix: str, name: str) -> Iterator[Candidate]:
    stem, suffix = os.path.splitext(name)
    if suffix in LANGUAGES and (status := _status(within, name)) and stat.S_ISREG(status.st_mode):
        yield Candidate(prefix + name, stem.removeprefix("tool_"), _mark(status), False, True)


def _status(within: int, name: str) -> os.stat_result | None:
    """Of what a link leads to; of the link itself where that is nowhere."""
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
