"""Logins of users at one server: each has tokens, a connection and a session, and nobody gets another's."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forge import Agent, Scope, Scripted, ToolCall, ToolResult, rules
from forge.core.errors import DefinitionError, ToolError
from forge.core.registry import ToolRegistry, mount_source
from forge.mcp import Http, OAuth, mcp
from forge.mcp.client import users as users_module
from forge.mcp.client.mcp_call import McpResource
from forge.mcp.client.source import McpSource
from forge.mcp.oauth import login as login_module
from forge.mcp.oauth.login import LoginNeeded
from forge.mcp.pins import Pins
from forge.permissions.questions import Answer, PermissionRequest
from forge.pipeline import standard_executor
from tests.mcp.oauth_site import UserSite, visit
from tests.mcp.remote import until
from tests.mcp.server.issuing import issuing
from tests.mcp.server.test_auth import protected
from tests.network.serving import serving

SERVICE = "https://service.example.com/callback"


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if it were not installed
    return tmp_path / "data"


@asynccontextmanager
async def site() -> AsyncIterator[UserSite]:
    found = UserSite()
    async with serving(found) as web:
        found.base = web.url
        yield found


def docs(there: UserSite, **options: Any) -> McpSource:
    auth = OAuth(per_user=True, redirect_url=SERVICE)
    return mcp(Http(f"{there.base}/mcp", auth=auth), name="docs", **options)


def opens_as(person: str, server: McpSource, *, user: str | None = None) -> Callable[[str], Awaitable[None]]:
    """Opens the page of a login in the browser of a person; the service knows who its user is."""

    async def show(url: str) -> None:
        server.take_redirect(await visit(url, person), user=person if user is None else user)

    return show


async def log_in(server: McpSource, *people: str) -> None:
    for person in people:
        show = opens_as(person or "service", server, user=person)
        assert await server.log_in(person, show)


class Desk:
    """Calls the tools as users do; `approve` is the person who is asked."""

    def __init__(self, approve: Any = None) -> None:
        self.registry = ToolRegistry()
        self.executor = standard_executor(self.registry, policy=rules("allow *"), approve=approve)

    async def call(self, user: str, tool: str = "docs__token", **arguments: Any) -> ToolResult:
        return await self.executor.execute(ToolCall(tool, arguments), Scope(session_id=f"of {user}", user=user))


async def test_every_user_has_a_token_and_a_session_and_calls_run_side_by_side(data_home: Path) -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        await log_in(server, "", "ada", "bob")
        assert len(list((data_home / "forge/mcp-logins").iterdir())) == 3
        async with mount_source(desk.registry, server):
            said = await asyncio.gather(*(desk.call(user) for user in ["ada", "bob"] * 5))
            assert [one.for_llm.split("\n")[0] for one in said] == ["ada with [secret]", "bob with [secret]"] * 5
            assert sorted(set(there.sessions.values())) == ["ada", "bob", "service"]
            assert len(there.sessions) == 3  # one each, however many calls
            assert there.mixed == []
        await until(lambda: not there.sessions)  # all are closed with the source
        assert "service" not in there.calls


async def test_an_agent_calls_for_the_user_of_its_scope() -> None:
    async with site() as there:
        server = docs(there)
        await log_in(server, "", "ada", "bob")
        call = ToolCall("docs__token", {})
        model = Scripted(call, "done", call, "done")
        async with Agent(model, tools=[server], policy=rules("allow *")) as agent:
            for user in ("ada", "bob"):
                await agent.run("Whoami?", scope=Scope(user=user))
        assert there.calls == ["ada", "bob"]


async def test_a_user_who_is_not_logged_in_is_refused_and_nobody_elses_login_is_used() -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        await log_in(server, "", "ada")
        async with mount_source(desk.registry, server):
            refused = await desk.call("mallory")
            assert refused.failure is not None
            assert "it needs a login of mallory" in refused.for_llm
            assert refused.failure.suggestion == "Ask the person to run `forge mcp login docs --user mallory`."
            nobody = await desk.call("")
            assert "this call has no user" in nobody.for_llm
            for name in ("ada ", "Ada", "ada\n", "../ada", f"{there.base}/mcp"):
                assert (await desk.call(name)).failure is not None, name
            assert there.calls == []
            assert (await desk.call("ada")).success  # the twin


async def test_a_person_who_is_there_is_asked_and_the_call_goes_on() -> None:
    async with site() as there:
        server = docs(there)
        asked: list[str] = []

        async def approve(request: PermissionRequest) -> Answer:
            asked.append(request.question)
            (url,) = re.findall(r"http://\S+", request.question.split("It says")[0].partition("\n")[2])
            user = request.scope.user
            server.take_redirect(await visit(url, user), user=user)
            return Answer.ONCE

        desk = Desk(approve)
        await log_in(server, "")
        async with mount_source(desk.registry, server):
            said = await asyncio.gather(*(desk.call("ada") for _ in range(3)))
            assert [one.for_llm.split("\n")[0] for one in said] == ["ada with [secret]"] * 3
            assert len(asked) == 1  # and not once a call
            assert "Log in as ada" in asked[0]
            there.valid = {token for token, owner in there.owners.items() if owner == "service"}
            there.refuses_refresh = True
            assert (await desk.call("ada")).success  # the token was withdrawn in the middle of a session
            assert len(asked) == 2


async def test_a_person_who_says_no_and_a_page_that_nobody_opens_are_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as there:
        server = docs(there)
        answers = [Answer.no(), Answer.ONCE]

        async def approve(request: PermissionRequest) -> Answer:
            return answers.pop(0)

        desk = Desk(approve)
        await log_in(server, "")
        async with mount_source(desk.registry, server):
            assert "it needs a login of ada" in (await desk.call("ada")).for_llm
            monkeypatch.setattr(login_module, "PATIENCE", 0.05)
            assert "no one logged in within" in (await desk.call("ada")).for_llm
            assert there.calls == []


async def test_a_server_that_refuses_a_token_for_a_while_does_not_log_its_user_out() -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        await log_in(server, "", "ada")
        async with mount_source(desk.registry, server):
            kept, there.valid = there.valid, {token for token, owner in there.owners.items() if owner != "ada"}
            there.refuses_refresh = True
            assert "its stored login of ada is no longer valid" in (await desk.call("ada")).for_llm  # nobody is asked
            there.valid = kept
            assert (await desk.call("ada")).success


async def test_a_page_that_another_user_opens_gives_nobody_a_token() -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        await log_in(server, "")
        async with mount_source(desk.registry, server):
            pages: asyncio.Queue[str] = asyncio.Queue()
            logging_in = asyncio.create_task(server.log_in("mallory", pages.put))
            url = await pages.get()  # mallory sends it to ada, who opens it and agrees
            redirect = await visit(url, "ada")
            with pytest.raises(ToolError, match="no login of ada at docs waits for this redirect"):
                server.take_redirect(redirect, user="ada")
            with pytest.raises(ToolError, match="no login of mallory at docs waits"):
                server.take_redirect(f"{SERVICE}?code=code-of-ada&state=guessed", user="mallory")
            assert (await desk.call("mallory")).failure is not None
            server.take_redirect(await visit(url, "mallory"), user="mallory")  # the twin: the login still waits
            assert await logging_in
            assert (await desk.call("mallory")).for_llm == "mallory with [secret]"


async def test_a_redirect_from_another_thread_ends_the_login_at_once() -> None:
    async with site() as there:
        server = docs(there)
        pages: asyncio.Queue[str] = asyncio.Queue()
        logging_in = asyncio.create_task(server.log_in("ada", pages.put))
        redirect = await visit(await pages.get(), "ada")
        with pytest.raises(ToolError, match="no login of the service itself at docs waits") as refused:
            server.take_redirect(redirect, user="")
        assert "user=" in refused.value.suggestion
        asyncio.get_running_loop().set_debug(True)  # what is not safe in a thread raises then
        with ThreadPoolExecutor(1) as thread:
            failure = thread.submit(server.take_redirect, redirect, user="ada").exception()
        if failure is not None:
            logging_in.cancel()  # nobody else ends it
            raise failure
        with pytest.raises(ToolError, match="no login of ada at docs waits"):  # it was taken
            server.take_redirect(redirect, user="ada")
        assert await logging_in


async def test_tokens_are_renewed_for_their_user_only_and_a_logout_ends_the_session() -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        await log_in(server, "", "ada", "bob")
        async with mount_source(desk.registry, server):
            await asyncio.gather(desk.call("ada"), desk.call("bob"))
            there.requests.clear()
            there.valid = {token for token, owner in there.owners.items() if owner != "ada"}
            said = await asyncio.gather(desk.call("ada"), desk.call("bob"), desk.call("ada"))
            assert [one.for_llm.split()[0] for one in said] == ["ada", "bob", "ada"]
            assert [one["refresh_token"] for one in there.requests] == ["refresh-of-ada"]
            assert await server.log_out("ada") == []
            assert {one["token"] for one in there.revoked} >= {"refresh-of-ada"}
            assert "ada" not in there.sessions.values()
            assert (await desk.call("ada")).failure is not None
            assert (await desk.call("bob")).success


async def test_connections_are_bounded_and_close_when_nobody_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "MOST_USERS", 2)
    async with site() as there:
        server, desk = docs(there), Desk()
        people = [f"user{number}" for number in range(4)]
        await log_in(server, "", *people)
        async with mount_source(desk.registry, server):
            for person in people:
                assert (await desk.call(person)).success
            await until(lambda: sorted(there.sessions.values()) == ["service", "user2", "user3"])
            monkeypatch.setattr(users_module, "IDLE", 0.0)
            assert (await desk.call("user0")).success
            await until(lambda: "user0" not in there.sessions.values())
            assert (await desk.call("user0")).success  # it opens again


async def test_tools_are_listed_with_the_own_login_or_taken_from_the_approvals(tmp_path: Path) -> None:
    async with site() as there:
        server = docs(there)
        with pytest.raises(LoginNeeded) as failed:
            await server.__aenter__()
        assert "This login only lists the tools" in failed.value.suggestion
        await log_in(server, "", "ada")
        pinned = docs(there, pins=Pins(tmp_path / "pins.json"))
        async with pinned:
            await pinned.approve(*pinned.tools, by="a person")
        await docs(there).log_out("")
        desk = Desk()
        async with mount_source(desk.registry, docs(there, pins=Pins(tmp_path / "pins.json"))):
            assert (await desk.call("ada")).for_llm == "ada with [secret]"


async def test_resources_are_read_as_the_user_and_prompts_by_nobody() -> None:
    async with site() as there:
        server, desk = docs(there), Desk()
        desk.registry.add(McpResource({"docs": server}))
        await log_in(server, "", "ada")
        async with server:
            assert (await desk.call("ada", "mcp_resource", server="docs")).for_llm == "docs has no resources."
            await until(lambda: "ada" in there.sessions.values())
            assert (await desk.call("bob", "mcp_resource", server="docs")).failure is not None
            with pytest.raises(ToolError, match="nobody's call asks it"):
                await server.list_prompts()


async def test_a_server_of_the_sdk_behind_a_real_issuer_knows_its_users_apart() -> None:
    async with issuing() as issuer, protected(issuer) as url:
        auth = OAuth(per_user=True, redirect_url=SERVICE, client_id="service", issuer=issuer.url)
        server, desk = mcp(Http(url, auth=auth), name="docs"), Desk()
        await log_in(server, "", "ada", "bob")
        async with mount_source(desk.registry, server):
            said = await asyncio.gather(*(desk.call(user, "docs__whoami") for user in ("ada", "bob", "ada")))
            known = [one.data["structured"] for one in said]
            assert [one["user"] for one in known] == ["ada", "bob", "ada"]
            assert known[0]["session"] == known[2]["session"] != known[1]["session"]
            before = len(issuer.granted)
            refused = await desk.call("mallory", "docs__whoami")
            assert "it needs a login of mallory" in refused.for_llm
            assert len(issuer.granted) == before  # nobody's login was used or renewed for it


async def test_a_redirect_of_this_machine_needs_no_service() -> None:
    async with site() as there:
        server = mcp(Http(f"{there.base}/mcp", auth=OAuth(per_user=True)), name="docs")

        async def show(url: str) -> None:
            location = await visit(url, "ada")
            async with httpx2.AsyncClient(trust_env=False) as client:
                assert (await client.get(location)).status_code == 200

        assert await server.log_in("ada", show)
        assert await server.log_out("ada") == []


def test_a_grant_without_a_person_has_no_users() -> None:
    with pytest.raises(DefinitionError, match="no person logs in"):
        OAuth(grant="client_credentials", client_id="a", client_secret="b", per_user=True)
