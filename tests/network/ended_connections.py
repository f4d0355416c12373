"""Measures the proxy of programs over many connections whose TLS it ends: `python -m … FOLDER FIRST MORE`.

Prints one line of JSON: its memory in KiB, its open files and the tasks of its thread, after FIRST connections and
after MORE of them. Server and clients are a program of their own, so that their memory is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path

from forge.network import program_proxy
from forge.network.egress import Egress
from forge.network.program_proxy import ProgramProxy
from forge.network.program_secrets import ProgramSecret
from forge.network.session_authority import BUNDLE
from tests.network.authority import Authority

VALUE = "a-value-that-no-program-may-see-0123456789"
AT_ONCE = 4  # clients
SETTLING = 60.0  # seconds in which closed connections have to be gone


async def _yes(url: str) -> str:
    return ""


async def measure(folder: Path, first: int, more: int) -> None:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    port = listening[0].getsockname()[1]
    secret = ProgramSecret(lambda: VALUE, ("localhost",), name="TOKEN")
    proxy = ProgramProxy(_yes, Egress(private=("localhost",), secrets=(secret,)))
    (folder / "session.pem").write_bytes(proxy.files[BUNDLE])
    proxy.take([one.detach() for one in (*listening, names)])
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.network.ended_connections", str(folder), str(port), secret.placeholder),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    found = []
    try:
        for count in (first, more):
            client.stdin.write(f"{count}\n".encode())
            said = await client.stdout.readline()
            assert said == f"{count} answered\n".encode(), said
            found.append(await _measure_once())
    finally:
        client.stdin.close()
        await client.wait()
        proxy.close()
    (reached,) = proxy.report()
    print(json.dumps({"measured": found, "connections": reached["connections"]}))


async def _measure_once() -> dict[str, int]:
    """Measures once the last connections are gone."""
    loop = program_proxy._proxy_loop(os.getpid())
    until = asyncio.get_running_loop().time() + SETTLING
    while (tasks := len(asyncio.all_tasks(loop))) > 3:  # it serves, and accepts in two tasks
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(0.05)
    gc.collect()
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    files = len(os.listdir("/proc/self/fd"))
    return {"kib": memory, "files": files, "tasks": tasks, "threads": threading.active_count()}


async def serve_and_ask(folder: Path, through: int, placeholder: str) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=Authority(folder).certify("DNS:localhost"))
    port = server.sockets[0].getsockname()[1]
    context = ssl.create_default_context(cafile=str(folder / "session.pem"))
    request = f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {placeholder}\r\n\r\n".encode()
    left = 0

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            reader, writer = await asyncio.open_connection("127.0.0.1", through)
            writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(context, server_hostname="localhost")
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(head.rpartition(b": ")[2]))
            assert placeholder.encode() in body, (head, body)  # the value came back, and became the placeholder
            assert VALUE.encode() not in body
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    while line := await asyncio.to_thread(sys.stdin.readline):
        left = int(line)
        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
        print(f"{int(line)} answered", flush=True)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            assert VALUE.encode() in head
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)
    writer.close()


if __name__ == "__main__":
    if sys.argv[2].isdecimal() and sys.argv[3].isdecimal():
        asyncio.run(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    else:
        asyncio.run(serve_and_ask(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
