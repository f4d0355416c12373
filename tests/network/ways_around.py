"""Runs in the sandbox, with the standard library alone: every way that we know to reach a host that is not allowed.

Prints a line for each way: `reached` or `refused` and what happened. Servers outside count who comes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

DENIED, DENIED_ADDRESS, ALLOWED = "denied.test", "151.101.1.1", "allowed.test"
PROXY = ("127.0.0.1", 3128)
WAYS: dict[str, Callable[[], object]] = {}
SECONDS = 2.0


def way(work: Callable[[], object]) -> Callable[[], object]:
    WAYS[work.__name__] = work
    return work


def through_proxy(head: str, then: bytes = b"") -> bytes:
    """Says something to the proxy; returns what came back, beyond a refusal of its own."""
    with socket.create_connection(PROXY, SECONDS) as proxy:
        proxy.sendall(head.encode("latin-1"))
        said = b""
        with contextlib.suppress(OSError):
            said = proxy.recv(4_096)
            if said.startswith(b"HTTP/1.1 200") and then:
                proxy.sendall(then)
                said += proxy.recv(4_096)
    return said


def tls_to(name: str, connected: socket.socket) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connected, server_hostname=name) as secure:
        secure.sendall(f"GET / HTTP/1.1\r\nHost: {DENIED}\r\n\r\n".encode())
        return secure.recv(4_096)


def connect(target: str) -> socket.socket:
    proxy = socket.create_connection(PROXY, SECONDS)
    proxy.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode("latin-1"))
    answer = proxy.recv(4_096)
    if b" 200 " not in answer.split(b"\r\n")[0] + b" ":
        raise OSError(answer[:80])
    return proxy


@way
def straight_to_the_address() -> object:
    return tls_to(DENIED, socket.create_connection((DENIED_ADDRESS, 443), SECONDS))


@way
def straight_to_port_80() -> object:
    return socket.create_connection((DENIED_ADDRESS, 80), SECONDS)


@way
def ipv6() -> object:
    return socket.create_connection(("2606:4700::1", 443), SECONDS)


@way
def udp_to_the_address() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sent:
        return sent.sendto(b"x", (DENIED_ADDRESS, 443))


@way
def another_name_server() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sent:
        return sent.sendto(b"x" * 20, ("8.8.8.8", 53))


@way
def raw_socket() -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@way
def packet_socket() -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@way
def vsock() -> object:
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as made:
        made.settimeout(SECONDS)
        made.connect((2, 1024))
        return made


@way
def bluetooth() -> object:
    return socket.socket(socket.AF_BLUETOOTH, socket.SOCK_STREAM, socket.BTPROTO_RFCOMM)


@way
def netlink_adds_a_route() -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as made:
        request = struct.pack("=IHHIIBBBBIIIIII", 44, 24, 0x505, 1, 0, 2, 0, 0, 0, 254, 3, 0, 1, 8, 0)
        made.send(request)
        answer = made.recv(4_096)
        if struct.unpack_from("=i", answer, 16)[0] < 0:
            raise PermissionError("netlink refused")
        return answer


@way
def names_of_this_machine() -> object:
    with socket.create_connection(("127.0.0.1", 80), SECONDS) as made:
        return made


@way
def abstract_socket_of_another() -> object:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect("\0forge-test-outside")
        return made


@way
def docker_socket() -> object:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect("/var/run/docker.sock")
        return made


@way
def another_process_of_this_user() -> object:
    found = [one for one in os.listdir("/proc") if one.isdigit() and int(one) > 1]
    seen = [Path(f"/proc/{one}/cmdline").read_bytes() for one in found]
    if not any(b"inside_program_proxy" in one for one in seen):
        raise PermissionError("no process outside is seen")
    return seen


@way
def namespace_of_the_parent() -> object:
    with open("/proc/1/ns/net") as outside:
        os.setns(outside.fileno(), 0x40000000)  # type: ignore[attr-defined]
    return socket.create_connection((DENIED_ADDRESS, 443), SECONDS)


def refused_connect(target: str) -> Callable[[], object]:
    return lambda: connect(target)


for number, target in enumerate(
    [
        f"{DENIED}:443",
        f"{DENIED}:80",
        f"{DENIED.upper()}:443",
        f"{DENIED}.:443",
        f"{DENIED_ADDRESS}:443",
        "2540765441:443",
        "0x97.0x65.0x1.0x1:443",
        f"[::ffff:{DENIED_ADDRESS}]:443",
        "127.0.0.1:80",
        "localhost:80",
        "0.0.0.0:80",
        "[::1]:80",
        "169.254.169.254:80",
        "metadata.google.internal:80",
        f"{ALLOWED}:25",
        f"{ALLOWED}:8444",
        f"{ALLOWED}@{DENIED}:443",
        f"{ALLOWED}\x00.{DENIED}:443",
        f"{ALLOWED}:443@{DENIED}:443",
        f"{ALLOWED}:99999",
        f"{ALLOWED}:-1",
        f"{ALLOWED} {DENIED}:443",
    ]
):
    WAYS[f"connect_{number}_{target.encode('unicode_escape').decode()}"] = refused_connect(target)


@way
def another_name_in_the_greeting() -> object:
    return tls_to(DENIED, connect(f"{ALLOWED}:443"))


@way
def no_name_in_the_greeting() -> object:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connect(f"{ALLOWED}:443"))


@way
def no_tls_at_port_443() -> object:
    with connect(f"{ALLOWED}:443") as made:
        made.sendall(f"GET / HTTP/1.1\r\nHost: {DENIED}\r\n\r\n".encode())
        made.settimeout(SECONDS)
        if not (said := made.recv(100)):
            raise OSError("closed")
        return said


@way
def transparent_with_the_denied_name() -> object:
    return tls_to(DENIED, socket.create_connection(("127.0.0.1", 443), SECONDS))


@way
def transparent_without_a_name() -> object:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", 443), SECONDS))


def is_passed_on(head: str) -> Callable[[], object]:
    def work() -> object:
        said = through_proxy(head)
        if not said.startswith(b"HTTP/1.1 200"):
            raise OSError(said[:80])
        return said

    return work


for name, head in {
    "plain_request": f"GET http://{DENIED}/ HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "host_header_of_another": f"GET http://{ALLOWED}/ HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "two_host_headers": f"GET http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\nHost: {DENIED}\r\n\r\n",
    "no_host_header": f"GET http://{ALLOWED}/ HTTP/1.0\r\n\r\n",
    "user_in_the_url": f"GET http://{ALLOWED}@{DENIED}/ HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "backslash": f"GET http://{DENIED}\\@{ALLOWED}/ HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "other_scheme": f"GET ftp://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n",
    "origin_form": f"GET / HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "trace": f"TRACE http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n",
    "two_lengths": f"POST http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\n"
    "Content-Length: 1\r\nContent-Length: 9\r\n\r\nx",
    "line_in_a_header": f"GET http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\nX: a\nHost: {DENIED}\r\n\r\n",
    "nothing_but_noise": "\x00\x01\x02\r\n\r\n",
    "endless_head": f"GET http://{ALLOWED}/ HTTP/1.1\r\nX: {'x' * 200_000}",
}.items():
    WAYS[name] = is_passed_on(head)


if __name__ == "__main__":
    for name, work in WAYS.items():
        try:
            came = work()
        except (OSError, ValueError, AttributeError, EOFError) as error:
            print("refused", name, type(error).__name__, flush=True)
        else:
            print("reached", name, repr(came)[:200], flush=True)
