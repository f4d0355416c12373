"""OAuth at MCP servers: a person logs in once, runs use and renew the login, and nobody sees a token."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import types
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forge.core.errors import DefinitionError, ErrorKind, ToolError
from forge.core.registry import mount_source
from forge.mcp import Http, OAuth, mcp
from forge.mcp.client.mcp_call import McpCall
from forge.mcp.client.source import McpSource
from forge.mcp.oauth.authorizer import Proofs, log_in, revoke_login
from forge.mcp.oauth.login import Login, LoginNeeded, TokenStore, listen_for_redirect, read_redirect
from forge.network.egress import Egress, use_egress
from tests.mcp.oauth_site import Site, browser
from tests.mcp.remote import Desk
from tests.network.serving import serving


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if it were not installed
    return tmp_path / "data"


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    found = Site()
    async with serving(found) as web:
        found.base = web.url
        yield found


def login_of(server: McpSource) -> Login:
    assert server.login is not None
    return server.login


async def tools_of(server: McpSource) -> list[str]:
    async with server:
        return [tool.remote for tool in server.tools]


async def test_a_run_never_logs_in_by_itself_and_says_how_a_person_does(data_home: Path) -> None:
    async with site() as there:
        server = mcp(f"{there.base}/mcp", name="docs")
        with pytest.raises(LoginNeeded) as failed:
            await tools_of(server)
        assert failed.value.kind is ErrorKind.CONFIG
        assert failed.value.message == f"{there.base} answered 401: it needs a login"
        assert failed.value.suggestion == "Ask the person to run `forge mcp login docs`."
        assert not there.registered
        assert await log_in(login_of(server), browser())
        assert await tools_of(mcp(f"{there.base}/mcp", name="docs")) == ["token"]
        (stored,) = (data_home / "forge/mcp-logins").iterdir()
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        assert "access-token-1" in stored.read_text()
        assert login_of(server).store.clear()
        with pytest.raises(LoginNeeded):
            await tools_of(server)


async def test_an_expired_login_is_renewed_once_without_a_person() -> None:
    async with site() as there:
        server = mcp(f"{there.base}/mcp", name="docs")
        await log_in(login_of(server), browser())
        desk = Desk()
        async with mount_source(desk.registry, server):
            there.valid = set()
            said = await asyncio.gather(*(desk.call("docs__token") for _ in range(5)))
            assert all(result.success for result in said)
        assert [one["grant_type"] for one in there.requests] == ["authorization_code", "refresh_token"]
        assert there.requests[-1]["resource"] == f"{there.base}/mcp"
        there.valid = set()
        assert await tools_of(mcp(f"{there.base}/mcp", name="docs")) == ["token"]
        assert len(there.requests) == 3
        there.valid, there.refuses_refresh = set(), True
        with pytest.raises(LoginNeeded, match="its stored login is no longer valid"):
            await tools_of(mcp(f"{there.base}/mcp", name="docs"))


async def test_a_login_that_expired_while_nothing_ran_is_renewed_first() -> None:
    async with site() as there:
        server = mcp(f"{there.base}/mcp", name="docs")
        await log_in(login_of(server), browser())
        store = login_of(server).store
        store.write(there.base, {**store.read(), "expires_at": 1.0})
        before = there.asked
        assert await tools_of(mcp(f"{there.base}/mcp", name="docs")) == ["token"]
        assert there.requests[-1]["grant_type"] == "refresh_token"
        assert there.asked == before + 4  # discover, initialize, initialized, list: none was refused


async def test_no_token_is_shown() -> None:
    async with site() as there:
        server = mcp(f"{there.base}/mcp", name="docs")
        await log_in(login_of(server), browser())
        desk = Desk()
        async with mount_source(desk.registry, server):
            there.valid = set()  # so that a token is used that was not known before
            assert (await desk.call("docs__token")).for_llm == "you sent Bearer [secret]"
        assert {"access-token-2", "refresh-token"} <= set(server.secrets)
        assert "token-2" not in repr((server, server.login, login_of(server).settings))


async def test_a_token_that_is_bound_to_a_key_is_sent_with_a_fresh_proof() -> None:
    async with site() as there:
        there.is_bound = True
        server = mcp(f"{there.base}/mcp", name="docs")
        await log_in(login_of(server), browser())
        assert await tools_of(mcp(f"{there.base}/mcp", name="docs")) == ["token"]  # the key is stored, too
        assert len(there.proofs) == len(set(there.proofs)) > 3
        assert any("BEGIN PRIVATE KEY" in secret for secret in server.secrets)
        store = login_of(server).store
        store.write(there.base, {**store.read(), "proof_key": Proofs().pem})
        with pytest.raises(LoginNeeded):
            await tools_of(mcp(f"{there.base}/mcp", name="docs"))


async def test_scopes_of_the_settings_are_asked_for_and_the_client_is_registered_once() -> None:
    async with site() as there:
        server = mcp(Http(f"{there.base}/mcp", auth=OAuth(scopes=["docs:read"])), name="docs")
        await log_in(login_of(server), browser())
        await log_in(login_of(server), browser())
        assert there.scopes == ["docs:read", "docs:read"]
        assert len(there.registered) == 1
        assert there.registered[0]["application_type"] == "native"


async def test_client_credentials_need_no_person() -> None:
    auth = OAuth(grant="client_credentials", client_id="me", client_secret="a-long-secret")
    async with site() as there:
        assert await tools_of(mcp(Http(f"{there.base}/mcp", auth=auth), name="docs")) == ["token"]
        assert there.requests[0]["grant_type"] == "client_credentials"
        other = mcp(Http(f"{there.base}/mcp", auth=replace(auth, issuer="https://login.example.com")), name="docs")
        with pytest.raises(ToolError, match=r"login\.example\.com"):
            await tools_of(other)
        assert len(there.requests) == 1  # the secret goes to the configured issuer only


async def test_configured_scopes_are_added_to_those_of_client_credentials() -> None:
    async with site() as there:
        auth = OAuth(grant="client_credentials", client_id="robot", client_secret="very secret indeed")
        assert await tools_of(
            mcp(Http(f"{there.base}/mcp", auth=replace(auth, scopes=["docs:read", "docs:list"])))
        ) == ["token"]
        assert there.requests[0]["scope"] == "docs:read docs:list"
        assert await tools_of(mcp(Http(f"{there.base}/mcp", auth=auth))) == ["token"]
        assert "scope" not in there.requests[1]


async def test_logging_out_revokes_the_tokens_at_the_issuer() -> None:
    async with site() as there:
        login = login_of(mcp(f"{there.base}/mcp", name="docs"))
        assert await log_in(login, browser())
        assert await revoke_login(login) == []
        assert [(one["token"], one["client_id"]) for one in there.revoked] == [
            ("refresh-token", "client-0"),
            ("access-token-1", "client-0"),
        ]
        there.revocation = 503
        (problem,) = await revoke_login(login)
        assert problem == f"{there.base} did not revoke the refresh token: it answered 503"


async def test_an_issuer_that_is_gone_or_revokes_nothing_is_named() -> None:
    async with site() as there:
        login = login_of(mcp(f"{there.base}/mcp", name="docs"))
        assert await log_in(login, browser())
        ((issuer, record),) = login.store.read_all().items()
        login.store.write(issuer, {**record, "server": {**record["server"], "revocation_endpoint": None}})
        assert await revoke_login(login) == [f"{issuer} cannot revoke tokens"]
        login.store.write(issuer, record)
    (problem,) = await revoke_login(login)
    assert "did not revoke the refresh token" in problem
    assert "did not answer" in problem


async def test_an_authorization_server_at_a_private_address_must_be_configured() -> None:
    async with site() as there, site() as inside:
        there.issuer, inside.resource = inside, f"{there.base}/mcp"
        with pytest.raises(ToolError, match="is not allowed: 127"):
            await log_in(login_of(mcp(f"{there.base}/mcp", name="docs")), browser())
        assert not inside.registered
        named = mcp(Http(f"{there.base}/mcp", auth=OAuth(issuer=inside.base)), name="docs")
        assert await log_in(login_of(named), browser())
        assert await tools_of(named) == ["token"]


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "registration_endpoint", "token_endpoint"])
async def test_metadata_that_names_an_endpoint_inside_leads_nowhere(endpoint: str) -> None:
    """Not even the person's browser opens a page there."""
    async with site() as there, site() as inside:
        there.elsewhere = {endpoint: f"{inside.base}/{endpoint.removesuffix('_endpoint')}"}
        with pytest.raises(ToolError, match="is not allowed: 127"):
            await log_in(login_of(mcp(f"{there.base}/mcp", name="docs")), browser())
        assert not inside.seen
        there.elsewhere = {}
        assert await log_in(login_of(mcp(f"{there.base}/mcp", name="docs")), browser())


@pytest.mark.parametrize(
    "page",
    [
        *("https://console.localhost:8443/x", "https://metadata.google.internal/x", "https://intranet/x"),
        *("https://printer.local/x", "https://vault.service.consul/x", "https://Wiki.Corp./x"),
    ],
)
async def test_a_login_page_at_a_name_inside_is_not_shown(page: str) -> None:
    """Its name does not resolve here; it may where the person's browser runs."""
    shown: list[str] = []

    async def show(url: str) -> None:
        shown.append(url)
        raise ToolError("the person looks at it")

    async with site() as there:
        there.elsewhere = {"authorization_endpoint": page}
        server = mcp(f"{there.base}/mcp", name="docs")
        with pytest.raises(ToolError, match="is not allowed: ") as refused:
            await log_in(login_of(server), replace(browser(), show=show))
        assert (shown, refused.value.kind) == ([], ErrorKind.SECURITY)
        there.elsewhere = {"authorization_endpoint": "https://login.example.invalid/x"}
        with pytest.raises(ToolError, match="the person looks at it"):
            await log_in(login_of(server), replace(browser(), show=show))
        assert shown[0].startswith("https://login.example.invalid/x?")


async def test_a_login_page_at_a_name_inside_is_shown_if_the_server_is_there() -> None:
    login = login_of(mcp(Http("https://intranet/mcp", auth=OAuth(issuer="https://sso.corp:8443")), name="docs"))
    for page in ("https://intranet/authorize", "https://sso.corp:8443/authorize"):
        await login.check_page(page)
    for page in ("https://intranet:9000/authorize", "https://other.corp:8443/authorize"):
        with pytest.raises(ToolError, match="is a name of an internal network"):
            await login.check_page(page)


def test_a_token_is_not_asked_for_without_encryption() -> None:
    login = login_of(
        mcp(Http("https://docs.example.com/mcp", auth=OAuth(issuer="http://login.example.com")), name="docs")
    )
    for url in ("https://other.example.com/token", "http://login.example.com/token", "http://127.0.0.1:1/token"):
        login.check_encrypted(url)
    with pytest.raises(ToolError, match="is not encrypted") as failed:
        login.check_encrypted("http://other.example.com/token")
    assert failed.value.kind is ErrorKind.SECURITY


async def test_a_model_may_not_use_a_login_of_a_server_that_is_not_configured() -> None:
    async with site() as there:
        server = mcp(f"{there.base}/mcp", name="docs")
        await log_in(login_of(server), browser())
        desk = Desk()
        desk.registry.add(McpCall({"docs": server}))
        assert (await desk.call("mcp_call", server=f"{there.base}/mcp", tool_name="token")).success
        other = Desk()
        other.registry.add(McpCall({}))
        with use_egress(Egress(private=("127.0.0.1",))):
            refused = await other.call("mcp_call", server=f"{there.base}/mcp", tool_name="token")
        assert "the header Authorization is missing" in refused.for_llm


async def test_a_server_that_asks_for_no_login_is_not_logged_in_at() -> None:
    async with site() as there:
        there.valid = {""}
        assert not await log_in(login_of(mcp(f"{there.base}/mcp", name="docs")), browser())
        assert not there.registered


async def test_the_listener_takes_the_redirect_and_nothing_else() -> None:
    async def show(url: str) -> None:
        async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
            origin = url.rpartition("/")[0]
            assert (await client.get(f"{origin}/favicon.ico")).status_code == 404
            assert "You are logged in" in (await client.get(f"{url}?code=c&state=s&iss=i")).text

    async with listen_for_redirect(0, show) as found:
        await found.show(found.redirect_url)
        assert await found.wait() == ("c", "s", "i")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/callback?error=access_denied&error_description=no%1b[31m", "the login was refused: access"),
        ("http://127.0.0.1/callback", "has no code"),
    ],
)
def test_a_redirect_without_a_code_is_explained(url: str, why: str) -> None:
    with pytest.raises(ToolError, match=why) as failed:
        read_redirect(url)
    assert "\x1b" not in failed.value.message
    assert failed.value.suggestion


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"grant": "password"}, "the grant is one of authorization_code"),
        ({"grant": "client_credentials", "client_id": "me"}, "needs client_secret or private_key"),
        ({"grant": "workload"}, "needs assertion"),
    ],
)
def test_settings_that_cannot_work_are_refused(auth: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        OAuth(**auth)
    with pytest.raises(TypeError, match="client"):
        OAuth(client="x")  # type: ignore[call-arg]


def test_a_login_and_a_header_that_authorizes_exclude_each_other() -> None:
    headers = {"authorization": "Bearer x"}
    with pytest.raises(DefinitionError, match="a header Authorization, not both"):
        Http("https://docs.example.com/mcp", headers=headers, auth=OAuth(client_id="me"))
    assert mcp(Http("https://docs.example.com/mcp", headers=headers)).login is None


def test_a_login_is_not_stored_in_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="lies in the workspace") as failed:
        TokenStore("https://docs.example.com/mcp", tmp_path).write("i", {"tokens": {}})
    assert "XDG_DATA_HOME" in failed.value.suggestion
    TokenStore("https://docs.example.com/mcp", tmp_path / "project").write("i", {"tokens": {"a": 1}})
    assert TokenStore("https://docs.example.com/mcp").read() == {"tokens": {"a": 1}}


def test_a_link_into_the_workspace_is_no_way_around(tmp_path: Path, data_home: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (data_home / "forge").parent.mkdir(parents=True, exist_ok=True)
    (data_home / "forge").symlink_to(project)
    with pytest.raises(ToolError, match="lies in the workspace"):
        TokenStore("https://docs.example.com/mcp", project).write("i", {"tokens": {}})
    assert not [*project.iterdir()]


def test_the_keyring_is_used_where_it_works(monkeypatch: pytest.MonkeyPatch, data_home: Path) -> None:
    kept: dict[tuple[str, str], str] = {}
    keyring: Any = types.ModuleType("keyring")
    keyring.get_password = lambda service, name: kept.get((service, name))
    keyring.set_password = lambda service, name, value: kept.update({(service, name): value})
    keyring.delete_password = lambda service, name: kept.pop((service, name))
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    store = TokenStore("https://docs.example.com/mcp")
    store.write("i", {"tokens": 1})
    assert json.loads(kept["forge mcp", "https://docs.example.com/mcp"]) == {"i": {"tokens": 1}}
    assert not data_home.exists()
    assert store.read() == {"tokens": 1}
    assert store.clear()
    assert not store.clear()

    def broken(*_: Any) -> None:
        raise RuntimeError("no backend")

    keyring.set_password = keyring.get_password = broken
    store.write("i", {"tokens": 2})
    assert store.read() == {"tokens": 2}
    assert os.listdir(data_home / "forge/mcp-logins")
