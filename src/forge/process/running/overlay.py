"""Mounts copy-on-write layers over folders, for one program: it sees its changes, and the folders stay as they are.

A process enters its own mount namespace before it becomes the program. As an ordinary user it needs a user namespace
for that, in which it keeps its own numbers. The mounts vanish with the last process of the namespace.

It starts with the standard library alone, without importing `forge` itself: keepers use it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: keepers have to start fast
    from collections.abc import Sequence
    from typing import NoReturn

OVERLAY, ROOT_OVERLAY, FUSE, COPY = "overlay", "overlay of root", "fuse-overlayfs", "copy"  # how a folder is covered
FUSE_PROGRAMS = ("/usr/bin/fuse-overlayfs", "/usr/local/bin/fuse-overlayfs", "/bin/fuse-overlayfs")

_NEW_MOUNTS, _NEW_USER = 0x0002_0000, 0x1000_0000
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12
_PARENT_DIES, _AMBIENT, _RAISE, _CLEAR_ALL = 1, 47, 2, 4  # prctl
_ADMIN = 21  # the capability to mount
_CAPABILITIES_3 = 0x2008_0522
_TERMINATE = 15
_NO_SPACE = 28
_NAMESPACE = "/proc/self/ns/mnt"
_PATIENCE = 5.0  # seconds for fuse-overlayfs to begin
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPTIONS = {
    OVERLAY: "userxattr,volatile",
    ROOT_OVERLAY: "redirect_dir=on,index=on,metacopy=off,volatile",  # it may rename folders and keep hard links
}


class LayerError(OSError):
    """A layer could not be mounted."""


class Layers:
    """The mount namespace of the layers of one program, as the process that starts the program sees it.

    The process enters it, starts the program and leaves again, without a fork. An ordinary user needs a user namespace
    for that, which the process cannot leave: from then on, it starts only programs with layers.

    The namespace is held until `release`: the kernel waits for all processors when it removes one, so that is done
    after the program's end is told.
    """

    def __init__(self) -> None:
        self.is_apart = False  # this process is in a user namespace
        self._held = self._own = self._root = -1

    def enter(self, layers: Sequence[Sequence[str]], directory: str | bytes) -> None:
        """Moves this process into a new namespace with the layers, until `leave`. Raises `LayerError`."""
        try:
            if not self.is_apart and not is_of_root(layers):
                _enter_user_namespace()
                self.is_apart = True
            self._root = os.open("/", _DIRECTORY)
            self._own = os.open(_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
            _enter_mount_namespace()
            _mount(layers, directory)
            self._held = os.open(_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LayerError(*error.args) from None

    def leave(self) -> None:
        """Moves this process back, if it entered: also to its own root, which the namespace does not know."""
        if self._own < 0:
            return
        try:
            _call("setns", self._own, _NEW_MOUNTS)
            os.fchdir(self._root)
            os.chroot(".")
        except OSError:
            os._exit(1)  # no other program may start here: Forge sees that this process is gone
        os.close(self._own)
        os.close(self._root)
        self._own = self._root = -1

    def hold(self, pid: int) -> None:
        """Holds the namespace of a child."""
        try:
            self._held = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it has ended already
            pass

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def is_of_root(layers: Sequence[Sequence[str]]) -> bool:
    """Returns whether the layers can be mounted without a user namespace."""
    return all(how == ROOT_OVERLAY for *_, how in layers)


def can_be_entered(layers: Sequence[Sequence[str]]) -> bool:
    """Returns whether a process can enter the layers and leave them again: nothing has to run beside the program."""
    return is_of_root(layers) or all(how in (OVERLAY, COPY) for *_, how in layers)


def enter_layers(layers: Sequence[Sequence[str]], directory: str | bytes = "/") -> None:
    """Moves this process into a mount namespace with the layers, then into the directory. Raises `LayerError`.

    Each layer: the folder, the directory of its changes, the overlay's work directory, and how the folder is covered.
    """
    try:
        if is_of_root(layers):
            _enter_mount_namespace()
        else:
            _enter_user_namespace()
        _mount(layers, directory)
    except OSError as error:
        raise LayerError(*error.args) from None


def _enter_mount_namespace() -> None:
    _call("unshare", _NEW_MOUNTS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)


def _enter_user_namespace() -> None:
    """Enters a user namespace in which this process keeps its own numbers, with a mount namespace."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USER | _NEW_MOUNTS)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        _write(f"/proc/self/{name}", line)


def _mount(layers: Sequence[Sequence[str]], directory: str | bytes) -> None:
    for folder, upper, work, how in layers:
        if how == FUSE:
            _start_fuse(folder, upper, work)
        elif how == COPY:
            flags = ctypes.c_ulong(_BIND | _RECURSIVE)
            _call("mount", os.fsencode(upper), os.fsencode(folder), None, flags, None)
        else:
            _mount_overlay(folder, upper, work, _OPTIONS[how])
    os.chdir(directory)  # by its name: it may be in a folder that is covered now


def _mount_overlay(folder: str, upper: str, work: str, options: str) -> None:
    """Mounts by descriptors, since a colon or a comma in a path would need quoting."""
    opened = [os.open(path, _DIRECTORY) for path in (folder, upper, work)]
    try:
        lower, above, beside = (f"/proc/self/fd/{one}" for one in opened)
        said = f"lowerdir={lower},upperdir={above},workdir={beside},{options}"
        _call("mount", b"overlay", os.fsencode(folder), b"overlay", ctypes.c_ulong(0), said.encode())
    finally:
        for one in opened:
            os.close(one)


def _start_fuse(folder: str, upper: str, work: str) -> None:
    """Starts fuse-overlayfs beside the program, and waits until it has mounted. It ends with the program.

    It needs the capability to mount, which an ordinary user has in this namespace until a program is started.
    """
    program = next((path for path in FUSE_PROGRAMS if os.access(path, os.X_OK)), FUSE_PROGRAMS[0])
    before = os.stat(folder)
    _keep_capability(1 << _ADMIN)
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            _call("prctl", _PARENT_DIES, _TERMINATE, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            nothing = os.open(os.devnull, os.O_RDWR)
            opened = [os.open(path, _DIRECTORY) for path in (folder, upper, work)]
            for number, one in enumerate([nothing, nothing, nothing, *opened]):
                os.dup2(one, 64 + number)
            for number in range(6):
                os.dup2(64 + number, number)
            os.closerange(6, 1024)
            options = "lowerdir=/proc/self/fd/3,upperdir=/proc/self/fd/4,workdir=/proc/self/fd/5"
            os.execv(program, [program, "-f", "-o", options, folder])  # noqa: S606
        finally:
            os._exit(127)
    until = time.monotonic() + _PATIENCE
    while os.stat(folder).st_dev == before.st_dev:
        if os.waitpid(child, os.WNOHANG)[0] or time.monotonic() > until:
            raise OSError(19, "fuse-overlayfs did not mount")
        time.sleep(0.001)
    _keep_capability(0)


def is_fuse(pid: int) -> bool:
    """Returns whether a process is a fuse-overlayfs, which belongs to the layer and not to the program."""
    try:
        return os.readlink(f"/proc/{pid}/exe") in FUSE_PROGRAMS
    except OSError:
        return False


def _keep_capability(wanted: int) -> None:
    """Lets programs that this process starts keep a capability; 0: none."""
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    held = ctypes.create_string_buffer(24)
    _call("capget", header, held)
    words = list(struct.unpack("=6I", held.raw))
    words[2] = wanted  # inheritable
    _call("prctl", _AMBIENT, _CLEAR_ALL, 0, 0, 0)
    _call("capset", header, struct.pack("=6I", *words))
    if wanted:
        _call("prctl", _AMBIENT, _RAISE, _ADMIN, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.PyDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc(), name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def try_layers(words: Sequence[str]) -> NoReturn:
    """Tries one layer in this process, which ends: it writes, replaces and deletes in the folder. `words`: the layer,
    and the name of a file to use; if there are files `a` and `b` in a folder of this name, they are deleted in ways
    that some versions of fuse-overlayfs forget.
    """
    *layer, name = words
    try:
        enter_layers([layer], layer[0])
    except LayerError as error:
        is_limit = error.errno == _NO_SPACE and layer[-1] != ROOT_OVERLAY  # what the kernel says at this limit, too
        limit = " (or no more user namespaces are allowed: user.max_user_namespaces)" if is_limit else ""
        sys.exit(f"{error.strerror}{limit}")
    if os.path.isdir(name):
        os.chdir(name)
        _write_file("new")
        os.rename("new", "a")
        os.unlink("a")
        os.unlink("b")
        os.mkdir("b")
        os.rename("b", "c")
        if found := sorted({"a", "b"} & set(os.listdir("."))):
            sys.exit(f"this version brings deleted files back: {found[0]}")
    else:
        os.mkdir(name)
        os.chdir(name)
        _write_file("a")
        os.rename("a", "b")
        os.unlink("b")
        os.chdir("..")
        os.rmdir(name)
    sys.stdout.write("works\n")
    sys.exit(0)


def _write_file(name: str) -> None:
    with open(name, "x") as file:
        file.write("a")
