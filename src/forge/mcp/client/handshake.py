"""Finds the revision that a server speaks: asks `server/discover` first, then falls back to `initialize`."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.core.untrusted import one_line
from forge.mcp.client.http import UnsuitableStatus
from forge.mcp.client.link import Stdio, Transport, Wire
from forge.mcp.oauth.login import PATIENCE, Login

SPOKEN = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
PROBE = 3.0  # seconds for a program to answer `server/discover`; then `initialize` follows, which a slow one refuses
PROBE_URL = 10.0  # seconds for a server at a URL, which may have to renew a token first


class EndedAtProbe(ToolError):
    """The program ended when it received `server/discover`: older servers may do that. A restart can do without."""


def probe_patience(transport: Transport, login: Login | None) -> float:
    """Returns how long `server/discover` may take."""
    if isinstance(transport, Stdio):
        return PROBE
    return PATIENCE if login is not None and login.browser is not None else PROBE_URL


async def negotiate(client: ClientSession, wire: Wire, *, probe: float) -> None:
    """Agrees on a revision. `probe` is the time for `server/discover`; 0 leaves it out.

    Raises `ToolError`, `MCPError`, `ValidationError`, or `TimeoutError`.
    """
    if probe and (found := await _discover(client, wire, probe)) is not None:
        client.adopt(found)
        return
    try:
        await client.initialize()
    except MCPError as error:
        newer = _find_common(_read_supported(error))
        if not newer:
            raise
        # a slow server answered the first question too late, and refuses `initialize` since then
        client.adopt(types.DiscoverResult.model_validate(await client.send_discover(newer)))
    except RuntimeError as error:
        raise unusable_error(wire.name, _describe_version(str(error))) from None


async def _discover(client: ClientSession, wire: Wire, patience: float) -> types.DiscoverResult | None:
    """Returns what the server says about itself; None if it has to be asked by `initialize`."""
    asked = LATEST_MODERN_VERSION
    for is_last in (False, True):
        try:
            async with asyncio.timeout(patience):
                answer = await client.send_discover(asked)
        except TimeoutError:
            break
        except MCPError as error:
            await _raise_final_error(error, wire)
            supported = _read_supported(error)
            asked = _find_common(supported)
            if not asked or is_last:
                _check_common(wire.name, supported)
                break
            continue
        try:
            found = types.DiscoverResult.model_validate(answer)
        except ValidationError:
            break
        return found if _find_common(found.supported_versions) else None
    return None


async def _raise_final_error(error: MCPError, wire: Wire) -> None:
    """Raises if the error says more than that the server does not know the request."""
    ours = wire.take_failure(error)
    if ours is not None and not isinstance(ours, UnsuitableStatus):
        raise ours
    if is_closed(error) and await is_lost(wire):
        if wire.unstartable is not None:
            raise error
        reason = f"the server {wire.name} ended at the first request ({wire.lost.result()})"
        raise EndedAtProbe(reason, ErrorKind.CONFIG, wire.hint)


def _read_supported(error: MCPError) -> list[str] | None:
    """Returns the revisions that the server names in its refusal; None if it names none."""
    if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
        return None
    try:
        return types.UnsupportedProtocolVersionErrorData.model_validate(error.error.data).supported
    except ValidationError:
        return None


def _find_common(supported: list[str] | None) -> str:
    """Returns the newest revision without a handshake that both sides speak, or ""."""
    return next((one for one in reversed(MODERN_PROTOCOL_VERSIONS) if one in (supported or ())), "")


def _check_common(name: str, supported: list[str] | None) -> None:
    if supported is not None and not any(one in SPOKEN for one in supported):
        theirs = one_line(", ".join(supported), 300) or "no revision"
        raise unusable_error(name, f"it speaks {theirs}; Forge speaks {', '.join(SPOKEN)}")


def _describe_version(problem: str) -> str:
    """Describes the SDK's complaint about the revision in an answer to `initialize`."""
    theirs = one_line(problem.rpartition(": ")[2], 60)
    if theirs in SPOKEN:
        return f"it answers `initialize` with revision {theirs}, but not `server/discover`, which {theirs} requires"
    return f"it speaks {theirs}; Forge speaks {', '.join(SPOKEN)}"


def is_closed(error: MCPError) -> bool:
    """Recognises the SDK's own error by its message: servers use the same code for other errors."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


async def is_lost(wire: Wire) -> bool:
    """Waits a moment, since a closed stream may be noticed before the reason."""
    await asyncio.wait([wire.lost], timeout=0.1)
    return wire.lost.done()


def unusable_error(name: str, why: str) -> ToolError:
    return ToolError(
        f"the server {name} cannot be used: {why}",
        ErrorKind.CONFIG,
        "Check that the command or the URL belongs to an MCP server, and check the server's version.",
    )


def describe_server(client: ClientSession) -> dict[str, Any]:
    """Returns the server's own name, version and title, cleaned."""
    reported = client.server_info
    if reported is None:
        return {}
    fields = {"name": reported.name, "version": reported.version, "title": reported.title}
    return {key: one_line(value) for key, value in fields.items() if value}
