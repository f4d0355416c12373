"""Revokes the tokens of a stored login at its authorization server (RFC 7009)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from forge.core.errors import ToolError
from forge.sources.mcp.guarded_http import CONNECT, SENDING, GuardedTransport, make_client
from forge.sources.mcp.oauth.login import Login
from forge.sources.untrusted import one_line


async def revoke_login(login: Login) -> list[str]:
    """Revokes all stored tokens of a server. Returns why some could not be revoked; never raises `ToolError`."""
    problems = []
    timeout = httpx2.Timeout(SENDING, connect=CONNECT)
    async with make_client(GuardedTransport(login.egress), {"accept": "application/json"}, timeout) as client:
        for issuer, record in login.store.read_all().items():
            if isinstance(tokens := record.get("tokens"), dict):
                why = await _revoke(login, record, tokens, client)
                problems += [f"{one_line(issuer, 200) or 'the authorization server'} {why}"] if why else []
    return problems


async def _revoke(
    login: Login, record: Mapping[str, Any], tokens: Mapping[str, Any], client: httpx2.AsyncClient
) -> str:
    """Returns the problem; "" if the tokens are revoked. The refresh token comes first: it makes new ones."""
    server = record.get("server")
    endpoint = server.get("revocation_endpoint") if isinstance(server, dict) else None
    if not isinstance(endpoint, str):
        return "cannot revoke tokens"
    for kind in ("refresh_token", "access_token"):
        if not isinstance(token := tokens.get(kind), str):
            continue
        data, auth = _identify(login, record)
        try:
            login.check_encrypted(endpoint)
            request = httpx2.Request("POST", endpoint, data={"token": token, "token_type_hint": kind, **data})
            answer = await client.send(request, auth=auth)
        except ToolError as error:
            return f"did not revoke the {kind.replace('_', ' ')}: {one_line(error.message, 300)}"
        except httpx2.HTTPError:
            return f"did not answer about the {kind.replace('_', ' ')}"
        if answer.status_code != 200:
            return f"did not revoke the {kind.replace('_', ' ')}: it answered {answer.status_code}"
    return ""


def _identify(login: Login, record: Mapping[str, Any]) -> tuple[dict[str, str], httpx2.Auth | None]:
    """Returns how the client names itself: in the form, or in a header if it has a secret."""
    settings = login.settings
    stored = record.get("client")
    client: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    name = settings.client_id or str(client.get("client_id") or settings.client_metadata_url)
    secret = settings.client_secret if settings.client_id else str(client.get("client_secret") or "")
    if not secret:
        return {"client_id": name}, None
    if client.get("token_endpoint_auth_method") == "client_secret_post":
        return {"client_id": name, "client_secret": secret}, None
    return {}, httpx2.BasicAuth(name, secret)
