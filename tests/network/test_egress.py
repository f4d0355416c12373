"""Egress says what may be reached, and a refusal says which setting would allow it."""

from __future__ import annotations

import ipaddress

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import read_url
from forge.network.egress import Egress, use_egress


def judged(egress: Egress, url: str, *leads_to: str) -> list[str] | str:
    """The addresses that may be connected to, or the refusal."""
    read = read_url(url)
    addresses = [ipaddress.ip_address(one) for one in leads_to or (read.host,)]
    try:
        egress.judge(read)
        return [str(one) for one in egress.judge_addresses(read, addresses)]
    except ToolError as error:
        return f"{error.message} | {error.suggestion}" if error.kind is ErrorKind.SECURITY else "another kind"


def test_without_configuration_everything_public_may_be_reached_and_nothing_else():
    assert judged(Egress.current(), "https://example.com", "93.184.216.34") == ["93.184.216.34"]
    assert judged(Egress.current(), "http://8.8.8.8:8080") == ["8.8.8.8"]
    refusal = judged(Egress.current(), "http://intranet.example:8080", "10.1.2.3")
    assert "http://intranet.example:8080 is not allowed" in refusal
    assert "intranet.example leads to 10.1.2.3, a private address" in refusal
    assert '`egress: {private: ["intranet.example:8080"]}`' in refusal


def test_an_address_in_the_url_is_judged_before_anything_is_connected():
    for url in (
        "http://127.0.0.1",
        "http://0x7f.1",
        "http://[::1]",
        "http://[::ffff:7f00:1]",
        "http://[64:ff9b::a00:1]",
    ):
        with pytest.raises(ToolError, match="is not allowed"):
            Egress().judge(read_url(url))
    assert '["[::1]:81"]' in judged(Egress(), "http://[::1]:81")


@pytest.mark.parametrize(
    ("entry", "url", "leads_to"),
    [
        ("127.0.0.1", "http://127.0.0.1:1234", "127.0.0.1"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1"),
        ("0x7f.1", "http://2130706433", "127.0.0.1"),
        ("10.0.0.0/8", "http://10.1.2.3", "10.1.2.3"),
        ("10.0.0.0/8:81", "http://10.1.2.3:81", "10.1.2.3"),
        ("10.0.0.0/8", "http://intranet.example", "10.1.2.3"),
        ("intranet.example", "http://INTRANET.example.:99", "10.1.2.3"),
        ("intranet.example:443", "https://intranet.example", "192.168.0.1"),
        ("*.corp.example", "http://a.b.corp.example", "fd00::1"),
        ("::1", "http://[::1]:99", "::1"),
        ("[::1]:99", "http://[::1]:99", "::1"),
        ("fd00::/8", "http://[fd00::1]", "fd00::1"),
        ("[fd00::]/8:81", "http://[fd00::1]:81", "fd00::1"),
        ("localhost", "http://localhost:99", "127.0.0.1"),
    ],
)
def test_a_private_entry_allows_what_it_names(entry, url, leads_to):
    assert judged(Egress(private=(entry,)), url, leads_to) == [leads_to]
    assert judged(Egress("allowlist", private=(entry,)), url, leads_to) == [leads_to] or "/8" in entry


@pytest.mark.parametrize(
    ("entry", "url", "leads_to"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8081", "127.0.0.1"),
        ("127.0.0.1", "http://127.0.0.2", "127.0.0.2"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ("10.0.0.0/8", "http://192.168.0.1", "192.168.0.1"),
        ("corp.example", "http://a.corp.example", "10.1.2.3"),
        ("*.corp.example", "http://corp.example", "10.1.2.3"),
        ("*.corp.example", "http://evilcorp.example", "10.1.2.3"),
        ("corp.example:80", "http://corp.example:81", "10.1.2.3"),
    ],
)
def test_a_private_entry_allows_nothing_else(entry, url, leads_to):
    assert "is not allowed" in judged(Egress(private=(entry,)), url, leads_to)


@pytest.mark.parametrize("private", ["0.0.0.0/0", "169.254.0.0/16", "169.254.169.254", "box.example", "::/0"])
@pytest.mark.parametrize(
    "leads_to", ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"]
)
def test_no_setting_opens_the_metadata_addresses(private, leads_to):
    egress = Egress(private=(private,))
    assert "No setting allows it." in judged(egress, "http://box.example", leads_to)
    assert "No setting allows it." in judged(
        egress, f"http://[{leads_to}]" if ":" in leads_to else f"http://{leads_to}"
    )
    assert "No setting allows it." in judged(egress, "http://metadata.google.internal", "8.8.8.8")


def test_a_name_that_leads_to_a_public_and_a_private_address_is_refused_as_a_whole():
    assert "10.0.0.1" in judged(Egress(), "http://both.example", "93.184.216.34", "10.0.0.1")
    assert "10.0.0.1" in judged(Egress(), "http://both.example", "10.0.0.1", "93.184.216.34")
    allowed = judged(Egress(private=("10.0.0.1",)), "http://both.example", "10.0.0.1", "93.184.216.34")
    assert allowed == ["10.0.0.1", "93.184.216.34"]


def test_of_several_private_addresses_the_allowed_one_is_connected_to():
    assert judged(Egress(private=("127.0.0.1",)), "http://localhost", "::1", "127.0.0.1") == ["127.0.0.1"]


def test_an_allowlist_lets_its_domains_pass_and_nothing_else():
    egress = Egress("allowlist", ("api.example.com", "*.example.org", "tls.example:443", "93.184.216.34"))
    public = "93.184.216.34"
    for url in (
        "https://api.example.com",
        "https://API.example.com.",
        "http://a.b.example.org:99",
        "https://tls.example",
        "http://93.184.216.34",
        "http://0x5db8d822",
    ):
        assert judged(egress, url, public) == [public]
    for url in ("https://example.com", "https://x.api.example.com", "http://example.org", "http://tls.example"):
        assert "not in the allowlist" in judged(egress, url, public)
    assert '`egress: {domains: ["example.com"]}`' in judged(egress, "https://example.com", public)
    assert "a private address" in judged(egress, "https://api.example.com", "10.0.0.1")
    assert "a private address" in judged(Egress("allowlist", ("10.0.0.1",)), "http://10.0.0.1")


def test_deny_all_denies_all():
    egress = Egress("deny-all", ("example.com",), ("127.0.0.1",))
    for url in ("https://example.com", "http://127.0.0.1"):
        assert "egress.mode is deny-all" in judged(egress, url, "93.184.216.34")


def test_a_tool_s_own_host_is_added_to_an_allowlist_only():
    assert Egress("allowlist", ("a.example",)).including("b.example").domains == ("a.example", "b.example")
    for mode in ("open", "deny-all"):
        assert Egress(mode).including("b.example") == Egress(mode)


def test_through_a_proxy_this_machine_s_name_is_refused_as_well():
    with pytest.raises(ToolError, match="this machine"):
        Egress().judge(read_url("http://localhost"), proxied=True)
    with pytest.raises(ToolError, match="private"):
        Egress().judge(read_url("http://10.0.0.1"), proxied=True)
    Egress(private=("localhost",)).judge(read_url("http://localhost"), proxied=True)
    Egress().judge(read_url("http://example.com"), proxied=True)


INSIDE = [
    *(
        "https://console.localhost:8443",
        "https://intranet",
        "https://INTRANET./x",
        "https://printer.local",
        "http://a.lan",
    ),
    *("https://vault.corp", "https://kubernetes.default.svc", "https://router.home.arpa", "https://wiki.internal:8443"),
    *("https://10.0.0.1.nip.io", "https://app.localtest.me"),
]


@pytest.mark.parametrize("url", INSIDE)
def test_a_name_that_others_resolve_is_refused_if_its_form_is_internal(url):
    there = read_url(url)
    with pytest.raises(ToolError, match=r"is a name of (this machine|an internal network)"):
        Egress().judge(there, proxied=True)
    Egress().judge(there)  # its addresses are judged once they are known
    Egress().reaching(there).judge(there, proxied=True)
    with pytest.raises(ToolError, match="not allowed"):
        Egress().reaching(read_url("https://docs.internal")).judge(there, proxied=True)


@pytest.mark.parametrize("host", ["metadata", "metadata.google.internal", "METADATA.google.internal."])
def test_no_setting_allows_a_metadata_name_through_a_proxy(host):
    there = read_url(f"https://{host}")
    with pytest.raises(ToolError, match="gives out credentials"):
        Egress().reaching(there).judge(there, proxied=True)


@pytest.mark.parametrize("host", ["example.com", "local.example.com", "internal.dev", "a.mylan"])
def test_a_public_name_that_others_resolve_is_allowed(host):
    Egress().judge(read_url(f"https://{host}"), proxied=True)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "closed"}, "one of open, allowlist, deny-all"),
        ({"domains": ("https://example.com",)}, "is not a host"),
        ({"domains": ("10.0.0.0/8",)}, "is not a domain"),
        ({"domains": ("a*.example",)}, "is not a valid host name"),
        ({"private": ("10.0.0.0/33",)}, "is not an address range"),
        ({"private": ("10.0.0.1/8",)}, "is not an address range"),
        ({"private": ("host:99999",)}, "invalid port"),
        ({"private": ("",)}, "is not a host"),
        ({"private": "127.0.0.1"}, "must be a list"),
        ({"private": (7,)}, "is not a host"),
    ],
)
def test_a_wrong_setting_is_an_error_at_once(settings, why):
    with pytest.raises(ValueError, match=why):
        Egress(**settings)


def test_the_running_call_has_its_own_egress():
    with use_egress(Egress("deny-all")):
        assert Egress.current().mode == "deny-all"
    assert Egress.current() == Egress()


def test_a_proxy_s_password_is_not_shown():
    assert "secret" not in repr(Egress(proxy="http://user:secret@proxy.example"))
