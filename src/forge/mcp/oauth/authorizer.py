"""Adds tokens to the requests for a server: obtains, proves and revokes them, with the SDK's OAuth flow."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from mcp.client.auth import OAuthFlowError
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from forge.core.errors import ErrorKind, ToolError
from forge.core.secrets import Secrets
from forge.core.untrusted import one_line
from forge.mcp.guarded_http import CONNECT, SENDING, GuardedTransport, make_client
from forge.mcp.oauth.login import Browser, Login, LoginNeeded, OAuth
from forge.mcp.oauth.providers import make_provider
from forge.network.address import read_url

_LONG_AGO = 1.0
Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def make_authorizer(login: Login) -> Authorizer:
    """Makes the authorizer of a login; its own requests are guarded by the login's egress."""
    timeout = httpx2.Timeout(SENDING, connect=CONNECT)
    return Authorizer(login, make_client(GuardedTransport(login.egress), {}, timeout))


class Authorizer:
    """Authorizes the requests of one connection. `client` sends requests to authorization servers, guarded."""

    def __init__(self, login: Login, client: httpx2.AsyncClient) -> None:
        self.login = login
        self._client = client
        self._provider = make_provider(login, self._send_elsewhere)
        self._lock = asyncio.Lock()
        self._is_loaded = False  # the stored tokens were read
        self._proofs = Proofs(login.proof_key) if login.proof_key else None

    async def send(self, request: httpx2.Request, ask: Send) -> httpx2.Response:
        """Sends the request with a token. `ask` returns the server's answer, also if it is a refusal.

        Calls with a valid token run side by side; only one at a time obtains a new token.
        """
        return await self._send_authorized(request, lambda one: self._ask_with_proof(one, ask))

    async def _send_authorized(self, request: httpx2.Request, ask: Send) -> httpx2.Response:
        context = self._provider.context
        refused: httpx2.Response | None = None
        token = self._find_token()
        if token:
            request.headers["authorization"] = f"Bearer {token}"
            refused = await ask(request)
            if not _is_challenge(refused):
                return refused
        async with self._lock:
            if (newer := self._find_token()) and newer != token:  # another request obtained it
                request.headers["authorization"] = f"Bearer {newer}"
                refused = await ask(request)
                if not _is_challenge(refused):
                    return refused
            may_refresh = not self._is_loaded
            if refused is not None and refused.status_code == 401 and context.can_refresh_token():
                context.token_expiry_time = _LONG_AGO  # then the flow begins with a refresh
                refused = None
            try:
                return await self._run_flow(request, ask, refused)
            except LoginNeeded:
                if not may_refresh or not context.can_refresh_token():
                    raise
                context.token_expiry_time = _LONG_AGO  # the stored token was revoked before it expired
                return await self._run_flow(request, ask, None)
            except (OAuthFlowError, ValidationError, httpx2.HTTPError) as error:
                raise self._explain(error) from None
            finally:
                self._is_loaded = True
                if (tokens := context.current_tokens) is not None:
                    self.login.note_tokens(tokens.access_token, tokens.refresh_token)

    def _find_token(self) -> str:
        """Returns the token, if it is there and not expired."""
        context = self._provider.context
        if not self._is_loaded or context.current_tokens is None or not context.is_token_valid():
            return ""
        return context.current_tokens.access_token

    async def _run_flow(self, request: httpx2.Request, ask: Send, refused: httpx2.Response | None) -> httpx2.Response:
        """Runs the SDK's flow. It yields requests: this one, and others for metadata, registration and tokens."""
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    answer = await self._send_elsewhere(outgoing)
                else:
                    answer, refused = refused if refused is not None else await ask(request), None
                    if _is_challenge(answer) and not self.login.can_ask:
                        raise self.login.needed_error(
                            f"{read_url(self.login.url).origin} answered {answer.status_code}"
                        )
                try:
                    outgoing = await flow.asend(answer)
                except StopAsyncIteration:
                    return answer
        finally:
            await flow.aclose()

    async def _ask_with_proof(self, request: httpx2.Request, ask: Send) -> httpx2.Response:
        """Sends the request to the server, with a proof if its tokens are bound to a key."""
        token = request.headers.get("authorization", "").partition(" ")[2]
        if self.login.proof_key and self._proofs is not None and token:
            request.headers["authorization"] = f"DPoP {token}"
            answer = await _send_with_proof(request, ask, self._proofs, token)
        else:
            answer = await ask(request)
        if self._proofs is None and answer.headers.get("www-authenticate", "").lower().startswith("dpop"):
            self._proofs = Proofs()  # the server wants tokens that are bound to a key
        return answer

    async def _send_elsewhere(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request of the flow. A token that is bound to a key is passed to the SDK as an ordinary one."""

        self.login.check_encrypted(str(request.url))
        request = _add_scopes(request, self.login.settings)

        async def send(one: httpx2.Request) -> httpx2.Response:
            return await self._client.send(one, follow_redirects=False)

        is_form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        if self._proofs is None or not is_form:
            return await send(request)
        answer = await _send_with_proof(request, send, self._proofs)
        if not _is_bound(answer):
            self.login.proof_key = "" if answer.status_code == 200 else self.login.proof_key
            return answer
        self.login.proof_key = self._proofs.pem
        body = {**answer.json(), "token_type": "Bearer"}
        return httpx2.Response(answer.status_code, json=body, request=request)

    def _explain(self, error: Exception) -> ToolError:
        message = (
            one_line(str(error), 500) if isinstance(error, OAuthFlowError) else "its answer is not what OAuth says"
        )
        masked = Secrets(self.login.secrets).mask_all(message)
        return ToolError(
            f"logging in at {read_url(self.login.url).origin} failed: {masked}",
            ErrorKind.CONFIG,
            f"Run `forge mcp login {self.login.name}`, and check `auth` of this server in forge.yaml.",
        )


async def _send_with_proof(request: httpx2.Request, send: Send, proofs: Proofs, token: str = "") -> httpx2.Response:
    """Sends a request with a fresh proof; once more if the server asks for its nonce."""
    proofs.sign(request, token)
    answer = await send(request)
    if not proofs.take_nonce(request, answer):
        return answer
    proofs.sign(request, token)
    return await send(request)


def _add_scopes(request: httpx2.Request, settings: OAuth) -> httpx2.Request:
    """Adds the configured scopes to a request with client credentials: the SDK asks only for the server's scopes."""
    if settings.grant != "client_credentials" or not settings.scopes or request.method != "POST":
        return request
    form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
    if form.get("grant_type") != "client_credentials":
        return request
    form["scope"] = " ".join(dict.fromkeys([*form.get("scope", "").split(), *settings.scopes]))
    kept = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
    return httpx2.Request("POST", request.url, data=form, headers=kept)


def _is_bound(answer: httpx2.Response) -> bool:
    try:
        return answer.status_code == 200 and str(answer.json().get("token_type")).lower() == "dpop"
    except (ValueError, AttributeError):
        return False


def _is_challenge(answer: httpx2.Response) -> bool:
    """Returns whether the server wants another token: none was accepted, or its scopes are not enough."""
    return answer.status_code == 401 or (
        answer.status_code == 403 and "insufficient_scope" in answer.headers.get("www-authenticate", "")
    )


# --- Logs a person in at a server, and stores the tokens.


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
    """Logs in anew. Returns False if the server asks for no login. Raises `ToolError`: then an earlier login stays."""
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
    login.forget_earlier_tokens()
    return bool(login.tokens)


# --- Revokes the tokens of a stored login at its authorization server (RFC 7009).


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


# --- Proofs of possession (DPoP, RFC 9449): a token is of use only together with a key that never leaves this machine.


ALGORITHM = "ES256"


class Proofs:
    """Signs proofs with one key. Servers may hand out a nonce that the next proof must hold."""

    def __init__(self, pem: str = "") -> None:
        found = load_pem_private_key(pem.encode(), None) if pem else ec.generate_private_key(ec.SECP256R1())
        if not isinstance(found, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not an EC key")
        self._key = found
        self._nonces: dict[str, str] = {}  # by origin
        numbers = found.public_key().public_numbers()
        self._jwk = {"kty": "EC", "crv": "P-256", "x": _encode_number(numbers.x), "y": _encode_number(numbers.y)}

    @property
    def pem(self) -> str:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def sign(self, request: httpx2.Request, token: str = "") -> None:
        """Adds a fresh proof to the request; with a `token`, for this token."""
        claims = {
            "jti": str(uuid4()),
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token:
            claims["ath"] = _encode(sha256(token.encode()).digest())
        if nonce := self._nonces.get(_origin(request)):
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        request.headers["dpop"] = jwt.encode(claims, self._key, algorithm=ALGORITHM, headers=headers)

    def take_nonce(self, request: httpx2.Request, answer: httpx2.Response) -> bool:
        """Notes the nonce of an answer. Returns whether the request must be sent again with it."""
        nonce = answer.headers.get("dpop-nonce", "")
        is_new = bool(nonce) and nonce != self._nonces.get(_origin(request))
        if is_new:
            self._nonces[_origin(request)] = nonce
        return is_new and answer.status_code in (400, 401)


def _origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"


def _encode_number(number: int) -> str:
    return _encode(number.to_bytes(32, "big"))


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
