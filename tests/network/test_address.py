"""Addresses are public, or there is a reason why not."""

from __future__ import annotations

import ipaddress

import pytest

from forge.network.address import METADATA, is_metadata, why_not_public

REFUSED = {
    "0.0.0.0": "this machine",
    "0.1.2.3": "this machine",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "carrier",
    "100.127.255.255": "carrier",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "reserved",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4",
    "192.168.1.1": "private",
    "198.18.0.1": "benchmarking",
    "198.19.255.255": "benchmarking",
    "198.51.100.7": "documentation",
    "203.0.113.7": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "this machine",
    "::1": "loopback",
    "::7f00:1": "IPv4-compatible",
    "::ffff:127.0.0.1": "mapped address around a loopback",
    "::ffff:10.0.0.1": "mapped address around a private",
    "::ffff:93.184.216.34": "mapped",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "64:ff9b::7f00:1": "NAT64 form of a loopback",
    "64:ff9b::a00:1": "NAT64 form of a private",
    "64:ff9b::a9fe:a9fe": "metadata",
    "64:ff9b:1::a9fe:a9fe": "metadata",
    "64:ff9b:1::808:808": "local NAT64",
    "100::1": "discard",
    "2001::1": "Teredo",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "Teredo",
    "2001:0:a9fe:a9fe::": "metadata",
    "2001:2::1": "benchmarking",
    "2001:db8::1": "documentation",
    "2001:10::1": "reserved",
    "2002:7f00:1::": "6to4 address around a loopback",
    "2002:808:808::": "6to4",
    "2002:a9fe:a9fe::1": "metadata",
    "3fff::1": "documentation",
    "5f00::1": "segment",
    "fc00::1": "private",
    "fd12:3456::1": "private",
    "fd00:ec2::254": "metadata",
    "fe80::1": "link-local",
    "fe80::5efe:a9fe:a9fe": "metadata",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "4000::1": "reserved",
    "e000::1": "reserved",
}
PUBLIC = """1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 93.184.216.34 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1
169.253.255.255 169.255.0.1 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 192.169.0.1 198.17.255.255 198.20.0.1
223.255.255.255 2606:4700::1 2001:4860:4860::8888 2a00:1450:4001::1 2620:fe::fe 64:ff9b::808:808""".split()


@pytest.mark.parametrize(("address", "why"), REFUSED.items())
def test_what_is_not_public_is_told_why(address, why):
    assert why in why_not_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_the_rest_is_public(address):
    assert why_not_public(ipaddress.ip_address(address)) == ""


def test_nothing_that_python_calls_private_is_public_here():
    for network in (*ipaddress._IPv4Constants._private_networks, *ipaddress._IPv6Constants._private_networks):  # type: ignore[attr-defined]
        for address in (network[0], network[-1]):
            assert why_not_public(address) or address in ipaddress.ip_network("64:ff9b::/96"), address


def test_a_metadata_address_is_one_in_every_form_it_can_hide_in():
    for inner in filter(lambda one: one.version == 4, METADATA):
        number = int(inner)
        forms = (
            number,
            0xFFFF << 32 | number,
            0xFFFF_0000 << 32 | number,
            0x64_FF9B << 96 | number,
            0x64_FF9B_0001 << 80 | number,
            0x2002 << 112 | number << 80,
            0x2001_0000 << 96 | number << 64,
            0x2001_0000 << 96 | number ^ 0xFFFF_FFFF,
        )
        assert all(is_metadata(ipaddress.IPv6Address(form)) for form in forms), inner
    assert not is_metadata(ipaddress.ip_address("169.254.1.1"))
