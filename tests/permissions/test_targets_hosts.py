"""Network rules look at the host a URL really leads to, never at its text."""

from __future__ import annotations

import pytest

from tests.permissions.judging import decide


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        ("api.example.com", "https://api.example.com/v1?x=1", True),
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "api.example.com:8443/path", True),
        ("api.example.com", "//api.example.com/x", True),
        ("api.example.com", "HTTPS://API.EXAMPLE.COM/", True),
        ("API.example.com", "https://api.example.com./", True),
        ("api.example.com", "https://user:password@api.example.com/", True),
        ("api.example.com", "https://api.example.com.evil.org/", False),
        ("api.example.com", "https://evil.org/api.example.com", False),
        ("api.example.com", "https://evil.org/?u=api.example.com", False),
        ("api.example.com", "https://evil.org/#api.example.com", False),
        ("api.example.com", "https://evil.org?@api.example.com", False),
        ("api.example.com", "https://evil.org#@api.example.com", False),
        ("api.example.com", "https://api.example.com@evil.org/", False),
        ("api.example.com", "https://api.example.com:443@evil.org/", False),
        ("api.example.com", "https://evil.org\\@api.example.com/", False),
        ("api.example.com", "https://api.example.com\\@evil.org/", False),
        ("api.example.com", "https://a@evil.org@api.example.com/", False),
        ("api.example.com", "https://api.example.com@@evil.org/", False),
        ("api.example.com", "https://api.example.com%2eevil.org/", False),
        ("api.example.com", "https://api.example.com%00.evil.org/", False),
        ("api.example.com", "https://api.example.com\t.evil.org/", False),
        ("api.example.com", "https://api.example.com\n/", False),
        ("api.example.com", " https://api.example.com/", False),
        ("api.example.com", "https:/api.example.com/", False),
        ("api.example.com", "https:api.example.com", False),
        ("api.example.com", "https:///api.example.com", False),
        ("api.example.com", "https:\\\\api.example.com", False),
        ("api.example.com", "https://api.example.com:99999/", False),
        ("api.example.com", "https://api.example.com:４４３/", False),
        ("api.example.com", "curl https://api.example.com", False),
        ("api.example.com", "xapi.example.com", False),
        ("*.example.org", "https://a.example.org", True),
        ("*.example.org", "https://a.b.example.org", True),
        ("*.example.org", "https://example.org", False),
        ("*.example.org", "https://evilexample.org", False),
        ("*.example.org", "https://example.org.evil.com", False),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org/", False),
        ("example.org:443", "https://example.org/", True),
        ("example.org:80", "http://example.org/", True),
        ("example.org:443", "example.org", False),
        ("*.example.org:8443", "https://a.example.org:8443/", True),
        ("127.0.0.1", "http://127.0.0.1:8000/", True),
        ("127.0.0.1", "http://2130706433/", False),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("::1", "http://[0:0:0:0:0:0:0:1]/", True),
        ("::1", "http://[::2]/", False),
        ("münchen.de", "https://xn--mnchen-3ya.de/", True),
        ("xn--mnchen-3ya.de", "https://MÜNCHEN.de/", True),
        ("fass.de", "https://faß.de/", False),
        ("faß.de", "https://fass.de/", False),
        ("example.com", "https://ｅxample.com/", False),
        ("example.com", "https://exаmple.com/", False),  # a Cyrillic а
        ("example.com", "https://exam\u200bple.com/", False),
        ("*", "anything at all", True),
    ],
)
def test_an_allow_covers_a_host_only_where_every_client_goes_there(pattern, target, matches):
    assert decide([f"allow network {pattern}"], "network", target) == ("allow" if matches else "ask")


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.org/",
        "evil.org",
        "http://EVIL.org.:8080/x",
        "https://good.com@evil.org/",
        "https://evil.org\\@good.com/",
        "https://good.com\\@evil.org/",
        "https://evil.org%2f@good.com/",
        "https:/evil.org/",
        "https:evil.org",
        "https:///evil.org",
        "https:\\\\evil.org",
        "//evil.org",
        " https://evil.org",
        "https://ev\til.org/",
        "https://ev\nil.org/",
        "https://%65vil.org/",
        "https://a@evil.org@good.com/",
        "https://ｅvil.org/",
        "https://evil。org/",
        "https://EVIL.ORG:99999/",
    ],
)
def test_no_spelling_gets_around_a_denied_host(target):
    assert decide(["allow network", "deny network evil.org"], "network", target) == "deny"


@pytest.mark.parametrize(
    "target", ["https://good.com/evil.org", "https://good.com/?q=evil.org", "https://notevil.org", "https://a.evil.org"]
)
def test_a_host_that_is_only_mentioned_is_not_denied(target):
    assert decide(["allow network", "deny network evil.org"], "network", target) == "allow"


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
    ],
)
def test_no_spelling_gets_around_a_denied_address(target):
    assert decide(["allow network", "deny network 127.0.0.1"], "network", target) == "deny"
    assert decide(["allow network", "deny network 127.0.0.2"], "network", target) == "allow"


def test_a_denied_name_of_another_script_is_denied_in_both_spellings():
    for written in ("münchen.de", "xn--mnchen-3ya.de"):
        for sent in ("https://münchen.de", "https://MÜNCHEN.DE", "https://xn--mnchen-3ya.de"):
            assert decide(["allow network", f"deny network {written}"], "network", sent) == "deny"
    for written in ("faß.de", "fass.de"):
        assert decide(["allow network", f"deny network {written}"], "network", "https://faß.de") == "deny"


def test_a_denied_port_leaves_the_others():
    lines = ["allow network", "deny network example.org:22"]
    assert decide(lines, "network", "ssh://example.org:22") == "deny"
    assert decide(lines, "network", "https://example.org") == "allow"


@pytest.mark.parametrize(
    "target",
    [
        "\ud800",
        "http://\ud800.org",
        "[" * 100,
        "@" * 9_000,
        "a." * 5_000,
        "http://[::1",
        "%" * 50,
        "http://evil.com..",
        "http://.evil.com",
        "http://evil..com",
        "http://evil.com;good.com",
        "http://evil.com,good.com",
        "http://evil.com&good.com",
        "http://evil.com!/",
        "http://(evil.com)",
        "jar:http://evil.com!/",
        "view-source:http://evil.com",
        "blob:http://evil.com/1",
        "data:text/html,x",
        "http:evil.com",
        "http://evil.com:99999",
        "http://evil.com/\r\nHost: good.com",
        "http://[1:2]/",
        "http://[fe80::1%eth0]/",
        "http://1.2.3.4.5",
        "http://999.1.1.1",
        "http://4294967296",
        "http://" + "9" * 5_000,
        "http://evil.0x7f",
    ],
)
def test_an_odd_url_may_lead_anywhere(target):
    assert decide(["allow network", "deny network some.host"], "network", target) == "deny"
    assert decide(["allow network", "ask network *.some.host:22"], "network", target) == "ask"
    assert decide(["allow network good.com", "allow network evil.com"], "network", target) == "ask"
    assert decide(["allow network"], "network", target) == "allow"
    assert decide(["deny network some.host"], "network", "http://evil.com/") == "ask"
    assert decide(["allow network", "deny network some.host"], "network", "http://evil.com./") == "allow"


def test_an_odd_url_is_not_softened_by_an_ask_about_another_host():
    lines = ["allow network", "deny network evil.com", "ask network other.com"]
    assert decide(lines, "network", "http://evil.com;other.com") == "deny"
    assert decide(lines, "network", "http://other.com") == "ask"
    assert decide([*lines, "ask network evil.com"], "network", "http://evil.com") == "ask"


def test_no_target_is_not_an_odd_url():
    assert decide(["allow network example.org", "deny network evil.org"], "network", "") == "ask"
    assert decide(["deny network"], "network", "") == "deny"


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "http://localhost:8000/",
        "http://LOCALHOST./",
        "http://app.localhost/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://0.0.0.0/",
        "http://0/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://127.1.2.3/",
        "localhost",
    ],
)
@pytest.mark.parametrize("pattern", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"])
def test_every_name_of_this_machine_is_denied_with_any_of_them(pattern, target):
    assert decide(["allow network", f"deny network {pattern}"], "network", target) == "deny"
    assert decide(["allow network", "deny network 10.0.0.1"], "network", target) == "allow"


def test_an_allow_of_one_name_of_this_machine_is_no_allow_of_the_others():
    for target in ("http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://[64:ff9b::7f00:1]/"):
        assert decide(["allow network 127.0.0.1"], "network", target) == "ask"
    assert decide(["allow network 127.0.0.1"], "network", "http://127.0.0.1/") == "allow"


def test_an_address_inside_another_is_denied_in_both_spellings():
    for target in ("http://10.1.2.3/", "http://[64:ff9b::a01:203]/", "http://[::ffff:10.1.2.3]/"):
        assert decide(["allow network", "deny network 10.1.2.3"], "network", target) == "deny"
        assert decide(["allow network", "deny network 10.1.2.4"], "network", target) == "allow"


def test_a_leading_zero_is_read_both_ways():
    for address in ("8.0.0.1", "10.0.0.1"):
        assert decide(["allow network", f"deny network {address}"], "network", "http://010.0.0.1/") == "deny"
        assert decide(["allow network", f"deny network {address}"], "network", "http://11.0.0.1/") == "allow"


@pytest.mark.parametrize("scheme", ["ftp", "file", "ssh", "gopher", "ws", "jar", "ldap"])
def test_an_allowed_host_is_allowed_over_http_and_https_only(scheme):
    assert decide(["allow network good.com"], "network", f"{scheme}://good.com/") == "ask"
    assert decide(["allow network", "deny network good.com"], "network", f"{scheme}://good.com/") == "deny"
    for web in ("http", "https", "HTTPS"):
        assert decide(["allow network good.com"], "network", f"{web}://good.com/") == "allow"


def test_an_allowed_port_says_which_service_is_meant():
    assert decide(["allow network db.local:5432"], "network", "postgres://db.local:5432/x") == "allow"
    for other in ("postgres://db.local/x", "postgres://db.local:5433/x", "file://db.local:5432/etc/passwd"):
        assert decide(["allow network db.local:5432"], "network", other) == "ask"


def test_a_denied_port_is_denied_where_the_port_is_not_known():
    for target in ("example.org", "ssh://example.org"):
        assert decide(["allow network", "deny network example.org:22"], "network", target) == "deny"
    assert decide(["allow network", "deny network example.org:22"], "network", "example.org:80") == "allow"
