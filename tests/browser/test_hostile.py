"""A page full of what agents meet: markup, escape sequences, what nobody sees, lines of 10 MB. All of it is text."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.async_api import expect

from forge.core.messages import Message
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome

pytestmark = pytest.mark.browser

MARKUP = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'><b onclick=pwn()>bold</b>"
ANSI = "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x1b[2J\x9b31m"
BIDI = "a\u202egnp.exe\u2066b\u200bc\u00ad\u2028d\U000e0041"
LINKS = "[click](javascript:window.pwned=3) https://evil.example/ ![x](https://evil.example/x.png)"
NASTY = "\n".join((MARKUP, ANSI, BIDI, LINKS))
SESSION = NASTY[:200]
LONG = "x" * 10_000_000
HIDDEN = re.compile("[\x1b\x07\x9b\u202e\u2066\u200b\u00ad\u2028\U000e0041]")


def nasty_run(console, name, *, output):
    """A run as the store might have it if everything that was ever said in it was hostile."""
    call = {"id": f"{MARKUP} {name}", "name": f"tool {MARKUP}", "arguments": {MARKUP: NASTY, "list": [MARKUP], "n": 1}}
    result = {
        "id": call["id"],
        "name": call["name"],
        "success": False,
        "is_error": True,
        "silent": False,
        "async": False,
    }
    texts = {"for_llm": output, "for_user": NASTY, "title": NASTY, "error": NASTY, "suggestion": NASTY}
    files = [{"name": f"../{MARKUP}.html", "media_type": "text/html", "size": 5, "index": 0}]
    result |= {**texts, "data": {MARKUP: NASTY}, "attachments": files}
    events: list[dict[str, Any]] = [
        {"event": "run_started", "prompt": NASTY},
        {"event": "text_delta", "text": f"{NASTY}\n```\n{NASTY}\n```\n"},
        {"event": "tool_call_start", "call": call},
        {"event": "tool_progress", "call": call, "title": NASTY, "data": {}},
        {"event": "tool_output_chunk", "call": call, "text": f"{NASTY}\n{output}\n{NASTY}\n"},
        {"event": "permission_asked", "call": call, "permission": NASTY, "target": NASTY, "rule": NASTY, "others": []},
        {"event": "permission_answered", "call": call, "answer": NASTY, "by": NASTY},
        {"event": "tool_call_end", "call": call, "success": False, "seconds": 1.0, "result": result},
        {"event": f"odd {MARKUP}", "anything": NASTY},
        {"event": "turn_finished", "turn": 1, "usage": {"input": 1, "output": 1, "cached": 0}},
        {"event": "run_finished", "text": f"{NASTY} end", "reason": NASTY, "turns": 1, "calls": 1, "usage": {},
         "cost": None, "error": NASTY},
    ]  # fmt: skip
    wire = {"ts": time.time(), "seq": 0, "session": SESSION, "agent": f"main {MARKUP}"}
    with RunStore(f"sqlite:///{console.workspace}/.forge/durable.db") as store:
        said = (Message("user", NASTY),)
        store.create(
            NewRun(id=name, agent=f"main {MARKUP}", session=SESSION, prompt=NASTY, messages=said, queue="none")
        )
        store.begin(name, 1, MARKUP)
        store.put_file(name, f"{MARKUP}.html", b"<script>window.pwned = 4</script>")
        store.add_events(name, [(None, wire | one) for one in events])
        ended = {"reason": "answer", "text": NASTY, "turns": 1, "calls": 1}
        store.close_segment(name, 1, Outcome(status="finished", messages=said, spent={}, result=ended))
    return name


async def check(page):
    assert await page.evaluate("window.pwned ?? null") is None
    shown = await page.locator("body").inner_text()
    assert not HIDDEN.search(shown), HIDDEN.findall(shown)
    assert await page.locator("main :is(img, script, b, iframe, object)").count() == 0
    links = await page.locator("a[href]").evaluate_all("(all) => all.map((one) => one.getAttribute('href'))")
    assert not [one for one in links if not one.startswith(("#/", "/api/"))]
    return shown


async def test_hostile_output_is_text_and_nothing_runs(console, tabs):
    run = nasty_run(console, "run-nasty", output=NASTY)
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_role("log")).to_contain_text("<script>window.pwned = 1</script>")
    await page.get_by_role("button", name=re.compile("^tool <script>")).click()
    for reading in ("For the person", "For the model", "Data", "JSON"):
        await page.get_by_role("tab", name=reading).click()
        shown = await check(page)
    assert "⟨U+202E⟩" in shown
    assert "red" in shown
    await page.get_by_text("Messages, files, details").click()
    await page.get_by_role("tab", name=re.compile("Files")).click()
    await check(page)
    async with page.expect_download() as started:
        await page.get_by_role("link", name=re.compile(r"\.html")).first.click()
    assert not (await started.value).suggested_filename.startswith("<")
    await page.goto(f"{console.address}/#/runs")
    await expect(page.get_by_role("link").filter(has_text="<script>").first).to_be_visible()
    await check(page)


KEPT = {
    *("id", "run", "root", "status", "kind", "state", "decision", "token", "next", "can", "waits", "pin", "by", "call"),
    *("event", "type", "permission", "demo", "last", "updated", "created"),
}
PLACES = ("#/", "#/runs", "#/runs?show=sessions", "#/tools", "#/tools/file_edit", "#/policy", "#/schedules",
          "#/memory?q=colour", "#/workers", "#/approvals")  # fmt: skip


def spoiled(value, key=""):
    """The same, with something hostile at the end of every text that is there to be read."""
    if isinstance(value, dict):
        return {name: spoiled(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [spoiled(one, key) for one in value]
    return f"{value}{NASTY}\x00" if isinstance(value, str) and key not in KEPT else value


@pytest.mark.slow
async def test_every_text_of_every_page_may_be_hostile(console, tabs):
    memory = console.workspace / ".forge" / "memory"
    memory.mkdir(exist_ok=True)
    (memory / "MEMORY.md").write_text("# Colours\nThe favourite colour is blue.\n")
    waits = console.begin(
        "ask hostile", {"call": "file_write", "arguments": {"path": "h.txt", "content": "x"}}, "Done."
    )
    console.question(waits)
    refused = console.begin("push it", {"call": "bash", "arguments": {"command": "git push x"}}, "Refused.")
    console.run_is(refused, "finished")
    page = await tabs.open("#/nothing", width=360, height=740)

    async def told(route):
        await route.fulfill(json=spoiled(await (await route.fetch()).json()))

    await page.route(re.compile("/api/(?!stream|me$)"), told)
    wide = {}
    for place in PLACES:
        await page.goto(f"{console.address}/{place}")
        await expect(page.locator("main:not([aria-busy])")).to_be_visible()
        await expect(page.get_by_text("window.pwned").first).to_be_attached()
        await check(page)
        wide[place] = await page.evaluate(
            """() => document.documentElement.scrollWidth <= 360 ? null : [...document.querySelectorAll("main *")]
              .filter((one) => one.getBoundingClientRect().right > 361).slice(0, 3)
              .map((one) => `${one.tagName}.${one.className}`)"""
        )
    assert not any(wide.values()), wide


@pytest.mark.slow
async def test_many_tools_with_endless_descriptions_do_not_stop_the_page(console, tabs):
    page = await tabs.open("#/nothing", width=360, height=740)
    (usual, *_) = console.get("/api/tools")["tools"]
    tools = [usual | {"name": f"tool_{number}", "description": f"{NASTY} {'d' * 20_000}"} for number in range(500)]
    await page.route("**/api/tools", lambda route: route.fulfill(json={"tools": tools, "problems": [NASTY]}))
    await page.goto(f"{console.address}/#/tools")
    await expect(page.locator(".tool-row")).to_have_count(500)
    await page.get_by_label("Search tools").fill("tool_49")
    await expect(page.locator(".tool-row")).to_have_count(11)
    await check(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
async def test_100_000_lines_and_wide_characters_can_all_be_reached(console, tabs):
    lines = "\n".join(f"line {number}" for number in range(100_000))
    run = nasty_run(console, "run-lines", output=f"{'漢' * 3_000}rm -rf\n{lines}")
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name=re.compile("^tool <script>")).click()
    await page.get_by_role("tab", name="For the model").click()
    await page.get_by_role("button", name="Show all").last.click()
    reading = page.get_by_role("group", name="For the model")
    await expect(reading.locator(".row").nth(5)).to_be_visible()
    # no row has anything that cannot be scrolled to
    assert await reading.evaluate(
        "(box) => [...box.querySelectorAll('.row')].every((row) => row.scrollWidth <= row.clientWidth + 1"
        " && row.offsetLeft + row.clientWidth <= box.scrollWidth)"
    )
    await reading.evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    await expect(reading.get_by_text("line 99999")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
async def test_numbers_are_shown_and_sent_as_they_were_written(console, tabs):
    large = 12345678901234567890123
    wanted = {"call": "file_read", "arguments": {"path": "/etc/hostname", "offset": large}}
    page = await tabs.open("#/tools/file_read")
    await page.get_by_role("tab", name="JSON").first.click()
    await page.get_by_label("Arguments as JSON").fill(f'{{"path": "x", "offset": {large}}}')
    async with page.expect_request("**/check") as sent:
        await page.get_by_role("button", name="Check").click()
    assert (await sent.value).post_data_json["arguments"]["offset"] == large
    await page.get_by_role("tab", name="Form").first.click()
    await expect(page.get_by_label(re.compile("^offset"))).to_have_value(str(large))
    run = console.begin("read far", wanted, "Done.")
    await page.goto(f"{console.address}/#/runs/{run}")
    console.run_is(run, "finished", "waiting")
    await page.get_by_role("button", name=re.compile("^file_read")).click()
    await expect(page.get_by_role("log").get_by_text(str(large)).first).to_be_visible()


@pytest.mark.slow
async def test_a_line_of_10_mb_does_not_stop_the_page(console, tabs):
    run = nasty_run(console, "run-long", output=LONG)
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name=re.compile("^tool <script>")).click()
    await page.get_by_role("tab", name="For the model").click()
    reading = page.get_by_role("group", name="For the model")
    await expect(reading).to_contain_text("xxxx")
    assert len(await page.locator("body").inner_text()) < 200_000
    await page.get_by_role("button", name="Show all").last.click()
    await expect(page.get_by_role("group", name="For the model").locator(".row").nth(5)).to_be_visible()
    started = time.monotonic()
    await page.get_by_role("group", name="For the model").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert time.monotonic() - started < 30
    assert len(await page.locator("body").inner_text()) < 200_000
    await check(page)


async def test_a_tool_writes_hostile_text_while_it_is_looked_at(console, tabs):
    (console.workspace / "hostile.txt").write_text(NASTY)
    run = console.begin(
        "read hostile", {"call": "file_read", "arguments": {"path": "hostile.txt"}}, f"It says: {MARKUP} {BIDI}"
    )
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_role("log")).to_contain_text("It says: <script>")
    await page.get_by_role("button", name=re.compile("file_read")).click()
    shown = await check(page)
    assert "<script>" in shown
