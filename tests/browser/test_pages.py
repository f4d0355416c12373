"""Tools, policy, schedules, memory and workers, as a person uses them."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

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
    await expect(page.get_by_role("region", name="JSON")).to_contain_text('"is_error": false')
    assert (console.workspace / "from-a-form.txt").read_text() == "one\ntwo\n"


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
    for words, told in (("git push origin main", "It would be refused."), ("make", "It would ask a person.")):
        await command.fill(words)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text(told)).to_be_visible()
    await expect(page.get_by_role("cell", name="make")).to_be_visible()


async def test_a_denial_becomes_a_narrower_rule(console, tabs):
    run = console.begin("tag it", call("bash", command="git tag v1"), "Refused.")
    console.run_is(run, "finished")
    page = await tabs.open("#/policy")
    refused = page.get_by_role("listitem").filter(has_text="git tag v1")
    await refused.get_by_role("button", name="Allow just this").click()
    await expect(page.get_by_role("region", name="Difference")).to_contain_text("+")
    assert "allow execute git tag" not in (console.workspace / "forge.yaml").read_text()
    await page.get_by_role("button", name="Write it").click()
    await expect(page.get_by_text("The rule is written.").first).to_be_visible()
    assert "allow execute git tag v1" in (console.workspace / "forge.yaml").read_text()
    told = console.post("/api/policy/explain", {"tool": "bash", "arguments": {"command": "git tag v1"}})
    assert told["decision"] == "allow"


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
