"""What a confined program may see and change of this machine, whatever confines it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from forge.core.context import Root, Scope
from forge.core.errors import ErrorKind, ToolError
from forge.core.held_directories import check_held

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
"""Programs and libraries. No `/var`, no `/run`, no `/srv`: data and sockets are there."""

SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives crypto-policies pki/ca-trust pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf ssl/certs "
        "ssl/cert.pem ssl/openssl.cnf ld.so.cache localtime locale.conf passwd group nsswitch.conf hosts resolv.conf "
        "services mime.types fonts java java-8-openjdk java-11-openjdk java-17-openjdk java-21-openjdk os-release"
    ).split()
)
"""What programs need of /etc, and little more: each costs a tenth of a millisecond a run. No passwords, no keys, no
tokens of package managers."""

PROCESSORS = "/sys/devices/system/cpu"
CONFIGURATION = ("forge.yaml", "forge.yml")
STATE = ".forge"
SKILLS = "skills"

_KERNEL = ("/proc", "/sys", "/dev")
_BESIDE_PROGRAMS = ("lib", "lib64", "libexec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a program may reach besides the system's own programs; everything else is out of its sight."""

    workspace: Path  # writable, unless it is one of `readable` too
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()  # read-only, besides Git's hooks and settings and what is Forge's
    network: bool = False
    home: Path | None = None  # the value of HOME; without it a private and empty directory
    read_only: bool = False  # nothing can be changed, and there is no network, whatever the other fields say
    hidden: tuple[Path, ...] = ()  # cannot be read, wherever it is


class Places(Protocol):
    """The directories that tools may reach, as `forge.workspace` finds them."""

    @property
    def workspace(self) -> Path: ...
    @property
    def roots(self) -> Sequence[Root]: ...
    @property
    def writes(self) -> bool: ...
    def place_of(self, real: str) -> object | None:
        """None outside of them."""


def confinement_of(
    scope: Scope, places: Places, *, also: Sequence[Path] = (), network: bool = False, home: Path | None = None
) -> Confinement:
    """The confinement of every program that a tool, a script or a skill starts.

    The workspace and the declared roots, and for reading `also`, such as a script's own folder elsewhere. The skills
    of the scope are protected.
    """
    workspace = places.workspace
    beside = [root for root in places.roots if root.path != workspace]
    writable = tuple(root.path for root in beside if root.writable and places.writes)
    only_read = [root.path for root in beside if root.path not in writable]
    return Confinement(
        workspace=workspace,
        writable=writable,
        readable=(*only_read, *also, *([] if places.writes else [workspace])),
        protected=tuple(
            Path(workspace, folder, name)
            for top in map(os.path.expanduser, scope.skills)
            if top != SKILLS
            for folder, name in skill_files(str(workspace), top)
        ),
        network=network,
        home=home,
    )


@dataclass(frozen=True, slots=True)
class Roots:
    """The directories of a confinement where they really are, outer ones first, each with whether it is writable."""

    workspace: str
    folders: tuple[tuple[str, bool], ...]

    @property
    def writable(self) -> list[str]:
        return [folder for folder, writable in self.folders if writable]

    def contain(self, path: str) -> bool:
        return any(is_inside(path, folder) for folder, _ in self.folders)


def roots_of(confinement: Confinement) -> Roots:
    """Raises `ToolError` where a root would open what a sandbox is there to close."""
    check_held((confinement.workspace, *confinement.writable, *confinement.readable))
    found = {os.path.realpath(path): True for path in (confinement.workspace, *confinement.writable)}
    found |= {os.path.realpath(path): False for path in confinement.readable}
    if confinement.read_only:
        found = dict.fromkeys(found, False)
    for folder, writable in found.items():
        if folder == "/" or (writable and folder in (*SYSTEM, "/etc")) or inside_any(folder, _KERNEL[:2]):
            raise ToolError(
                f'"{folder}" cannot be confined: it is, or contains, the system itself',
                ErrorKind.CONFIG,
                "Choose a directory of its own as the workspace or root, or set sandbox: off.",
            )
    return Roots(os.path.realpath(confinement.workspace), tuple(sorted(found.items(), key=_depth)))


def program_folders(env: Mapping[str, str], roots: Roots) -> list[str]:
    """Where programs on PATH and this Python are, as far as that is neither in the system nor in the roots."""
    folders = _program_folders(env.get("PATH", ""), env.get("VIRTUAL_ENV", ""), sys.prefix, sys.base_prefix)
    return [
        folder
        for folder in folders
        if not roots.contain(folder) and not any(is_inside(root, folder) for root, _ in roots.folders)
    ]


def own_folders(roots: Roots) -> list[str]:
    """What this process runs from, where a program could otherwise change it: its next import would run outside."""
    return [
        folder
        for folder in _own(sys.prefix, sys.base_prefix)
        if any(is_inside(folder, root) and folder != root for root in roots.writable)
    ]


def skill_files(root: str, within: str = SKILLS) -> list[tuple[str, str]]:
    """Where skills are, below a directory: what they deny must not be changed by a program. Folder and name of each."""
    found: list[tuple[str, str]] = []
    top = os.path.join(root, within)
    if os.path.islink(top):
        return found
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if os.path.isfile(os.path.join(entry.path, "SKILL.md")):
                    found.append((os.path.join(within, entry.name), "SKILL.md"))
            elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                found.append((within, entry.name))
    return found


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def inside_any(path: str, folders: tuple[str, ...]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


@cache
def _own(*prefixes: str) -> tuple[str, ...]:
    package = str(Path(__file__).parents[2])
    return tuple(dict.fromkeys(os.path.realpath(path) for path in (*prefixes, package)))


@cache
def _program_folders(path: str, environment: str, *prefixes: str) -> tuple[str, ...]:
    homes = {os.path.realpath(home) for home in (os.path.expanduser("~"), os.environ.get("HOME", "")) if home}
    wanted: dict[str, None] = {}
    for folder in (*prefixes, environment, *_beside(path.split(os.pathsep), homes)):
        for spelling in (os.path.normpath(folder), os.path.realpath(folder)) if os.path.isabs(folder) else ():
            too_much = spelling == "/" or any(is_inside(home, spelling) for home in homes)
            if not too_much and os.path.isdir(spelling) and not inside_any(spelling, (*SYSTEM, "/etc", *_KERNEL)):
                wanted[spelling] = None
    kept = sorted(wanted, key=len)
    return tuple(one for one in kept if not any(is_inside(one, other) and one != other for other in kept))


def _beside(folders: list[str], homes: set[str]) -> Iterator[str]:
    for folder in folders:
        yield folder
        parent, name = os.path.split(os.path.normpath(folder))
        if os.path.realpath(parent) in homes:  # what lies beside ~/bin is the person's
            continue
        if name == "shims":  # of a manager of versions: they start what lies beside them
            yield parent
        elif name in ("bin", "sbin"):
            yield from (os.path.join(parent, beside) for beside in _BESIDE_PROGRAMS)


def _depth(item: tuple[str, bool]) -> int:
    return item[0].count("/")
