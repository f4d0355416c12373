"""Hosts as rules see them: which server a URL really leads to, and the patterns that cover it.

A pattern is a host, or `*.host` for its subdomains, with a port or without. Rules that allow cover it for http, https
and bare hosts, and other schemes where the pattern names the port. Rules that deny or ask cover every spelling that
leads there, and whatever cannot be read; this machine has many names, and each of them stands for all.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from functools import lru_cache
from typing import NamedTuple

LONGEST_URL = 8_192  # characters of a URL that are read

_URL = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9+.-]*)://|//)?([^/?#]*)")
_AUTHORITY = re.compile(r"(?:[^@\[\]\\%\s]*@)?(\[[0-9a-fA-F:.]+\]|[^@:\[\]\\%\s]+)(?::([0-9]{1,5}))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_NUMBER = r"(?:0x[0-9a-f]*|[0-9]+)"
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}")
_ENDS_IN_NUMBER = re.compile(rf"(?:.*\.)?{_NUMBER}")
_PATTERN = re.compile(
    r"(\*\.)?(\[[0-9a-fA-F:.]+\]|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*|[^*/@:\[\]\\%?#\s]+)(?::([0-9]{1,5}))?"
)
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
_WEB = frozenset({"", "http", "https"})
_HERE = frozenset("localhost localhost.localdomain ip6-localhost ip6-loopback 127.0.0.1 0.0.0.0 ::1 ::".split())
_EMBEDDED = (  # the first 96 bits of addresses whose last 32 are an IPv4 address
    0,  # ::a.b.c.d
    0xFFFF,  # ::ffff:a.b.c.d
    0xFFFF_0000,  # ::ffff:0:a.b.c.d
    0x64_FF9B << 64,  # 64:ff9b::a.b.c.d
)
_LOCAL_NAT64 = 0x64_FF9B_0001  # 64:ff9b:1::/48


class Host(NamedTuple):
    """The host that a target leads to."""

    names: frozenset[str] = frozenset()  # the spellings some client could use; none if it cannot be read
    port: int | None = None
    explicit_port: bool = False
    scheme: str = ""

    @property
    def clear(self) -> bool:
        """Returns whether every client reads it the same way."""
        return len(self.names) == 1

    @property
    def is_web(self) -> bool:
        """Returns whether clients use http or https, or the target is a bare host."""
        return self.scheme in _WEB


def read_host(target: str) -> Host:
    """Reads the host of a URL, or of a bare `host[:port]`."""
    found = _URL.match(target[:LONGEST_URL])
    parts = _AUTHORITY.fullmatch(found[2]) if found else None
    if not found or not parts or len(target) > LONGEST_URL or int(parts[2] or 0) > 65_535 or _CONTROL.search(target):
        return Host()
    scheme = (found[1] or "").lower()
    port = int(parts[2]) if parts[2] else _PORTS.get(scheme)
    return Host(_names(parts[1]), port, bool(parts[2]), scheme)


def covers(pattern: str, host: Host, *, generous: bool) -> bool:
    """Returns whether `host`, `*.host` (its subdomains only) or either with `:port` covers the host.

    A generous answer is for rules that forbid: any spelling that could lead there counts.
    """
    if not host.names:
        return generous
    parts = _PATTERN.fullmatch(pattern)
    if parts is None:
        return False
    names, port = _names(parts[2]), int(parts[3]) if parts[3] else None
    if generous:
        if port is not None and host.clear and host.port not in (None, port):
            return False
    elif not _speaks(host, port) or not host.clear or len(names) != 1:
        return False
    if parts[1]:
        return any(name.endswith(f".{base}") for name in host.names for base in names)
    return bool(names & host.names) or (generous and bool(names & _HERE) and any(map(_is_here, host.names)))


def pattern_of(target: str) -> str:
    """Returns the pattern that a rule needs to allow a target; empty if no rule about hosts can."""
    host = read_host(target)
    if not host.clear or not host.is_web:
        return ""
    (name,) = host.names
    shown = f"[{name}]" if ":" in name else name
    return f"{shown}:{host.port}" if host.explicit_port else shown


def problem_with(pattern: str) -> str:
    """Returns the mistake in a network pattern, if there is one."""
    if "/" in pattern or "@" in pattern:
        return (
            "a network target is a host, not a URL; write it like api.example.com, *.example.org or api.example.com:443"
        )
    parts = _PATTERN.fullmatch(pattern)
    if parts is None:
        return "a * stands for whole labels at the start of a host; write it like *.example.org"
    return "" if _names(parts[2]) else "this is not a valid host name; write it like api.example.com or 127.0.0.1"


def _speaks(host: Host, port: int | None) -> bool:
    """Returns whether an allow with this port covers the host's scheme and port."""
    if port is None:
        return host.is_web
    return host.port == port and (host.is_web or (host.explicit_port and host.scheme != "file"))


def _is_here(name: str) -> bool:
    """Returns whether a name leads to this machine."""
    return name in _HERE or name.endswith(".localhost") or (name.startswith("127.") and bool(_NUMERIC.fullmatch(name)))


@lru_cache(maxsize=4_096)
def _names(host: str) -> frozenset[str]:
    """Returns a host in the spelling that is compared; several where clients would disagree, none if it is none."""
    host = host.lower()
    if host.startswith("[") or ":" in host:
        return _names_of_ipv6(host.strip("[]"))
    host = host.removesuffix(".")
    if not host.isascii():
        return _names_of_unicode(host)
    if _ENDS_IN_NUMBER.fullmatch(host):
        return _names_of_numbers(host)
    return frozenset({host}) if _NAME.fullmatch(host) else frozenset()


def _names_of_numbers(host: str) -> frozenset[str]:
    """Returns 127.0.0.1 for 2130706433, 0x7f.1 and 127.1; only some clients take a leading 0 for octal."""

    if not _NUMERIC.fullmatch(host):
        return frozenset()
    try:
        dotted = socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return frozenset()
    numbers = host.split(".")
    decimal = ".".join(str(int(number)) for number in numbers) if all(map(str.isdecimal, numbers)) else host
    return frozenset({host, dotted, decimal})


def _names_of_ipv6(host: str) -> frozenset[str]:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return frozenset()
    high, low = divmod(int(address), 1 << 32)
    inner = {found for found in (address.sixtofour, *(address.teredo or ())) if found is not None}
    if (high in _EMBEDDED and int(address) > 0xFFFF) or high >> 48 == _LOCAL_NAT64:
        inner.add(ipaddress.IPv4Address(low))
    mapped = address.ipv4_mapped  # whose spelling depends on the version of Python
    own = str(address) if mapped is None else f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"
    return frozenset({own, *map(str, inner)})


def _names_of_unicode(host: str) -> frozenset[str]:
    """Returns the names that old and new rules for international domains make: mostly one."""

    names = set()
    composed = unicodedata.normalize("NFC", host)
    labels = [label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in composed.split(".")]
    names.add(".".join(labels))
    try:
        names.add(host.encode("idna").decode().removesuffix("."))
    except UnicodeError:
        names.add(unicodedata.normalize("NFKC", host).casefold())
    readings = [_names(name) if name.isascii() else frozenset() for name in names]
    return frozenset().union(*readings) if all(readings) else frozenset()
