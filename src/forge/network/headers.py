"""Checks a request's headers, its idempotency key and its bounds; selects headers that a redirect may keep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forge.core.context import ToolContext
from forge.core.errors import ErrorKind, ToolError
from forge.core.result import Reconciled
from forge.network.address import Url
from forge.network.body import ACCEPTED

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Pairs = list[tuple[str, str]]

USER_AGENT = "forge-tools"
MOST_HEADERS = 100
LONGEST_HEADERS = 32 * 1024  # bytes of all headers together

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
FRAMING = frozenset(  # they decide where the request goes and where its body ends, so only the client sets them
    [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "proxy-authorization",
        "proxy-connection",
        "proxy-authenticate",
        "http2-settings",
    ]
)
_HARMLESS = frozenset(["accept", "accept-language", "user-agent", "cache-control", "pragma"])


def check_headers(headers: Headers) -> Pairs:
    """Returns a caller's headers with lower-case names. Raises `ToolError` for headers that may not be sent."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if len(pairs) > MOST_HEADERS or sum(len(name) + len(value) for name, value in pairs) > LONGEST_HEADERS:
        raise _header_error(
            f"more than {MOST_HEADERS} headers, or more than {LONGEST_HEADERS // 1024} KiB of them", "Send fewer."
        )
    return [
        (name.lower(), value.strip(" \t"))
        for name, value in pairs
        if not _check_pair(name, value)
        and name.lower() != "accept-encoding"  # the client sets it: only what can be unpacked
    ]


def build_headers(url: Url, headers: Pairs, body: bytes, method: str) -> list[tuple[bytes, bytes]]:
    """Returns all headers of a request as they are sent."""
    given = {name for name, _ in headers}
    pairs = [("host", url.authority)]
    if "user-agent" not in given:
        pairs.append(("user-agent", USER_AGENT))
    if "accept" not in given:
        pairs.append(("accept", "*/*"))
    if "accept-encoding" not in given:
        pairs.append(("accept-encoding", ACCEPTED))
    pairs += headers
    if body or method in ("POST", "PUT", "PATCH"):
        pairs.append(("content-length", str(len(body))))
    return [(name.encode("ascii"), value.encode()) for name, value in pairs]


def keep_harmless(headers: Pairs) -> Pairs:
    """Returns the headers that another server may see: none that could hold a secret."""
    return [(name, value) for name, value in headers if name in _HARMLESS]


def drop_body_headers(headers: Pairs) -> Pairs:
    """Returns the headers for a redirect without the body."""
    return [(name, value) for name, value in headers if not name.startswith("content-")]


def _check_pair(name: str, value: str) -> bool:
    """Raises `ToolError` for a forbidden pair, otherwise returns False. Never shows the value: it may be a secret."""
    if not _NAME.fullmatch(name):
        raise _header_error(f"{name[:60]!r} is not a valid header name", "Names are letters, digits and dashes.")
    if name.lower() in FRAMING:
        raise _header_error(f"the header {name} is set by the client itself", "Leave it out.")
    if _FORBIDDEN.search(value):
        raise _header_error(f"the header {name} has a line break or control character", "A value is one line of text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _header_error(f"the header {name} has half a character (a lone surrogate)", "Leave it out.") from None
    return False


def _header_error(what: str, suggestion: str) -> ToolError:
    return ToolError(what, ErrorKind.VALIDATION, suggestion)


# Adds a call's key as a header, so that a server handles a repeated request only once.


SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  # asking twice changes nothing, so they need no key

_LENGTH = 32  # characters: every server accepts that many, and a UUID has as many digits


def key_header(name: str, method: str, ctx: ToolContext, given: Iterable[str] = ()) -> dict[str, str]:
    """Returns the header to add, or none if it is not configured, not needed, or among the `given` ones.

    Its value is a hash: the key itself names the session, which must stay private.
    """
    if not name or method.upper() in SAFE or any(one.lower() == name.lower() for one in given):
        return {}
    from hashlib import sha256

    return {name: sha256(ctx.key.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]}


def reconcile_request(name: str, method: str, ctx: ToolContext, given: Iterable[str] = ()) -> Reconciled:
    """Returns whether a request of a lost worker may be sent again; the arguments are those of `key_header`."""
    if method.upper() in SAFE:
        return Reconciled.not_done(f"a {method.upper()} request changes nothing", final=True)
    if key_header(name, method, ctx, given):
        return Reconciled.not_done("the server handles a repeated key only once", final=True)
    return Reconciled.unknown("the request may have reached the server")


# The bounds of one request.


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds in seconds and bytes, for the whole chain of redirects or for each answer in it."""

    connect: float = 10.0  # until a connection stands, name and handshake included
    read: float = 30.0  # between two pieces of an answer
    total: float = 30.0  # everything, redirects included
    size: int = 1024 * 1024  # of a body, unpacked
    headers: int = 200  # lines
    header_size: int = 64 * 1024  # all of them
    redirects: int = 10
