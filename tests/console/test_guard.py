"""Other sites, other names and other programs get nowhere; the page itself does."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forge.console.guard import HEADERS, MAX_BODY, ConsoleGuard, Entrance, new_key
from tests.console.conftest import flags_of, running_console
from tests.network.serving import is_closed, unfinished

PORT = 8485
OURS = f"http://127.0.0.1:{PORT}"


class Inside:
    """Says what reached it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
        self.seen.append((scope["method"], scope["path"], body))
        headers = [(b"content-type", b"text/plain"), (b"content-security-policy", b"default-src *")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"inside"})


class Door:
    def __init__(self) -> None:
        self.inside, self.entrance = Inside(), Entrance(new_key(), "born")
        transport = httpx2.ASGITransport(ConsoleGuard(self.inside, self.entrance, PORT))
        self.client = httpx2.AsyncClient(transport=transport, base_url=OURS)
        self.cookie = ""

    async def enter(self) -> httpx2.Response:
        found = await self.client.get("/enter", params={"token": self.entrance.new_link()})
        self.cookie = self.client.cookies.get(f"forge_console_{PORT}") or ""
        self.client.headers["x-forge-token"] = self.entrance.page_token(self.cookie)
        return found

    def headers(self, **changes: str | None) -> dict[str, str]:
        """Those of the page's own changes."""
        usual: dict[str, str | None] = {
            "x-forge-token": self.entrance.page_token(self.cookie),
            "content-type": "application/json",
            "origin": OURS,
            "sec-fetch-site": "same-origin",
        }
        given = {**usual, **{name.replace("_", "-"): value for name, value in changes.items()}}
        return {name: value for name, value in given.items() if value is not None}

    async def post(self, content: bytes = b"{}", **changes: str | None) -> httpx2.Response:
        self.client.headers.pop("x-forge-token", None)
        try:
            return await self.client.post("/api/x", content=content, headers=self.headers(**changes))
        finally:
            self.client.headers["x-forge-token"] = self.entrance.page_token(self.cookie)


@pytest.fixture
def door() -> Door:
    return Door()


async def test_the_page_itself_gets_in_and_may_change_things(door):
    entered = await door.enter()
    assert entered.status_code == 303
    assert entered.headers["location"] == f"/#/enter/{door.entrance.page_token(door.cookie)}"
    assert (await door.client.get("/api/runs")).text == "inside"
    assert (await door.post(b'{"a": 1}')).status_code == 200
    assert door.inside.seen == [("GET", "/api/runs", b""), ("POST", "/api/x", b'{"a": 1}')]


async def test_the_cookie_is_strict_and_no_script_reads_it(door):
    cookie = (await door.enter()).headers["set-cookie"]
    assert {"httponly", "samesite", "path", "max-age"} <= flags_of(cookie)
    assert "SameSite=Strict" in cookie


async def test_a_link_that_was_used_lets_nobody_in(door):
    token = door.entrance.new_link()
    assert (await door.client.get("/enter", params={"token": token})).status_code == 303
    door.client.cookies.clear()
    second = await door.client.get("/enter", params={"token": token})
    assert second.status_code == 401
    assert "set-cookie" not in second.headers
    assert "--url" in second.text


async def test_looking_at_a_link_does_not_use_it_up(door):
    token = door.entrance.new_link()
    assert (await door.client.head("/enter", params={"token": token})).status_code == 400
    fetched = await door.client.get("/enter", params={"token": token}, headers={"sec-purpose": "prefetch"})
    assert fetched.status_code == 400
    assert (await door.client.get("/enter", params={"token": token})).status_code == 303


async def test_a_link_opened_from_another_page_works_without_a_redirect(door):
    where = {"token": door.entrance.new_link()}
    found = await door.client.get("/enter", params=where, headers={"sec-fetch-site": "cross-site"})
    assert found.status_code == 200
    assert 'http-equiv="refresh"' in found.text
    assert "set-cookie" in found.headers


async def test_a_link_leads_to_a_run_and_nowhere_else(door):
    where = {"token": door.entrance.new_link(), "run": "run-12"}
    assert (await door.client.get("/enter", params=where)).headers["location"].endswith("/runs/run-12")
    where = {"token": door.entrance.new_link(), "run": "//evil.example/"}
    assert re.fullmatch(r"/#/enter/[0-9a-f]{64}", (await door.client.get("/enter", params=where)).headers["location"])


async def test_a_link_opened_from_another_page_leads_to_its_run(door):
    where = {"token": door.entrance.new_link(), "run": "run-12"}
    found = await door.client.get("/enter", params=where, headers={"sec-fetch-site": "cross-site"})
    assert re.search(r'content="0;url=/#/enter/[0-9a-f]{64}/runs/run-12"', found.text)
    where = {"token": door.entrance.new_link(), "run": '"><script>'}
    found = await door.client.get("/enter", params=where, headers={"sec-fetch-site": "cross-site"})
    assert "script" not in found.text


@pytest.mark.parametrize(
    "others",
    ['theme={"a":"b"}; ', "a=[]; bad name=x; ", 'x="never closed; ', "alone; ", f"forge_console_{PORT}=x; ", "é; "],
)
async def test_whatever_other_programs_keep_in_the_jar_our_cookie_counts(door, others):
    await door.enter()
    door.client.cookies.clear()
    ours = f"forge_console_{PORT}={door.cookie}"
    for jar in (others + ours, ours + "; " + others.rstrip("; ")):
        headers = {"cookie": jar.encode("latin-1")}
        assert (await door.client.get("/api/runs", headers=headers)).status_code == 200
        sent = {**{name: value.encode() for name, value in door.headers().items()}, **headers}
        assert (await door.client.post("/api/x", content=b"{}", headers=sent)).status_code == 200
    alone = await door.client.get("/api/runs", headers={"cookie": others.encode("latin-1")})
    assert alone.status_code == 401


async def test_a_cookie_of_another_console_does_not_count_here(door):
    await door.enter()
    door.client.cookies.clear()
    other = f"forge_console_{PORT + 1}={door.cookie}"
    assert (await door.client.get("/api/runs", headers={"cookie": other})).status_code == 401
    ours = f"forge_console_{PORT}={door.cookie}"
    assert (await door.client.get("/api/runs", headers={"cookie": f"{other}; {ours}"})).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/stream", "/static/js/api.js", "/api/me"])
async def test_without_the_cookie_nothing_is_shown(door, path):
    found = await door.client.get(path)
    assert found.status_code == 401
    assert "forge console --url" in found.text
    await door.enter()
    assert (await door.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "",
     f"0.0.0.0:{PORT}", f"127.0.0.2:{PORT}", f"localhost.evil.example:{PORT}", f"127.0.0.1:{PORT}@evil.example"],
)  # fmt: skip
async def test_a_name_that_was_led_here_is_not_answered(door, host):
    await door.enter()
    found = await door.client.get("/api/runs", headers={"host": host})
    assert found.status_code == 421
    assert door.inside.seen == []
    assert (await door.client.get("/api/runs")).status_code == 200


@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}", f"127.0.0.1:{PORT}"])
async def test_names_of_this_machine_are(door, host):
    await door.enter()
    cookies = {"cookie": f"forge_console_{PORT}={door.cookie}"}
    assert (await door.client.get("/api/runs", headers={"host": host, **cookies})).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8485", "http://127.0.0.1:8486", "http://localhost"]
)
async def test_other_origins_are_refused(door, origin):
    await door.enter()
    assert (await door.post(origin=origin)).status_code == 403
    assert (await door.client.get("/api/runs", headers={"origin": origin})).status_code == 403
    assert door.inside.seen == []
    assert (await door.post()).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something"])
async def test_requests_of_other_sites_are_refused_even_with_the_cookie(door, site):
    await door.enter()
    assert (await door.client.get("/api/runs", headers={"sec-fetch-site": site})).status_code == 403
    assert (await door.post(sec_fetch_site=site)).status_code == 403
    assert door.inside.seen == []


async def test_a_change_needs_the_pages_token_as_json(door):
    await door.enter()
    other = Entrance(new_key(), "born")
    for token in (None, "", "x", door.cookie, other.page_token(door.cookie)):
        found = await door.post(x_forge_token=token)
        assert found.status_code == 403, token
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert (await door.post(content_type=kind)).status_code == 415
    assert door.inside.seen == []
    assert (await door.post(content_type="application/json; charset=utf-8")).status_code == 200


async def test_whoever_was_given_the_cookie_alone_sees_nothing(door):
    """A browser sends it to every server of this machine: theirs could ask here, without any browser."""
    await door.enter()
    other = Entrance(new_key(), "born")
    del door.client.headers["x-forge-token"]
    for path in ("/api/me", "/api/runs", "/api/stream", "/api/runs/r/export"):
        for key in ("", "x", door.cookie, other.look_key(door.cookie), door.entrance.page_token(door.cookie)):
            found = await door.client.get(path, params={"key": key} if key else {})
            assert found.status_code == 403, (path, key)
            assert "forge console --url" in found.json()["error"]["next"]
    assert door.inside.seen == []
    key = door.entrance.look_key(door.cookie)
    assert (await door.client.get("/api/runs/r/export", params={"key": key})).status_code == 200
    assert (await door.post(x_forge_token=key)).status_code == 403, "what is in an address changes nothing"
    assert (await door.client.get("/static/js/api.js")).status_code == 200, "the page itself is no secret"


async def test_a_token_of_another_browser_does_not_count(door):
    await door.enter()
    first = door.entrance.page_token(door.cookie)
    await door.enter()
    assert (await door.post(x_forge_token=first)).status_code == 403
    assert (await door.post()).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_only_get_and_post_are_answered(door, method):
    await door.enter()
    assert (await door.client.request(method, "/api/x", headers=door.headers())).status_code == 405
    assert door.inside.seen == []


async def test_a_huge_body_is_refused_whether_it_says_so_or_not(door):
    await door.enter()
    assert (await door.post(b"x" * (MAX_BODY + 1))).status_code == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    found = await door.client.post("/api/x", content=pieces(), headers=door.headers())
    assert found.status_code == 413
    assert door.inside.seen == []
    assert (await door.post(b'"' + b"x" * (MAX_BODY - 2) + b'"')).status_code == 200


async def test_a_body_that_never_comes_is_not_waited_for(door, monkeypatch):
    monkeypatch.setattr("forge.console.guard.PATIENCE", 0.05)
    await door.enter()

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    assert (await door.client.post("/api/x", content=never(), headers=door.headers())).status_code == 408


async def test_every_answer_says_what_a_browser_may_do_with_it(door):
    answers = [await door.client.get("/"), await door.client.get("/api/x"), await door.enter()]
    answers += [await door.client.get("/"), await door.post(), await door.post(origin="null")]
    answers += [await door.client.get("/", headers={"host": "evil"}), await door.client.get("/enter?token=x")]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers.get_list(name) == [value], answer
        assert answer.headers["cache-control"] == "no-store"
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_refusals_of_the_api_are_json_in_words(door):
    error = json.loads((await door.client.get("/api/runs")).text)["error"]
    assert error["why"] == "permission_error"
    assert "forge console" in error["next"]


async def test_every_refusal_says_what_went_wrong_and_what_to_do(door):
    refused = [await door.client.get("/api/x"), await door.client.get("/api/x", headers={"host": "evil"})]
    await door.enter()
    refused += [await door.post(origin="null"), await door.post(sec_fetch_site="cross-site")]
    refused += [await door.post(x_forge_token="x"), await door.post(content_type="text/plain")]
    refused += [await door.post(b"x" * (MAX_BODY + 1)), await door.client.get(f"/api/{'x' * 5_000}")]
    refused += [await door.client.put("/api/x"), await door.client.post("/enter")]
    for answer in refused:
        error = answer.json()["error"]
        assert answer.status_code >= 400
        assert all(error[part] for part in ("what", "why", "next")), answer.text


async def test_headers_that_come_twice_count_as_none(door):
    await door.enter()
    twice = [("host", f"127.0.0.1:{PORT}"), ("host", f"127.0.0.1:{PORT}")]
    assert (await door.client.get("/api/runs", headers=twice)).status_code == 421


async def test_600_unfinished_requests_keep_the_page_working(tmp_path: Path) -> None:
    async with running_console(tmp_path, works=False) as console, unfinished(console.port, 600) as readers:
        for reader in readers[:450]:
            assert await is_closed(reader)
        assert "tools" in await console.get("/api/tools")
