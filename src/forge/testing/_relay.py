"""The program that an MCP client starts: connects its standard streams with the test that serves it.

It runs by path and needs only the standard library, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading


def main() -> int:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(sys.argv[1])
    except OSError:
        os.write(2, b"the test that serves these tools is over\n")
        return 1
    threading.Thread(target=send, args=(connection,), daemon=True).start()
    while piece := connection.recv(65536):
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]
    return 0


def send(connection: socket.socket) -> None:
    try:
        while piece := os.read(0, 65536):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # the test is over, and the other direction says so too
        return


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        os._exit(main())
