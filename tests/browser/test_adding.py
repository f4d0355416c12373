"""Schedules, notes and rules, added by a person with a keyboard; what is refused says why, and nothing is stored."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser


@pytest.mark.slow
async def test_a_schedule_is_added_changed_and_removed(console, tabs):
    tabs.expect("400")
    page = await tabs.open("#/schedules")
    await page.get_by_role("button", name="Add a schedule").click()
    box = page.get_by_role("dialog", name="Add a schedule")
    adding = box.get_by_role("button", name="Add schedule")
    await expect(box.get_by_label("When")).to_be_focused()
    await expect(adding).to_be_disabled()
    await page.keyboard.type("61 * * * *")
    await box.get_by_label("Task").fill("Look at <b>this</b>.")
    await expect(box.get_by_text(re.compile("minute")).first).to_be_visible()
    await expect(adding).to_be_disabled()
    await box.get_by_label("When").fill("30 9 * * MON-FRI")
    await expect(box.get_by_text(re.compile("09:30")).first).to_be_visible()
    await expect(box.get_by_role("listitem")).to_have_count(3)
    await adding.click()
    added = page.get_by_role("region", name=re.compile("look-at"))
    await expect(added).to_contain_text("Look at <b>this</b>.")
    await expect(box).to_have_count(0)

    await added.get_by_role("button", name="Edit").click()
    changing = page.get_by_role("dialog")
    await changing.get_by_label("When").fill("@every 90m")
    await changing.get_by_role("button", name="Save changes").click()
    await expect(added).to_contain_text("@every 90m")
    await added.get_by_role("button", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove schedule").click()
    await expect(added).to_have_count(0)
    await expect(page.get_by_role("region", name="nightly").get_by_role("button", name="Remove")).to_have_count(0)


@pytest.mark.slow
async def test_a_note_is_added_and_a_blank_one_is_not(console, tabs):
    page = await tabs.open("#/memory")
    await page.get_by_role("button", name="Add a note").click()
    box = page.get_by_role("dialog", name="Add a note")
    await page.keyboard.type("   ")
    await expect(box.get_by_role("button", name="Add note")).to_be_disabled()
    await box.get_by_label("Note", exact=True).fill("Ada <i>looks</i> after releases.")
    await expect(box.get_by_role("group", name="Difference")).to_contain_text("+Ada <i>looks</i> after releases.")
    await box.get_by_role("button", name="Add note").click()
    await expect(page.get_by_role("heading", name="MEMORY.md")).to_be_visible()
    assert "Ada <i>looks</i> after releases." in (console.workspace / ".forge/memory/MEMORY.md").read_text()
    await expect(page).to_have_url(re.compile("note=MEMORY.md"))
    await page.reload()
    await expect(page.get_by_role("group", name="MEMORY.md")).to_contain_text("Ada <i>looks</i>")


@pytest.mark.slow
async def test_a_rule_is_built_from_choices(console, tabs):
    tabs.expect("400")
    page = await tabs.open("#/policy")
    await page.get_by_role("button", name="Add a rule").click()
    box = page.get_by_role("dialog", name="Add a rule")
    await expect(box.get_by_label("Target")).to_be_focused()
    await page.keyboard.type("rm -rf *")
    await box.get_by_label("Decision").select_option("deny")
    await expect(box.get_by_label("Rule", exact=True)).to_have_value("deny execute rm -rf *")
    await box.get_by_label("Rule", exact=True).fill("please allow everything")
    await expect(box.locator(".bad").first).to_be_visible()
    await expect(box.get_by_role("button", name="Add rule")).to_be_disabled()
    await box.get_by_label("Rule", exact=True).fill("deny execute rm -rf *")
    await box.get_by_role("button", name="Add rule").click()
    await expect(page.get_by_text("The rule is added.").first).to_be_visible()
    await expect(page.get_by_role("link", name="deny execute rm -rf *")).to_be_visible()
    assert '"deny execute rm -rf *"' in (console.workspace / "forge.yaml").read_text()
