"""Webhooks on loopback."""

from __future__ import annotations

import json

import pytest

from forge.core.spec import Category
from forge.network.egress import Egress
from forge.tools.webhook_call import WebhookCall
from tests.tools.serving_pages import Reply, Web, kind_of, page, redirect, serving


@pytest.fixture
def web(tmp_path):
    return Web(WebhookCall(), tmp_path)


async def test_the_payload_is_posted_as_json(web):
    async with serving(page("ok")) as server:
        result = await web.call(
            url=f"{server.url}/hook?a=1", payload={"text": "Grüße", "n": 1}, headers={"X-Sign": "s"}
        )
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/hook?a=1")
    assert json.loads(asked.body) == {"text": "Grüße", "n": 1}
    assert (asked.headers["content-type"], asked.headers["x-sign"]) == ("application/json", "s")
    assert dict(result.data) == {"status": 200, "body": "ok", "truncated": False}
    assert "\nok\n</web_content " in result.for_llm


async def test_it_is_an_adapter():
    assert WebhookCall.spec.category is Category.ADAPTER
    assert (set(WebhookCall.spec.permissions), WebhookCall.spec.target) == ({"network"}, "url")


async def test_a_failure_of_the_server_is_a_result(web):
    async with serving(Reply([b"no"], 500)) as server:
        result = await web.call(url=server.url, payload={})
    assert result.success
    assert result.data["status"] == 500


async def test_a_long_answer_is_cut_and_says_so(tmp_path):
    web = Web(WebhookCall(max_bytes=10), tmp_path)
    async with serving(page("x" * 11)) as server:
        result = await web.call(url=server.url, payload={})
    assert dict(result.data) == {"status": 200, "body": "x" * 10, "truncated": True}


async def test_a_payload_is_never_sent_on_to_another_host(tmp_path):
    web = Web(WebhookCall(), tmp_path, Egress(private=("127.0.0.1", "127.0.0.2")))
    async with (
        serving(page("there"), host="127.0.0.2") as other,
        serving(redirect(f"{other.url}/x", 307)) as server,
    ):
        result = await web.call(url=server.url, payload={"secret": 1})
    assert other.opened == 0
    assert (result.data["status"], result.data["location"]) == (307, f"{other.url}/x")


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-C: d"}, {"Content-Length": "0"}])
async def test_headers_that_would_break_the_request_are_refused(web, headers):
    async with serving(page("x")) as server:
        assert kind_of(await web.call(url=server.url, payload={}, headers=headers)) == "validation_error"
        assert server.asked == []
        assert (await web.call(url=server.url, payload={}, headers={"X-A": "b"})).success


async def test_without_an_allowance_loopback_is_refused(tmp_path):
    async with serving(page("x")) as server:
        assert kind_of(await Web(WebhookCall(), tmp_path, None).call(url=server.url, payload={})) == "security_error"
        assert server.opened == 0
        assert (await Web(WebhookCall(), tmp_path).call(url=server.url, payload={})).success
