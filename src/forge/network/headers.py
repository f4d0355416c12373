"""The headers of a request: what a caller may set, and what is left of it when a redirect leads elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from forge.core.errors import ErrorKind, ToolError
from forge.network.decoding import ACCEPTED
from forge.network.url import Url

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Pairs = list[tuple[str, str]]

USER_AGENT = "forge-tools"
MOST = 100
LONGEST = 32 * 1024  # bytes of all headers together

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(  # they say where the request goes and where its body ends: the client's to decide
    "host content-length transfer-encoding connection keep-alive upgrade te trailer expect proxy-authorization "
    "proxy-connection proxy-authenticate http2-settings".split()
)
_HARMLESS = frozenset("accept accept-language user-agent cache-control pragma".split())


def checked(headers: Headers) -> Pairs:
    """The headers a caller sets, with lower-case names; `ToolError` for what may not be sent."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if len(pairs) > MOST or sum(len(name) + len(value) for name, value in pairs) > LONGEST:
        raise _wrong(f"more than {MOST} headers, or more than {LONGEST // 1024} KiB of them", "Send fewer.")
    return [
        (name.lower(), value.strip(" \t"))
        for name, value in pairs
        if not _refused(name, value) and name.lower() != "accept-encoding"  # asked for is what can be unpacked
    ]


def to_send(url: Url, headers: Pairs, body: bytes, method: str) -> list[tuple[bytes, bytes]]:
    """All headers of a request, as they go out."""
    given = {name for name, _ in headers}
    pairs = [("host", url.authority)]
    if "user-agent" not in given:
        pairs.append(("user-agent", USER_AGENT))
    if "accept" not in given:
        pairs.append(("accept", "*/*"))
    pairs += [("accept-encoding", ACCEPTED), *headers]
    if body or method in ("POST", "PUT", "PATCH"):
        pairs.append(("content-length", str(len(body))))
    return [(name.encode("ascii"), value.encode()) for name, value in pairs]


def harmless(headers: Pairs) -> Pairs:
    """What another server may see: nothing in which a secret could be."""
    return [(name, value) for name, value in headers if name in _HARMLESS]


def without_body(headers: Pairs) -> Pairs:
    """What is left when the body is not sent on."""
    return [(name, value) for name, value in headers if not name.startswith("content-")]


def _refused(name: str, value: str) -> bool:
    """Raises; a value is never shown, since it may be a secret."""
    if not _NAME.fullmatch(name):
        raise _wrong(f"{name[:60]!r} is no name of a header", "Names are letters, digits and dashes.")
    if name.lower() in _OURS:
        raise _wrong(f"the header {name} is set by the client itself", "Leave it out.")
    if _FORBIDDEN.search(value):
        raise _wrong(f"the header {name} has a line break or control character", "A value is one line of text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(f"the header {name} has half a character (a lone surrogate)", "Leave it out.") from None
    return False


def _wrong(what: str, suggestion: str) -> ToolError:
    return ToolError(what, ErrorKind.VALIDATION, suggestion)
