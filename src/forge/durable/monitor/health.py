"""Serves `/healthz`, `/readyz` and `/metrics` of a worker: a small HTTP server that only answers these."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, Self

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.durable.monitor.metrics import CONTENT_TYPE, Counters, Load, WorkerState, render_metrics

FRESH = 5.0  # seconds that the load is not read again
PATIENCE = 5.0  # seconds for a request to arrive, and for the load to be read
LARGEST_REQUEST = 8 * 1024  # bytes of a request
MOST_CONNECTIONS = 32  # connections at a time
LAG_WINDOW = 15.0  # seconds over which the longest delay of the loop is kept
LOOPBACK = "127.0.0.1"

log = logging.getLogger("forge.durable")


class ServedAddress(NamedTuple):
    """The address and port of a server, or the ports from which it takes a free one. Port 0: any free one."""

    host: str
    port: int
    last: int = 0

    @property
    def is_loopback(self) -> bool:
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @classmethod
    def parse(cls, text: str) -> ServedAddress:
        """Reads `ADDRESS:PORT`, `ADDRESS:FIRST-LAST`, or a port on the loopback address. Raises `ToolError`."""
        host, colon, ports = text.rpartition(":")
        port, dash, last = ports.partition("-")
        host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
        try:
            number, end = (int(one) if one.isascii() and one.isdigit() else -1 for one in (port, last if dash else "0"))
            if host != "localhost":
                ipaddress.ip_address(host)
            if 0 <= number <= 65_535 and (not dash or 0 < number <= end <= 65_535):
                return cls(host, number, end)
        except ValueError:
            pass
        message = f"the worker cannot listen on {text!r:.80}: expected an IP address and a port"
        raise ToolError(message, ErrorKind.CONFIG, "Write 127.0.0.1:9464; in a container, 0.0.0.0:9464.")


class Monitored(Protocol):
    """The worker, as its endpoints see it."""

    @property
    def counters(self) -> Counters: ...

    def describe(self, loop_lag: float) -> WorkerState:
        """Returns its state. Must not block."""

    def why_broken(self) -> str:
        """Returns why the worker cannot continue; empty if it can."""


class HealthServer:
    """Serves the endpoints inside `async with`. The load of the database is read on request, every few seconds."""

    def __init__(self, address: ServedAddress, worker: Monitored, read_load: Callable[[], Load]) -> None:
        self.address = address
        self._worker, self._read_load = worker, read_load
        self._load: Load | None = None
        self._read_at = -FRESH
        self._reading = asyncio.Lock()
        self._open = 0
        self._lags: list[tuple[float, float]] = []  # time and delay
        self._server: asyncio.Server | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises `ToolError` if the address cannot be used."""
        host, first, last = self.address
        for port in range(first, max(first, last) + 1):
            try:
                self._server = await asyncio.start_server(self._serve, host, port, limit=LARGEST_REQUEST)
                break
            except OSError as error:
                problem = error.strerror or str(error)
        if self._server is None:
            ports = f"the ports {first} to {last}" if last else f"port {first}"
            message = f"the worker cannot listen on {host}, {ports}, for its health: {problem}"
            raise ToolError(message, ErrorKind.CONFIG, "Choose another with --health.")
        self.address = self.address._replace(port=self._server.sockets[0].getsockname()[1])
        self._measuring = asyncio.create_task(self._measure_lag())
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait([self._measuring])
        if self._server is not None:
            self._server.close()

    @property
    def url(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"http://{host}:{self.address.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST_CONNECTIONS:
                async with asyncio.timeout(PATIENCE):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                writer.write(await self._answer(head))
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it went away, or sent something else
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: str) -> bytes:
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", "only GET\n"
        elif self.address.is_loopback and not _is_local(headers.get("host", "")):
            status, text = "403 Forbidden", "ask for an address, not for a name\n"  # a web page may own that name
        else:
            status, text = await self._find_answer(path)
        kind = CONTENT_TYPE if path == "/metrics" else "text/plain; charset=utf-8"
        body = text.encode()
        start = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        start += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        return start.encode() + (b"" if method == "HEAD" else body)

    async def _find_answer(self, path: str) -> tuple[str, str]:
        if path == "/healthz":
            broken = self._worker.why_broken()
            return ("503 Service Unavailable", f"{broken}\n") if broken else ("200 OK", "ok\n")
        if path == "/readyz":
            state = self._worker.describe(0.0)
            if state.is_ready:
                return "200 OK", "ready\n"
            return "503 Service Unavailable", "draining\n" if state.is_draining else "no database\n"
        if path == "/metrics":
            load = await self._current_load()
            lag = max((lag for _, lag in self._lags), default=0.0)
            return "200 OK", render_metrics(self._worker.describe(lag), self._worker.counters, load)
        return "404 Not Found", "there are /healthz, /readyz and /metrics\n"

    async def _current_load(self) -> Load | None:
        """Returns the load, at most some seconds old; None if the database cannot be read."""
        async with self._reading:
            if time.monotonic() - self._read_at >= FRESH:
                try:
                    async with asyncio.timeout(PATIENCE):
                        self._load = await in_thread(self._read_load)
                except Exception as error:  # such as an unreachable database: the metrics say so
                    log.debug("the load of the database could not be read: %s", error)
                    self._load = None
                self._read_at = time.monotonic()
            return self._load

    async def _measure_lag(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(1.0)
            moment = time.monotonic()
            self._lags = [one for one in self._lags if moment - one[0] < LAG_WINDOW]
            self._lags.append((moment, max(0.0, moment - before - 1.0)))


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
