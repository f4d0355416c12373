"""Shares idle connections: one pool per event loop and egress, so that no connection outlives its permission."""

from __future__ import annotations

from ssl import SSLContext
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import httpcore2

from forge.core.errors import ErrorKind, ToolError
from forge.network.connect import GuardedBackend
from forge.network.egress import Egress
from forge.network.per_loop import PerLoop
from forge.network.tls import load_tls_context, trusts_environment
from forge.network.url import Url

MOST_POOLS = 16
MOST_CONNECTIONS = 100  # a pool; further requests wait for their turn, at most until their deadline
KEPT = 20  # idle ones: each costs every request a look at its socket
KEPT_FOR = 15.0  # seconds


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


async def _close(pool: Pool) -> None:
    await pool.connections.aclose()


_pools: PerLoop[_Key, Pool] = PerLoop(_close)


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
            keepalive_expiry=KEPT_FOR,
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
