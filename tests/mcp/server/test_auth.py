"""The MCP server over HTTP as a protected resource of a real issuer on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from contextlib import asynccontextmanager

import httpx2
import jwt
import pytest

from forge import ToolCall, ToolContext, ToolRegistry, mcp, rules, tool
from forge.core.context import Scope
from forge.core.errors import DefinitionError
from forge.mcp import Http, OAuth
from forge.mcp.server import ElicitingApprover, ResourceAuth, serve_http
from forge.mcp.server import auth as issuer_module
from forge.permissions.questions import approve_all
from forge.pipeline import standard_executor
from tests.mcp.server.issuing import Key, TestIssuer, issuing
from tests.mcp.server.test_http import INITIALIZE, connected, post

TOKEN = "a-token-that-is-long-enough"
ERAS = ("legacy", "2026-07-28")
SCOPES = {"tools:read": ("read",), "tools:ship": ("read", "tool:dep*"), "tools:all": ("*",)}


@tool
def add(a: int, b: int = 1) -> dict:
    """Add two numbers."""
    return {"sum": a + b}


@tool(permissions={"read"}, target="name")
def look(name: str) -> str:
    """Look something up."""
    return f"{name}: fine"


@tool(permissions={"execute"}, target="service")
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is live"


@tool
def whoami(ctx: ToolContext) -> dict:
    """Say who calls."""
    return {"user": ctx.scope.user, "session": ctx.scope.session_id}


@asynccontextmanager
async def protected(issuer: TestIssuer, token: str = "", **settings):
    """The server; its URL is its resource."""
    executor = standard_executor(
        ToolRegistry([add, look, deploy, whoami]), policy=rules("allow *"), approve=ElicitingApprover()
    )
    ready = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        auth = ResourceAuth(issuer=issuer.url, resource=url, **settings)
        serving = asyncio.create_task(
            serve_http(executor, Scope(), listening=listening, token=token, auth=auth, ready=ready.set)
        )
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield url
        finally:
            serving.cancel()
            await asyncio.wait({serving}, timeout=60)


async def status(url, token, content=INITIALIZE):
    answer = await post(url, content, authorization=f"Bearer {token}" if token else None)
    return answer.status_code


def call(name, /, **arguments):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def called(url, token, tool_name, /, **arguments):
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool_name}
    return await post(url, call(tool_name, **arguments), authorization=f"Bearer {token}", **headers)


@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_with_a_token_of_the_issuer(era):
    async with issuing() as issuer, protected(issuer) as url, connected(url, era, issuer.token(url)) as client:
        assert {one.name for one in (await client.list_tools()).tools} == {"add", "look", "deploy", "whoami"}
        assert (await client.call_tool("add", {"a": 2})).structured_content == {"sum": 3}
        assert issuer.asked == ["metadata", "keys"], "the keys are read once"


async def test_forge_itself_finds_the_issuer_and_logs_in():
    async with issuing() as issuer, protected(issuer, required_scopes=("tools",), scopes=SCOPES) as url:
        credentials = OAuth(
            grant="client_credentials",
            client_id="robot",
            client_secret="very-secret-indeed",
            issuer=issuer.url,
            scopes=["tools:all"],
        )
        server = mcp(Http(url, auth=credentials), name="ours")
        registry = ToolRegistry([])
        async with server as tools:
            registry.add(*tools)
            executor = standard_executor(registry, approve=approve_all)
            result = await executor.execute(ToolCall("ours__deploy", {"service": "shop"}), Scope())
            assert result.for_llm == "shop is live"
        assert issuer.granted[0]["resource"] == url
        assert issuer.granted[0]["scope"].split() == ["tools", "tools:all"], "the server's and the configured ones"


async def test_a_client_without_a_token_is_told_where_to_get_one():
    async with issuing() as issuer, protected(issuer, required_scopes=("tools",), scopes=SCOPES) as url:
        answer = await post(url, authorization=None)
        assert answer.status_code == 401
        where = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        assert answer.headers["www-authenticate"] == f'Bearer scope="tools", resource_metadata="{where}"'
        async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
            for place in (where, where.removesuffix("/mcp")):
                found = (await http.get(place)).json()
                assert found["resource"] == url
                assert found["authorization_servers"] == [issuer.url]
                assert found["scopes_supported"] == ["tools", *SCOPES]
            assert (await http.get(where, headers={"host": "evil.example"})).status_code == 421


def forged(issuer, url, kind):
    good = issuer.token(url)
    other = Key("first")
    shared = base64.urlsafe_b64decode(issuer.keys[0].public["x"] + "==")
    claims = {"iss": issuer.url, "aud": url, "sub": "alice", "exp": int(time.time()) + 300}
    return {
        "none": jwt.encode(claims, "", "none"),
        "symmetric": jwt.encode(claims, shared, "HS256", {"kid": "first"}),
        "another key of the same name": issuer.token(url, other),
        "unknown key": issuer.token(url, Key("unknown")),
        "expired": issuer.token(url, exp=int(time.time()) - 60),
        "not yet": issuer.token(url, nbf=int(time.time()) + 600),
        "no expiry": issuer.token(url, exp=None),
        "another resource": issuer.token(url + "x"),
        "no audience": issuer.token(url, aud=None),
        "another issuer": issuer.token(url, iss="https://evil.example"),
        "bound to a key": issuer.token(url, cnf={"jkt": "x"}),
        "changed": good[:-8] + "AAAAAAAA",
        "garbage": "not-a-token",
        "deep": base64.urlsafe_b64encode(b'{"alg":' + b"[" * 5000).decode() + ".e30.x",
        "huge": good + "x" * 20_000,
    }[kind]


KINDS = (
    *("none", "symmetric", "another key of the same name", "unknown key", "expired", "not yet", "no expiry"),
    *("another resource", "no audience", "another issuer", "bound to a key", "changed", "garbage", "deep", "huge"),
)


async def test_tokens_that_are_not_for_this_server_are_refused():
    async with issuing() as issuer, protected(issuer) as url:
        for kind in KINDS:
            answer = await post(url, authorization=f"Bearer {forged(issuer, url, kind)}")
            assert answer.status_code == 401, kind
            assert 'error="invalid_token"' in answer.headers["www-authenticate"], kind
        assert await status(url, issuer.token(url)) == 200
        assert await status(url, issuer.token("x", aud=["x", url])) == 200


async def test_an_audience_of_ones_own():
    async with issuing() as issuer, protected(issuer, audience=("forge",)) as url:
        assert await status(url, issuer.token(url)) == 401
        assert await status(url, issuer.token("forge")) == 200


async def test_keys_rotate_and_unknown_keys_cost_the_issuer_little(monkeypatch):
    async with issuing() as issuer, protected(issuer) as url:
        old = issuer.token(url)
        assert await status(url, old) == 200
        issuer.keys = [Key("second")]
        for _ in range(5):
            assert await status(url, issuer.token(url)) == 401, "the keys were read a moment ago"
        assert issuer.asked.count("keys") == 1
        monkeypatch.setattr(issuer_module, "AGAIN", 0.0)
        assert await status(url, issuer.token(url)) == 200
        assert issuer.asked.count("keys") == 2
        assert await status(url, old) == 401, "a key that the issuer withdrew"


async def test_without_the_issuer_no_token_is_accepted(monkeypatch):
    monkeypatch.setattr(issuer_module, "RETRY", 0.0)
    async with issuing() as issuer:
        port = int(issuer.url.rpartition(":")[2])
    async with protected(issuer, token=TOKEN) as url:
        answer = await post(url, authorization=f"Bearer {issuer.token(url)}")
        assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)
        assert await status(url, TOKEN) == 200, "the fixed token needs no issuer"
        async with issuing(issuer, port):
            assert await status(url, issuer.token(url)) == 200
        assert await status(url, issuer.token(url)) == 200, "its keys are known for a while"
        monkeypatch.setattr(issuer_module, "FRESH", 0.0)
        monkeypatch.setattr(issuer_module, "LONGEST_WITHOUT_KEYS", 0.0)
        assert await status(url, issuer.token(url)) == 503


async def test_an_issuer_that_calls_itself_something_else_is_not_used():
    issuer = TestIssuer()
    issuer.named = "https://other.example"
    async with issuing(issuer), protected(issuer) as url:
        assert await status(url, issuer.token(url)) == 503


async def test_every_request_needs_the_required_scopes():
    async with issuing() as issuer, protected(issuer, required_scopes=("tools",)) as url:
        answer = await post(url, authorization=f"Bearer {issuer.token(url, scope='other')}")
        assert answer.status_code == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert 'scope="tools"' in answer.headers["www-authenticate"]
        assert await status(url, issuer.token(url, scope="other tools")) == 200
        assert await status(url, issuer.token(url, scp=["tools"])) == 200


async def test_scopes_say_which_tools_may_be_called():
    async with issuing() as issuer, protected(issuer, scopes=SCOPES) as url:
        reading, shipping = issuer.token(url, scope="tools:read"), issuer.token(url, scope="tools:ship")
        assert (await called(url, reading, "look", name="x")).status_code == 200
        assert (await called(url, reading, "add", a=1)).status_code == 200, "it needs no permission"
        answer = await called(url, reading, "deploy", service="x")
        assert answer.status_code == 403
        assert 'scope="tools:read tools:ship"' in answer.headers["www-authenticate"]
        assert (await called(url, shipping, "deploy", service="x")).status_code == 200
        answer = await called(url, issuer.token(url, scope=""), "add", a=1)
        assert answer.status_code == 403, "no scope allows nothing"
        assert await status(url, issuer.token(url, scope="")) == 200, "but a client may introduce itself"


async def test_a_body_is_read_as_it_was_checked():
    async with issuing() as issuer, protected(issuer, scopes=SCOPES) as url:
        reading = issuer.token(url, scope="tools:read")
        doubled = json.dumps(call("deploy", service="x")).replace(
            '"name": "deploy"', '"name": "look", "name": "deploy"'
        )
        hidden = json.dumps(call("look", name="x")).replace('"name": "look"', '"name": "deploy", "name": "look"', 1)
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
        sent = {"authorization": f"Bearer {reading}", **headers}
        assert (await post(url, doubled.encode(), mcp_name="deploy", **sent)).status_code == 403
        assert "x: fine" in (await post(url, hidden.encode(), mcp_name="look", **sent)).text
        assert (await post(url, b"[]", **sent)).status_code == 400
        assert (await post(url, b"{", **sent)).status_code == 400


async def test_the_issuer_can_be_asked_about_each_token():
    credentials = {"client_id": "forge", "client_secret": "very-secret-indeed"}
    async with issuing() as issuer, protected(issuer, required_scopes=("tools",), **credentials) as url:
        known = {"active": True, "aud": url, "scope": "tools", "sub": "alice", "exp": int(time.time()) + 300}
        issuer.active = {
            "opaque-and-fine": known,
            "opaque-elsewhere": {**known, "aud": "https://other.example"},
            "opaque-foreign": {**known, "iss": "https://other.example"},
            "opaque-late": {**known, "exp": int(time.time()) - 300},
            "opaque-narrow": {**known, "scope": "other"},
        }
        answers = {one: await status(url, one) for one in (*issuer.active, "opaque-unknown")}
        assert list(answers.values()) == [200, 401, 401, 401, 403, 401]
        asked = issuer.asked.count("introspection")
        assert await status(url, "opaque-and-fine") == 200
        assert issuer.asked.count("introspection") == asked, "the answer counts for some seconds"


async def test_a_connection_belongs_to_its_user():
    async with issuing() as issuer, protected(issuer) as url:
        alice, bob = issuer.token(url), issuer.token(url, sub="bob")
        session = (await post(url, authorization=f"Bearer {alice}")).headers["mcp-session-id"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        foreign = await post(url, ping, authorization=f"Bearer {bob}", mcp_session_id=session)
        assert foreign.status_code in (403, 404)
        own = await post(url, ping, authorization=f"Bearer {issuer.token(url)}", mcp_session_id=session)
        assert own.status_code == 200


@pytest.mark.parametrize("era", ERAS)
async def test_calls_carry_their_user_and_users_do_not_share_a_session(era):
    async with issuing() as issuer, protected(issuer) as url:
        found = []
        for token in (issuer.token(url), issuer.token(url), issuer.token(url, sub="bob"), issuer.token(url, sub=None)):
            async with connected(url, era, token) as client:
                found.append((await client.call_tool("whoami", {})).structured_content)
        assert [one["user"] for one in found] == ["alice", "alice", "bob", "app"]
        assert found[1]["session"] != found[2]["session"]
        assert (found[0]["session"] == found[1]["session"]) == (era != "legacy"), "a connection is a session of its own"


BROKEN = (
    {"issuer": "http://login.example.com"},
    {"issuer": "login.example.com"},
    {"resource": "https://x.example/mcp?a=1"},
    {"required_scopes": ("a b",)},
    {"scopes": {"a": ("reed",)}},
    {"client_id": "x"},
)


@pytest.mark.parametrize("changes", BROKEN, ids=str)
def test_settings_that_make_no_sense_are_refused(changes):
    good: dict = {"issuer": "https://login.example.com", "resource": "https://x.example/mcp"}
    assert ResourceAuth(**good).metadata_url == "https://x.example/.well-known/oauth-protected-resource/mcp"
    with pytest.raises(DefinitionError):
        ResourceAuth(**{**good, **changes})


def test_a_secret_is_not_in_the_repr():
    settings = ResourceAuth(
        issuer="https://login.example.com", resource="https://x.example/mcp", client_id="x", client_secret="hush-hush"
    )
    assert "hush" not in repr(settings)
