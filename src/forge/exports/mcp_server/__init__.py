"""The tools of an executor as an MCP server: over the standard streams, or over HTTP behind a token.

Both eras of the protocol are served: the handshake up to 2025-11-25, and 2026-07-28, where a request carries all that
is known of its client and a question is answered by asking again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge.exports.mcp_server.approver import ElicitingApprover

if TYPE_CHECKING:  # the SDK takes a second to load
    from collections.abc import Callable, Collection
    from socket import socket

    from starlette.types import ASGIApp

    from forge.core.context import Scope
    from forge.core.executor import ToolExecutor

__all__ = ["ElicitingApprover", "mcp_app", "serve_http", "serve_stdio"]


async def serve_stdio(
    executor: ToolExecutor, scope: Scope, *, name: str = "forge", version: str = "", everything: bool = False
) -> None:
    """Serve whoever started this process until the standard input ends, or this is cancelled.

    Meanwhile the process's own standard output is its standard error, so that nothing but the protocol gets to the
    client. `scope` says where calls work; each connection is a session of its own. `everything` lists hidden tools too.
    """
    from forge.exports.mcp_server.offer import Offer
    from forge.exports.mcp_server.stdio import serve

    await serve(Offer(executor, scope, name=name, version=version, everything=everything))


async def serve_http(
    executor: ToolExecutor,
    scope: Scope,
    *,
    listening: socket,
    token: str,
    hosts: Collection[str] = (),
    name: str = "forge",
    version: str = "",
    everything: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve on a bound socket until this is cancelled. `ready` is called once requests are answered."""
    from forge.exports.mcp_server.http import serve
    from forge.exports.mcp_server.offer import Offer

    offer = Offer(executor, scope, name=name, version=version, everything=everything)
    await serve(offer, listening, token, hosts, ready)


def mcp_app(
    executor: ToolExecutor,
    scope: Scope,
    token: str,
    *,
    hosts: Collection[str] = (),
    name: str = "forge",
    version: str = "",
    everything: bool = False,
) -> ASGIApp:
    """An ASGI application, to be run by any server that knows `lifespan`. The endpoint is `/mcp`.

    A request needs the token as a bearer, and a `Host` (and an `Origin`, if there is one) that is an address of
    this machine's loopback, or one of `hosts`.
    """
    from forge.exports.mcp_server.http import app
    from forge.exports.mcp_server.offer import Offer

    return app(Offer(executor, scope, name=name, version=version, everything=everything), token, hosts)
