"""Requests to servers on loopback, with an explicit allowance."""

from __future__ import annotations

import asyncio
import json

import pytest

from forge.network.egress import Egress
from forge.tools.http_request import HttpRequest
from tests.tools.serving_pages import HERE, Reply, Web, kind_of, page, redirect, serving, site


@pytest.fixture
def web(tmp_path):
    return Web(HttpRequest(), tmp_path)


async def test_the_answer_is_the_seeds_object(web):
    async with serving(page("Grüße", X_One="1")) as server:
        result = await web.call(method="GET", url=f"{server.url}/a?b=c")
    assert dict(result.data) == {
        "status": 200,
        "status_text": "Whatever",
        "headers": {"content-type": "text/plain; charset=utf-8", "x-one": "1", "content-length": "7"},
        "body": "Grüße",
        "truncated": False,
    }
    assert "HTTP 200 Whatever\n" in result.for_llm
    assert "\n\nGrüße\n</web_content " in result.for_llm
    assert server.paths == ["/a?b=c"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_every_method_is_sent(web, method):
    async with serving(page("x")) as server:
        result = await web.call(method=method, url=server.url)
    assert result.success, result.for_llm
    assert server.asked[0].method == method
    assert result.data["body"] == ("" if method == "HEAD" else "x")


async def test_another_method_is_refused_with_the_choices(web):
    async with serving(page("x")) as server:
        result = await web.call(method="TRACE", url=server.url)
        assert server.asked == []
    assert kind_of(result) == "validation_error"
    assert "PATCH" in result.for_llm


async def test_a_missing_page_is_a_result(web):
    async with serving(site({})) as server:
        result = await web.call(method="GET", url=f"{server.url}/nowhere")
    assert result.success
    assert (result.data["status"], result.data["body"]) == (404, "missing")


async def test_json_and_text_are_sent_as_they_are(web):
    async with serving(page("x")) as server:
        await web.call(method="POST", url=server.url, json={"a": ["ü", 1.5, None]})
        await web.call(method="POST", url=server.url, json='{"a": 1}')
        await web.call(method="POST", url=server.url, json="word", headers={"content-type": "application/vnd.x+json"})
        await web.call(method="PUT", url=server.url, body="a=1&b=ü", headers={"Content-Type": "text/x"})
    one, two, three, four = server.asked
    assert json.loads(one.body) == {"a": ["ü", 1.5, None]}
    assert (one.headers["content-type"], one.headers["content-length"]) == ("application/json", str(len(one.body)))
    assert json.loads(two.body) == {"a": 1}
    assert (three.body, three.headers["content-type"]) == (b'"word"', "application/vnd.x+json")
    assert (four.body, four.headers["content-type"]) == ("a=1&b=ü".encode(), "text/x")


async def test_body_and_json_together_are_refused(web):
    async with serving(page("x")) as server:
        result = await web.call(method="POST", url=server.url, json={}, body="x")
        assert server.asked == []
        assert (await web.call(method="POST", url=server.url, json={})).success
    assert kind_of(result) == "validation_error"


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-C: d"}, {"X-A": "b\nc"}, {"X-A\r\nB": "c"}, {"Host": "other"}])
async def test_a_header_that_would_be_two_is_refused_and_never_sent(web, headers):
    async with serving(page("x")) as server:
        result = await web.call(method="GET", url=server.url, headers=headers)
        assert kind_of(result) == "validation_error"
        assert server.asked == []
        assert (await web.call(method="GET", url=server.url, headers={"X-A": "b c"})).success
    assert server.asked[0].headers["x-a"] == "b c"


@pytest.mark.parametrize("size", [1_000, 1_001])
async def test_a_body_beyond_the_limit_is_cut_and_one_at_the_limit_is_not(tmp_path, size):
    web = Web(HttpRequest(max_bytes=1_000), tmp_path)
    async with serving(page(b"x" * size)) as server:
        result = await web.call(method="GET", url=server.url)
    assert result.data["body"] == "x" * 1_000
    assert result.data["truncated"] is (size > 1_000)
    assert ("only the first 1,000 bytes" in result.for_llm) is (size > 1_000)


async def test_a_binary_body_is_attached_and_never_text(web):
    content = b"\x89PNG\r\n\x1a\n\x00\x01\x02" * 50
    async with serving(page(content, "image/png")) as server:
        result = await web.call(method="GET", url=f"{server.url}/pictures/cat.png?x=1")
    (attachment,) = result.attachments
    assert (attachment.media_type, attachment.data, attachment.name) == ("image/png", content, "cat.png")
    assert result.data["body"] == ""
    assert result.data["attachment"] == "cat.png"
    assert "attached as cat.png" in result.for_llm
    assert "\x00" not in result.for_llm


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("Grüße".encode(), "text/plain; charset=iso-8859-1", "Grüße"),
        ("Grüße".encode("latin-1"), "text/plain; charset=utf-8", "Grüße"),
        ("Привет".encode("koi8-r"), "text/plain; charset=koi8-r", "Привет"),
        (b"ok \xff\xfe" + b"fine " * 100, "text/plain; charset=utf-8", "ok ��" + "fine " * 100),
    ],
)
async def test_charsets_that_lie_and_bytes_that_are_none_are_read_and_said(web, body, kind, text):
    async with serving(page(body, kind)) as server:
        result = await web.call(method="GET", url=server.url)
    assert result.data["body"] == text
    json.dumps(result.to_dict())


async def test_without_an_allowance_loopback_is_refused(tmp_path):
    async with serving(page("secret")) as server:
        for egress in (None, Egress(), Egress(mode="deny-all"), Egress(private=("127.0.0.1:1",))):
            result = await Web(HttpRequest(), tmp_path, egress).call(method="GET", url=server.url)
            assert kind_of(result) == "security_error"
        assert server.opened == 0
        allowed = Egress(private=(f"127.0.0.1:{server.port}",))
        assert (await Web(HttpRequest(), tmp_path, allowed).call(method="GET", url=server.url)).success


async def test_a_redirect_to_another_host_asks_the_gate_and_takes_no_secret_along(tmp_path):
    web = Web(HttpRequest(), tmp_path, Egress(private=("127.0.0.1", "127.0.0.2")))
    async with (
        serving(page("there"), host="127.0.0.2") as other,
        serving(redirect(f"{other.url}/x", 307)) as server,
    ):
        headers = {"X-Api-Key": "k", "Accept": "text/x"}
        result = await web.call(method="POST", url=server.url, json={"k": 1}, headers=headers)
        assert result.data["body"] == "there"
        assert web.asked == [("network", f"{other.url}/x")]
        web.refused = {f"{other.url}/x"}
        refused = await web.call(method="GET", url=server.url)
    (asked,) = other.asked
    assert (asked.method, asked.body) == ("POST", b"")
    assert "x-api-key" not in asked.headers
    assert asked.headers["accept"] == "text/x"
    assert kind_of(refused) == "permission_error"
    assert result.data["redirects"] == [f"{server.url}/"]


async def test_redirects_on_the_same_host_are_followed_without_asking_again(web):
    async with serving(site({"/a": redirect("/b", 302), "/b": page("here")})) as server:
        result = await web.call(method="GET", url=f"{server.url}/a")
    assert (result.data["body"], web.asked) == ("here", [])


async def test_redirects_in_a_circle_end(tmp_path):
    web = Web(HttpRequest(), tmp_path, Egress(private=("127.0.0.1", "127.0.0.2")))
    pages: dict[str, Reply] = {}
    async with serving(site(pages), host="127.0.0.2") as other, serving(site(pages)) as server:
        pages |= {"/a": redirect(f"{other.url}/b"), "/b": redirect(f"{server.url}/a")}
        result = await web.call(method="GET", url=f"{server.url}/a")
    assert kind_of(result) == "user_error"
    assert "redirects" in result.for_llm


async def test_a_server_that_says_nothing_is_given_up(web):
    async with serving(page("x")) as server:
        quick = await web.call(method="GET", url=server.url, timeout=5)

    async def never() -> None:
        await asyncio.Event().wait()

    async with serving(Reply([b"a", never], framing="chunked")) as server:
        result = await web.call(method="GET", url=server.url, timeout=0.2)
    assert quick.success
    assert kind_of(result) == "timeout"


async def test_long_json_in_one_line_is_spread_for_the_model_and_exact_for_programs(web):
    body = json.dumps({"items": [{"n": number, "big": 10**30} for number in range(200)]})
    async with serving(page(body, "application/json")) as server:
        result = await web.call(method="GET", url=server.url)
    assert result.data["body"] == body
    assert max(map(len, result.for_llm.splitlines())) < 500
    assert str(10**30) in result.for_llm


@pytest.mark.parametrize(
    "url", ["", "nope", "file:///etc/passwd", "ftp://x/", "http://a@b/", "http://x\r\ny/", "http://"]
)
async def test_what_is_no_url_is_refused(web, url):
    result = await web.call(method="GET", url=url)
    assert kind_of(result) == "validation_error"


def test_the_allowance_of_these_tests_is_explicit():
    assert HERE.private == ("127.0.0.1",)


async def test_a_redirect_to_another_port_asks_the_gate(web):
    async with serving(page("there")) as other, serving(redirect(f"{other.url}/x")) as server:
        result = await web.call(method="GET", url=server.url)
        assert result.data["body"] == "there"
        assert web.asked == [("network", f"{other.url}/x")]
        web.refused.add(f"{other.url}/x")
        assert kind_of(await web.call(method="GET", url=server.url)) == "permission_error"
    assert other.paths == ["/x"]


async def test_what_goes_wrong_after_a_redirect_says_so(web):
    async with serving(redirect("http://nowhere.invalid/")) as server:
        result = await web.call(method="GET", url=server.url)
    assert "after a redirect, the name nowhere.invalid cannot be resolved" in result.for_llm
    assert "after a redirect" not in (await web.call(method="GET", url="http://nowhere.invalid/")).for_llm
