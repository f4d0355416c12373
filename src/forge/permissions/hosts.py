"""Hosts as rules see them: which server a URL really leads to, and the patterns that cover it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

LONGEST = 8_192  # characters of a URL that are read

_URL = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*)://|//)?([^/?#]*)")
_AUTHORITY = re.compile(r"(?:[^@\[\]\\%\s]*@)?(\[[0-9a-fA-F:.]+\]|[^@:\[\]\\%\s\x00-\x1f\x7f]+)(?::([0-9]{1,5}))?")
_TOKEN = re.compile(r"[^\s/\\@:?#\[\]%&=,;\x00-\x1f]+")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
_PATTERN = re.compile(
    r"(\*\.)?(\[[0-9a-fA-F:.]+\]|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*|[^*/@:\[\]\\%?#\s]+)(?::([0-9]{1,5}))?"
)
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Host(NamedTuple):
    """Where a target leads. `names` are the spellings some client could use; only a clear target has exactly one."""

    names: frozenset[str]
    port: int | None
    explicit_port: bool
    clear: bool  # every client reads it the same way


def read_host(target: str) -> Host:
    """The host of a URL, or of a bare `host[:port]`."""
    found = _URL.match(target[:LONGEST])
    scheme, authority = (found[1] or "").lower() if found else "", found[2] if found else ""
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or len(target) > LONGEST or int(parts[2] or 0) > 65_535:
        return _unclear(target)
    names = _names(parts[1])
    port = int(parts[2]) if parts[2] else _PORTS.get(scheme)
    return Host(names, port, bool(parts[2]), len(names) == 1)


def covers(pattern: str, host: Host, *, generous: bool) -> bool:
    """Whether `host`, `*.host` (its subdomains only) or either with `:port` covers the host.

    A generous answer is for rules that forbid: any spelling that could lead there counts.
    """
    parts = _PATTERN.fullmatch(pattern)
    if parts is None:
        return False
    names = _names(parts[2])
    if not generous and not (host.clear and len(names) == 1):
        return False
    if parts[3] and int(parts[3]) != host.port and (host.clear or not generous):
        return False
    if parts[1]:
        return any(name.endswith(f".{base}") for name in host.names for base in names)
    return bool(names & host.names)


def problem_with(pattern: str) -> str:
    """What is wrong with a network pattern, if something is."""
    if "/" in pattern or "@" in pattern:
        return (
            "a network target is a host, not a URL; write it like api.example.com, *.example.org or api.example.com:443"
        )
    if not _PATTERN.fullmatch(pattern):
        return "a * stands for whole labels at the start of a host; write it like *.example.org"
    return ""


def _unclear(target: str) -> Host:
    """Everything in the target that some client could take for the host."""
    from urllib.parse import unquote  # only for odd targets

    text = target[:LONGEST]
    squeezed = re.sub(r"[\t\r\n]", "", text)
    tokens = [token for spelling in (text, squeezed, unquote(text)) for token in _TOKEN.findall(spelling)]
    brackets = re.findall(r"\[([0-9a-fA-F:.]+)", text)
    names: set[str] = set()
    for token in dict.fromkeys((*tokens[:1_000], *brackets)):
        names |= _names(token)
    return Host(frozenset(names), None, False, False)


@lru_cache(maxsize=4_096)
def _names(host: str) -> frozenset[str]:
    """A host in the spelling that is compared; several where clients would disagree about it."""
    host = host.strip("[]").lower()
    host = host.removesuffix(".")
    if ":" in host:
        return _of_ipv6(host)
    if not host.isascii():
        return _of_unicode(host)
    return frozenset({host, _dotted(host)}) if _NUMERIC.fullmatch(host) else frozenset({host})


def _dotted(host: str) -> str:
    """127.0.0.1 for 2130706433, 0x7f.1 and 127.1."""
    import socket  # only for numbers

    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def _of_ipv6(host: str) -> frozenset[str]:
    import ipaddress  # only for addresses

    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return frozenset({host})
    inner = address.ipv4_mapped or address.sixtofour
    return frozenset({str(address), str(inner)} if inner else {str(address)})


def _of_unicode(host: str) -> frozenset[str]:
    """The names old and new rules for international domains make of it: the same one, mostly."""
    import unicodedata  # only for names beyond ASCII

    names = set()
    composed = unicodedata.normalize("NFC", host)
    labels = [label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in composed.split(".")]
    names.add(".".join(labels))
    try:
        names.add(host.encode("idna").decode().removesuffix("."))
    except UnicodeError:
        names.add(unicodedata.normalize("NFKC", host).casefold())
    plain = {name for name in names if name.isascii()}
    return frozenset(names).union(*(_names(name) for name in plain))
