"""An authorization server: finds its metadata, and keeps its signing keys up to date, within bounds."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any, NamedTuple, NoReturn

import httpx2
import jwt

from forge.core.errors import ToolError
from forge.network.address import read_url
from forge.network.egress import Egress
from forge.sources.mcp.guarded_http import GuardedTransport, make_client
from forge.sources.untrusted import one_line

log = logging.getLogger(__name__)

FRESH = 300.0  # seconds after which the keys are read again
LONGEST = 900.0  # seconds after which keys that cannot be read again are no longer used
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
            await self._refresh(self._age() >= LONGEST)
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
        if must and self._age() >= LONGEST:
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
