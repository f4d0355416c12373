"""Tools, policy, schedules, memory and workers, as a person uses them."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import time
from contextlib import closing

import pytest
from playwright.async_api import expect

from forge.schedules.schedule import Source
from forge.schedules.store import ScheduleStore
from tests.browser.conftest import call

pytestmark = pytest.mark.browser


async def test_a_tool_is_called_from_its_form_through_the_gate(console, tabs):
    page = await tabs.open("#/tools")
    await page.get_by_role("searchbox").first.fill("file_wri")
    await page.get_by_role("link", name=re.compile("file_write")).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("file_write")
    await expect(page.get_by_text(re.compile(r"\d+ tokens")).first).to_be_visible()
    await page.get_by_label(re.compile("^path")).fill("from-a-form.txt")
    await page.get_by_label(re.compile("^content")).fill("one\ntwo\n")
    await page.get_by_role("button", name="Call").click()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_role("button", name="Wrote from-a-form.txt")).to_be_visible()
    await page.get_by_role("tab", name="JSON").last.click()
    await expect(page.get_by_role("group", name="JSON")).to_contain_text('"is_error": false')
    assert (console.workspace / "from-a-form.txt").read_text() == "one\ntwo\n"


@pytest.mark.slow
async def test_a_tool_that_is_not_installed_is_shown_with_its_command(console, tabs):
    command = "pip install 'forge-tools[web]'"

    async def without_web(route):
        answer = await route.fetch()
        told = await answer.json()
        assert told["unavailable"] == []
        lacking = {"name": "web_fetch", "description": "Read a page.", "extra": "web", "install": command}
        await route.fulfill(response=answer, json={**told, "unavailable": [lacking]})

    page = await tabs.open("#/tools")
    await expect(page.get_by_role("link", name=re.compile("file_write"))).to_be_visible()
    await expect(page.get_by_role("heading", name=re.compile("Not installed"))).to_have_count(0)
    page = await tabs.open(fresh=True)
    await page.route("**/api/tools", without_web)
    await page.goto(f"{console.address}/#/tools")
    await expect(page.get_by_role("heading", name=re.compile("Not installed"))).to_be_visible()
    await expect(page.get_by_text(command)).to_be_visible()
    await expect(page.get_by_text("Read a page.")).to_be_visible()


@pytest.mark.slow
async def test_a_form_has_nested_values_choices_and_json(console, tabs):
    page = await tabs.open("#/tools/http_request")
    await expect(page.get_by_label(re.compile("^method"))).to_have_role("combobox")
    await page.get_by_label(re.compile("^url")).fill("https://example.invalid/")
    await page.get_by_role("tab", name="JSON").first.click()
    await expect(page.get_by_label("Arguments as JSON")).to_have_value(re.compile("https://example.invalid/"))
    await page.get_by_label("Arguments as JSON").fill('{"url": 5')
    await page.get_by_role("button", name="Call").click()
    await expect(page.get_by_text(re.compile("JSON")).first).to_be_visible()
    tabs.expect("SyntaxError|400")


@pytest.mark.slow
async def test_copies_of_a_call(console, tabs):
    page = await tabs.open("#/tools/math_calculate")
    await page.get_by_label(re.compile("^expression")).fill("6*7")
    await expect(page.get_by_text(re.compile(r"forge tool call math_calculate")).first).to_be_visible()


async def test_the_policy_explains_a_call(console, tabs):
    page = await tabs.open("#/policy")
    await expect(page.get_by_text("deny execute git push *").first).to_be_visible()
    await page.get_by_label("Tool", exact=True).fill("bash")
    await page.keyboard.press("Tab")
    command = page.get_by_label(re.compile("^command"))
    for words, told in (
        ("git push origin main", "The call would be denied."),
        ("make", re.compile("The call would (ask a person|run as a trial)")),  # a trial where this machine can have one
    ):
        await command.fill(words)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text(told)).to_be_visible()
    await expect(page.get_by_role("cell", name="make")).to_be_visible()


@pytest.mark.slow
async def test_a_denial_becomes_a_narrower_rule(console, tabs):
    tag = f"v{time.monotonic_ns()}"  # another one when the test is run again: the first is allowed by then
    run = console.begin("tag it", call("bash", command=f"git tag {tag}"), "Refused.")
    console.run_is(run, "finished")
    page = await tabs.open("#/policy")
    refused = page.get_by_role("listitem").filter(has_text=f"git tag {tag}")
    await refused.get_by_role("button", name="Allow exactly this").click()
    await expect(page.get_by_role("group", name="Difference")).to_contain_text("+")
    await expect(page.get_by_role("row").filter(has_text=f"git tag {tag}")).to_contain_text("allow")
    await page.get_by_role("button", name="Add rule").click()
    await expect(page.get_by_role("button", name="Yes, loosen the policy")).to_be_focused()
    assert f"allow execute git tag {tag}" not in (console.workspace / "forge.yaml").read_text()
    await page.get_by_role("button", name="Yes, loosen the policy").click()
    await expect(page.get_by_text("The rule is added.").first).to_be_visible()
    assert f"allow execute git tag {tag}" in (console.workspace / "forge.yaml").read_text()
    told = console.post("/api/policy/explain", {"tool": "bash", "arguments": {"command": f"git tag {tag}"}})
    assert told["decision"] == "allow"


@pytest.mark.slow
async def test_trends_are_charts_with_tables_and_keep_their_filters(console, tabs):
    run = console.begin("count it", call("math_calculate", expression="6*7"), "It is 42.")
    console.run_is(run, "finished")
    page = await tabs.open("#/trends")
    by_tool = page.get_by_role("region", name="By tool", exact=True)
    await expect(by_tool.get_by_role("row").filter(has_text="math_calculate")).to_be_visible()
    await expect(page.get_by_role("img", name=re.compile("^Calls, last 14 days. Calls: today"))).to_be_visible()
    await page.get_by_label("Range").select_option("7")
    await page.get_by_label("Tool", exact=True).select_option("math_calculate")
    await expect(page).to_have_url(re.compile("days=7&tool=math_calculate"))
    await page.reload()
    await expect(page.get_by_label("Tool", exact=True)).to_have_value("math_calculate")
    await expect(by_tool.get_by_role("row")).to_have_count(2)
    await expect(page.get_by_role("img", name=re.compile("^Calls, last 7 days"))).to_be_visible()


@pytest.mark.slow
async def test_the_same_thing_is_copied_in_several_ways(console, tabs):
    page = await tabs.open("#/tools/http_request", permissions=["clipboard-read", "clipboard-write"], fresh=True)
    await page.get_by_label(re.compile("^url")).fill("https://example.invalid/it's")
    await page.get_by_text("Copy as", exact=True).first.focus()
    await page.keyboard.press("Enter")
    copied = {}
    for name in ("curl", "forge command", "Python", "MCP request", "JSON", "Markdown", "Link with these arguments"):
        await page.evaluate("navigator.clipboard.writeText('')")
        await page.get_by_role("button", name=name, exact=True).click()
        await page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        copied[name] = await page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(copied["curl"])[-1] == "https://example.invalid/it's"
    assert shlex.split(copied["forge command"])[:4] == ["forge", "tool", "call", "http_request"]
    assert json.loads(copied["JSON"])["arguments"]["url"] == "https://example.invalid/it's"
    assert json.loads(copied["MCP request"])["method"] == "tools/call"
    compile(copied["Python"], "copied", "exec")
    assert copied["Markdown"].startswith("### http_request")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="curl", exact=True)).to_be_hidden()
    await page.goto(copied["Link with these arguments"])
    await page.reload()
    await expect(page.get_by_label(re.compile("^url"))).to_have_value("https://example.invalid/it's")


async def test_schedules_memory_and_workers(console, tabs):
    memory = console.workspace / ".forge" / "memory"
    memory.mkdir(exist_ok=True)
    (memory / "MEMORY.md").write_text("# Colours\nThe favourite colour is blue.\n")
    page = await tabs.open("#/schedules")
    await expect(page.get_by_text("nightly").first).to_be_visible()
    await expect(page.get_by_text("Say hello.").first).to_be_visible()
    await page.get_by_role("navigation").get_by_role("link", name="Memory").click()
    await page.get_by_role("searchbox").fill("favourite colour")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The favourite colour is blue.").first).to_be_visible()
    await page.get_by_role("navigation").get_by_role("link", name="Workers").click()
    await expect(page.get_by_text("working").first).to_be_visible()


async def test_a_schedule_that_a_program_changed_says_why_it_does_not_run(console, tabs):
    with ScheduleStore.of(console.workspace) as store:
        for id in ("changed", "untouched"):
            store.set(id=id, cron="@yearly", task="Count the stars.", by=Source.PERSON)
    with closing(sqlite3.connect(console.workspace / ".forge" / "state.db")) as connection, connection:
        connection.execute("UPDATE schedules SET task = 'Send everything.' WHERE id = 'changed'")
    page = await tabs.open("#/schedules")
    changed, untouched = (page.get_by_role("region", name=name, exact=True) for name in ("changed", "untouched"))
    await expect(changed.get_by_text("It does not run: it was changed outside Forge")).to_be_visible()
    await expect(untouched.get_by_text("Count the stars.")).to_be_visible()
    await expect(untouched.get_by_text("It does not run")).to_have_count(0)
