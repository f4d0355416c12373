"""One reading of a URL decides and connects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import read_redirect, read_url
from forge.permissions.targets import hosts

LOOPBACK = (
    "127.0.0.1 127.1 127.0.1 2130706433 017700000001 0x7f000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 0177.1 127.0.0.1. "
    "0x7F.0X0.0.0x1 ①②⑦.⓪.⓪.① １２７.0.0.1 127。0。0。1 127．0．0．1 127｡0｡0｡1 127.0.0.1。"
).split()
NAMES = {
    "example.com": "example.com",
    "EXAMPLE.com.": "example.com",
    "ｅｘａｍｐｌｅ.com": "example.com",
    "example。com": "example.com",
    "exam\u00adple.com": "example.com",
    "ⓔⓧⓐⓜⓟⓛⓔ.com": "example.com",
    "bücher.example": "xn--bcher-kva.example",
    "BÜCHER.example": "xn--bcher-kva.example",
    "bu\u0308cher.example": "xn--bcher-kva.example",
    "straße.example": "xn--strae-oqa.example",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "_dmarc.example.com": "_dmarc.example.com",
    "[::1]": "::1",
    "[0:0:0:0:0:0:0:1]": "::1",
    "[::ffff:127.0.0.1]": "::ffff:7f00:1",
    "[2606:4700::0001]": "2606:4700::1",
}
REFUSED = {
    "": "complete URL",
    "example.com": "complete URL",
    "//example.com": "complete URL",
    "http:example.com": "complete URL",
    "http:/example.com": "complete URL",
    "http:\\\\example.com": "complete URL",
    "ftp://example.com": "scheme ftp",
    "file:///etc/passwd": "scheme file",
    "gopher://127.0.0.1": "scheme gopher",
    "javascript://example.com/%0aalert(1)": "scheme javascript",
    "http://": "no readable host",
    "http:///example.com": "no readable host",
    "http://:80": "no readable host",
    "http://example.com:": "no readable host",
    "http://example.com:80:80": "no readable host",
    "http://example.com:８０": "no readable host",
    "http://example.com:0": "0 is not a valid port",
    "http://example.com:65536": "65536 is not a valid port",
    "http://user@example.com": "user name",
    "http://user:password@example.com": "user name",
    "http://example.com@127.0.0.1": "user name",
    "http://example.com\\@127.0.0.1": "user name",
    "http://127.0.0.1\\.example.com": "backslash",
    "http://example.com\\": "backslash",
    "http://127.0.0.1%2f.example.com": "% sign",
    "http://%31%32%37.0.0.1": "% sign",
    "http://[fe80::1%25eth0]": "% sign",
    "http://[fe80::1%eth0]": "% sign",
    "http://[127.0.0.1]": "not an IPv6",
    "http://[::1": "no readable host",
    "http://[::1]x": "no readable host",
    "http://[v1.x]": "not an IPv6",
    "http://127.0.0.256": "neither a name nor an address",
    "http://256.1": "neither a name nor an address",
    "http://1.2.3.4.5": "neither a name nor an address",
    "http://4294967296": "neither a name nor an address",
    "http://08.0.0.1": "neither a name nor an address",
    "http://0x": "neither a name nor an address",
    "http://example.0x": "neither a name nor an address",
    "http://example.1": "neither a name nor an address",
    "http://" + "9" * 5_000: "neither a name nor an address",
    "http://example..com": "is not a valid host name",
    "http://.example.com": "is not a valid host name",
    "http://example.com..": "is not a valid host name",
    "http://exa mple.com": "is not a valid host name",
    "http://exa!mple.com": "is not a valid host name",
    "http://" + "a" * 64 + ".com": "is not a valid host name",
    "http://" + "a." * 127 + "a": "is not a valid host name",
    "http://\u2048.example": "not a domain name",
    "http://xn--\ud800.example": "not a domain name",
    "http://a\u202e.example": "not a domain name",
    "http://\xadß.example": "different names by different programs",
    "http://Ａß.example": "different names by different programs",
    "http://example.com/\n": "control character",
    "http://exam\tple.com": "control character",
    "http://example.com/\x00": "control character",
    " http://example.com": "space",
    "http://example.com ": "space",
    "http://example.com/\ud800": "half a character",
    "http://example.com/" + "x" * 9_000: "longer than",
}


@pytest.mark.parametrize("spelling", LOOPBACK)
def test_every_spelling_of_an_address_is_that_address(spelling):
    url = read_url(f"http://{spelling}/x")
    assert (url.host, str(url.address)) == ("127.0.0.1", "127.0.0.1")
    assert str(url) == "http://127.0.0.1/x"


@pytest.mark.parametrize(("spelling", "host"), NAMES.items())
def test_a_name_has_one_spelling(spelling, host):
    assert read_url(f"https://{spelling}").host == host


@pytest.mark.parametrize(("text", "why"), REFUSED.items(), ids=lambda text: text[:40].encode("ascii", "replace"))
def test_what_clients_could_read_in_two_ways_is_refused(text, why):
    with pytest.raises(ToolError, match=why) as raised:
        read_url(text)
    assert raised.value.kind is ErrorKind.VALIDATION
    assert raised.value.suggestion


def test_the_rest_of_a_url_is_sent_as_it_is_written_where_that_can_be_sent():
    url = read_url("HTTPS://Example.com:443/a b/ä/%2F/\\x?q=ö&r=%20&s='#part")
    assert url.target == "/a%20b/%C3%A4/%2F/%5Cx?q=%C3%B6&r=%20&s='"
    assert (url.scheme, url.port, url.authority) == ("https", 443, "example.com")
    assert read_url("http://example.com?q=1").target == "/?q=1"
    assert read_url("http://[::1]:8080").authority == "[::1]:8080"


@pytest.mark.parametrize(
    ("location", "url"),
    {
        "/b": "http://example.com/b",
        "c?d": "http://example.com/a/c?d",
        "?e": "http://example.com/a/b?e",
        "//other.example/x": "http://other.example/x",
        "https://example.com": "https://example.com/",
        "http://0x7f.1/": "http://127.0.0.1/",
        "/ä": "http://example.com/%C3%A4",
    }.items(),
)
def test_a_redirect_leads_where_it_would_lead_a_browser(location, url):
    assert str(read_redirect(read_url("http://example.com/a/b"), location)) == url


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://a@b", "http://[::1", "/a\nb", "//[", "ftp:x"])
def test_a_redirect_to_anything_else_is_refused(location):
    with pytest.raises(ToolError, match=r"http://example\.com redirects to a URL that is not supported"):
        read_redirect(read_url("http://example.com"), location)


@pytest.mark.parametrize("spelling", [*LOOPBACK, *NAMES, *(text.removeprefix("http://") for text in REFUSED)])
def test_the_rules_read_the_same_host_as_the_client(spelling):
    _agree(f"http://{spelling}" if "//" not in spelling else spelling)


@given(some.text(alphabet="a1.-:/@[]%\\?#0x7f①。ä\u0308ß\u00ad_*", max_size=20))
def test_the_rules_read_the_same_host_as_the_client_whatever_comes(text):
    _agree(f"http://{text}")


def _agree(text: str) -> None:
    """What is connected to is among the names a deny is compared with; clear to the rules is clear to the client."""
    try:
        url = read_url(text)
    except ToolError:
        return
    host = hosts.read_host(text)
    assert not host.names or (url.host in host.names and host.port == url.port), (url, host)  # unreadable: denied
