"""The server goes away and comes back: the page says so, and goes on where it was."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import call

pytestmark = pytest.mark.browser


@pytest.mark.slow
async def test_a_page_goes_on_after_the_server_was_started_anew(own_console, tabs):
    console = tabs.console = own_console()
    tabs.expect(r"ERR_|Failed to load resource|Failed to fetch|incomplete")
    (console.scenes / "first.txt").write_text("Before it went.")
    asks = call("file_write", path="after.txt", content="x")
    run = console.begin("survive", asks, {"follow": "first.txt"})
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_role("button", name="Allow once")).to_be_enabled()

    console.stop()
    away = page.get_by_role("status").filter(has_text="does not respond")
    await expect(away).to_be_visible()
    console.start()
    await expect(away).to_be_hidden()

    # the same page, the same cookie: the question waited, and its answer is taken
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("Before it went.")).to_be_visible()
    assert (console.workspace / "after.txt").exists()
    (console.scenes / "first.txt").write_text("Before it went. And after it came back.\nEND\n")
    await expect(page.get_by_text("And after it came back.").first).to_be_visible()
    assert await page.get_by_text("Before it went.").count() == 1
    console.run_is(run, "finished")
