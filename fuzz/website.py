"""A web server on loopback that answers well, badly and not at all, by the path it is asked for."""

from __future__ import annotations

import gzip
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

FAR = "http://192.0.2.1/"  # an address for documentation: nobody is there
BOMB = gzip.compress(bytes(30_000_000))
PAGE = "<html><title>T</title><body><h1>Head</h1><p>Text <a href='/html'>link</a></p></body></html>"
FOUND = json.dumps({"results": [{"title": "T", "url": "https://example.com/", "content": "C", "score": 0.5}]})


def _reply(body: bytes | str, kind: str = "text/plain", status: int = 200, *headers: str) -> bytes:
    raw = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + raw


REPLIES: dict[str, bytes] = {
    "/": _reply("hello"),
    "/html": _reply(PAGE, "text/html; charset=utf-8"),
    "/json": _reply('{"a": [1, 2, 3]}', "application/json"),
    "/lies": _reply("{not json", "application/json; charset=klingon"),
    "/binary": _reply(bytes(range(256)) * 20, "application/octet-stream"),
    "/picture": _reply(b"\x89PNG\r\n\x1a\n" + bytes(50), "image/png"),
    "/paper": _reply(b"%PDF-1.4\n" + bytes(50), "application/pdf"),
    "/turn": _reply("", "text/plain", 302, "Location: /json"),
    "/loop": _reply("", "text/plain", 302, "Location: /loop"),
    "/far": _reply("", "text/plain", 302, f"Location: {FAR}"),
    "/file": _reply("", "text/plain", 302, "Location: file:///proc/self/environ"),
    "/bomb": _reply(BOMB, "text/plain", 200, "Content-Encoding: gzip"),
    "/not-gzip": _reply("plain", "text/plain", 200, "Content-Encoding: gzip"),
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
    "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\noops",
    "/junk": b"\x00\xff this is no HTTP at all\r\n\r\n",
    "/nothing": b"",
    "/error": _reply("broken", "text/plain", 500),
    "/wait": _reply("later", "text/plain", 429, "Retry-After: 0"),
    "/search": _reply(FOUND, "application/json"),
    "/hook": _reply("{}", "application/json"),
    "/pets": _reply('[{"id": 1, "name": "Rex"}]', "application/json"),
}
PATHS = tuple(REPLIES)
MISSING = _reply("missing", status=404)


class _Visit(socketserver.StreamRequestHandler):
    timeout = 20

    def handle(self) -> None:
        try:
            first, length = self.rfile.readline(65_536), 0
            while (line := self.rfile.readline(65_536)).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            self.rfile.read(min(length, 50_000_000))
            path = first.split(b" ")[1].split(b"?")[0].decode("latin-1")
            found = REPLIES.get("/json" if path.startswith("/pets/") else path, MISSING)
            self.wfile.write(found.split(b"\r\n\r\n")[0] + b"\r\n\r\n" if first.startswith(b"HEAD ") else found)
        except (OSError, ValueError, IndexError):
            pass  # a caller that leaves, or speaks badly


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller may leave whenever it likes."""


@contextmanager
def website() -> Iterator[str]:
    """Its URL, while the block runs."""
    with _Server(("127.0.0.1", 0), _Visit) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
