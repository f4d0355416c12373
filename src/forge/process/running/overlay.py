"""Mounts copy-on-write layers over folders, for one program: it sees its changes, and the folders stay as they are.

A process enters its own mount namespace before it becomes the program. As an ordinary user it needs a user namespace
for that, in which it keeps its own numbers. The mounts vanish with the last process of the namespace.

It starts with the standard library alone, without importing `forge` itself: keepers use it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: keepers have to start fast
    from collections.abc import Sequence
    from typing import NoReturn

OVERLAY, ROOT_OVERLAY, COPY = "overlay", "overlay of root", "copy"  # how a folder is covered

_NEW_MOUNTS, _NEW_USER = 0x0002_0000, 0x1000_0000
_PRIVATE, _RECURSIVE, _BIND = 1 << 18, 1 << 14, 1 << 12
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPTIONS = {
    OVERLAY: "userxattr,volatile",
    ROOT_OVERLAY: "redirect_dir=on,index=on,metacopy=off,volatile",  # it may rename folders and keep hard links
}


def enter_layers(layers: Sequence[Sequence[str]], directory: str | bytes = "/") -> None:
    """Moves this process into a mount namespace with the layers, then into the directory. Raises `OSError`.

    Each layer: the folder, the directory of its changes, the overlay's work directory, and how the folder is covered.
    """
    if any(how != ROOT_OVERLAY for *_, how in layers):
        user, group = os.geteuid(), os.getegid()
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            _write(f"/proc/self/{name}", line)
    else:
        _call("unshare", _NEW_MOUNTS)
        _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    for folder, upper, work, how in layers:
        if how == COPY:
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
    and the name of a file to use.
    """
    *layer, name = words
    enter_layers([layer], layer[0])
    os.mkdir(name)
    with open(os.path.join(name, "a"), "x") as file:
        file.write("a")
    os.rename(os.path.join(name, "a"), os.path.join(name, "b"))
    os.unlink(os.path.join(name, "b"))
    os.rmdir(name)
    sys.stdout.write("works\n")
    sys.exit(0)
