"""The first start, with no model and no key: the link, the page, tools, policy and the demo."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser


async def test_a_first_start_without_a_model_is_useful(own_console, tabs):
    console = tabs.console = own_console(model=False, config="", entered=False)
    page = await tabs.open()
    tabs.expect("401")
    await expect(page.locator("body")).to_contain_text("forge console --url")
    await page.goto(console.link)
    await expect(page).to_have_url(re.compile(r"/(#/?)?$"))
    assert "token" not in page.url
    await expect(page.get_by_text("No model, so no chat.")).to_be_visible()
    assert await page.get_by_label("What should the agent do?").count() == 0

    # the link worked once
    other = await tabs.open()
    await other.goto(console.link)
    await expect(other.locator("body")).to_contain_text("forge console --url")

    await page.get_by_role("link", name="The demo session").click()
    await expect(page.get_by_role("heading", name=re.compile("The test of the parser fails"))).to_be_visible()
    await expect(page.get_by_text("the test passes").first).to_be_visible()

    await page.get_by_role("navigation").get_by_role("link", name="Tools").click()
    await page.get_by_role("link", name=re.compile("math_calculate")).click()
    await page.get_by_label(re.compile("^expression")).fill("6*7")
    await page.get_by_role("button", name="Call").click()
    await expect(page.get_by_text("42", exact=True).first).to_be_visible()
    cookie = (await page.context.cookies())[0]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
