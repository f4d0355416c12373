"""Finds the programs that `cli_execute` may start, once: never a shell, never one that the model could have written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from filecmp import cmp
from functools import cache
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ErrorKind, ToolError
from forge.permissions.shell.programs import LAUNCHERS, LOADER, REFUSED_SHELLS

_MANY_IN_ONE = frozenset({"busybox", "coreutils", "toybox", "uutils"})  # what they do depends on the name of the link
_STEM = re.compile(r"(.+?)(?:-?\d[\d.]*)?(?:[-.](?:static|real|distrib|orig|old|multicall|bin))*")
_USUAL = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/lib/busybox")


class BinaryIdentity(NamedTuple):
    """File attributes that change when a file is replaced or written."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class Binary(NamedTuple):
    """A program's location, and its identity when it was found."""

    path: str  # absolute, as it is started: some programs act by the name of the link they are called by
    real: str
    identity: BinaryIdentity

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((os.path.basename(self.path), os.path.basename(self.real))))


class Availability(NamedTuple):
    """The allowed programs that were found, are missing, or are refused."""

    found: dict[str, str]  # where each is
    missing: tuple[str, ...]
    refused: tuple[str, ...]  # shells, and what starts any other program


class AllowedPrograms:
    """The allowed programs, looked up at creation: programs that appear on PATH later are not used."""

    def __init__(self, names: Iterable[str]) -> None:
        self.candidates: dict[str, list[Binary]] = {}
        self.refused: list[str] = []
        for name in dict.fromkeys(names):
            there = list(_find_on_path(name))
            usable = [one for one in there if not classify_program(one)]
            if reason_against(name) or (there and not usable):
                self.refused.append(name)
            else:
                self.candidates[name] = usable

    @property
    def program_names(self) -> list[str]:
        return [name for name, candidates in self.candidates.items() if candidates]

    def availability(self) -> Availability:
        found = {name: self.candidates[name][0].path for name in self.program_names}
        missing = tuple(name for name in self.candidates if name not in found)
        return Availability(found, missing, tuple(self.refused))


def refuse_shells(name: str, allowed: AllowedPrograms) -> None:
    """Layer 1: no shell and no launcher, whatever its path, its name or the configuration says."""
    why = reason_against(name)
    if not why and name in allowed.refused:
        why = next(filter(None, map(classify_program, _find_on_path(name))), "shell")
    if why == "shell":
        raise _refusal(f'binary "{name[:200]}" is a shell interpreter and cannot be used')
    if why:
        raise _refusal(f'binary "{name[:200]}" starts other programs, like a shell interpreter, and cannot be used')


def require_allowed(name: str, allowed: AllowedPrograms) -> None:
    """Layer 2: only programs that the configuration lists."""
    if name in allowed.candidates:
        return
    first, _, rest = name.strip().partition(" ")
    if rest and first in allowed.candidates:
        hint = f'Give "{first}" as the binary and the rest as a list in args.'
    elif allowed.program_names:
        hint = f"Allowed programs: {', '.join(allowed.program_names)}."
    else:
        hint = (
            "No program is allowed yet: list some in forge.yaml, in the tool's config, as allowed_binaries: [git, jq]."
        )
    raise ToolError(f'binary "{name[:200]}" is not in the allowed list', ErrorKind.SECURITY, hint)


def resolve(name: str, allowed: AllowedPrograms, writable: Sequence[Path]) -> Binary:
    """Layer 3: the program found at the start, outside folders that the model can write, and still the same file."""
    roots = [Path(os.path.realpath(root)).parts for root in writable]
    candidates = allowed.candidates[name]
    usable = [one for one in candidates if not _is_inside(roots, one.path, one.real)]
    if not usable:
        where = "" if not candidates else " outside the workspace; programs inside it are not trusted"
        raise ToolError(
            f'binary "{name}" was not found on this system{where}',
            ErrorKind.CONFIG,
            "Install it, then restart Forge.",
        )
    binary = usable[0]
    if _identify(binary.path) != binary:
        raise ToolError(
            f'binary "{name}" has changed since Forge started: {binary.path}',
            ErrorKind.SECURITY,
            "If it was updated on purpose, restart Forge.",
        )
    return binary


def reason_against(name: str) -> str:
    """Returns `shell` or `launcher`, judged by the name or path alone; "" for any other."""
    base = os.path.basename(name.rstrip("/")).lower().removesuffix(".exe")
    stem = found[1] if (found := _STEM.fullmatch(base)) else base
    if base in REFUSED_SHELLS or stem in REFUSED_SHELLS or base.startswith(("busybox", "toybox")):
        return "shell"
    return "launcher" if base in LAUNCHERS or stem in LAUNCHERS or LOADER.match(base) else ""


def classify_program(binary: Binary) -> str:
    """Returns `shell` or `launcher`, whatever its name: a link to one, another name of the same file, or a copy."""
    if os.path.basename(binary.real) in _MANY_IN_ONE:
        return ""  # its own name was judged already
    if why := reason_against(binary.real):
        return why
    for known, same in _known_launchers().items():
        if (known.device, known.inode) == (binary.identity.device, binary.identity.inode):
            return same[0]
        if known.size == binary.identity.size and _is_copy(binary.real, same[1]):
            return same[0]
    return ""


@cache
def _known_launchers() -> dict[BinaryIdentity, tuple[str, str]]:
    """The shells and launchers of this system."""
    found: dict[BinaryIdentity, tuple[str, str]] = {}
    many: set[BinaryIdentity] = set()
    folders = dict.fromkeys(map(os.path.realpath, _USUAL))
    for name in (*REFUSED_SHELLS, *LAUNCHERS):
        for folder in folders:
            binary = _identify(os.path.join(folder, name))
            if binary is None or not binary.identity.size:
                continue
            if _MANY_IN_ONE & {name, os.path.basename(binary.real)}:
                many.add(binary.identity)
            else:
                found[binary.identity] = ("shell" if name in REFUSED_SHELLS else "launcher", binary.real)
    return {identity: what for identity, what in found.items() if identity not in many}


def _is_copy(one: str, other: str) -> bool:
    try:
        return cmp(one, other, shallow=False)
    except OSError:
        return False


def _find_on_path(name: str) -> Iterator[Binary]:
    if os.path.isabs(name):
        folders = [""]
    else:
        folders = [one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(one)]
    for folder in dict.fromkeys(folders):
        path = os.path.join(folder, name)
        binary = _identify(path) if os.path.isfile(path) and os.access(path, os.X_OK) else None
        if binary is not None:
            yield binary


def _identify(path: str) -> Binary | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    identity = BinaryIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return Binary(path, os.path.realpath(path), identity)


def _is_inside(roots: list[tuple[str, ...]], *paths: str) -> bool:
    """Returns whether a path, as written or with its real directory, lies in one of the roots."""
    spellings = [os.path.normpath(path) for path in paths]
    spellings += [os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) for path in paths]
    return any(Path(one).parts[: len(root)] == root for one in spellings for root in roots)


def _refusal(message: str) -> ToolError:
    return ToolError(message, ErrorKind.SECURITY, "Name the program itself, with its arguments as a list.")
