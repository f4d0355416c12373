"""The network of programs: what the proxy that judges their hosts costs, at their start and for each request."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.sandboxed import LINE, RUNS
from benchmarks.timing import Measure, side_by_side_async, wall
from forge.network.egress import Egress
from forge.network.program_proxy import ProgramProxy
from forge.process.running.output import OutputPlan
from forge.process.running.run import run
from forge.process.sandbox import Confinement, Tier, problem
from tests.network.authority import Authority, make_authority

REQUESTS = 50  # on a kept connection, in a round
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def measures() -> list[Measure]:
    if why := problem(Tier.BUBBLEWRAP):
        print(f"program_network: NOT MEASURED: bubblewrap cannot be used here: {why}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        start = Measure(
            "bash echo hi, hosts by rules", "without network", *await _compare_start(Path(folder)), "ms", 2.2
        )
        return [start, *await _compare_requests(make_authority(Path(folder)))]


async def _yes(url: str) -> str:
    return ""


async def _compare_start(workspace: Path) -> tuple[float, float]:
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    closed = Confinement(workspace=workspace, sandbox="bubblewrap")

    async def start(confinement: Confinement) -> None:
        done = await run(
            LINE, cwd=workspace, env=env, output=OutputPlan(merge=True), timeout=30, confinement=confinement
        )
        assert (done.output, done.sandbox) == ("hi\n", "bubblewrap"), done

    async def without() -> float:
        return min([await wall(lambda: start(closed)) for _ in range(RUNS)])

    async def with_proxy() -> float:
        return min(
            [await wall(lambda: start(replace(closed, proxy=ProgramProxy(_yes, Egress())))) for _ in range(RUNS)]
        )

    return await side_by_side_async(without, with_proxy)


async def _compare_requests(authority: Authority) -> list[Measure]:
    """Client and server are another process, as programs are: threads of one process would wait for each other."""
    listening = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))]
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    port = listening[0].getsockname()[1]
    proxy = ProgramProxy(_yes, Egress(private=("localhost",)))
    proxy.take([one.detach() for one in (*listening, names)])
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.program_network", str(authority.directory), str(port)),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await child.communicate()
    finally:
        proxy.close()
    found: dict[str, tuple[float, float]] = json.loads(said)
    floor, kept = found["kept"]
    new_floor, new = found["new"]
    return [
        Measure("a program's request, connection kept", "without the proxy", floor, kept, "ms", 4.0),
        Measure("a program's request, new connection", "without the proxy", new_floor, new, "ms", 2.5),
    ]


async def _ask_as_a_program(authority: Authority, through: int) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=authority.certify("DNS:localhost"))
    port = server.sockets[0].getsockname()[1]
    context = ssl.create_default_context(cafile=str(authority.file))

    async def straight() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")

    async def proxied() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", through)
        writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(context, server_hostname="localhost")
        return reader, writer

    kept = await side_by_side_async(lambda: _time_kept(straight), lambda: _time_kept(proxied))
    new = await side_by_side_async(lambda: _time_new(straight), lambda: _time_new(proxied))
    print(json.dumps({"kept": kept, "new": new}))


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def _time_kept(connect: Connect) -> float:
    reader, writer = await connect()
    times = [await wall(lambda: _ask(reader, writer)) for _ in range(REQUESTS)]
    writer.close()
    return sorted(times)[len(times) // 2]


async def _time_new(connect: Connect) -> float:
    async def once() -> None:
        reader, writer = await connect()
        await _ask(reader, writer)
        writer.close()

    times = [await wall(once) for _ in range(RUNS)]
    return sorted(times)[len(times) // 2]


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(REQUEST)
    assert await reader.readexactly(len(ANSWER)) == ANSWER


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(ANSWER)
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(_ask_as_a_program(Authority(Path(sys.argv[1])), int(sys.argv[2])))
