"""Checks access tokens: a signed JWT with the issuer's keys, or any token by asking the issuer."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from forge.exports.mcp_server.auth.issuer import ALGORITHMS, Issuer
from forge.exports.mcp_server.auth.settings import ResourceAuth
from forge.network.egress import Egress

LONGEST = 16 * 1024  # characters of a token
LEEWAY = 30  # seconds by which clocks may differ
REMEMBERED = 10.0  # seconds for which the issuer's answer about a token counts
MOST_REMEMBERED = 1_000
LONGEST_NAME = 200  # characters of a user's or client's name


class TokenRefused(Exception):
    """The token is not valid here. The text is for the client, and repeats nothing of the token."""


@dataclass(frozen=True, slots=True)
class Grant:
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
        self._answers: OrderedDict[bytes, tuple[float, Grant | None]] = OrderedDict()  # by the token's hash

    async def check(self, token: str) -> Grant:
        """Returns what a token grants. Raises `TokenRefused` or `IssuerUnavailable`."""
        if not token or len(token) > LONGEST or not token.isascii():
            raise TokenRefused("This is not an access token.")
        return await (self._introspect(token) if self.settings.client_id else self._verify(token))

    async def _verify(self, token: str) -> Grant:
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

    async def _introspect(self, token: str) -> Grant:
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

    def _read_answer(self, answer: Mapping[str, Any]) -> Grant | None:
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

    def _read_claims(self, claims: Mapping[str, Any]) -> Grant:
        if claims.get("cnf"):  # to accept it as a bearer would make the binding worthless
            raise TokenRefused("The token is bound to a key, which this server does not check.")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise TokenRefused("The token has no expiry.")
        client = claims.get("client_id") or claims.get("azp") or claims.get("sub")
        return Grant(_name(claims.get("sub")), _name(client), self.settings.issuer, _scopes(claims), int(expires))


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Reads `scope` (RFC 9068), or `scp`, which some issuers write instead."""
    said = claims.get("scope", claims.get("scp", ""))
    words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
    return frozenset(word for word in words if isinstance(word, str))


def _name(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST_NAME and value.isprintable() else ""
