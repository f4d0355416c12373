"""Serves the tools of an executor over MCP: on the standard streams, or over HTTP with a token.

Both generations of the protocol are supported: the handshake up to 2025-11-25, and 2026-07-28, where each request
describes its client and the client answers a question by repeating its request.
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
    """Serves the parent process until the standard input ends, or this is cancelled.

    Meanwhile the process's standard output is redirected to its standard error, so that the client receives only the
    protocol. `scope` is the scope of the calls; each connection is its own session. `everything`: list hidden tools.
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
    """Serves on a bound socket until this is cancelled. `ready` is called once the server accepts requests."""
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
    """Returns an ASGI application for any server that supports `lifespan`. The endpoint is `/mcp`.

    A request needs the token as a bearer, and a `Host` (and an `Origin`, if there is one) that is a loopback address
    or one of `hosts`.
    """
    from forge.exports.mcp_server.http import app
    from forge.exports.mcp_server.offer import Offer

    return app(Offer(executor, scope, name=name, version=version, everything=everything), token, hosts)
