"""Sends requests over shared connections: one pool per event loop and egress, so that none outlives its permission.

Everything that Forge sends goes through `send`. The first request loads this module, since it loads the HTTP client.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, zip_longest
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore2

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.network.address import Address, Url, read_host
from forge.network.egress import Egress

# Opens connections: resolves a name once, judges its addresses, and connects to one of them.


HEAD_START = 0.25  # seconds before the next address is tried as well
LONGEST_PROXY_HEAD = 64 * 1024  # bytes of a proxy's answer to CONNECT
PROXY_PORT = 3128  # of a proxy whose URL has none
LATE_NAME = 10.0  # seconds in which a program's name is resolved again, if no name server answers
MOST_TRIED = 8  # of the addresses of a name; all are judged


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens every connection of the connection pool, so that no request avoids the judgement.

    TLS uses the requested name, since the pool does not know the address.
    """

    def __init__(self, egress: Egress, scheme: str) -> None:
        self._egress, self._scheme = egress, scheme
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                name, address = read_host(host)
                url = Url(self._scheme, name, port, "/", address)
                found = [address] if address is not None else await resolve(name, port)
                judged = self._egress.judge_addresses(url, found)
                return await self._connect_first(judged[:MOST_TRIED], port, timeout)
        except TimeoutError:
            raise httpcore2.ConnectTimeout from None

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _connect_first(
        self, addresses: Sequence[Address], port: int, timeout: float | None
    ) -> httpcore2.AsyncNetworkStream:
        """Returns the first established connection; each address gets a head start over the next."""
        if len(addresses) == 1:
            return await self._plain.connect_tcp(str(addresses[0]), port, timeout=timeout)
        waiting = list(addresses)
        tries: set[asyncio.Task[httpcore2.AsyncNetworkStream]] = set()
        failed: BaseException = httpcore2.ConnectError("no address")
        try:
            while waiting or tries:
                if waiting:
                    tries.add(asyncio.ensure_future(self._plain.connect_tcp(str(waiting.pop(0)), port, timeout)))
                done, tries = await asyncio.wait(
                    tries, timeout=HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for one in done:
                    if (failure := one.exception()) is None:
                        tries |= done - {one}
                        return one.result()
                    failed = failure
            raise failed
        finally:
            await _abandon(tries)


async def resolve(name: str, port: int) -> list[Address]:
    """Returns all addresses of a name, alternating families. Raises `ToolError` if there are none."""
    try:
        found: list[Any] = await in_thread(lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        again = getattr(error, "errno", None) == socket.EAI_AGAIN
        problem = ToolError(
            f"the name {name} cannot be resolved{' at the moment' if again else ''}",
            ErrorKind.SYSTEM if again else ErrorKind.NOT_FOUND,
            "Try again in a moment." if again else "Check the spelling of the host.",
            passing=again,
        )
    else:
        return _alternate_families([ipaddress.ip_address(entry[4][0].partition("%")[0]) for entry in found])
    raise problem


def _alternate_families(addresses: list[Address]) -> list[Address]:
    """Alternates the address families, beginning with the resolver's first."""
    unique = list(dict.fromkeys(addresses))
    same = [one for one in unique if one.version == unique[0].version]
    other = [one for one in unique if one.version != unique[0].version]
    return [one for one in chain.from_iterable(zip_longest(same, other)) if one is not None]


async def _abandon(tries: set[asyncio.Task[httpcore2.AsyncNetworkStream]]) -> None:
    for one in tries:
        one.cancel()
    for result in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(result, httpcore2.AsyncNetworkStream):
            await result.aclose()


# Connects for programs in the sandbox, whose bytes pass through without an HTTP client.


async def connect(url: Url, egress: Egress) -> socket.socket:
    """Connects to an address that the egress allows, or through its proxy. Raises `ToolError` and `OSError`."""
    proxy = find_proxy(url, egress)
    egress.judge(url, proxied=bool(proxy))
    if proxy:
        return await _connect_through(proxy, url)
    found = [url.address] if url.address is not None else await _resolve_patiently(url.host, url.port)
    problem = OSError("it has no address")
    for address in egress.judge_addresses(url, found)[:MOST_TRIED]:
        try:
            return await _connect_to(
                socket.AF_INET6 if address.version == 6 else socket.AF_INET, str(address), url.port
            )
        except OSError as error:
            problem = error
    raise problem


async def _resolve_patiently(name: str, port: int) -> list[Address]:
    """Resolves a name, again while no name server answers: of fifty programs that start at once on a busy machine, some
    would be refused. Raises `ToolError`.
    """
    clock = asyncio.get_running_loop().time
    until, pause = clock() + LATE_NAME, 0.1
    while True:
        try:
            return await resolve(name, port)
        except ToolError as error:
            if not error.passing or clock() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)


async def start_tls(connected: socket.socket, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Speaks TLS as a client of the host, whose certificate is checked. Raises `OSError`."""
    return await asyncio.open_connection(sock=connected, ssl=await load_tls_context(), server_hostname=host)


async def _connect_to(family: int, address: str, port: int) -> socket.socket:
    made = socket.socket(family)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


async def _connect_through(proxy: str, url: Url) -> socket.socket:
    """Connects through the proxy that a person configured. Raises `OSError`."""
    parts, loop = _read_proxy(proxy), asyncio.get_running_loop()
    host, port = parts.url.host.decode(), parts.url.port or PROXY_PORT
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    made = await _connect_to(found[0][0], str(found[0][4][0]), port)
    try:
        there = f"{f'[{url.host}]' if ':' in url.host else url.host}:{url.port}".encode()
        head = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n" % (there, there)
        if parts.auth is not None:
            both = b":".join(one if isinstance(one, bytes) else one.encode() for one in parts.auth)
            head += b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(both)
        await loop.sock_sendall(made, head + b"\r\n")
        said = b""
        while b"\r\n\r\n" not in said and len(said) < LONGEST_PROXY_HEAD and (piece := await loop.sock_recv(made, 1)):
            said += piece
        if said.split(b" ", 2)[1:2] != [b"200"]:
            raise OSError("the configured proxy refused the connection")
    except BaseException:
        made.close()
        raise
    return made


# Shares connections. A pool belongs to an event loop, and closes with it.


MOST_POOLS = 16
MOST_CONNECTIONS = 100  # a pool; further requests wait for their turn, at most until their deadline
KEPT = 20  # idle ones: each costs every request a look at its socket
KEPT_FOR = 30.0  # seconds


class _Key(NamedTuple):
    loop: asyncio.AbstractEventLoop
    egress: Egress
    scheme: str
    proxy: str
    most: int | None  # connections


class _Pool:
    """A connection pool, and the generator that closes it with its loop."""

    def __init__(self, key: _Key, context: SSLContext | None) -> None:
        self.connections = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=_read_proxy(key.proxy) if key.proxy else None,
            max_connections=key.most,
            max_keepalive_connections=KEPT,
            keepalive_expiry=KEPT_FOR,
            # the person who configured the proxy chose its address; the target was judged before
            network_backend=httpcore2.AnyIOBackend() if key.proxy else GuardedBackend(key.egress, key.scheme),
        )
        self.keeper = self._hold_until_close(key)

    @property
    def is_idle(self) -> bool:
        return all(one.is_idle() or one.is_closed() for one in self.connections.connections)

    async def _hold_until_close(self, key: _Key) -> AsyncGenerator[None, None]:
        """Closes the pool at its end. A generator, because an ending loop closes its unfinished generators."""
        try:
            yield
        finally:
            with _lock:
                if _pools.get(key) is self:
                    del _pools[key]
            await self.connections.aclose()


_lock = threading.Lock()
_pools: dict[_Key, _Pool] = {}


async def _find_pool(url: Url, egress: Egress, most: int | None) -> _Pool:
    """Returns the pool for a request. It closes with its loop, or when too many newer pools exist."""
    loop = asyncio.get_running_loop()
    key = _Key(loop, egress, url.scheme, find_proxy(url, egress), most)
    if (found := _pools.get(key)) is not None:
        return found
    context = await load_tls_context() if url.scheme == "https" else None
    if (found := _pools.get(key)) is not None:  # made by another call while the certificates were read
        return found
    pool = _Pool(key, context)
    await anext(pool.keeper)  # it does not wait
    with _lock:
        idle = [one for one in _pools if one.loop is loop and _pools[one].is_idle]
        removed = [_pools.pop(one) for one in idle[: max(0, len(idle) + 1 - MOST_POOLS)]]
        for stale in [one for one in _pools if one.loop.is_closed()]:
            del _pools[stale]
        _pools[key] = pool
    for oldest in removed:
        await oldest.keeper.aclose()
    return pool


def find_proxy(url: Url, egress: Egress) -> str:
    """Returns the proxy configured for a URL; the environment's proxies count only if they are trusted."""
    if egress.proxy or not trusts_environment():
        return egress.proxy
    from urllib.request import getproxies_environment  # heavy, and rarely needed

    proxies = getproxies_environment()
    spared = [one.strip().removeprefix("*").removeprefix(".") for one in proxies.get("no", "").lower().split(",")]
    if proxies.get("no", "").strip() == "*" or any(one and f".{url.host}".endswith(f".{one}") for one in spared):
        return ""
    return proxies.get(url.scheme) or proxies.get("all") or ""


def _read_proxy(proxy: str) -> httpcore2.Proxy:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ToolError(
            "the configured proxy is not a valid URL",
            ErrorKind.CONFIG,
            "Write it like http://proxy.example.com:3128 in egress.proxy, or in HTTPS_PROXY with FORGE_TRUST_ENV=1.",
        )
    return httpcore2.Proxy(
        url=httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=port, target="/"),
        auth=(unquote(parts.username), unquote(parts.password or "")) if parts.username else None,
    )


# Loads the trusted certificates for every connection that Forge opens.


def trusts_environment() -> bool:
    """Returns whether proxies and certificates named by environment variables count."""
    return os.environ.get("FORGE_TRUST_ENV") == "1"


async def load_tls_context() -> SSLContext:
    """Returns the TLS context. Reads the certificates once and in a thread: reading takes a tenth of a second."""
    environment = trusts_environment()
    context: SSLContext = await in_thread(lambda: _load(environment))
    return context


@cache
def _load(environment: bool) -> SSLContext:
    import httpx2  # heavy: only for https

    return httpx2.create_ssl_context(trust_env=environment)


# Sends requests.


async def send(
    method: str,
    url: Url,
    egress: Egress,
    *,
    headers: Sequence[tuple[bytes, bytes]],
    content: bytes | AsyncIterable[bytes],
    timeout: Mapping[str, float | None],
    most: int | None = MOST_CONNECTIONS,
) -> httpcore2.Response:
    """Sends a request that the egress allows, and returns the response before its body is read. Close the response.

    `timeout`: seconds to `connect`, `read` and `write`. `most`: connections at the same time, to all servers of this
    egress. Raises `ToolError`, and errors of httpcore2.
    """
    egress.judge(url, proxied=bool(find_proxy(url, egress)))
    pool = await _find_pool(url, egress, most)
    return await pool.connections.handle_async_request(
        httpcore2.Request(
            method,
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=headers,
            content=content,
            extensions={"timeout": timeout},
        )
    )
