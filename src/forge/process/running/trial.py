"""Finds out how the programs of a trial run can get a copy-on-write layer here, or why they cannot.

    overlay of root   overlayfs, as real root: also renames of folders work
    overlay           overlayfs in a user namespace
    fuse-overlayfs    the same outside the kernel, where it is installed: the layer may lie on another overlay
    copy              a copy of each folder, bound at its path: for few files, or where blocks can be shared
    (none)            without bubblewrap, or where the layer would show other files than a direct run

Each way is tried once a process and file system, by a program that writes through a layer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from forge.core.errors import ToolError
from forge.process.running.overlay import COPY, FUSE, FUSE_PROGRAMS, OVERLAY, ROOT_OVERLAY
from forge.process.running.run import find_tier
from forge.process.sandbox import Tier
from forge.process.sandbox.layout import Confinement, is_inside, roots_of

MOST_COPIED = 1_000  # files and folders of all roots
_MOST_OWNERS = 500  # paths near the top of a root whose owners are looked at
_SECONDS = 20.0
_CLONE = 0x40049409  # ioctl FICLONE
_FILE = ".forge-try"
_TRY = """
import sys
for name, path in zip(("forge", "forge.process", "forge.process.running"), sys.argv[1:4]):
    package = sys.modules[name] = type(sys)(name)
    package.__path__ = [path]
from forge.process.running.overlay import try_layers
try_layers(sys.argv[4:])
"""


class TrialTier(NamedTuple):
    """The kind and the place of the layer of a trial."""

    how: str  # "overlay of root", "overlay", "fuse-overlayfs" or "copy"; "" if it cannot
    place: Path | None = None  # where its layer lies
    problem: str = ""  # why it cannot, or not in a better way


def find_trial(confinement: Confinement, places: Sequence[Path]) -> TrialTier:
    """Returns how a program in this confinement can have a layer. Blocks for a moment at first: call it in a thread.

    `places`: directories for the layer, the best first, outside of all roots.
    """
    try:
        roots = roots_of(confinement)
        tier = find_tier(confinement.sandbox)
    except ToolError as error:
        return TrialTier("", problem=error.message)
    if tier is not Tier.BUBBLEWRAP:
        return TrialTier("", problem=f"a trial needs bubblewrap, and the sandbox is {tier}")
    if not roots.writable:
        return TrialTier("", problem="nothing is writable")
    if not places:
        return TrialTier("", problem="there is no directory for its layer outside of the roots")
    if inner := next(_list_mounts(roots.writable), ""):
        return TrialTier("", problem=f"another file system is mounted at {inner}")
    problems: dict[str, None] = {}
    for how in (ROOT_OVERLAY, OVERLAY, FUSE, COPY):
        for place in places:
            why = explain_unusable(how, roots.writable, place)
            if not why:
                return TrialTier(how, place, "; ".join(problems))
            problems[f"{how}: {why}"] = None
    return TrialTier("", problem="; ".join(problems))


def explain_unusable(how: str, roots: Sequence[str], place: Path) -> str:
    """Returns why a layer of this kind cannot cover these roots; "" if it can."""
    return _explain_unfit(how, roots, place) or _try_all(how, roots, place)


def _explain_unfit(how: str, roots: Sequence[str], place: Path) -> str:
    """Returns why a way is not even tried for these roots; "" if it may work."""
    if how == ROOT_OVERLAY:
        return "" if _is_real_root() else "it needs real root"
    if how == FUSE and not any(map(os.path.exists, FUSE_PROGRAMS)):
        return "it is not installed"
    if how in (OVERLAY, FUSE):
        return next((f"{path} has another owner or group" for root in roots for path in _list_others(root)), "")
    paths = [path for root in roots for path in islice(_walk(root, MOST_COPIED + 1), MOST_COPIED + 1)]
    if why := next(filter(None, map(_explain_uncopied, paths)), ""):
        return why
    if len(paths) <= MOST_COPIED:
        return ""
    if all(os.stat(root).st_dev == os.stat(place).st_dev for root in roots) and _shares_blocks(place):
        return ""
    return f"there are more than {MOST_COPIED:,} files to copy"


@cache
def _shares_blocks(place: Path) -> bool:
    """Returns whether a copy of a file can share its blocks with the original there (reflinks)."""
    with tempfile.TemporaryFile(dir=place) as one, tempfile.TemporaryFile(dir=place) as other:
        one.write(b"x" * 4096)
        one.flush()
        try:
            fcntl.ioctl(other.fileno(), _CLONE, one.fileno())
        except OSError:
            return False
    return True


@cache
def _is_real_root() -> bool:
    """Returns whether this is root of the machine or of a container, not only of a user namespace."""
    try:
        return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except OSError:
        return False


def _list_others(root: str) -> Iterator[str]:
    """Yields paths that an overlay in a user namespace cannot copy, since it knows one user: near the top of a root,
    and what `find_other_owner` found.
    """
    known = [path for path in (_known.others.get(root, ""),) if path]
    for path in (*_walk(root, _MOST_OWNERS), *known):
        if _is_of_another(path):
            yield path


class _TriedLayers:
    """The layers that this process has tried, and the roots that it has searched."""

    def __init__(self) -> None:
        self.problems: dict[tuple[str, tuple[int, int]], str] = {}  # by kind and devices; "": it works
        self.others: dict[str, str] = {}  # by root: a path that has another owner; "": there is none


_known = _TriedLayers()


def find_other_owner(how: str, roots: Sequence[str]) -> str:
    """Returns a path in the roots that a layer of this kind cannot change, since it has another owner or group, or a
    root that has too many paths to look at; "" if there is none. Looks at all paths once a process: call it in a
    thread.
    """
    if how not in (OVERLAY, FUSE):
        return ""
    for root in roots:
        if root not in _known.others:
            _known.others[root] = _search_all(root)
        if _known.others[root]:
            return _known.others[root]
    return ""


def _search_all(root: str) -> str:
    user, group, until = os.geteuid(), os.getegid(), time.monotonic() + _SECONDS
    waiting = [root]
    while waiting:
        if time.monotonic() > until:
            return root
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # it is gone
                    continue
                if status.st_uid != user or status.st_gid != group:
                    return entry.path
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)
    return ""


def _explain_uncopied(path: str) -> str:
    """Returns why this user cannot make a true copy of a path; "" if that is possible."""
    try:
        status = os.lstat(path)
    except OSError:  # it is gone
        return ""
    kind = stat.S_IFMT(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        return f"{path} is a FIFO, a socket or a device"
    if _is_real_root():
        return ""
    if _is_of_another(path):
        return f"{path} has another owner or group"
    needed = os.R_OK | os.X_OK if kind == stat.S_IFDIR else os.R_OK
    return "" if kind == stat.S_IFLNK or os.access(path, needed) else f"{path} cannot be read"


def _is_of_another(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid())


def _walk(root: str, most: int) -> Iterator[str]:
    """Yields the root and at most so many paths in it, the outer ones first."""
    yield root
    waiting = [root]
    while waiting and most > 0:
        folder = waiting.pop(0)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                yield entry.path
                most -= 1
                if most <= 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _list_mounts(roots: Sequence[str]) -> Iterator[str]:
    """Yields mount points below the roots: an overlay shows what they cover instead."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo") as file:
        for line in file:
            point = line.split(" ", 5)[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
            if any(is_inside(point, root) and point != root for root in roots):
                yield point


def _try_all(how: str, roots: Sequence[str], place: Path) -> str:
    for root in roots:
        try:
            devices = os.stat(root).st_dev, os.stat(place).st_dev
        except OSError as error:
            return str(error)
        if why := _try(how, root, place, devices):
            return why
    return ""


def _try(how: str, root: str, place: Path, devices: tuple[int, int]) -> str:
    """Tries a layer over a root; returns why it does not work, else "". The root is not touched."""
    if (how, devices) not in _known.problems:
        _known.problems[how, devices] = _try_once(how, root, place)
    return _known.problems[how, devices]


def _try_once(how: str, root: str, place: Path) -> str:
    ours = os.path.dirname(__file__)
    packages = (os.path.dirname(os.path.dirname(ours)), os.path.dirname(ours), ours)
    folder = tempfile.mkdtemp(prefix="try-", dir=place)
    try:
        upper, work = os.path.join(folder, "upper"), os.path.join(folder, "work")
        os.mkdir(upper)
        os.mkdir(work)
        if how == FUSE:  # a folder of our own, with files to delete
            root = os.path.join(folder, "lower")
            os.makedirs(os.path.join(root, _FILE))
            for name in ("a", "b"):
                Path(root, _FILE, name).touch()
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TRY, *packages, root, upper, work, how, _FILE],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"it could not be tried: {error}"
    finally:
        for inner in ("work/work", "work/work/incompat"):  # the kernel makes them without permissions
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(folder, inner), 0o700)
        shutil.rmtree(folder, ignore_errors=True)
    if done.stdout == "works\n":
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
