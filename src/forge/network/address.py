"""Decides if an IP address is public, and explains why not."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

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


def is_metadata(address: Address) -> bool:
    """Returns True if the address is, or contains, one at which a cloud hands out credentials."""
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
