"""Logs a person in at a server, and stores the tokens."""

from __future__ import annotations

import httpx2
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from forge.sources.mcp.guarded_http import GuardedTransport, make_client
from forge.sources.mcp.oauth.authorizer import make_authorizer
from forge.sources.mcp.oauth.login import Browser, Login

_READING = 1.0  # seconds of the server's own answer, which is not used
_GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "forge", "version": "0"},
    },
}


async def log_in(login: Login, browser: Browser) -> bool:
    """Logs in anew. Returns False if the server asks for no login. Raises `ToolError`."""
    login.forget_tokens()
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": LATEST_HANDSHAKE_VERSION}
    request = httpx2.Request("POST", login.url, json=_GREETING, headers=headers)
    login.browser = browser
    try:
        async with make_client(GuardedTransport(login.egress, _READING), {}, httpx2.Timeout(30.0)) as client:
            answer = await make_authorizer(login).send(request, client.send)
    finally:
        login.browser = None
    if answer.status_code in (401, 403):
        raise login.needed_error(f"{answer.status_code} after the login")
    return login.is_stored
