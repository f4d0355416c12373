"""Apps of MCP servers: shown in a frame that reaches nothing but the tools of its own server."""

from __future__ import annotations

import json
import re
import sys

import pytest
from playwright.async_api import expect

from tests.browser.conftest import CONFIG, call
from tests.mcp import library

pytestmark = pytest.mark.browser


@pytest.mark.slow
async def test_an_app_shows_a_result_and_may_only_call_tools_of_its_server(own_console, tabs):
    servers = {"docs": {"command": sys.executable, "args": ["library.py", "old"]}}
    console = tabs.console = own_console(config=f"{CONFIG}\nmcpServers: {json.dumps(servers)}\n", files=(library.HERE,))
    run = console.begin("show the board", call("docs__board"), "There it is.")
    question = console.question(run)
    console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
    console.run_is(run, "finished")
    tabs.expect("CSP: connect-src|Content Security Policy|Failed to fetch")  # what the app tries
    tabs.expect("localStorage.*sandboxed")  # what the tests add to every page
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name=re.compile("docs__board")).click()
    await page.get_by_role("button", name="Show the app").click()
    frame = page.frame_locator("iframe.app-frame")
    await expect(frame.get_by_text("Board of 2 cards")).to_be_visible()
    await expect(frame.locator("#foreign")).to_have_text("an app may only call tools of its own server")
    await expect(frame.locator("#page")).to_have_text("closed")
    await expect(frame.locator("#web")).to_have_text("closed")
    asked = console.until(lambda: console.get("/api/questions")["questions"])
    assert [one["tool"] for one in asked] == ["docs__move"], "a person is asked about the app's call"
    console.post(f"/api/questions/{asked[0]['id']}/answer", {"kind": "once"})
    await expect(frame.locator("#moved")).to_have_text("move: {'to': 3}")
    element = page.locator("iframe.app-frame")
    assert await element.get_attribute("sandbox") == "allow-scripts"
    shown = console.client.get(f"{console.address}/apps/docs__board")
    assert "sandbox allow-scripts; default-src 'none'" in shown.headers["content-security-policy"]
    assert console.client.get(f"{console.address}/apps/docs__move").status_code == 404
