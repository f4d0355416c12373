"""Keeps an access token until it is about to expire, and signs requests for one with an RSA key."""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from os import urandom
from typing import Any, NamedTuple

from forge.core.errors import ErrorKind
from forge.core.provider import ProviderError
from forge.models.http.fetch import Fetched
from forge.models.http.outgoing import clean_message, read_error

MARGIN = 120.0  # seconds before its end in which a token is no longer used


class Token(NamedTuple):
    """An access token and the time of its end."""

    text: str
    expires: float  # seconds since 1970


class CachedToken:
    """Authorises requests with a token that `fetch` returns. Fetches another one shortly before its end."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._token = Token("", 0.0)

    async def __call__(self, url: str = "", content: bytes = b"") -> Mapping[str, str]:
        """Returns the header for a request. Raises `ProviderError`."""
        if self._token.expires - MARGIN < time.time():
            self._token = await self._fetch()
        return {"authorization": f"Bearer {self._token.text}"}


def read_token(found: Fetched, action: str, advice: str) -> Token:
    """Reads the answer of an OAuth server. Raises `ProviderError` for an error in it."""
    text = found.get("access_token")
    if found.status != 200 or not text:
        raise refused_error(found, action, advice)
    document = found.document
    lasts, until = document.get("expires_in"), document.get("expires_on")  # Azure sends texts, and a date
    seconds = float(lasts) if str(lasts).isdigit() else 300.0
    return Token(text, float(until) if str(until).isdigit() else time.time() + seconds)


def refused_error(found: Fetched, action: str, advice: str) -> ProviderError:
    """Returns the error for credentials that a server refuses."""
    said = read_error(found.document, str).text
    if described := found.get("error_description"):
        said = clean_message(described, str)
    passing = found.status >= 500 or found.status == 429
    message = f"{action}: HTTP {found.status}: {said}"
    return ProviderError(message, ErrorKind.CONFIG, advice, passing=passing, status=found.status)


# --- Signs a JSON Web Token with an RSA key (RS256, PS256), for service accounts: the standard library has no RSA.


_SEQUENCE, _INTEGER, _OCTETS = 0x30, 0x02, 0x04
_SHA256 = bytes.fromhex("3031300d060960864801650304020105000420")  # how PKCS #1 names the hash


class RsaKey(NamedTuple):
    """The private part of a key, and its size in bytes."""

    modulus: int
    exponent: int
    size: int


def sign_jwt(claims: Mapping[str, Any], key: RsaKey, key_id: str = "") -> str:
    """Returns the token as text."""
    header = {"alg": "RS256", "typ": "JWT", **({"kid": key_id} if key_id else {})}
    return _sign_parts(header, claims, key, _pad)


def sign_jwt_with_certificate(claims: Mapping[str, Any], key: RsaKey, thumbprint: bytes) -> str:
    """Returns a token (PS256) that names the certificate of its key by the certificate's SHA-256."""
    header = {"alg": "PS256", "typ": "JWT", "x5t#S256": _encode(thumbprint).decode()}
    return _sign_parts(header, claims, key, _pad_with_salt)


def read_certificate(pem: str) -> bytes:
    """Returns the SHA-256 of the first certificate in a PEM file. Raises `ValueError`."""
    found = re.search(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", pem, re.DOTALL)
    if found is None:
        raise ValueError("it holds no certificate in PEM")
    return sha256(b64decode("".join(found[1].split()), validate=True)).digest()


def read_private_key(pem: str) -> RsaKey:
    """Reads the key of a PEM file, as PKCS #8 or PKCS #1. Raises `ValueError`."""
    found = re.search(r"-----BEGIN (?:RSA )?PRIVATE KEY-----(.+?)-----END (?:RSA )?PRIVATE KEY-----", pem, re.DOTALL)
    if found is None:
        raise ValueError("it holds no private key in PEM" + (", only an encrypted one" if "ENCRYPTED" in pem else ""))
    fields = _read_fields(_read_one(b64decode("".join(found[1].split()), validate=True), _SEQUENCE))
    if len(fields) >= 3 and fields[2][0] == _OCTETS:  # PKCS #8: the key is inside
        fields = _read_fields(_read_one(fields[2][1], _SEQUENCE))
    numbers = [int.from_bytes(value) for kind, value in fields if kind == _INTEGER]
    if len(numbers) < 4:
        raise ValueError("it is not an RSA key")
    _, modulus, _, exponent = numbers[:4]
    size = (modulus.bit_length() + 7) // 8
    if size < 128:
        raise ValueError("the key is too short")
    return RsaKey(modulus, exponent, size)


def _sign_parts(
    header: Mapping[str, Any], claims: Mapping[str, Any], key: RsaKey, pad: Callable[[bytes, RsaKey], bytes]
) -> str:
    start = b".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    number = int.from_bytes(pad(sha256(start).digest(), key))
    return b".".join([start, _encode(pow(number, key.exponent, key.modulus).to_bytes(key.size))]).decode()


def _pad(digest: bytes, key: RsaKey) -> bytes:
    named = _SHA256 + digest
    return b"\x00\x01" + b"\xff" * (key.size - len(named) - 3) + b"\x00" + named


def _pad_with_salt(digest: bytes, key: RsaKey) -> bytes:
    """Pads as PSS does (RFC 8017, 9.1.1), with a salt as long as the hash."""
    salt, bits = urandom(32), key.modulus.bit_length() - 1
    size = (bits + 7) // 8
    hashed = sha256(bytes(8) + digest + salt).digest()
    block = bytes(size - 66) + b"\x01" + salt
    masked = int.from_bytes(block) ^ int.from_bytes(_stretch(hashed, len(block)))
    masked &= (1 << (bits - 8 * (size - len(block)))) - 1  # the highest bits are zero, so that the key is larger
    return masked.to_bytes(len(block)) + hashed + b"\xbc"


def _stretch(seed: bytes, size: int) -> bytes:
    return b"".join(sha256(seed + count.to_bytes(4)).digest() for count in range(-(-size // 32)))[:size]


def _encode(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def _read_fields(raw: bytes) -> list[tuple[int, bytes]]:
    """Returns the kinds and values of the fields of a DER sequence."""
    fields = []
    while raw:
        kind, value, raw = _read_field(raw)
        fields.append((kind, value))
    return fields


def _read_one(raw: bytes, wanted: int) -> bytes:
    kind, value, _ = _read_field(raw)
    if kind != wanted:
        raise ValueError("the key has another structure than expected")
    return value


def _read_field(raw: bytes) -> tuple[int, bytes, bytes]:
    if len(raw) < 2:
        raise ValueError("the key ends too early")
    kind, length, start = raw[0], raw[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(raw[2 : 2 + count]), 2 + count
    if start + length > len(raw):
        raise ValueError("the key ends too early")
    return kind, raw[start : start + length], raw[start + length :]
