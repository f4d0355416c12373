"""The first start, with no model and no key: the link, the page, tools, policy and the demo."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.browser.conftest import call

pytestmark = pytest.mark.browser


@pytest.mark.slow
async def test_a_first_start_without_a_model_is_useful(own_console, tabs):
    console = tabs.console = own_console(model=False, config="", entered=False)
    page = await tabs.open()
    tabs.expect("401")
    await expect(page.locator("body")).to_contain_text("forge console --url")
    await page.goto(console.link)
    await expect(page).to_have_url(re.compile(r"/(#/?)?$"))
    assert "token" not in page.url
    await expect(page.get_by_text("No model is set, so agents cannot run here.")).to_be_visible()
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


@pytest.mark.slow
async def test_the_cookie_alone_shows_nothing_and_another_link_lets_in_again(own_console, tabs):
    """Other servers of this machine are given the cookie; what pages of our port keep, they are not."""
    console = tabs.console = own_console(entered=False)
    page = await tabs.open(fresh=True)
    tabs.expect("401|403")
    await page.goto(console.link)
    await expect(page.get_by_label("What should the agent do?")).to_be_visible()
    assert re.fullmatch(r"[0-9a-f]{64}", await page.evaluate("localStorage.getItem('forge-token')"))
    beside = await tabs.open("#/tools", beside=page)
    await expect(beside.get_by_role("link", name=re.compile("math_calculate"))).to_be_visible()
    await page.evaluate("localStorage.removeItem('forge-token')")
    await page.reload()
    await expect(page.locator(".connection")).to_contain_text("forge console --url")
    assert await page.get_by_label("What should the agent do?").count() == 0
    await page.goto(console.another_link())
    await expect(page.get_by_label("What should the agent do?")).to_be_visible()
    await beside.get_by_role(
        "link", name=re.compile("math_calculate")
    ).click()  # the other tab goes on with the new one
    await expect(beside.get_by_role("button", name="Call")).to_be_visible()


@pytest.mark.slow
async def test_runs_that_nobody_goes_on_with_can_be_taken_over(own_console, tabs):
    console = tabs.console = own_console()
    run = console.begin("old", call("ask_question", question="Which one?"), "Done.")
    console.run_is(run, "waiting")
    console.stop()
    with (console.workspace / "forge.yaml").open("a") as file:
        file.write("agent: {prompt: Be brief.}\n")
    console.start()
    page = await tabs.open()
    await expect(page.get_by_text("1 run needs a worker of version")).to_be_visible()
    await page.get_by_role("button", name="Move them to this version").click()
    await expect(page.get_by_text("1 run was moved to this version.").first).to_be_visible()
    await expect(page.get_by_text("1 run needs a worker of version")).to_be_hidden()
