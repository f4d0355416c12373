"""Several open questions are answered at once; each answer is recorded singly."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.browser.conftest import call

pytestmark = pytest.mark.browser


def waiting(console, *names):
    """Runs that wait to write a file each, the oldest first."""
    runs = []
    for name in names:
        runs.append(console.begin(f"write {name}", call("file_write", path=f"{name}.txt", content="x"), "Done."))
        console.question(runs[-1])
    return runs


async def test_several_calls_are_approved_with_one_confirmation(console, tabs):
    runs = waiting(console, "batch-one", "batch-two", "batch-three")
    page = await tabs.open("#/approvals")
    await page.get_by_role("button", name="Select all (3)").click()
    await page.get_by_label(re.compile("Select file_write .*batch-three")).uncheck()
    await page.get_by_role("button", name="Approve 2").click()
    box = page.get_by_role("dialog", name="Approve 2 calls?")
    await expect(box.get_by_text("batch-one.txt").first).to_be_visible()
    await expect(box.get_by_text("batch-three.txt")).to_have_count(0)
    assert not (console.workspace / "batch-one.txt").exists()
    await box.get_by_role("button", name="Approve 2 calls").click()
    await expect(box).to_have_count(0)
    for run in runs[:2]:
        (taken,) = console.run_is(run, "finished")["questions"]
        assert (taken["answer"]["kind"], taken["answer"]["by"]) == ("once", "console")
    assert console.question(runs[2])["status"] == "open"
    assert not (console.workspace / "batch-three.txt").exists()


@pytest.mark.slow
async def test_several_calls_are_denied_by_keyboard_with_a_reason(console, tabs):
    runs = waiting(console, "keys-one", "keys-two")
    page = await tabs.open("#/approvals")
    await expect(page.get_by_role("button", name="Select all (2)")).to_be_visible()
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.get_by_role("button", name="Deny 2").press("Enter")
    box = page.get_by_role("dialog", name="Deny 2 calls?")
    await box.get_by_label("Reason for the model").fill("not <today>")
    await box.get_by_role("button", name="Deny 2 calls").press("Enter")
    for run in runs:
        (taken,) = console.run_is(run, "finished")["questions"]
        assert (taken["answer"]["kind"], taken["answer"]["feedback"]) == ("no", "not <today>")
    await expect(page.get_by_text("No open questions.")).to_be_visible()


@pytest.mark.slow
async def test_an_answer_that_fails_is_shown_and_the_others_count(console, tabs):
    tabs.expect("409")
    first, second = waiting(console, "late-one", "late-two")
    page = await tabs.open("#/approvals")
    await page.get_by_role("button", name="Select all (2)").click()
    await page.get_by_role("button", name="Approve 2").click()
    box = page.get_by_role("dialog", name="Approve 2 calls?")
    await expect(box).to_be_visible()
    question = console.question(first)["id"]
    console.post(f"/api/questions/{question}/answer", {"kind": "no", "feedback": "mine"})
    await box.get_by_role("button", name="Approve 2 calls").click()
    await expect(box.get_by_text("1 of 2 are answered.")).to_be_visible()
    await expect(box.get_by_text(re.compile("was already answered: no"))).to_be_visible()
    console.run_is(second, "finished")
    assert (console.workspace / "late-two.txt").exists()
    assert not (console.workspace / "late-one.txt").exists()


@pytest.mark.slow
async def test_a_question_with_a_form_is_not_selected(console, tabs):
    waiting(console, "form-one", "form-two")
    run = console.begin("ask colour", call("ask_question", question="Which colour?"), "Blue.")
    console.run_is(run, "waiting")
    page = await tabs.open("#/approvals")
    await expect(page.get_by_text("Which colour?").first).to_be_visible()
    await expect(page.get_by_role("checkbox")).to_have_count(2)
