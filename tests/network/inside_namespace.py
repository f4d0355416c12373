"""Runs in a network namespace of its own, where public, private and metadata addresses are all this machine.

A name server answers as an attacker's would, web servers listen everywhere and note who was reached; each scenario
prints one line of JSON: what came of it, and how often each address was connected to.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from forge.core.errors import ToolError
from forge.network.client import fetch
from forge.network.egress import Egress
from forge.network.headers import RequestLimits
from tests.network.authority import Authority

UNPREPARED = "a namespace without the addresses it needs"
PUBLIC, OTHER, SIX = "93.184.216.34", "151.101.1.1", "2606:4700::1"
PRIVATE = ["10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "169.254.1.1", "fd00::1"]
NAMES: dict[str, list[list[str]]] = {  # the answers to one question after another; the last one stays
    "plain.test": [[PUBLIC]],
    "six.test": [[SIX]],
    "rebind.test": [[PUBLIC], ["127.0.0.1"]],
    "rebind-to-metadata.test": [[PUBLIC], ["169.254.169.254"]],
    "rebind-tls.test": [[PUBLIC], ["10.0.0.1"]],
    "both.test": [[PUBLIC, "10.0.0.1"]],
    "both-families.test": [[PUBLIC, "fd00::1"]],
    "dead-first.test": [["203.0.114.1", PUBLIC]],
    "tls.test": [[OTHER]],
    **{f"to-{number}.test": [[address]] for number, address in enumerate(PRIVATE)},
    "to-loopback.test": [["127.0.0.1"]],
    "to-loopback-six.test": [["::1"]],
    "to-mapped.test": [["::ffff:10.0.0.1"]],
    "to-nat64.test": [["64:ff9b::a00:1"]],
    "to-6to4.test": [["2002:a00:1::"]],
    "to-zero.test": [["0.0.0.0"]],
    "intranet.test": [["10.0.0.1"]],
}
HOSTILE = [
    *(f"http://to-{number}.test" for number in range(len(PRIVATE))),
    *(f"http://{'[' + address + ']' if ':' in address else address}" for address in PRIVATE),
    *(f"http://to-{name}.test" for name in ("loopback", "loopback-six", "mapped", "nat64", "6to4", "zero")),
    *("http://both.test", "http://both-families.test", "http://localhost", "http://127.1", "http://2130706433"),
    *("http://[::ffff:10.0.0.1]", "http://[::]", "http://0", "http://0xa000001", "http://①⓪.⓪.⓪.①"),
    *("https://to-0.test", "https://10.0.0.1", "http://to-0.test:81"),
]

hits: Counter[str] = Counter()  # connections, by the address they came to
questions: Counter[str] = Counter()  # for the IPv4 address of a name
silent: Counter[str] = Counter()  # questions about a name that get no answer, before others do
named: list[str | None] = []  # in TLS
hosts: list[str] = []  # in Host headers
redirect_to = ""


class NameServer(asyncio.DatagramProtocol):
    """Answers questions for addresses, without a time to live."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
            at += data[at] + 1
        kind = int.from_bytes(data[at + 1 : at + 3], "big")
        name, version = ".".join(labels), {1: 4, 28: 6}.get(kind, 0)
        if silent[name]:
            silent[name] -= 1
            return
        answers = NAMES.get(name, [])
        found = (
            [ipaddress.ip_address(one) for one in answers[min(questions[name], len(answers) - 1)]] if answers else []
        )
        if version == 4:
            questions[name] += 1
        records = [
            b"\xc0\x0c" + data[at + 1 : at + 5] + bytes(4) + len(one.packed).to_bytes(2, "big") + one.packed
            for one in found
            if one.version == version
        ]
        flags = b"\x81\x80" if answers else b"\x81\x83"
        counts = b"\0\1" + len(records).to_bytes(2, "big") + bytes(4)
        self.transport.sendto(data[:2] + flags + counts + data[12 : at + 5] + b"".join(records), address)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    local = ipaddress.ip_address(writer.get_extra_info("sockname")[0])
    hits[str(getattr(local, "ipv4_mapped", None) or local)] += 1
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        hosts.extend(line[6:] for line in head.split("\r\n") if line.lower().startswith("host: "))
        going = f"HTTP/1.1 302 Go\r\nLocation: {redirect_to}\r\nContent-Length: 0\r\n" if redirect_to else ""
        writer.write((going or "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n").encode() + b"Connection: close\r\n\r\n")
        writer.write(b"" if going else b"ok")
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def ask(url: str, egress: Egress | None = None) -> str:
    try:
        limits = RequestLimits(connect=2, read=2, total=4)
        return str((await fetch("GET", url, egress=egress or Egress(), limits=limits)).status)
    except ToolError as error:
        return f"{error.kind}: {error}"


async def redirected(to: str) -> str:
    global redirect_to
    redirect_to = to
    try:
        return await ask("http://plain.test")
    finally:
        redirect_to = ""


async def scenario(name: str, *steps: Callable[[], Awaitable[str]]) -> None:
    for counter in (hits, questions):
        counter.clear()
    named.clear()
    hosts.clear()
    came = [await step() for step in steps]
    seen = {"hits": dict(hits), "questions": dict(questions), "named": named, "hosts": hosts}
    sys.stdout.write(json.dumps({"name": name, "came": came, **seen}) + "\n")


async def scenarios() -> None:
    await scenario("a public name", lambda: ask("http://plain.test"))
    await scenario("a public name with IPv6", lambda: ask("http://six.test"))
    await scenario("a dead address first", lambda: ask("http://dead-first.test"))
    await scenario("https", lambda: ask("https://tls.test"))
    for name in ("rebind", "rebind-to-metadata"):
        await scenario(name, *[partial(ask, f"http://{name}.test")] * 2)
    await scenario("rebind-tls", lambda: ask("https://rebind-tls.test"), lambda: ask("https://rebind-tls.test"))
    await scenario("hostile", *[partial(ask, url) for url in HOSTILE])
    await scenario("redirected", *[partial(redirected, url) for url in HOSTILE])
    await scenario("redirected to a public address", lambda: redirected(f"http://{OTHER}/"))
    ranges = Egress(private=("10.0.0.0/8", "169.254.0.0/16", "0.0.0.0/0"))
    await scenario("allowed ranges", lambda: ask("http://10.0.0.1", ranges), lambda: ask("http://to-5.test", ranges))
    await scenario(
        "allowed ranges and metadata",
        lambda: ask("http://169.254.169.254", ranges),
        lambda: ask("http://to-4.test", ranges),
    )
    intranet = Egress("allowlist", ("plain.test",), ("intranet.test",))
    await scenario("an allowed private name", lambda: ask("http://intranet.test", intranet))
    await scenario(
        "other names in an allowlist",
        lambda: ask("http://to-0.test", intranet),
        lambda: ask("http://six.test", intranet),
    )
    os.environ.update(HTTP_PROXY="http://10.0.0.1", http_proxy="http://10.0.0.1", ALL_PROXY="http://10.0.0.1")
    os.environ.pop("FORGE_TRUST_ENV")
    await scenario("the environment's proxy", lambda: ask("http://plain.test"))


@asynccontextmanager
async def world(authority: Authority) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 53))
    context = authority.certify("DNS:tls.test", "DNS:rebind-tls.test", "DNS:to-0.test", "IP:10.0.0.1")
    context.sni_callback = lambda _, name, __: named.append(name)
    listening = [await asyncio.start_server(answer, "::", port) for port in (80, 81)]
    listening += [await asyncio.start_server(answer, "0.0.0.0", port) for port in (80, 81)]
    secure: ssl.SSLContext = context
    listening += [await asyncio.start_server(answer, host, 443, ssl=secure) for host in ("::", "0.0.0.0")]
    try:
        yield
    finally:
        for one in listening:
            one.close()


def prepare(directory: Path) -> None:
    """Gives this namespace its addresses and its name server."""
    for command in (
        "ip link set lo up",
        *(
            f"ip addr add {address}/{128 if ':' in address else 32} dev lo"
            for address in (PUBLIC, OTHER, SIX, *PRIVATE)
        ),
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    for name, text in (
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ):
        (directory / name).write_text(text)
        if Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", str(directory / name), f"/etc/{name}"], check=True, capture_output=True)


async def main(directory: Path) -> None:
    async with world(Authority(directory)):
        await scenarios()


if __name__ == "__main__":
    try:
        prepare(Path(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{UNPREPARED}: {error}")
    asyncio.run(main(Path(sys.argv[1])))
