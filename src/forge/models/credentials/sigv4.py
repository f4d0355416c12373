"""Signs requests to AWS (Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_PORTS = {"http": 80, "https": 443}


class AwsKeys(NamedTuple):
    """An access key. `expires` is in seconds since 1970; 0: it does not."""

    access: str
    secret: str
    token: str = ""
    expires: float = 0.0


def sign_request(
    url: str,
    content: bytes,
    keys: AwsKeys,
    *,
    region: str,
    service: str,
    method: str = "POST",
    content_type: str = "application/json",
    now: datetime | None = None,
) -> dict[str, str]:
    """Returns the headers that authorise the request."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    headers = {"x-amz-date": stamp, **({"x-amz-security-token": keys.token} if keys.token else {})}
    signed = {"host": host_header(url), **({"content-type": content_type} if content_type else {}), **headers}
    names = ";".join(sorted(signed))
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    request = _canonical_request(method, url, signed, names, content)
    to_sign = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{_ALGORITHM} Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": credential}


def host_header(url: str) -> str:
    """Returns the host as HTTP clients send it: with its port, unless it is the usual one."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return host if parts.port in (None, _PORTS.get(parts.scheme)) else f"{host}:{parts.port}"


def _canonical_request(method: str, url: str, headers: Mapping[str, str], names: str, content: bytes) -> str:
    parts = urlsplit(url)
    path = quote(_normalise_path(parts.path), safe="/~")  # encoded a second time, as the specification says
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(parts.query, True)
    )
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    query = "&".join(f"{name}={value}" for name, value in pairs)
    return "\n".join([method, path, query, *lines, "", names, hashlib.sha256(content).hexdigest()])


def _normalise_path(path: str) -> str:
    """Removes empty segments and resolves `.` and `..`."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    ends = "/" if segments and path.endswith("/") else ""
    return f"/{'/'.join(segments)}{ends}"
