"""Configured webhooks on loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forge.core.context import Scope
from forge.core.errors import DefinitionError, ToolError
from forge.core.messages import ToolCall
from forge.core.spec import Category
from forge.network.egress import Egress
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.webhooks import WebhookTool, webhook
from tests.network.serving import Reply, page, redirect, serving

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def call(tool: WebhookTool, *policy: str, egress: Egress | None = None, **arguments: Any):
    executor = standard_executor(
        [tool], policy=rules(*(policy or ("allow network",))), egress=egress, secrets=tool.secrets
    )
    return await executor.execute(ToolCall(tool.spec.name, arguments), Scope())


async def test_the_payload_is_sent_as_json_and_the_answer_comes_back():
    async with serving(page("ok")) as server:
        tool = webhook("notify", f"{server.url}/hook?a=1", "Tells the team.", headers={"X-Sign": "s"})
        result = await call(tool, payload={"text": "Grüße"})
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/hook?a=1")
    assert json.loads(asked.body) == {"text": "Grüße"}
    assert (asked.headers["content-type"], asked.headers["x-sign"]) == ("application/json", "s")
    assert dict(result.data) == {"status": 200, "body": "ok", "truncated": False}
    assert result.for_llm == "HTTP 200 Whatever\n\nok"


async def test_with_a_schema_the_arguments_are_what_is_sent():
    async with serving(page("ok")) as server:
        tool = webhook("notify", server.url, parameters=SCHEMA, method="put", headers={"content-type": "text/json"})
        assert (await call(tool)).failure.kind == "validation_error"
        assert server.asked == []
        assert (await call(tool, text="hi")).success
    (asked,) = server.asked
    assert (asked.method, json.loads(asked.body)) == ("PUT", {"text": "hi"})
    assert asked.names.count("content-type") == 1
    assert asked.headers["content-type"] == "text/json"


def test_it_is_an_adapter_that_says_where_it_comes_from():
    spec = webhook("notify", "https://hooks.example.com/x", "Tells the team.").spec
    assert (spec.category, set(spec.permissions), spec.origin) == (Category.ADAPTER, {"network"}, "webhook:notify")
    assert spec.description.startswith("Tells the team.")


async def test_a_url_that_is_a_password_is_seen_by_nobody():
    token = "T0123ABCD/B0123ABCD/aBcDeFgHiJkLmNoPqRsTuVwX"
    async with serving(lambda asked: page(f"got {asked.path}, signed {asked.headers['authorization']}")) as server:
        url = f"{server.url}/services/{token}"
        tool = webhook("notify", url, "Tells.", headers={"Authorization": "Bearer 0123456789abcdef"})
        result = await call(tool, payload={})
        assert server.paths == [f"/services/{token}"]
    shown = json.dumps([tool.spec.to_function(), result.to_dict(), tool.targets({})])
    for secret in (token, "aBcDeFgHiJkLmNoPqRsTuVwX", "0123456789abcdef"):
        assert secret not in shown
    assert tool.targets({}) == [server.url]
    assert url in tool.secrets
    assert "127.0.0.1" in tool.spec.description


async def test_it_masks_its_url_itself_where_nobody_registered_it():
    moved = redirect("https://example.com/aBcDeFgHiJkL12345", 307)
    for answer in (lambda asked: page(f"got {asked.path}"), lambda asked: moved):
        async with serving(answer) as server:
            tool = webhook("notify", f"{server.url}/T0123/aBcDeFgHiJkL12345?key=short")
            executor = standard_executor([tool], policy=rules("allow network"))
            result = await executor.execute(ToolCall("notify", {"payload": {}}), Scope())
        assert result.success, result.for_llm
        shown = json.dumps(result.to_dict())
        assert "[secret]" in shown
        assert not [one for one in ("T0123", "aBcDeFgHiJkL12345", "short") if one in shown]


def test_a_url_without_secrets_masks_no_ordinary_words():
    assert webhook("notify", "https://example.com").secrets == ()
    assert webhook("notify", "https://example.com/api/notifications").secrets == (
        "https://example.com/api/notifications",
    )


async def test_its_own_place_is_reachable_unless_requests_are_switched_off():
    async with serving(page("ok")) as server, serving(page("no"), host="127.0.0.2") as other:
        tool = webhook("notify", server.url)
        for egress in (None, Egress(), Egress("allowlist", domains=("api.example.com",))):
            assert (await call(tool, egress=egress, payload={})).success
        refused = await call(tool, egress=Egress("deny-all"), payload={})
        assert refused.failure.kind == "security_error"
        assert len(server.asked) == 3
        server.answer = lambda _: redirect(f"{other.url}/x", 307)
        moved = await call(tool, payload={"secret": 1})
        assert (moved.data["status"], moved.data["location"]) == (307, f"{other.url}/x")
        assert other.opened == 0


async def test_rules_name_its_host():
    async with serving(page("ok")) as server:
        tool = webhook("notify", f"{server.url}/hook")
        assert (await call(tool, "allow network api.example.com", payload={})).failure.kind == "permission_error"
        assert server.opened == 0
        assert (await call(tool, "allow network 127.0.0.1", payload={})).success


async def test_a_failure_of_the_server_is_a_result_and_a_dead_one_an_error():
    async with serving(Reply([b"no"], 500)) as server:
        result = await call(webhook("notify", server.url), payload={})
        assert result.success
        assert result.data["status"] == 500
    gone = await call(webhook("notify", f"{server.url}/secret-path-0123456789"), payload={})
    assert gone.failure.kind == "system_error"
    assert "secret-path" not in gone.for_llm


async def test_a_long_answer_is_cut_and_says_so():
    async with serving(page("x" * 11)) as server:
        result = await call(webhook("notify", server.url, max_bytes=10), payload={})
    assert dict(result.data) == {"status": 200, "body": "x" * 10, "truncated": True}
    assert "only the first 10 bytes" in result.for_llm


async def test_what_is_no_text_is_attached():
    async with serving(page(b"\x89PNG\r\n\x1a\n\0\0", "image/png")) as server:
        result = await call(webhook("notify", server.url), payload={})
    assert [one.media_type for one in result.attachments] == ["image/png"]
    assert "image/png, 10 bytes, attached" in result.for_llm


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"url": "ftp://example.com"}, "webhook notify: the scheme ftp:"),
        ({"url": "https://user:pass@example.com/"}, "user name or password"),
        ({"headers": {"X": "a\r\nb"}}, "line break"),
        ({"headers": {"Host": "x"}}, "Host is set by the client"),
        ({"method": "GET"}, "not one of POST, PUT, PATCH"),
        ({"timeout": 0}, "is not a number of seconds above 0"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(given, why):
    with pytest.raises(ToolError, match=why) as refused:
        webhook(**{"name": "notify", "url": "https://example.com", **given})
    assert refused.value.kind == "config_error"


@pytest.mark.parametrize("given", [{"name": "no name"}, {"parameters": {"type": "array"}}])
def test_what_can_be_no_tool_is_refused_at_once(given):
    with pytest.raises(DefinitionError):
        webhook(**{"name": "notify", "url": "https://example.com", **given})
