"""Admits requests with a valid token whose scopes allow them, and tells others how to get a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from forge.core.spec import Permission
from forge.exports.mcp_server.auth.issuer import IssuerUnavailable
from forge.exports.mcp_server.auth.settings import WELL_KNOWN, ResourceAuth
from forge.exports.mcp_server.auth.tokens import Grant, TokenChecker, TokenRefused

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send
    from starlette.types import Scope as Request

    from forge.core.spec import ToolSpec
    from forge.network.egress import Egress

_UNAUTHORIZED = "Send the header `Authorization: Bearer TOKEN` with an access token for this server."
_UNAVAILABLE = "The issuer of access tokens cannot be reached, so no token can be checked. Try again later."
_READS = (  # methods that show content of the project
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "subscriptions/listen",
    "completion/complete",
    "prompts/get",
)


class Refusal(NamedTuple):
    """The answer to a refused request; `challenge` is its header WWW-Authenticate."""

    status: int
    words: str
    challenge: str = ""


class ResourceGuard:
    """Checks the requests to a protected resource. `find_spec` returns the spec of a tool by its name."""

    def __init__(
        self, settings: ResourceAuth, find_spec: Callable[[str], ToolSpec], most: int, egress: Egress | None = None
    ) -> None:
        self.settings = settings
        self._checker = TokenChecker(settings, egress)
        self._find_spec = find_spec
        self._most = most  # bytes of a body

    def is_metadata(self, request: Request) -> bool:
        path = str(request["path"]).rstrip("/")
        known = (WELL_KNOWN, f"{WELL_KNOWN}/mcp", self.settings.metadata_path)
        return request["method"] in ("GET", "HEAD") and path in known

    async def send_metadata(self, send: Send) -> None:
        body = json.dumps(self.settings.describe()).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(b"cache-control", b"max-age=300"), (b"access-control-allow-origin", b"*")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def authorize(self, request: Request, token: str) -> Refusal | None:
        """Checks the token, and notes its user in the request. Returns a refusal if it is not valid."""
        if not token:
            return Refusal(401, _UNAUTHORIZED, self._challenge())
        try:
            grant = await self._checker.check(token)
        except TokenRefused as error:
            return Refusal(401, str(error), self._challenge("invalid_token", str(error)))
        except IssuerUnavailable:
            return Refusal(503, _UNAVAILABLE)
        if missing := [one for one in self.settings.required_scopes if one not in grant.scopes]:
            return self._refuse_scope(tuple(missing), grant)
        request["user"] = AuthenticatedUser(_describe(token, grant, self.settings.resource))
        return None

    async def check_body(self, request: Request, receive: Receive) -> tuple[Refusal | None, Receive]:
        """Checks the called tool against the scopes. Also returns the body for the server.

        The body is serialized again, so that the server reads exactly what was checked here.
        """
        user = request.get("user")
        if not self.settings.scopes or request["method"] != "POST" or not isinstance(user, AuthenticatedUser):
            return None, receive
        body = await _read_body(receive, self._most)
        try:
            message = json.loads(body) if body is not None else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            words = "The body is too long." if body is None else "The body is not a JSON object."
            return Refusal(413 if body is None else 400, words), receive
        granted = frozenset(user.scopes)
        missing = self._missing_for(message, granted)
        if missing is not None:
            return self._refuse_scope(missing, granted), receive
        return None, _resend(_replace_length(request, json.dumps(message).encode()), receive)

    def _missing_for(self, message: dict[str, Any], granted: frozenset[str]) -> tuple[str, ...] | None:
        params = message.get("params")
        method, name = message.get("method"), params.get("name") if isinstance(params, dict) else None
        if method == "tools/call" and isinstance(name, str):
            return self.settings.missing_for(self._find_spec(name), granted)
        if method in _READS:
            return self.settings.missing_for_permission(Permission.READ, granted)
        return None

    def _refuse_scope(self, missing: tuple[str, ...], granted: Grant | frozenset[str]) -> Refusal:
        """Names all scopes that a new token needs: those of this one, and the missing ones."""
        scopes = granted.scopes if isinstance(granted, Grant) else granted
        needed = (*(one for one in self.settings.all_scopes if one in scopes or one in missing),)
        words = f"The token lacks the scope {' '.join(missing)}." if missing else "No scope allows this tool."
        return Refusal(403, words, self._challenge("insufficient_scope", words, needed))

    def _challenge(self, error: str = "", words: str = "", scopes: tuple[str, ...] = ()) -> str:
        scopes = scopes or self.settings.required_scopes
        parts = {"error": error, "error_description": words.replace('"', "'"), "scope": " ".join(scopes)}
        parts["resource_metadata"] = self.settings.metadata_url
        return "Bearer " + ", ".join(f'{key}="{value}"' for key, value in parts.items() if value)


def _describe(token: str, grant: Grant, resource: str) -> AccessToken:
    """Describes the user to the SDK, which binds a connection to its user."""
    return AccessToken(
        token="",  # not needed any more
        client_id=grant.client,
        scopes=sorted(grant.scopes),
        expires_at=grant.expires,
        resource=resource,
        subject=grant.subject,
        claims={"iss": grant.issuer},
    )


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """Reads the whole body; None if it is too long or the client left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replace_length(request: Request, body: bytes) -> bytes:
    kept = [(name, value) for name, value in request["headers"] if name.lower() != b"content-length"]
    request["headers"] = [*kept, (b"content-length", str(len(body)).encode())]
    return body


def _resend(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives this body first."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
