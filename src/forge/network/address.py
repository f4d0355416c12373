"""Reads URLs, and decides if an IP address is public, and explains why not."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NoReturn
from urllib.parse import quote, urljoin

from forge.core.errors import ErrorKind, ToolError

Address = IPv4Address | IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Own tables, because ipaddress defines "global" differently in each version of Python.
_FOUR = [
    (ipaddress.IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "an address of this machine"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared carrier address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a 6to4 relay address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
]
_SIX = [
    (ipaddress.IPv6Network(network), why)
    for network, why in (
        ("::/128", "an address of this machine"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4-mapped address"),
        ("::ffff:0:0:0/96", "an IPv4-translated address"),
        ("::/96", "an IPv4-compatible address"),
        ("64:ff9b:1::/48", "a local NAT64 address"),
        ("100::/64", "a discard address"),
        ("2001::/32", "a Teredo address"),
        ("2001:2::/48", "a benchmarking address"),
        ("2001:db8::/32", "a documentation address"),
        ("2001::/23", "a reserved address"),
        ("2002::/16", "a 6to4 address"),
        ("3fff::/20", "a documentation address"),
        ("5f00::/16", "a segment routing address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")  # nothing else is public
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")

METADATA = frozenset(  # clouds hand out credentials at these addresses
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # most of them
        "169.254.169.253",
        "169.254.169.250",
        "169.254.170.2",  # containers
        "169.254.170.23",
        "169.254.0.23",
        "169.254.42.42",
        "169.254.10.10",
        "100.100.100.200",
        "168.63.129.16",  # public by its number
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
    )
)
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"})
# Domains that lead inside: reserved ones (RFC 6761, 6762, 8375), and others that the public DNS does not have.
_INSIDE = (
    "belkin cluster consul corp domain home home.arpa internal intra intranet lan local localdomain mail mshome.net"
    " private svc test workgroup"
    " localtest.me lvh.me nip.io sslip.io"  # public, and made to lead to this machine or an address in the name
).split()


@lru_cache(maxsize=4_096)
def why_not_public(address: Address) -> str:
    """Returns the reason why an address is not public, such as `a loopback address`, or an empty text.

    An address with an IPv4 address inside is never public, except NAT64 around a public one: in networks without IPv4
    every server has such an address.
    """
    if is_metadata(address):
        return "a metadata address"
    if isinstance(address, IPv4Address):
        return next((why for network, why in _FOUR if address in network), "")
    if address in _NAT64:
        inner = why_not_public(_last_ipv4(address))
        return f"a NAT64 form of {inner}" if inner else ""
    why = next((why for network, why in _SIX if address in network), "")
    inside = next(filter(None, map(why_not_public, find_embedded(address))), "")
    if why and inside and "address of this machine" not in inside:
        return f"{why} around {inside}"
    return why or ("" if address in _UNICAST else "a reserved address")


def why_name_not_public(host: str) -> str:
    """Returns why a host name is not public by its form, such as `a name of this machine`, or an empty text."""
    if host == "localhost" or host.endswith(".localhost"):
        return "a name of this machine"
    if "." not in host or any(host == domain or host.endswith(f".{domain}") for domain in _INSIDE):
        return "a name of an internal network"
    return ""


def is_metadata(address: Address) -> bool:
    """Returns whether the address is, or contains, one at which a cloud hands out credentials."""
    return address in METADATA or any(inner in METADATA for inner in find_embedded(address))


def find_embedded(address: Address) -> Iterator[IPv4Address]:
    """Yields the IPv4 addresses that an IPv6 address may lead to."""
    if isinstance(address, IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()
    high = int(address) >> 32
    interface = high & 0xFFFF_FFFF
    isatap = interface in (0x5EFE, 0x200_5EFE) and address not in _UNICAST
    if high in (0, 0xFFFF, 0xFFFF_0000) or address in _NAT64 or isatap:
        yield _last_ipv4(address)
    if address in _LOCAL_NAT64:
        yield from _find_in_local_nat64(address)


def _last_ipv4(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)


def _find_in_local_nat64(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yields candidates: last with a 96-bit prefix, or in the middle, around a zero byte, with 48 or 64 bits."""
    raw = address.packed
    yield _last_ipv4(address)
    yield IPv4Address(raw[6:8] + raw[9:11])
    yield IPv4Address(raw[9:13])


# Reads a URL once, so that the judged URL is the one that is connected to.


LONGEST_URL = 8_192  # characters of a URL
PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_QUOTED = re.compile(r"""'.*'|".*\"""", re.DOTALL)
_SAFE = "!$%&'()*+,-./:;=?@[]_~|^`{}"  # sent as they are; everything else is percent-encoded
_EXAMPLE = "Write it like https://example.com/path."


@dataclass(frozen=True, slots=True)
class Url:
    """A request's target, in the one spelling that is judged, connected to and sent."""

    scheme: str  # http or https
    host: str  # lower case, ASCII, no trailing dot, an address in its canonical form without brackets
    port: int
    target: str  # path and query, percent-encoded
    address: Address | None = None  # where the host is one

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: the only part that errors show, since the rest may hold secrets."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return self.origin + self.target


def read_url(text: str) -> Url:
    """Parses a URL. Raises `ToolError` that says what is wrong with it."""
    if len(text) > LONGEST_URL:
        _refuse(f"the URL is longer than {LONGEST_URL} characters", "Shorten it, or send the data as a body.")
    if control := _CONTROL.search(text):
        _refuse(f"the URL has a control character ({control[0]!r})", _EXAMPLE)
    if text != text.strip():
        _refuse("the URL begins or ends with a space", _EXAMPLE)
    parts = _URL.fullmatch(text)
    if parts is None:
        _refuse("not a complete URL", _EXAMPLE)
    scheme = parts[1].lower()
    if scheme not in PORTS:
        _refuse(f"the scheme {scheme[:30]}: is not supported", "Only http:// and https:// are.")
    host, port, address = _read_authority(parts[2])
    try:
        target = quote(parts[3] or "/", safe=_SAFE) + quote(parts[4] or "", safe=_SAFE)
    except UnicodeEncodeError:
        _refuse("the URL has half a character (a lone surrogate)", _EXAMPLE)
    return Url(scheme, host, port or PORTS[scheme], target, address)


def read_redirect(base: Url, location: str) -> Url:
    """Returns the target of a Location header."""
    try:
        if _CONTROL.search(location):
            raise ValueError("it has a control character")
        return read_url(urljoin(str(base), location))
    except (ToolError, ValueError) as error:
        why = _QUOTED.sub("that", str(error))  # an error must not quote a server
    raise ToolError(
        f"{base.origin} redirects to a URL that is not supported: {why}",
        ErrorKind.SECURITY,
        "The server is at fault; look for the same content elsewhere.",
    )


@lru_cache(maxsize=1_024)
def read_host(host: str) -> tuple[str, Address | None]:
    """Returns a host as it is compared and connected to, and its address if it is one; IPv6 needs no brackets."""
    if host.startswith("[") or ":" in host:
        return _read_ipv6(host)
    if not host.isascii():
        host = _to_ascii(host)
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        four = ipaddress.IPv4Address(_read_ipv4_number(host, labels))
        return str(four), four
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        _refuse(f"{host[:100]!r} is not a valid host name", _EXAMPLE)
    return host, None


def _read_authority(authority: str) -> tuple[str, int, Address | None]:
    if "@" in authority:
        _refuse("the URL contains a user name or password", "Send credentials in the Authorization header.")
    if "\\" in authority:
        _refuse("the URL has a backslash in its host", _EXAMPLE)
    if "%" in authority:
        _refuse("the host has a % sign: escapes and zone ids are not supported", _EXAMPLE)
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or not parts[1]:
        _refuse("the URL has no readable host and port", _EXAMPLE)
    port = int(parts[2]) if parts[2] else 0
    if parts[2] and not 0 < port < 65_536:
        _refuse(f"{parts[2]} is not a valid port", "Ports are 1 to 65535.")
    host, address = read_host(parts[1])
    return host, port, address


def _read_ipv6(host: str) -> tuple[str, Address]:
    try:
        six = ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        six = None
    if six is None or six.scope_id is not None:
        _refuse(f"{host[:100]!r} is not an IPv6 address", "Write it like [2001:4860:4860::8888].")
    mapped = six.ipv4_mapped  # whose spelling depends on the version of Python
    return (str(six) if mapped is None else f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}"), six


def _read_ipv4_number(host: str, labels: list[str]) -> int:
    """Reads 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 as 127.0.0.1, as every C library does."""
    try:
        numbers = [_read_ipv4_part(label) for label in labels]
        *high, low = numbers
        if len(high) > 3 or max(high, default=0) > 255 or low >= 256 ** (4 - len(high)):
            raise ValueError
    except ValueError:
        _refuse(f"{host[:100]!r} is neither a name nor an address", "Write an address like 93.184.216.34.")
    return sum(number << 8 * (3 - index) for index, number in enumerate(high)) + low


def _read_ipv4_part(label: str) -> int:
    if not _NUMBER.fullmatch(label) or len(label) > 32:
        raise ValueError
    if label.startswith("0x"):
        return int(label, 16)
    return int(label, 8) if label.startswith("0") and label != "0" else int(label)


def _to_ascii(host: str) -> str:
    """Encodes a host as browsers do (UTS 46): circled digits, wide letters and ideographic dots become plain.

    Older rules give the same result for nearly all names, or leave them unchanged. A name that the old rules read
    differently is refused, since no rule about it would be reliable.
    """
    import idna  # only for names beyond ASCII

    try:
        mapped: str = idna.uts46_remap(host, std3_rules=True, transitional=False)
        name = mapped if mapped.isascii() else idna.encode(mapped).decode("ascii")
    except (UnicodeError, ValueError):  # IDNAError is a UnicodeError
        _refuse(f"{host[:100]!r} is not a domain name", "Write it in its ASCII form (xn--…).")
    if name.removesuffix(".") not in (_encode_unchanged(host), _encode_by_old_rules(host)):
        _refuse(
            f"{host[:100]!r} is read as different names by different programs", "Write it in its ASCII form (xn--…)."
        )
    return name


def _encode_unchanged(host: str) -> str:
    labels = unicodedata.normalize("NFC", host.lower()).removesuffix(".").split(".")
    return ".".join(label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels)


def _encode_by_old_rules(host: str) -> str:
    try:
        return host.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        return ""


def _refuse(what: str, suggestion: str) -> NoReturn:
    raise ToolError(what, ErrorKind.VALIDATION, suggestion)
