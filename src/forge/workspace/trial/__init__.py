"""The copy-on-write layer of a trial run: where it lies, what a program changed in it, and how that is applied.

A layer covers the workspace and the other writable roots. Its program runs with `layer.mounts` in its confinement, so
that all its changes stay in the layer. Then:

    effects = layer.effects(said=output)    what it did; `unsure` tells what a layer cannot do
    layer.apply()                           makes the same changes in the real tree, all or none of them
    layer.discard()                         the real tree was never touched

A layer lies on disk, outside of every root, and can wait for an answer: `layer.keep()`, and later `find_layer(id)`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forge.core.context import LayerMount
from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.journal import remove_tree
from forge.workspace.effects import Effects
from forge.workspace.paths import quote_path
from forge.workspace.state import data_file, replace_file
from forge.workspace.trial.apply import Application, Copier
from forge.workspace.trial.scan import COPY, Layer, Marks, find_signs, read_attributes, says_full

LONGEST_KEPT = 7 * 24 * 3600  # seconds that a layer waits for an answer
_FREE = 64 * 1024 * 1024  # bytes left on a disk that counts as full
_LONGEST_STEP = 0.05  # seconds
_NAME = re.compile(r"[0-9a-f]{32}")
_GONE = "gone-"
_FACTS = "layer.json"


class TrialLayer(Layer):
    """One layer over some folders. Its program must have ended before anything here is called but `mounts`."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        super().__init__(folder, facts)
        self._facts = dict(facts)
        self._application = Application(self)

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def mounts(self) -> tuple[LayerMount, ...]:
        """The layers for the confinement of the program."""
        return tuple(
            LayerMount(root, self.upper(number), str(self.folder / str(number) / "work"), self.how)
            for number, root in enumerate(self.roots)
        )

    def keep(self, **facts: Any) -> None:
        """Keeps the layer after the end of this process: it waits for an answer. `facts`: plain values to find again
        in `facts`.
        """
        self._facts |= {"waits": True, "facts": {**self.facts, **facts}}
        replace_file(self.folder / _FACTS, json.dumps(self._facts))

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self._facts.get("facts", {}))

    def effects(self, said: str = "", *, processes: Sequence[str] = (), hosts: Sequence[str] = ()) -> Effects:
        """Reads what the program did. `said`: its output, which may tell what a layer could not do."""
        unsure: dict[str, None] = {}
        notes: dict[str, None] = {}
        if self.how != COPY:
            unsure |= dict.fromkeys(find_signs(said))
        if says_full(said) and _free_bytes(self.folder) < _FREE:
            unsure["the disk is full"] = None
        try:
            nodes = [node for top in self.scan(unsure, notes) for node in top.walk()]
            if linked := self.find_moved_link(nodes):
                unsure[f"{quote_path(linked)} has several names (hard links), and one is moved"] = None
        except (OSError, ToolError) as error:  # such as a folder that its owner may not read
            nodes = []
            unsure[f"its changes cannot be read: {error.message if isinstance(error, ToolError) else error}"] = None
        files = tuple(node.effect for node in nodes if node.effect is not None)
        return Effects(files, tuple(hosts), tuple(processes), tuple(unsure), tuple(notes))

    def apply(self, paths: Collection[Path] | None = None, *, expect: Effects | None = None) -> Effects:
        """Makes the changes in the real tree: all of them, or those of some paths. Returns what was made.

        `expect`: the effects that were judged, and shown. All or nothing: raises `ToolError` if the layer has others
        now, if someone changed one of the paths since the trial began, or if something cannot be written. Then nothing
        is changed, and the layer is still there.
        """
        return self._application.run(paths, expect)

    def discard(self) -> None:
        """Removes the layer, in the background. The real tree was never touched."""
        gone = self.folder.with_name(f"{_GONE}{self.folder.name}")
        try:
            os.rename(self.folder, gone)
        except FileNotFoundError:
            return
        _remove_in_background([gone])


# Where layers lie.


def find_places(roots: Iterable[Path]) -> list[Path]:
    """Returns directories for layers, made if missing, the best first: outside of all roots, of this user alone, and
    on the same file system as the first root if possible.
    """
    real = [os.path.realpath(root) for root in roots]
    user = os.getuid()
    home = data_file("trials")
    wanted = [*([home] if home is not None else []), Path("/var/tmp", f"forge-{user}", "trials")]  # noqa: S108
    wanted.append(Path(tempfile.gettempdir(), f"forge-{user}", "trials"))
    found = {}
    for place in wanted:
        with contextlib.suppress(OSError):
            if _make_place(place, real):
                found[place] = os.stat(place).st_dev
    device = os.stat(real[0]).st_dev
    return sorted(found, key=lambda place: found[place] != device)


def _make_place(place: Path, roots: Sequence[str]) -> bool:
    real = os.path.realpath(place)
    if any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in roots):
        return False
    for folder in (place.parent, place):
        folder.mkdir(mode=0o700, parents=folder == place.parent, exist_ok=True)
    status = os.lstat(place)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or os.lstat(place.parent).st_uid != os.getuid():
        return False
    os.chmod(place, 0o700)
    return True


def open_layer(workspace: Path, roots: Iterable[Path], how: str, place: Path) -> TrialLayer:
    """Makes a layer over folders: the workspace and the other writable roots, each covered once.

    Raises `ToolError` if it cannot be made; nothing has run then.
    """
    folder = place / secrets.token_hex(16)
    tops = _outermost(os.path.realpath(root) for root in roots)
    try:
        _tidy(place)
        if _free_bytes(place) < _FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.mkdir(folder, 0o700)
        for number, root in enumerate(tops):
            _make_upper(folder / str(number), root, how)
        facts = {
            "workspace": os.path.realpath(workspace),
            "roots": tops,
            "how": how,
            "started": _stamp(folder),
            "process": os.getpid(),
        }
        (folder / _FACTS).write_text(json.dumps(facts))
    except BaseException as error:
        _remove_in_background([folder])
        if not isinstance(error, OSError):
            raise
        raise ToolError(
            f"the trial could not begin, so nothing was run: {error.strerror or error}",
            ErrorKind.SYSTEM,
            "Run it outside a trial, after asking the person.",
        ) from error
    return TrialLayer(folder, facts)


def find_layer(id_: str, places: Iterable[Path]) -> TrialLayer | None:
    """Returns a layer that was kept; None if it is gone."""
    if not _NAME.fullmatch(id_):
        return None
    for place in places:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return TrialLayer(place / id_, json.loads((place / id_ / _FACTS).read_text()))
    return None


def _outermost(roots: Iterable[str]) -> list[str]:
    found = sorted(dict.fromkeys(roots), key=len)
    return [one for one in found if not any(one.startswith(f"{other.rstrip('/')}/") for other in found)]


def _make_upper(folder: Path, root: str, how: str) -> None:
    upper, work = folder / "upper", folder / "work"
    os.mkdir(folder, 0o700)
    status = os.stat(root)
    if how == COPY:
        copier = Copier(Marks(how))
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            copier.make(root, root, "", above, upper.name)
        finally:
            copier.close()
            os.close(above)
        return
    os.mkdir(work, 0o700)
    os.mkdir(upper, 0o700)
    made = os.stat(upper)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.chown(upper, status.st_uid, status.st_gid)
    for name, value in read_attributes(root, Marks(how)).items():
        with contextlib.suppress(OSError):
            os.setxattr(upper, name, value)
    os.chmod(upper, stat.S_IMODE(status.st_mode))
    os.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))


def _stamp(folder: Path) -> int:
    """Returns the time as the file system counts it: all earlier changes have an earlier time, and no later one has.

    Newer kernels count exactly, once someone has looked at a time; older ones in steps of some milliseconds, so that
    this waits for the next step.
    """
    first, until = os.lstat(folder).st_ctime_ns, time.monotonic() + _LONGEST_STEP
    while True:
        os.chmod(folder, 0o700)
        now = os.lstat(folder).st_ctime_ns
        if now > first or time.monotonic() > until:
            return now


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@functools.cache
def _tidy(place: Path) -> None:
    """Removes layers of processes that are gone, once, in the background; those that wait stay for some days."""
    gone = []
    for name in os.listdir(place):
        path = place / name
        try:
            if not name.startswith(_GONE):
                if not _NAME.fullmatch(name) or not _is_orphan(path):
                    continue
                os.rename(path, place / f"{_GONE}{name}")
                path = place / f"{_GONE}{name}"
        except (OSError, ValueError, KeyError):
            continue
        gone.append(path)
    _remove_in_background(gone)


def _is_orphan(folder: Path) -> bool:
    age = time.time() - os.lstat(folder).st_mtime
    try:
        facts = json.loads((folder / _FACTS).read_text())
    except FileNotFoundError:
        return age > 60
    if facts.get("waits"):
        return age > LONGEST_KEPT
    try:
        os.kill(int(facts["process"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _remove_in_background(folders: Sequence[Path]) -> None:
    def remove() -> None:
        for folder in folders:
            with contextlib.suppress(OSError):  # the next start tries again
                above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    remove_tree(above, folder.name)
                finally:
                    os.close(above)

    if not folders:
        return
    try:
        threading.Thread(target=remove, name="forge-trial-cleanup", daemon=True).start()
    except RuntimeError:  # there are too many threads, or the program ends
        remove()
