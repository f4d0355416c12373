"""Makes sockets that listen inside a sandbox's own network, while the sandbox waits to run its program.

No process and no path of ours is inside: a copy of the keeper enters the namespace, makes the sockets and ends. It
starts with the standard library alone, as the supervisor does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: this process has to start fast
    from collections.abc import Callable, Sequence
    from typing import Self

INFO, BLOCK = 10, 11  # the numbers that `bubblewrap.py` names: its child's number, and what it waits for

_PATIENCE = 10_000  # milliseconds for the sandbox to begin
_ABOVE = 64  # descriptors that are not mixed up with those that a program is started with
_MOST_SAID = 4_096  # bytes
_NS_GET_USERNS = 0xB701
_USER, _NET = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_FREEBIND = getattr(socket, "IP_FREEBIND", 15)  # the sandbox may not have set up its loopback address yet
_QUEUE = 128  # connections that wait to be accepted


class SandboxStart:
    """The pipes on which a starting sandbox says who its child is, and waits."""

    def __enter__(self) -> Self:
        self._info, self._info_end = _high_pipe()
        self._wait, self._go = _high_pipe()
        return self

    @property
    def inherited(self) -> list[tuple[int, int]]:
        """The descriptors that bubblewrap gets, and their numbers there."""
        return [(self._info_end, INFO), (self._wait, BLOCK)]

    def read_child(self) -> int:
        """Returns the process number of the sandbox's first process; 0 if the sandbox ended before it began."""
        import json

        os.close(self._info_end)
        self._info_end = -1
        said = b""
        poll = select.poll()
        poll.register(self._info, select.POLLIN)
        while b"}" not in said:
            if not poll.poll(_PATIENCE):
                raise OSError(errno.ETIMEDOUT, "the sandbox did not begin")
            if not (piece := os.read(self._info, _MOST_SAID)):
                return 0  # its exit code and its words say why
            said += piece
        return int(json.loads(said)["child-pid"])

    def go_on(self) -> None:
        os.write(self._go, b"x")

    def __exit__(self, *_: object) -> None:
        for one in (self._info, self._info_end, self._wait, self._go):
            if one >= 0:
                os.close(one)


def open_listeners(child: int, wanted: Sequence[tuple[str, str, int]]) -> list[int]:
    """Returns sockets that listen in the network of a process. Raises `OSError`."""
    enter = _enter()  # loaded before the fork, which it would slow down each time
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            pid = os.fork()
            if not pid:
                try:
                    _send_listeners(theirs, child, wanted, enter)
                finally:
                    os._exit(0)
        said, sockets, _, _ = socket.recv_fds(ours, 16, len(wanted), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    if len(sockets) != len(wanted):
        number = int(said or b"0")
        raise OSError(number, f"no socket could be made inside the sandbox: {os.strerror(number)}")
    for one in sockets:
        os.set_inheritable(one, False)
    return list(sockets)


def _send_listeners(
    to: socket.socket, child: int, wanted: Sequence[tuple[str, str, int]], enter: Callable[[int, int], None]
) -> None:
    try:
        network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
            enter(owner, _USER)
        enter(network, _NET)
        sockets = [_listen(*one) for one in wanted]
        socket.send_fds(to, [b"0"], [one.fileno() for one in sockets])
    except OSError as error:
        to.send(b"%d" % (error.errno or 0))


def _listen(kind: str, address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
    made.bind((address, port))
    if kind == "tcp":
        made.listen(_QUEUE)
    return made


@cache
def _enter() -> Callable[[int, int], None]:
    """Returns what enters a namespace: `os.setns`, which Python has since 3.12, or the system call."""
    if (found := getattr(os, "setns", None)) is not None:
        return lambda namespace, kind: found(namespace, kind)
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)

    def enter(namespace: int, kind: int) -> None:
        if library.setns(namespace, kind):
            raise OSError(ctypes.get_errno(), "setns")

    return enter


def _high_pipe() -> tuple[int, int]:
    low = os.pipe()
    high = tuple(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for one in low)
    for one in low:
        os.close(one)
    return high[0], high[1]
