"""Limits a program with all that it starts by a cgroup of its own (version 2), where one is delegated to this process.

Keepers use this, too: it starts with the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import subprocess
import time
from _thread import allocate_lock
from functools import cache

from forge.process.running.supervisor import find_supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: keepers have to start fast
    from collections.abc import Callable, Collection, Mapping

EVENTS = {
    "memory": ("memory.events", b"\noom "),
    "pids": ("pids.events", b"max "),
}  # controller -> file, name of a count
_OPTIONAL = ("memory.swap.max", "memory.oom.group")  # not on every kernel
_ITSELF = "forge-itself"  # the cgroup that this process moves to, if programs need its own one as their parent
_OLD = 60.0  # seconds after which an empty cgroup of a process that is gone is removed
_PATIENCE = 0.05  # seconds that the processes of a cgroup may take to vanish from it
_PROBE_SECONDS = 10.0
_lock = allocate_lock()
_CLONE3, _INTO_CGROUP, _VFORK = 435, 0x2_0000_0000, 0x4000  # Linux 5.7


class Delegated:
    """A cgroup in which this process may make others, with these controllers."""

    def __init__(self, folder: str, controllers: Collection[str], to_enable: Collection[str] = (), *, moves: bool):
        self.folder = folder
        self.controllers = frozenset(controllers)
        self.to_enable = frozenset(to_enable)  # controllers that its children do not have yet
        self.moves = moves  # this process is in it, and has to leave it first


def find_delegated() -> Delegated | None:
    """Returns the cgroup for the cgroups of programs; None if none is delegated. It is tried once a process."""
    with _lock:  # the second caller waits for the first try
        return _find_delegated()


@cache
def _find_delegated() -> Delegated | None:
    try:
        with open("/proc/self/cgroup") as own, open("/proc/self/mountinfo") as mounts:
            place = locate(own.read(), mounts.read())
        chosen = choose(*place, _list_own_processes()) if place else None
        if chosen is None:
            return None
        if chosen.to_enable:
            _enable(chosen)
        _remove_old(chosen.folder)
        return chosen if _works(chosen) else None
    except (OSError, ValueError):
        return None


def locate(own: str, mounts: str) -> tuple[str, str] | None:
    """Returns the directories of this process's cgroup and of the topmost visible one; None without version 2.

    `own` and `mounts`: the text of /proc/self/cgroup and /proc/self/mountinfo.
    """
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), "")
    for line in mounts.splitlines() if path else ():
        before, _, after = line.partition(" - ")
        if not after.startswith("cgroup2 "):
            continue
        root, top = (_unescape(word) for word in before.split(" ")[3:5])
        inside = os.path.relpath(path, root)
        if ".." not in (*inside.split("/"), *path.split("/")):
            return os.path.normpath(os.path.join(top, inside)), top
    return None


def choose(own: str, top: str, ours: Collection[int]) -> Delegated | None:
    """Chooses the cgroup for the cgroups of programs: this process's own or its parent. Changes nothing.

    `ours`: the processes of Forge. Where controllers have to be enabled first, it may hold no others.
    """
    found = []
    for folder in (own, os.path.dirname(own)) if own != top else (own,):
        if not _is_usable(folder):
            continue
        there = _read_words(folder, "cgroup.controllers") & set(EVENTS)
        enabled = there & _read_words(folder, "cgroup.subtree_control")
        found.append(Delegated(folder, enabled, moves=False))
        may_change = os.access(os.path.join(folder, "cgroup.subtree_control"), os.W_OK) and _holds_only(folder, ours)
        if there != enabled and may_change and (folder == own or not _read_processes(folder)):
            found.append(Delegated(folder, there, there - enabled, moves=folder == own))
    best = max(found, key=lambda one: len(one.controllers), default=None)
    return best if best is not None and best.controllers else None


class Cgroup:
    """The cgroup of one program with all that it starts. It must be removed."""

    def __init__(self, folder: str, supervisor: int, values: Mapping[str, str]) -> None:
        self.path = os.path.join(folder, f"forge-{supervisor}-{os.getpid()}-{os.urandom(4).hex()}")
        self._child_moves = False
        os.mkdir(self.path, 0o755)
        try:
            for name, value in values.items():
                with contextlib.suppress(*([OSError] if name in _OPTIONAL else [])):
                    _write(os.path.join(self.path, name), value)
        except OSError:
            self.remove()
            raise

    def fork(self) -> int:
        """Forks as `os.fork` does; the child must call `enter`. This process must have no other thread.

        A process that moves into a cgroup waits for every processor, which takes longer than to begin there.
        """
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            pid = fork_and_wait(_INTO_CGROUP, folder)
        finally:
            os.close(folder)
        if pid >= 0:
            return pid
        self._child_moves = True  # an older kernel, or a container that forbids the call
        return os.fork()

    def enter(self) -> None:
        """Moves this process into the cgroup, unless it began there."""
        if self._child_moves:
            _write(os.path.join(self.path, "cgroup.procs"), "0")

    def count_events(self) -> dict[str, int]:
        """Returns how often each limit was reached, by controller."""
        found = {}
        for controller, (file, name) in EVENTS.items():
            with contextlib.suppress(OSError, ValueError):
                found[controller] = int(_read(os.path.join(self.path, file)).partition(name)[2].split(None, 1)[0])
        return found

    def kill(self) -> None:
        """Kills all its processes at once, where the kernel can (Linux 5.14)."""
        with contextlib.suppress(OSError):
            _write(os.path.join(self.path, "cgroup.kill"), "1")

    def remove(self) -> None:
        """Removes it. Its processes must have ended; otherwise it remains for the supervisor."""
        _remove(self.path)


def fork_and_wait(flags: int = 0, folder: int = 0) -> int:
    """Forks, and waits until the child has become a program or ended: pages that both write would be copied.

    This process must have no other thread. `flags`: more of clone3's. `folder`: the descriptor of the child's cgroup.
    Returns -1 where the kernel cannot do it. Raises `OSError`.
    """
    arguments = struct.pack("11Q", flags | _VFORK, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, folder)
    call = _find_syscall()
    pid: int = call(ctypes.c_long(_CLONE3), ctypes.c_char_p(arguments), ctypes.c_size_t(len(arguments)))
    if pid >= 0:
        return pid
    number = ctypes.get_errno()
    if number not in (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    return -1


@cache
def _find_syscall() -> Callable[..., int]:
    """Returns the function that makes system calls; it keeps the interpreter's lock, as os.fork does."""

    call = ctypes.PyDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def remove_all(folder: str, supervisor: int, keepers_alive: Collection[int] = ()) -> None:
    """Kills and removes what keepers of this supervisor left behind when they were killed."""
    for name in _list_names(folder):
        owner, keeper = _owners(name)
        if owner == supervisor and keeper not in keepers_alive:
            with contextlib.suppress(OSError):
                _write(os.path.join(folder, name, "cgroup.kill"), "1")
            _remove(os.path.join(folder, name))


def _unescape(word: str) -> str:
    for one in " \t\n\\":
        word = word.replace(f"\\{ord(one):03o}", one)
    return word


def _remove_old(folder: str) -> None:
    """Removes empty cgroups of supervisors that are gone."""
    for name in _list_names(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            is_old = time.time() - os.stat(path).st_mtime > _OLD
            if is_old and not os.path.exists(f"/proc/{_owners(name)[0]}"):
                os.rmdir(path)


def _list_names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if _owners(name)[0]]
    except OSError:
        return []


def _owners(name: str) -> tuple[int, int]:
    """Returns the supervisor and the keeper of a program's cgroup, from its name; zeros for another cgroup."""
    first, *numbers, _ = (*name.split("-"), "")
    if first == "forge" and len(numbers) == 3 and numbers[0].isdecimal() and numbers[1].isdecimal():
        return int(numbers[0]), int(numbers[1])
    return 0, 0


def _remove(path: str) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno == errno.EBUSY and time.monotonic() < end:
                time.sleep(0.001)
                continue
        return


def _enable(chosen: Delegated) -> None:
    """Gives controllers to the children of a cgroup; this process and those beside it leave it first."""
    leaf = os.path.join(chosen.folder, _ITSELF)
    words = " ".join(f"+{name}" for name in sorted(chosen.to_enable))
    if not chosen.moves:
        _write(os.path.join(chosen.folder, "cgroup.subtree_control"), words)
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf, 0o755)
    try:
        _move_all(chosen.folder, leaf, _list_own_processes)
        _write(os.path.join(chosen.folder, "cgroup.subtree_control"), words)
    except OSError:
        with contextlib.suppress(OSError):
            _move_all(leaf, chosen.folder, _list_own_processes)
            os.rmdir(leaf)
        raise


def _move_all(source: str, target: str, find_ours: Callable[[], set[int]]) -> None:
    """Moves the processes of Forge. Raises `OSError` if there are others."""
    for _ in range(10):  # one of them may start another meanwhile
        found = _read_processes(source)
        if not found:
            return
        if not found <= find_ours():
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                _write(os.path.join(target, "cgroup.procs"), str(pid))
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _works(chosen: Delegated) -> bool:
    """Tries it: a process must be able to enter a new cgroup, which has the controllers."""

    there = Cgroup(chosen.folder, os.getpid(), {})
    try:
        if not all(os.path.exists(os.path.join(there.path, EVENTS[name][0])) for name in chosen.controllers):
            return False
        entered = subprocess.run(
            ["/bin/sh", "-c", 'echo 0 >"$1/cgroup.procs"', "sh", there.path],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        return entered.returncode == 0
    except subprocess.SubprocessError:
        return False
    finally:
        there.remove()


def _list_own_processes() -> set[int]:
    """Returns this process, its supervisor, and the processes below that one."""
    from forge.process.running.process_tree import find_descendants

    supervisor = find_supervisor()
    return {os.getpid(), *([supervisor, *find_descendants(supervisor)] if supervisor else [])}


def _holds_only(folder: str, ours: Collection[int]) -> bool:
    """Returns whether there are no other processes in a cgroup and below it."""
    try:
        return all(_read_processes(path) <= set(ours) for path, _, _ in os.walk(folder))
    except (OSError, ValueError):
        return False


def _is_usable(folder: str) -> bool:
    """Returns whether other cgroups can be made in it, and processes moved between them."""
    if not os.access(folder, os.W_OK | os.X_OK) or not os.access(os.path.join(folder, "cgroup.procs"), os.W_OK):
        return False
    return _read_words(folder, "cgroup.type") in (set(), {"domain"})  # the root has no type


def _read_processes(folder: str) -> set[int]:
    with open(os.path.join(folder, "cgroup.procs"), "rb") as file:
        return {int(one) for one in file.read().split()}


def _read_words(folder: str, name: str) -> set[str]:
    try:
        with open(os.path.join(folder, name)) as file:
            return set(file.read().split())
    except OSError:
        return set()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _write(path: str, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
