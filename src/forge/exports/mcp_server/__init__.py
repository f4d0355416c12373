"""Serves the tools of an executor over MCP: on the standard streams, or over HTTP with a token.

Both generations of the protocol are supported: the handshake up to 2025-11-25, and 2026-07-28, where each request
describes its client and the client answers a question by repeating its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import TYPE_CHECKING, TypedDict

from forge.core.extras import check_extra
from forge.exports.mcp_server.approver import ElicitingApprover
from forge.exports.mcp_server.auth.settings import ResourceAuth
from forge.exports.mcp_server.streams import own_streams

if TYPE_CHECKING:  # the SDK takes a second to load
    from collections.abc import Callable, Collection, Iterable
    from socket import socket
    from typing import Unpack

    from starlette.types import ASGIApp

    from forge.core.context import Scope
    from forge.core.executor import ToolExecutor
    from forge.core.provider import Provider
    from forge.core.registry import ToolRegistry
    from forge.exports.prompts import Prompt
    from forge.exports.resources import Resource
    from forge.skills.active import ActiveSkills

__all__ = ["ATTEMPT", "ElicitingApprover", "Offered", "ResourceAuth", "mcp_app", "serve_http", "serve_stdio"]

ATTEMPT = "tools cannot be served over MCP"
HEAD_START = 0.2  # seconds for a client's first message to come before the SDK is loaded


class Offered(TypedDict, total=False):
    """The options of a server: its name, and the resources, prompts and files that it offers beside its tools."""

    name: str  # of the server; "forge" by default
    version: str
    everything: bool  # list hidden tools from the start
    resources: Collection[Resource] | ToolRegistry  # in a registry they can change while the server runs
    prompts: Collection[Prompt] | ToolRegistry
    files: bool  # the files of the workspace are resources, if the rules allow to read them
    skills: Callable[[], ActiveSkills] | None  # these skills are prompts; they need the tool read_skill
    loading: asyncio.Future[None] | None  # done when the sources of the tools are open; until then, a list waits
    model: Callable[[], Provider] | None  # for tools that sample, if the client has no model; a person must agree


async def serve_stdio(
    executor: ToolExecutor, scope: Scope, *, ready: Callable[[], None] = lambda: None, **offered: Unpack[Offered]
) -> None:
    """Serves the parent process until the standard input ends, or this is cancelled.

    Meanwhile the process's standard output is redirected to its standard error, so that the client receives only the
    protocol. `scope` is the scope of the calls; each connection is its own session. `ready` is called after the first
    answer. `offered`: see `Offered`.
    """
    check_extra("mcp", ATTEMPT)
    from forge.exports.mcp_server.first_answer import answer_first

    name, version = offered.get("name", "forge"), offered.get("version", "")
    resources, prompts = offers(executor, offered)
    with own_streams() as (given, taken):
        answering = asyncio.create_task(answer_first(given, taken, name, version, resources=resources, prompts=prompts))
        try:
            await asyncio.wait({answering}, timeout=HEAD_START)
            from forge.exports.mcp_server.offer import Offer  # after the first answer: the SDK takes a second to load
            from forge.exports.mcp_server.stdio import serve

            ready()
            first = await answering
        finally:
            answering.cancel()
        await serve(Offer(executor, scope, **offered), given, taken, first)


def offers(executor: ToolExecutor, offered: Offered) -> tuple[bool, bool]:
    """Says whether a server offers resources, and whether it offers prompts."""
    has_skills = offered.get("skills") is not None and "read_skill" in executor.registry
    resources, prompts = offered.get("resources", ()), offered.get("prompts", ())
    return bool(offered.get("files")) or _has_any(resources), has_skills or _has_any(prompts)


def _has_any(things: Iterable[object]) -> bool:
    return isinstance(things, Sized) and len(things) > 0


async def serve_http(
    executor: ToolExecutor,
    scope: Scope,
    *,
    listening: socket,
    token: str = "",
    auth: ResourceAuth | None = None,
    hosts: Collection[str] = (),
    ready: Callable[[], None] = lambda: None,
    **offered: Unpack[Offered],
) -> None:
    """Serves on a bound socket until this is cancelled. `ready` is called once the server accepts requests.

    Clients need the `token`, or an access token of the issuer in `auth`.
    """
    check_extra("mcp", ATTEMPT)
    from forge.exports.mcp_server.http import serve
    from forge.exports.mcp_server.offer import Offer

    await serve(Offer(executor, scope, **offered), listening, token, hosts, ready, auth)


def mcp_app(
    executor: ToolExecutor,
    scope: Scope,
    token: str = "",
    *,
    auth: ResourceAuth | None = None,
    hosts: Collection[str] = (),
    **offered: Unpack[Offered],
) -> ASGIApp:
    """Returns an ASGI application for any server that supports `lifespan`. The endpoint is `/mcp`.

    A request needs the token as a bearer, or an access token of the issuer in `auth`. Its `Host` (and its `Origin`, if
    there is one) is a loopback address or one of `hosts`. `offered`: see `Offered`.
    """
    check_extra("mcp", ATTEMPT)
    from forge.exports.mcp_server.http import app
    from forge.exports.mcp_server.offer import Offer

    return app(Offer(executor, scope, **offered), token, hosts, auth)
