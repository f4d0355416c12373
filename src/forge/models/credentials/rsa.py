"""Signs a JSON Web Token with an RSA key (RS256), for service accounts: the standard library has no RSA."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

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
    start = b".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    return b".".join([start, _encode(_sign(start, key))]).decode()


def read_private_key(pem: str) -> RsaKey:
    """Reads a key in PEM, as PKCS #8 or PKCS #1. Raises `ValueError`."""
    lines = [line.strip() for line in pem.strip().splitlines()]
    if len(lines) < 3 or "PRIVATE KEY" not in lines[0] or "ENCRYPTED" in lines[0]:
        raise ValueError("it is not a private key in PEM")
    fields = _read_fields(_read_one(b64decode("".join(lines[1:-1]), validate=True), _SEQUENCE))
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


def _sign(message: bytes, key: RsaKey) -> bytes:
    digest = _SHA256 + sha256(message).digest()
    padded = b"\x00\x01" + b"\xff" * (key.size - len(digest) - 3) + b"\x00" + digest
    return pow(int.from_bytes(padded), key.exponent, key.modulus).to_bytes(key.size)


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
