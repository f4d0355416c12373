"""Serves the tools of an executor over MCP: on the standard streams, or over HTTP with a token.

Both generations of the protocol are supported: the handshake up to 2025-11-25, and 2026-07-28, where each request
describes its client and the client answers a question by repeating its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any, TypedDict

from forge.core.client import CallClient
from forge.core.extras import check_extra
from forge.mcp.server.auth_settings import ResourceAuth
from forge.mcp.server.first_answer import answer_first
from forge.permissions.questions import Answer, Approver, PermissionRequest, ask_approver, nobody, request_text
from forge.process.running.standard_streams import own_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from socket import socket
    from typing import Unpack

    from starlette.types import ASGIApp

    from forge.core.context import Scope
    from forge.core.executor import ToolExecutor
    from forge.core.provider import Provider
    from forge.core.registry import ToolRegistry
    from forge.mcp.prompts import Prompt
    from forge.mcp.resources import Resource
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

    name, version = offered.get("name", "forge"), offered.get("version", "")
    resources, prompts = offers(executor, offered)
    with own_streams() as (given, taken):
        answering = asyncio.create_task(answer_first(given, taken, name, version, resources=resources, prompts=prompts))
        try:
            await asyncio.wait({answering}, timeout=HEAD_START)
            from forge.mcp.server.offer import Offer  # after the first answer: the SDK takes a second to load
            from forge.mcp.server.stdio import serve

            ready()
            first = await answering
        finally:
            answering.cancel()
        await serve(Offer(executor, scope, **offered), given, taken, first)


def offers(executor: ToolExecutor, offered: Offered) -> tuple[bool, bool]:
    """Returns whether a server offers resources, and whether it offers prompts."""
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
    from forge.mcp.server.http import serve
    from forge.mcp.server.offer import Offer

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
    from forge.mcp.server.http import app
    from forge.mcp.server.offer import Offer

    return app(Offer(executor, scope, **offered), token, hosts, auth)


# --- Asks the person behind an MCP client for approval, with the client's own form.


LONGEST_FEEDBACK = 2_000  # characters


class ElicitingApprover:
    """An `Approver` for servers. A call is denied if its client cannot ask a person.

    `otherwise` decides on calls that no MCP client made; it denies them by default.
    """

    def __init__(self, otherwise: Approver = nobody) -> None:
        self.otherwise = otherwise

    async def __call__(self, request: PermissionRequest) -> Answer | bool:
        asker = request.scope.client
        if asker is None:
            return await ask_approver(self.otherwise, request)
        if not asker.can("elicitation"):
            return await nobody(request)
        message = asker.mask(request_text(request))
        if request.form is not None:  # a question of an MCP server that Forge itself uses
            filled = await asker.show_form(message, request.form)
            return Answer.no(by=asker.person) if filled is None else Answer.edit(filled, by=asker.person)
        choices = _choices(request, asker)
        filled = await asker.show_form(message, _form(choices))
        return _answer(filled, choices, asker.person)


def _choices(request: PermissionRequest, asker: CallClient) -> tuple[str, ...]:
    always = asker.remembers and bool(request.rules_to_remember)
    return ("once", "always", "no") if always else ("once", "no")


def _form(choices: tuple[str, ...]) -> dict[str, Any]:
    decision = {"type": "string", "title": "Allow it?", "enum": list(choices)}
    feedback = {
        "type": "string",
        "title": "Message to the model",
        "description": "Optional. The model gets it with your answer.",
        "maxLength": LONGEST_FEEDBACK,
    }
    return {"type": "object", "properties": {"decision": decision, "feedback": feedback}, "required": ["decision"]}


def _answer(filled: Mapping[str, Any] | None, choices: tuple[str, ...], by: str) -> Answer:
    """Reads the form; anything but a clear yes is a no."""
    if filled is None:
        return Answer.no(by=by)
    text = filled.get("feedback")
    feedback = text[:LONGEST_FEEDBACK] if isinstance(text, str) else ""
    decision = filled.get("decision")
    if decision == "once":
        return Answer("once", feedback, by=by)
    if decision == "always" and decision in choices:
        return Answer("always", feedback, by=by)
    return Answer.no(feedback, by=by)
