"""A way to Postgres that can be cut: a TCP port of this process which passes everything on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


class Proxy:
    """Listens at `address`; `cut` ends all connections and refuses new ones, until `mend`."""

    def __init__(self, url: str, address: str = "127.0.0.1") -> None:
        self._server = sa.make_url(url)
        self._address = address
        self._port = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.mend()

    @property
    def url(self) -> str:
        """The same database, through the proxy."""
        found = self._server.difference_update_query(["host", "port"])
        return found.set(host=self._address, port=self._port).render_as_string(hide_password=False)

    def mend(self) -> None:
        listener = socket.create_server((self._address, self._port), reuse_port=False)
        self._port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the accept of the thread
            listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            if self._listener is not listener:
                near.close()
                return
            far = self._reached()
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _reached(self) -> socket.socket:
        place = self._server.host or str(self._server.query.get("host", "localhost"))
        port = self._server.port or 5432
        if not place.startswith("/"):
            return socket.create_connection((place, port))
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{place}/.s.PGSQL.{port}")
        return far

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            with self._lock:
                known = one in self._open and one is source
                self._open.discard(one) if known else None
            if known:
                one.close()


@contextmanager
def proxied(url: str, address: str = "127.0.0.1") -> Iterator[Proxy]:
    proxy = Proxy(url, address)
    try:
        yield proxy
    finally:
        proxy.cut()
