"""Proofs of possession (DPoP, RFC 9449): a token is of use only together with a key that never leaves this machine."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from hashlib import sha256
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
        """Notes the nonce of an answer. Returns True if the request must be sent again with it."""
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
