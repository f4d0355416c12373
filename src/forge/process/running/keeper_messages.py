"""Sends messages, with file descriptors, between Forge and the processes beside it."""

from __future__ import annotations

import marshal
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:  # not loaded at run time: this process has to start fast
    from typing import Any

MOST_FDS = 32  # passed at once
PIECE = 64 * 1024  # bytes read at once

# To the supervisor: make a keeper (with its socket); end the keeper of a number; keepers make cgroups in a directory.
NEW, END, CGROUPS = "new", "end", "cgroups"


def pack(message: Any) -> bytes:
    """Encodes a message between processes of one interpreter."""
    content = marshal.dumps(message)
    return len(content).to_bytes(4, "big") + content


class Messages:
    """Splits a socket's data into messages, with the descriptors that came along."""

    def __init__(self) -> None:
        self._bytes = b""
        self.descriptors: list[int] = []

    def read(self, connection: socket.socket) -> bool:
        """Reads available data; False at the end."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            content, descriptors, _, _ = socket.recv_fds(connection, PIECE, MOST_FDS, flags)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for one in descriptors:
            os.set_inheritable(one, False)
        self.descriptors += descriptors
        self._bytes += content
        return bool(content)

    def next(self) -> Any:
        """Returns the next whole message, or None."""
        size = int.from_bytes(self._bytes[:4], "big")
        if len(self._bytes) < 4 + size or not size:
            return None
        content, self._bytes = self._bytes[4 : 4 + size], self._bytes[4 + size :]
        return marshal.loads(content)  # noqa: S302 - from our own process

    def take(self) -> list[int]:
        taken, self.descriptors = self.descriptors, []
        return taken
