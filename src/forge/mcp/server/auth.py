"""Admits requests whose token is valid, by the issuer's keys or its answer, and whose scopes allow them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import httpx2
import jwt
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from forge.core.errors import ToolError
from forge.core.spec import Permission
from forge.core.untrusted import one_line
from forge.mcp.guarded_http import GuardedTransport, make_client
from forge.mcp.server.auth_settings import WELL_KNOWN, ResourceAuth
from forge.network.address import read_url
from forge.network.asgi import read_body
from forge.network.egress import Egress

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send
    from starlette.types import Scope as Request

    from forge.core.spec import ToolSpec


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


class TokenRefusal(NamedTuple):
    """The answer to a refused request; `challenge` is its header WWW-Authenticate."""

    status: int
    message: str
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

    async def authorize(self, request: Request, token: str) -> TokenRefusal | None:
        """Checks the token, and notes its user in the request. Returns a refusal if it is not valid."""
        if not token:
            return TokenRefusal(401, _UNAUTHORIZED, self._challenge())
        try:
            grant = await self._checker.check(token)
        except TokenRefused as error:
            return TokenRefusal(401, str(error), self._challenge("invalid_token", str(error)))
        except IssuerUnavailable:
            return TokenRefusal(503, _UNAVAILABLE)
        if missing := [one for one in self.settings.required_scopes if one not in grant.scopes]:
            return self._refuse_scope(tuple(missing), grant)
        request["user"] = AuthenticatedUser(_describe(token, grant, self.settings.resource))
        return None

    async def check_body(self, request: Request, receive: Receive) -> tuple[TokenRefusal | None, Receive]:
        """Checks the called tool against the scopes. Also returns the body for the server.

        The body is serialized again, so that the server reads exactly what was checked here.
        """
        user = request.get("user")
        if not self.settings.scopes or request["method"] != "POST" or not isinstance(user, AuthenticatedUser):
            return None, receive
        body = await read_body(receive, self._most)
        try:
            message = json.loads(body) if body is not None else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            message = "The body is too long." if body is None else "The body is not a JSON object."
            return TokenRefusal(413 if body is None else 400, message), receive
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

    def _refuse_scope(self, missing: tuple[str, ...], granted: TokenGrant | frozenset[str]) -> TokenRefusal:
        """Names all scopes that a new token needs: those of this one, and the missing ones."""
        scopes = granted.scopes if isinstance(granted, TokenGrant) else granted
        needed = (*(one for one in self.settings.all_scopes if one in scopes or one in missing),)
        message = f"The token lacks the scope {' '.join(missing)}." if missing else "No scope allows this tool."
        return TokenRefusal(403, message, self._challenge("insufficient_scope", message, needed))

    def _challenge(self, error: str = "", message: str = "", scopes: tuple[str, ...] = ()) -> str:
        scopes = scopes or self.settings.required_scopes
        parts = {"error": error, "error_description": message.replace('"', "'"), "scope": " ".join(scopes)}
        parts["resource_metadata"] = self.settings.metadata_url
        return "Bearer " + ", ".join(f'{key}="{value}"' for key, value in parts.items() if value)


def _describe(token: str, grant: TokenGrant, resource: str) -> AccessToken:
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


# --- Checks access tokens: a signed JWT with the issuer's keys, or any token by asking the issuer.


LONGEST_TOKEN = 16 * 1024  # characters of a token
LEEWAY = 30  # seconds by which clocks may differ
REMEMBERED = 10.0  # seconds for which the issuer's answer about a token counts
MOST_REMEMBERED = 1_000
LONGEST_NAME = 200  # characters of a user's or client's name


class TokenRefused(Exception):
    """The token is not valid here. The text is for the client, and repeats nothing of the token."""


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The content of a valid token."""

    subject: str
    client: str
    issuer: str
    scopes: frozenset[str]
    expires: int


class TokenChecker:
    """Checks the tokens of one issuer for one resource."""

    def __init__(self, settings: ResourceAuth, egress: Egress | None = None) -> None:
        self.settings = settings
        self._issuer = Issuer(settings.issuer, egress)
        self._answers: OrderedDict[bytes, tuple[float, TokenGrant | None]] = OrderedDict()  # by the token's hash

    async def check(self, token: str) -> TokenGrant:
        """Returns what a token grants. Raises `TokenRefused` or `IssuerUnavailable`."""
        if not token or len(token) > LONGEST_TOKEN or not token.isascii():
            raise TokenRefused("This is not an access token.")
        return await (self._introspect(token) if self.settings.client_id else self._verify(token))

    async def _verify(self, token: str) -> TokenGrant:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefused("This is not a signed JWT.") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefused("The token's signature algorithm is not accepted.")
        keys = await self._issuer.find_keys(key_id if isinstance(key_id, str) else None, algorithm)
        for key in keys:
            try:
                return self._read_claims(jwt.decode(token, key, [algorithm], **self._expected))
            except jwt.InvalidSignatureError:
                continue
            except jwt.ExpiredSignatureError:
                raise TokenRefused("The token has expired.") from None
            except jwt.InvalidAudienceError:
                raise TokenRefused("The token is for another resource.") from None
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
                raise TokenRefused("The token's claims are not accepted.") from None
        raise TokenRefused("The token's signature is not one of the issuer.")

    @property
    def _expected(self) -> dict[str, Any]:
        return {
            "audience": list(self.settings.audiences),
            "issuer": self.settings.issuer,
            "leeway": LEEWAY,
            "options": {"require": ["exp", "iss", "aud"]},
        }

    async def _introspect(self, token: str) -> TokenGrant:
        """Asks the issuer, and remembers its answer for seconds: a revoked token soon stops working."""
        known = hashlib.sha256(token.encode()).digest()
        until, grant = self._answers.get(known, (0.0, None))
        if until < time.monotonic():
            answer = await self._issuer.introspect(token, self.settings.client_id, self.settings.client_secret)
            grant = self._read_answer(answer)
            self._answers[known] = (time.monotonic() + REMEMBERED, grant)
            while len(self._answers) > MOST_REMEMBERED:
                self._answers.popitem(last=False)
        if grant is None or grant.expires + LEEWAY < time.time():
            raise TokenRefused("The issuer does not accept this token here.")
        return grant

    def _read_answer(self, answer: Mapping[str, Any]) -> TokenGrant | None:
        """Returns what an active token for this resource grants."""
        audience = answer.get("aud")
        named = {audience} if isinstance(audience, str) else set(audience) if isinstance(audience, list) else set()
        issued_elsewhere = answer.get("iss", self.settings.issuer) != self.settings.issuer
        if answer.get("active") is not True or issued_elsewhere or named.isdisjoint(self.settings.audiences):
            return None
        try:
            return self._read_claims(answer)
        except TokenRefused:
            return None

    def _read_claims(self, claims: Mapping[str, Any]) -> TokenGrant:
        if claims.get("cnf"):  # to accept it as a bearer would make the binding worthless
            raise TokenRefused("The token is bound to a key, which this server does not check.")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise TokenRefused("The token has no expiry.")
        client = claims.get("client_id") or claims.get("azp") or claims.get("sub")
        return TokenGrant(_name(claims.get("sub")), _name(client), self.settings.issuer, _scopes(claims), int(expires))


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Reads `scope` (RFC 9068), or `scp`, which some issuers write instead."""
    said = claims.get("scope", claims.get("scp", ""))
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    return frozenset(word for word in words if isinstance(word, str))


def _name(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_NAME and value.isprintable() else ""


# --- An authorization server: finds its metadata, and keeps its signing keys up to date, within bounds.


log = logging.getLogger(__name__)

FRESH = 300.0  # seconds after which the keys are read again
LONGEST_WITHOUT_KEYS = 900.0  # seconds after which keys that cannot be read again are no longer used
AGAIN = 30.0  # seconds between two reads for an unknown key: anyone can send a token with one
RETRY = 5.0  # seconds after a failure
TIMEOUT = 10.0  # seconds for one document
MOST_KEYS = 100
MOST_TRIED = 10  # keys for one token
LONGEST_KEY = 8_000  # characters of one key: checks with a huge key are slow
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")
_LOCAL = ("127.0.0.1", "::1", "localhost")


class IssuerKey(NamedTuple):
    """A public key and the algorithms that it is for."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Any


class IssuerUnavailable(Exception):
    """The issuer cannot be asked now, so no token can be checked."""


class Issuer:
    """The keys and endpoints of one authorization server. Everything it says is checked."""

    def __init__(self, url: str, egress: Egress | None = None) -> None:
        self.url = url
        self._egress = (egress if egress is not None else Egress()).reaching(read_url(url))
        self._client: httpx2.AsyncClient | None = None
        self._lock = asyncio.Lock()
        self._metadata: dict[str, Any] = {}
        self._keys: list[IssuerKey] = []
        self._read_at = self._tried_at = float("-inf")
        self._failed = False

    async def find_keys(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Returns the keys that may have signed a token. Raises `IssuerUnavailable`."""
        if self._age() >= FRESH:
            await self._refresh(self._age() >= LONGEST_WITHOUT_KEYS)
        found = self._match(key_id, algorithm)
        if not found and time.monotonic() - self._tried_at >= AGAIN:  # the issuer may have a new key
            await self._refresh(must=False)
            found = self._match(key_id, algorithm)
        return found

    async def introspect(self, token: str, client_id: str, client_secret: str) -> dict[str, Any]:
        """Asks the issuer about a token (RFC 7662). Raises `IssuerUnavailable`."""
        endpoint = (await self._read_metadata()).get("introspection_endpoint")
        if not isinstance(endpoint, str):
            self._fail("its metadata names no introspection_endpoint")
        self._check_encrypted(endpoint)
        form = {"token": token, "token_type_hint": "access_token"}
        auth = httpx2.BasicAuth(client_id, client_secret)
        return await self._fetch(httpx2.Request("POST", endpoint, data=form), auth)

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    def _match(self, key_id: str | None, algorithm: str) -> list[Any]:
        named = [one for one in self._keys if None in (key_id, one.id) or one.id == key_id]
        return [one.key for one in named if algorithm in one.algorithms][:MOST_TRIED]

    async def _refresh(self, must: bool) -> None:
        """Reads the keys again. Raises `IssuerUnavailable` if there are no usable keys; otherwise only logs."""
        before = self._tried_at
        async with self._lock:
            if self._tried_at == before:  # no other request did it meanwhile
                if self._failed and time.monotonic() - self._tried_at < RETRY:
                    if must:
                        raise IssuerUnavailable
                    return
                self._tried_at = time.monotonic()
                try:
                    self._keys = await self._read_keys()
                    self._read_at, self._failed = time.monotonic(), False
                except IssuerUnavailable:
                    self._failed = True
        if must and self._age() >= LONGEST_WITHOUT_KEYS:
            raise IssuerUnavailable

    async def _read_keys(self) -> list[IssuerKey]:
        self._metadata = {}  # its address may have changed, too
        where = (await self._read_metadata()).get("jwks_uri")
        if not isinstance(where, str):
            self._fail("its metadata names no jwks_uri")
        self._check_encrypted(where)
        listed = (await self._fetch(httpx2.Request("GET", where))).get("keys")
        if not isinstance(listed, list):
            self._fail("its key set has no list `keys`")
        return [key for one in listed[:MOST_KEYS] if (key := _read_key(one)) is not None]

    async def _read_metadata(self) -> dict[str, Any]:
        """Reads RFC 8414 metadata, or that of OpenID Connect."""
        if self._metadata:
            return self._metadata
        origin, path = read_url(self.url).origin, self.url.split("://", 1)[1].partition("/")[2].strip("/")
        rest = f"/{path}" if path else ""
        places = (
            f"{origin}/.well-known/oauth-authorization-server{rest}",
            f"{origin}/.well-known/openid-configuration{rest}",
            f"{origin}{rest}/.well-known/openid-configuration",
        )
        for place in dict.fromkeys(places):
            found = await self._fetch(httpx2.Request("GET", place), missing_ok=True)
            if found:
                if found.get("issuer") != self.url:
                    self._fail(f"its metadata names the issuer {one_line(found.get('issuer'), 100)!r}")
                self._metadata = found
                return found
        self._fail("it has no metadata at a well-known address")

    async def _fetch(
        self, request: httpx2.Request, auth: httpx2.Auth | None = None, *, missing_ok: bool = False
    ) -> dict[str, Any]:
        if self._client is None:
            transport = GuardedTransport(self._egress, TIMEOUT)
            self._client = make_client(transport, {"accept": "application/json"}, httpx2.Timeout(TIMEOUT))
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._client.send(request, auth=auth)
        except (TimeoutError, ToolError, httpx2.HTTPError) as error:
            reason = error.message if isinstance(error, ToolError) else type(error).__name__
            self._fail(f"{request.url.host} cannot be reached ({one_line(reason, 200)})")
        if missing_ok and answer.status_code in (404, 405, 410):
            return {}
        try:
            found = json.loads(answer.content) if answer.status_code == 200 else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._fail(f"{request.url.host} answered {answer.status_code} without a JSON object")
        return found

    def _check_encrypted(self, url: str) -> None:
        try:
            there = read_url(url)
        except ToolError as error:
            self._fail(one_line(error.message, 200))
        if there.scheme != "https" and there.host not in _LOCAL:
            self._fail(f"{one_line(url, 200)} is not encrypted")

    def _fail(self, why: str) -> NoReturn:
        log.warning("tokens of the issuer %s cannot be checked: %s", self.url, why)
        raise IssuerUnavailable


def _read_key(listed: Any) -> IssuerKey | None:
    """Reads a public signing key. Ignores keys of other kinds: the list may hold keys for other purposes."""
    if not isinstance(listed, dict) or listed.get("use", "sig") != "sig" or "d" in listed or "k" in listed:
        return None
    if len(str(listed)) > LONGEST_KEY:
        return None
    try:
        key = jwt.PyJWK.from_dict(listed)
    except jwt.PyJWTError:
        return None
    is_open = key.key_type == "RSA" and "alg" not in listed  # an RSA key may name its algorithm
    fitting = _RSA if is_open else (key.algorithm_name,)
    return IssuerKey(key.key_id, tuple(one for one in fitting if one in ALGORITHMS), key.key)
