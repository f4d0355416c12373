"""Opens connections: resolves a name once, judges its addresses, and connects to one of them.

Loaded by the first request, since it loads the HTTP client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

import httpcore2

from forge.core.errors import ErrorKind, ToolError
from forge.core.execution.threads import in_thread
from forge.network.address import Address
from forge.network.egress import Egress
from forge.network.url import Url, read_host

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
