"""The waterfall of a run, links to its steps, and a new run from one of them."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import expect

from forge.agent.session import SessionStore
from forge.core.messages import Message
from tests.browser.conftest import PATIENCE, call

pytestmark = pytest.mark.browser


def two_calls(console, name):
    calls = call("file_read", path="forge.yaml"), call("file_write", path=f"notes/{name}.txt", content="x")
    run = console.begin(f"two steps of {name}", *calls, "All is done.")
    console.run_is(run, "finished")
    return run


@pytest.mark.slow
async def test_the_waterfall_is_open_and_leads_to_a_step(console, tabs):
    run = two_calls(console, "fall")
    page = await tabs.open(f"#/runs/{run}")
    steps = page.get_by_role("list", name="Steps by time").get_by_role("link")
    await expect(steps).to_have_count(2)
    await steps.first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(steps.last).to_be_focused()
    await page.keyboard.press("Enter")
    head = page.get_by_role("button", name=re.compile("file_write.*fall.txt"))
    await expect(head).to_have_attribute("aria-expanded", "true")
    await expect(head).to_be_focused()
    await expect(page).to_have_url(re.compile(r"\?step="))
    again = await tabs.open(page.url[page.url.index("#") :], fresh=True)
    await expect(again.get_by_role("button", name=re.compile("file_write.*fall.txt"))).to_be_focused()
    await expect(again.locator("a.step-row[aria-current]")).to_have_count(1)


async def test_bars_have_true_proportions_and_waits_are_apart(console, tabs):
    path = f"fall-wait-{uuid4().hex}.txt"  # another one each time: what exists must be read first
    run = console.begin("a wait", call("file_write", path=path, content="x"), "Done.")
    question = console.question(run)["id"]
    console.post(f"/api/questions/{question}/answer", {"kind": "once"})
    console.run_is(run, "finished")

    def list_events() -> list[dict[str, Any]]:
        return [one["event"] for one in console.get(f"/api/runs/{run}/events")["events"]]

    console.until(lambda: list_events()[-1]["event"] == "run_finished")  # the page must see the same end
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_text(re.compile("Waiting for a person: "))).to_be_visible()
    await expect(page.locator(".bar.person").first).to_be_attached()
    await page.get_by_role("checkbox", name="Shorten long waits").click()  # as it was, or else the other way round
    await page.get_by_role("checkbox", name="Shorten long waits").uncheck()
    events = list_events()
    asked = next(one["ts"] for one in events if one["event"] == "permission_asked")
    ends = "permission_answered", "tool_call_start"  # the latter where the run was parked and goes on
    ended = next(one["ts"] for one in events if one["event"] in ends and one["ts"] > asked)
    whole = events[-1]["ts"] - events[0]["ts"]
    async with asyncio.timeout(PATIENCE):
        while True:  # until the page has heard of the end, the bars reach to the present moment
            width = await page.locator(".bar.person").first.evaluate(
                "(one) => one.getBoundingClientRect().width / one.parentElement.getBoundingClientRect().width"
            )
            if abs(width - (ended - asked) / whole) < 0.05:
                break
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_step_that_is_not_there_is_said_so(console, tabs):
    run = two_calls(console, "lost")
    page = await tabs.open(f"#/runs/{run}?step=nothing")
    await expect(page.get_by_text("This run has no such step.").first).to_be_visible()
    await expect(page.get_by_text("All is done.").first).to_be_visible()


@pytest.mark.slow
async def test_a_run_is_repeated_from_a_step(console, tabs):
    run = two_calls(console, "again")
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name=re.compile("file_write.*again.txt")).click()
    await page.get_by_role("button", name="Re-run from here").click()
    box = page.get_by_role("dialog", name="Re-run from this step")
    await expect(box.get_by_role("listitem")).to_have_count(1)
    await expect(box.get_by_role("listitem")).to_contain_text("notes/again.txt")
    await expect(box).to_contain_text("the last 2 turns")
    await box.get_by_role("button", name="Start new run").click()
    await expect(page).to_have_url(re.compile("#/runs/(?!" + run + ")"))
    new = page.url.rpartition("/")[2].partition("?")[0]
    await expect(page.get_by_role("link", name=run)).to_be_visible()
    console.run_is(new, "finished")
    assert [one["id"] for one in console.get("/api/runs", text="two steps of again")["runs"]] == [new, run]


@pytest.mark.slow
async def test_a_conversation_is_forked_after_a_message(console, tabs):
    with SessionStore.of(console.workspace) as sessions:
        said = Message("user", "hello"), Message("assistant", "hi"), Message("user", "more")
        sessions.open("to-fork").append(*said)
    page = await tabs.open("#/sessions/to-fork")
    await page.get_by_text("Messages, files, details").click()
    await page.get_by_role("button", name="Fork after this").nth(1).click()
    box = page.get_by_role("dialog", name="Fork this conversation")
    await expect(box).to_contain_text("the first 2 messages of to-fork")
    await box.get_by_label("Name of the copy").fill("forked")
    await box.get_by_role("button", name="Create copy").click()
    await expect(page).to_have_url(re.compile("#/sessions/forked$"))
    told = console.get("/api/sessions/forked/messages")["messages"]
    assert [one["text"] for one in told] == ["hello", "hi"]
    assert console.get("/api/sessions/to-fork")["messages"] == 3


@pytest.mark.slow
async def test_a_message_of_a_run_is_a_place_to_repeat_it_from(console, tabs):
    run = two_calls(console, "message")
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_text("Messages, files, details").click()
    await page.get_by_role("button", name="Re-run from here").first.click()
    await expect(page.get_by_role("dialog", name="Re-run from this step")).to_contain_text("the last 3 turns")
