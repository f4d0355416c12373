"""Runs in the sandbox, with the standard library alone: requests that a server and a proxy could read in two ways, to a
host that gets a secret. Prints a line of JSON for each: its name, and what came back.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl

HOST = b"Host: secret.test\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
ANOTHER = b"GET /another HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n"
END = b"Connection: close\r\n\r\n"
REQUESTS = {
    "honest": b"GET /a HTTP/1.1\r\n" + HOST + END,
    "a request behind a short body": b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx" + ANOTHER,
    "a length beside chunks": b"POST /a HTTP/1.1\r\n"
    + HOST
    + CHUNKED
    + b"Content-Length: 4\r\n\r\n0\r\n\r\n"
    + ANOTHER,
    "two codings": b"POST /a HTTP/1.1\r\n" + HOST + CHUNKED + b"Transfer-Encoding: x\r\n\r\n0\r\n\r\n" + ANOTHER,
    "a coding with a space": b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a coding with a vertical tab": b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a length with a sign": b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: +4\r\n\r\nabcd",
    "lines without returns": b"GET /a HTTP/1.1\nHost: secret.test\n\n" + ANOTHER.replace(b"\r", b""),
    "a folded line": b"GET /a HTTP/1.1\r\n" + HOST + b"X: a\r\n Host: denied.test\r\n" + END,
    "a zero in a header": b"GET /a HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n" + END,
    "an endless header": b"GET /a HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 300_000,
    "another port in Host": b"GET /a HTTP/1.1\r\nHost: secret.test:444\r\n" + END,
    "a user in Host": b"GET /a HTTP/1.1\r\nHost: denied.test@secret.test\r\n" + END,
    "a path in Host": b"GET /a HTTP/1.1\r\nHost: secret.test/denied.test\r\n" + END,
    "a slash in Host": b"GET /a HTTP/1.1\r\nHost: secret.test/\r\n" + END,
    "a query in Host": b"GET /a HTTP/1.1\r\nHost: secret.test?denied.test\r\n" + END,
    "a fragment in Host": b"GET /a HTTP/1.1\r\nHost: secret.test#denied.test\r\n" + END,
    "two names in Host": b"GET /a HTTP/1.1\r\nHost: secret.test, denied.test\r\n" + END,
    "its port and capitals in Host": b"GET /a HTTP/1.1\r\nHost: SECRET.test.:443\r\n" + END,
    "a placeholder in a trailer": b"POST /a HTTP/1.1\r\n" + HOST + CHUNKED + END + b"0\r\nX: %b\r\n\r\n",
    "a list of protocols": b"GET /a HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade, close\r\nUpgrade: websocket, h2c\r\n\r\n",
    "a header that the connection names": b"GET /a HTTP/1.1\r\n"
    + HOST
    + b"Connection: close, authorization, host\r\n\r\n",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    "HTTP/0.9": b"GET /a\r\n\r\n",
    "two values of the header": b"GET /a HTTP/1.1\r\n"
    + HOST
    + b"Authorization: Bearer x\r\nauthorization: y\r\n"
    + END,
    "a WebSocket that compresses": b"GET /a HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    "an answer in pieces of gzip": b"GET /coded HTTP/1.1\r\n" + HOST + END,
    "an answer with an endless head": b"GET /endless-head HTTP/1.1\r\n" + HOST + END,
}


def say(request: bytes) -> str:
    connected = socket.create_connection(("secret.test", 443), 20)
    came = b""
    tls = ssl.create_default_context().wrap_socket(connected, server_hostname="secret.test")
    with tls, contextlib.suppress(OSError):  # a request that is refused early may not be read whole
        tls.sendall(request)
        while piece := tls.recv(65_536):
            came += piece
    return came.decode("latin-1")


if __name__ == "__main__":
    placeholder = os.environ["API_TOKEN"].encode()
    for name, request in REQUESTS.items():
        request = request % placeholder if b"%b" in request else request
        print(json.dumps({"name": name, "came": say(request)}), flush=True)
