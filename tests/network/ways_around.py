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
        "[fe80::1%lo]:443",
        "[::1%25lo]:80",
        f"[::{DENIED_ADDRESS}]:443",
        f"[64:ff9b::{DENIED_ADDRESS}]:443",
        f"{DENIED}..:443",
        f"{ALLOWED}.{DENIED}:443",
        f"{ALLOWED}\\.{DENIED}:443",
        f"{ALLOWED}#{DENIED}:443",
        f"{ALLOWED}%00{DENIED}:443",
        "d\xe9nied.test:443",
        f"{ALLOWED}:443\t{DENIED}:443",
        f"{DENIED}:+443",
        f"{DENIED}:\xb2",
    ]
):
    WAYS[f"connect_{number}_{target.encode('unicode_escape').decode()}"] = refused_connect(target)


@way
def another_name_in_the_greeting() -> object:
    return tls_to(DENIED, connect(f"{ALLOWED}:443"))


@way
def an_allowed_name_at_another_address() -> object:
    return tls_to(ALLOWED, connect(f"{DENIED_ADDRESS}:443"))


@way
def a_zero_in_the_name_of_the_greeting() -> object:
    cut = greeting(f"{ALLOWED}x{DENIED}").replace(b".testx", b".test\0")
    return greet(socket.create_connection(("127.0.0.1", 443), SECONDS), cut)


@way
def a_greeting_of_an_older_kind() -> object:
    hello = b"\x01\x03\x01\0\x03\0\0\0\x10" + b"\0\0\x2f" + b"x" * 16
    return greet(connect(f"{ALLOWED}:443"), bytes([0x80, len(hello)]) + hello)


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


@way
def multipath_tcp() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as made:
        made.settimeout(SECONDS)
        made.connect((DENIED_ADDRESS, 443))
        return made


@way
def sctp() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) as made:
        made.settimeout(SECONDS)
        made.connect((DENIED_ADDRESS, 443))
        return made


@way
def data_with_the_first_packet() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        return made.sendto(b"GET / HTTP/1.1\r\n\r\n", 0x20000000, (DENIED_ADDRESS, 80))


@way
def from_the_address_of_the_proxy() -> object:
    with socket.socket() as made:
        made.settimeout(SECONDS)
        made.bind(("127.0.0.1", 0))
        made.connect((DENIED_ADDRESS, 443))
        return made


@way
def an_ipv4_address_in_ipv6() -> object:
    return socket.create_connection((f"::ffff:{DENIED_ADDRESS}", 443), SECONDS)


@way
def names_over_tcp() -> object:
    return socket.create_connection(("127.0.0.1", 53), SECONDS)


@way
def a_message_in_a_name() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(SECONDS)
        question = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x06leaked\x06denied\x04test\0\0\x10\0\1"
        made.sendto(question, ("127.0.0.1", 53))
        if made.recv(512)[6:8] == b"\0\0":
            raise OSError("no text comes back")
        return question


@way
def transparent_with_the_name_in_small_records() -> object:
    return greet(socket.create_connection(("127.0.0.1", 443), SECONDS), small(greeting(DENIED)))


@way
def transparent_with_capitals_and_a_dot() -> object:
    return tls_to(f"{DENIED.upper()}.", socket.create_connection(("127.0.0.1", 443), SECONDS))


@way
def a_second_greeting() -> object:
    return greet(connect(f"{ALLOWED}:443"), greeting(ALLOWED) + b"\x14\x03\x03\0\1\1" + greeting(DENIED))


@way
def a_second_greeting_in_small_records() -> object:
    return greet(connect(f"{ALLOWED}:443"), greeting(ALLOWED) + small(greeting(DENIED)))


def greeting(name: str) -> bytes:
    written = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), written, server_hostname=name).do_handshake()
    return written.read()


def small(record: bytes) -> bytes:
    return b"".join(b"\x16\x03\x01\0\1" + record[at : at + 1] for at in range(5, len(record)))


def greet(connected: socket.socket, said: bytes) -> bytes:
    """Sends greetings; an answer other than the end, or a server's complaint, means that they went through."""
    with connected:
        connected.settimeout(SECONDS)
        connected.sendall(said)
        came = b"".join(iter(lambda: connected.recv(65_536), b""))
    if b"denied.test" not in came:
        raise OSError("ended without a certificate of the denied host")
    return came


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
    "socks_5": "\x05\x01\x00",
    "socks_4": "\x04\x01\x01\xbb\x97\x65\x01\x01\x00",
    "another_proxy_s_words": f"PROXY TCP4 1.1.1.1 {DENIED_ADDRESS} 1 443\r\nGET / HTTP/1.1\r\nHost: {DENIED}\r\n\r\n",
    "connect_with_a_url": f"CONNECT http://{DENIED}:443 HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n",
    "websocket": f"GET http://{DENIED}/ HTTP/1.1\r\nHost: {DENIED}\r\n"
    "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "refused_then_another": f"CONNECT {DENIED}:443 HTTP/1.1\r\nHost: x\r\n\r\nGET http://{DENIED}/ HTTP/1.1\r\n\r\n",
    "http_2_at_once": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "an_upgrade_to_http_2": f"GET http://{DENIED}/ HTTP/1.1\r\nHost: {DENIED}\r\n"
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    "a_zone_in_the_url": "GET http://[fe80::1%25lo]/ HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n",
    "a_folded_host": f"GET http://{ALLOWED}/ HTTP/1.1\r\nHost:\r\n {DENIED}\r\n\r\n",
    "a_host_with_a_dot_too_many": f"GET http://{DENIED}../ HTTP/1.1\r\nHost: {DENIED}..\r\n\r\n",
    "an_escaped_host": "GET http://denied%2etest/ HTTP/1.1\r\nHost: denied.test\r\n\r\n",
    "a_connect_with_a_body": f"CONNECT {DENIED}:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    "two_codings": f"POST http://{ALLOWED}/ HTTP/1.1\r\nHost: {ALLOWED}\r\n"
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
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
