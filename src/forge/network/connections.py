"""Opens and shares connections: one pool per event loop and egress, so that no connection outlives its permission.

The first request loads this module, since it loads the HTTP client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Sequence
from functools import cache
from itertools import chain, zip_longest
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import httpcore2

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.network.address import Address, Url, read_host
from forge.network.egress import Egress

if TYPE_CHECKING:
    import httpx2


# Opens connections: resolves a name once, judges its addresses, and connects to one of them.


HEAD_START = 0.25  # seconds before the next address is tried as well
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


# Stores objects of one event loop, such as connections, and closes them with the loop.


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _LoopValue(NamedTuple, Generic[Value]):
    keeper: AsyncGenerator[Value, None]
    value: Value


class PerLoop(Generic[Key, Value]):
    """Stores values by key, separately for each event loop."""

    def __init__(self, close: Callable[[Value], Awaitable[None]]) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._held: dict[tuple[asyncio.AbstractEventLoop, Key], _LoopValue[Value]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def find(self, key: Key) -> Value | None:
        """Returns the running loop's value for the key."""
        found = self._held.get((asyncio.get_running_loop(), key))
        return None if found is None else found.value

    async def hold(self, key: Key, value: Value) -> Value:
        """Stores a value for the running loop, which must have none for this key."""
        loop = asyncio.get_running_loop()
        keeper = self._hold_until_close(loop, key, value)
        await anext(keeper)
        with self._lock:
            for stale in [one for one in self._held if one[0].is_closed()]:
                del self._held[stale]
            self._held[loop, key] = _LoopValue(keeper, value)
        return value

    async def close_oldest(self, most: int, is_idle: Callable[[Value], bool]) -> None:
        """Closes the running loop's oldest idle values beyond `most`."""
        loop = asyncio.get_running_loop()
        mine = [held.keeper for (of, _), held in self._held.items() if of is loop and is_idle(held.value)]
        for keeper in mine[: max(0, len(mine) - most)]:
            await keeper.aclose()

    async def _hold_until_close(
        self, loop: asyncio.AbstractEventLoop, key: Key, value: Value
    ) -> AsyncGenerator[Value, None]:
        """Yields the value. A generator, because an ending loop closes its unfinished generators."""
        try:
            yield value
        finally:
            with self._lock:
                self._held.pop((loop, key), None)
            await self._close(value)


MOST_POOLS = 16
MOST_CONNECTIONS = 100  # a pool; further requests wait for their turn, at most until their deadline
KEPT = 20  # idle ones: each costs every request a look at its socket
POOL_KEPT_FOR = 15.0  # seconds


class _Key(NamedTuple):
    egress: Egress
    scheme: str
    proxy: str


class Pool:
    """A connection pool and the number of its current users."""

    def __init__(self, connections: httpcore2.AsyncConnectionPool) -> None:
        self.connections = connections
        self.users = 0

    def __enter__(self) -> httpcore2.AsyncConnectionPool:
        self.users += 1
        return self.connections

    def __exit__(self, *_: object) -> None:
        self.users -= 1


async def _close_pool(pool: Pool) -> None:
    await pool.connections.aclose()


_pools: PerLoop[_Key, Pool] = PerLoop(_close_pool)


async def find_pool(url: Url, egress: Egress) -> Pool:
    """Returns the pool for a request. It closes with its loop, or when too many newer pools exist."""
    key = _Key(egress, url.scheme, find_proxy(url, egress))
    found = _pools.find(key)
    if found is None:
        context = await load_tls_context() if url.scheme == "https" else None
        found = _pools.find(key)  # made by another call while the certificates were read
    if found is None:
        found = await _pools.hold(key, _make_pool(key, context))
        await _pools.close_oldest(MOST_POOLS, lambda pool: not pool.users)
    return found


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


def _make_pool(key: _Key, context: SSLContext | None) -> Pool:
    return Pool(
        httpcore2.AsyncConnectionPool(
            ssl_context=context,
            proxy=_read_proxy(key.proxy) if key.proxy else None,
            max_connections=MOST_CONNECTIONS,
            max_keepalive_connections=KEPT,
            keepalive_expiry=POOL_KEPT_FOR,
            # the person who configured the proxy chose its address; the target was judged before
            network_backend=httpcore2.AnyIOBackend() if key.proxy else GuardedBackend(key.egress, key.scheme),
        )
    )


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


# Provides the HTTP client for models: one per event loop, shared by all requests and closed with the loop.


CLIENT_KEPT_FOR = 30.0  # seconds


async def _close_client(client: httpx2.AsyncClient) -> None:
    await client.aclose()


_clients: PerLoop[bool, httpx2.AsyncClient] = PerLoop(_close_client)


async def model_client(secure: bool) -> httpx2.AsyncClient:
    """Returns the running loop's client. It has no connection limit, since long answers occupy connections."""
    found = _clients.find(secure)
    if found is not None:
        return found
    import httpx2  # heavy

    context = await load_tls_context() if secure else SSLContext(PROTOCOL_TLS_CLIENT)
    if (found := _clients.find(secure)) is not None:  # made by another call while the certificates were read
        return found
    client = httpx2.AsyncClient(
        verify=context,
        trust_env=trusts_environment(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=CLIENT_KEPT_FOR),
        follow_redirects=False,
    )
    return await _clients.hold(secure, client)
