"""Headers are checked before they are sent."""

from __future__ import annotations

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.network.address import read_url
from forge.network.headers import build_headers, check_headers, drop_body_headers, keep_harmless


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "\n", "a\x00b", "a\x7f", "a\x1b[1m", "\ud800"])
def test_a_value_is_one_line(value):
    with pytest.raises(ToolError, match="header X-Token has") as raised:
        check_headers({"X-Token": value})
    assert raised.value.kind is ErrorKind.VALIDATION
    assert value not in raised.value.message  # it may be a secret


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "a\n", "ä", "a\x00", " a", "x" * 201])
def test_a_name_is_a_name(name):
    with pytest.raises(ToolError, match="not a valid header name"):
        check_headers([(name, "x")])


@pytest.mark.parametrize(
    "name", ["Host", "HOST", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Proxy-Authorization"]
)
def test_where_a_request_goes_and_ends_is_not_the_caller_s(name):
    with pytest.raises(ToolError, match="set by the client itself"):
        check_headers({name: "x"})


def test_everything_else_is_sent_as_given():
    pairs = check_headers(
        [("X-Api-Key", " key "), ("Cookie", "a=1"), ("cookie", "b=2"), ("X-Name", "Zoë\tZ"), ("Accept-Encoding", "br")]
    )
    assert pairs == [("x-api-key", "key"), ("cookie", "a=1"), ("cookie", "b=2"), ("x-name", "Zoë\tZ")]
    sent = build_headers(read_url("https://example.com:444/x"), pairs, b"", "GET")
    assert sent[0] == (b"host", b"example.com:444")
    assert (b"accept-encoding", b"gzip, deflate") in sent
    assert (b"x-name", "Zoë\tZ".encode()) in sent
    assert not any(name == b"content-length" for name, _ in sent)
    assert (b"content-length", b"0") in build_headers(read_url("http://example.com"), [], b"", "POST")


def test_too_many_are_refused():
    with pytest.raises(ToolError, match="more than 100"):
        check_headers([("a", "b")] * 101)
    with pytest.raises(ToolError, match="32 KiB"):
        check_headers({"a": "x" * 40_000})
    assert len(check_headers([("a", "b")] * 100)) == 100


def test_another_server_sees_nothing_in_which_a_secret_could_be():
    pairs = [(name, "secret") for name in "authorization cookie x-api-key x-custom referer content-type origin".split()]
    kept = [("accept", "text/html"), ("accept-language", "de"), ("user-agent", "me")]
    assert keep_harmless([*pairs, *kept]) == kept
    assert drop_body_headers([("content-type", "a"), ("content-encoding", "b"), ("accept", "c")]) == [("accept", "c")]
