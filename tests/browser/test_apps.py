"""Apps of MCP servers: shown in a frame that reaches nothing but the tools of its own server."""

from __future__ import annotations

import json
import re
import socket
import sys

import pytest
from playwright.async_api import expect

from tests.browser.conftest import CONFIG, call
from tests.mcp import library

pytestmark = pytest.mark.browser


def board(own_console, folder, html=""):
    """A console with the library, whose tool `board` has an app."""
    servers = {"docs": {"command": sys.executable, "args": ["library.py", "old"]}}
    files = [library.HERE]
    if html:
        app = folder / "app.html"
        app.write_text(html, encoding="utf-8")
        files.append(app)
    return own_console(config=f"{CONFIG}\nmcpServers: {json.dumps(servers)}\n", files=tuple(files))


def finished(console):
    run = console.begin("show the board", call("docs__board"), "There it is.")
    question = console.question(run)
    console.post(f"/api/questions/{question['id']}/answer", {"kind": "once"})
    console.run_is(run, "finished")
    return run


@pytest.mark.slow
async def test_an_app_shows_a_result_and_may_only_call_tools_of_its_server(own_console, tabs, tmp_path):
    console = tabs.console = board(own_console, tmp_path)
    run = finished(console)
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


SEND = "new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:PORT' }] })"
REACH = (
    f"try {{ const c = {SEND}; c.createDataChannel('x'); c.setLocalDescription(); say('open') }}"
    " catch { say('closed') }"
)
TRIES = {
    "classic": "<script>function self() {} function globalThis() {}\nCODE</script>",
    "module": "<script type=module>const window = {}, self = {}; CODE</script>",
    "handler": """<form name=window></form><img src=x onerror="CODE">""",
    "bare": "<img src=x onerror=CODE>",
    "frame": """<iframe srcdoc="&lt;form name=window>&lt;/form>&lt;script>CODE&lt;/script>"></iframe>""",
    "late": "<script>{ const s = document.createElement('script'); s.text = `CODE`; document.body.append(s) }</script>",
    "commented": "<script><!--\nCODE\n--></script>",
    "unclosed": "<p title='>'><script>CODE",
}


@pytest.mark.slow
async def test_an_app_sends_nothing_by_webrtc(own_console, tabs, tmp_path):
    """No policy of a browser covers it. What runs at all, runs without it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.setblocking(False)
        port = heard.getsockname()[1]
        html = "<!doctype html><h1>Tries</h1><script>addEventListener('message', (e) => say(e.data))</script>"
        for name, markup in TRIES.items():
            tell = f"const say = (t) => parent.postMessage(&quot;{name} &quot; + t, &quot;*&quot;)"
            code = f"{{ {tell}; {REACH} }}".replace("PORT", str(port))
            quoted = name in ("handler", "bare", "frame")
            html += markup.replace("CODE", code if quoted else code.replace("&quot;", '"'))
        console = tabs.console = board(own_console, tmp_path, html)
        run = finished(console)
        tabs.expect(".")
        page = await tabs.open(f"#/runs/{run}")
        await page.evaluate("window.told = []; addEventListener('message', (e) => told.push(e.data))")
        await page.get_by_role("button", name=re.compile("docs__board")).click()
        await page.get_by_role("button", name="Show the app").click()
        await page.evaluate(
            """async () => {
                const all = ["classic closed", "module closed", "handler closed"]; // so these ran
                while (!all.every((one) => told.includes(one))) await new Promise((done) => setTimeout(done, 20));
            }"""
        )
        assert not [one for one in await page.evaluate("told") if str(one).endswith(" open")]
        with pytest.raises(BlockingIOError):
            heard.recv(1)
        # the twin: a page without the lock reaches the socket
        await page.evaluate(
            "(port) => { const c = new RTCPeerConnection({ iceServers: [{ urls: `stun:127.0.0.1:${port}` }] });"
            " c.createDataChannel('x'); return c.setLocalDescription(); }",
            port,
        )
        heard.settimeout(30)
        assert heard.recv(100)
