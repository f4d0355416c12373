"""The list of runs in a browser: filters in the address, pages, several runs at once, marks; the trends by subject."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import expect

from forge.durable.store import RunStore
from forge.durable.store.tables import runs as run_table
from forge.evaluation import read_cases
from forge.workspace.state import state_directory
from tests.browser.conftest import call
from tests.browser.test_looks import axe_findings
from tests.console.test_run_list import stored

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def database(console):
    return RunStore(f"sqlite:///{state_directory(console.workspace) / 'durable.db'}")


def store(console, *rows):
    with database(console) as found, found.engine.begin() as connection:
        connection.execute(run_table.insert(), list(rows))


def rows_of(page):
    return page.locator(".run-cells")


@pytest.mark.slow
async def test_filters_are_in_the_address_and_back_and_reload_keep_them(own_console, tabs):
    console = tabs.console = own_console()
    day = 1_790_000_000.0
    store(
        console,
        stored("one", day, model="m:large", user="ada", cost=2.0, prompt=HOSTILE),
        stored("two", day + 86_400 * 3, model="m:small", user="bob", cost=0.1, status="failed", failure="timeout"),
    )
    page = await tabs.open("#/runs", fresh=True)
    await expect(rows_of(page)).to_have_count(2)
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("columnheader")).to_have_count(10)
    await expect(table.get_by_role("row").filter(has_text=HOSTILE).get_by_role("cell", name="large")).to_be_visible()
    await page.get_by_label("User").select_option("bob")
    await expect(rows_of(page)).to_have_count(1)
    await page.get_by_label("Failure").select_option("any")
    await expect(page).to_have_url(re.compile("user=bob&failure=any"))
    await page.reload()
    await expect(rows_of(page)).to_have_count(1)
    await expect(page.get_by_label("Failure")).to_have_value("any")
    await page.go_back()
    await expect(page.get_by_label("Failure")).to_have_value("")
    await expect(page.get_by_label("User")).to_have_value("bob")
    await page.go_back()
    await expect(rows_of(page)).to_have_count(2)
    await page.go_forward()
    await expect(page.get_by_label("User")).to_have_value("bob")
    await page.get_by_role("button", name="Clear filters").click()
    await page.get_by_label("Cost from $").fill("1")
    await page.keyboard.press("Enter")
    await expect(rows_of(page)).to_have_count(1)
    await expect(rows_of(page)).to_contain_text("large")
    await page.goto(f"{console.address}/#/runs?from=2026-09-23&to=2026-12-31")
    await expect(rows_of(page)).to_have_count(1)
    await expect(rows_of(page)).to_contain_text("small")
    await page.goto(f"{console.address}/#/runs?model=m%3Anone")
    await expect(page.get_by_text("No runs match.")).to_be_visible()
    await expect(page.get_by_label("Model")).to_have_value("m:none")
    assert await page.title() != "owned"


async def test_older_runs_arrive_while_the_list_updates_itself(own_console, tabs):
    console = tabs.console = own_console()
    store(console, *[stored(f"r{number:03}", 1_790_000_000.0 + number) for number in range(150)])
    page = await tabs.open("#/runs", fresh=True)
    held, may_continue = asyncio.Event(), asyncio.Event()

    async def hold(route):
        held.set()
        await may_continue.wait()
        await route.continue_()

    await page.route(re.compile("/api/runs.*before="), hold)
    await page.get_by_role("button", name="Older runs").click()
    await held.wait()
    async with page.expect_response(
        lambda answer: "/api/runs?" in answer.url and "before=" not in answer.url
    ) as update:
        console.begin("be new", "Hello.")
    await update.value
    may_continue.set()
    await expect(page.get_by_role("button", name="Older runs")).to_be_hidden()
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    await expect(page.locator("a[href='#/runs/r000']")).to_be_visible()


@pytest.mark.slow
async def test_the_first_of_many_runs_is_found_and_reached(own_console, tabs):
    console = tabs.console = own_console()
    many = [stored(f"r{number:05}", 1_000.0 + number) for number in range(10_001)]
    many[0]["prompt"] = "the very first"
    store(console, *many)
    page = await tabs.open("#/runs?text=the%20very%20first", fresh=True)
    await expect(rows_of(page)).to_have_count(1)
    await page.goto(f"{console.address}/#/runs?text=nothing%20like%20it")
    await expect(page.get_by_text("No runs match.")).to_be_visible()
    await page.goto(f"{console.address}/#/runs?to=1970-01-01")
    for _ in range(3):
        await page.get_by_role("button", name="Older runs").click()
        await expect(page.get_by_role("button", name="Older runs")).not_to_have_attribute("aria-disabled", "true")
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    await expect(page.locator("a[href='#/runs/r09601']")).to_be_visible()


@pytest.mark.slow
async def test_questions_of_selected_runs_are_answered_and_runs_are_deleted_after_a_confirmation(own_console, tabs):
    console = tabs.console = own_console()
    runs = []
    for name in ("first", "second"):
        runs.append(console.begin(f"write {name}", call("file_write", path=f"{name}.txt", content="x"), "Done."))
        console.question(runs[-1])
    page = await tabs.open("#/runs", fresh=True)
    for name in ("first", "second"):
        await page.get_by_role("checkbox", name=f"Select write {name}").check()
    bar = page.get_by_role("group", name="Selected runs")
    await bar.get_by_role("button", name="Deny 2…").click()
    box = page.get_by_role("dialog")
    await expect(box.get_by_text("first.txt").first).to_be_visible()
    await box.get_by_role("button", name="Cancel").click()
    await bar.get_by_role("button", name="Approve 2…").click()
    await box.get_by_role("button", name="Approve 2 calls").click()
    for run, name in zip(runs, ("first", "second"), strict=True):
        console.run_is(run, "finished")
        assert (console.workspace / f"{name}.txt").exists()
    await expect(bar).to_be_hidden()

    await expect(rows_of(page).get_by_text("finished")).to_have_count(2)
    await page.locator(f"a[href='#/runs/{runs[0]}']").focus()
    await page.keyboard.press("x")
    await expect(bar).to_contain_text("1 selected")
    await bar.get_by_role("button", name="Delete 1…").click()
    await expect(box).to_contain_text(re.compile(r"1 run with all messages, \d+ events and 1 question"))
    await box.get_by_role("button", name="Cancel").click()
    await expect(rows_of(page)).to_have_count(2)
    await bar.get_by_role("button", name="Delete 1…").click()
    await box.get_by_role("button", name="Delete 1 run").click()
    await expect(rows_of(page)).to_have_count(1)
    with database(console) as found:
        assert [run.id for run in found.list()] == [runs[1]]


@pytest.mark.slow
async def test_failed_runs_are_retried_one_alone_and_several_together(own_console, tabs):
    console = tabs.console = own_console()
    names = ("first", "second", "third")
    runs = {name: console.begin(f"say {name}", {"broken": True}) for name in names}
    done = console.begin("say done", "It is done.")
    for run in runs.values():
        console.run_is(run, "failed")
    console.run_is(done, "finished")
    for name in names[:2]:
        console.scene(f"say {name}", f"This is {name}.")
    page = await tabs.open(f"#/runs/{runs['first']}", fresh=True)
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("This is first.").first).to_be_visible()
    console.run_is(runs["first"], "finished")

    await page.goto(f"{console.address}/#/runs")
    for name in ("second", "third", "done"):
        await page.get_by_role("checkbox", name=f"Select say {name}").check()
    bar = page.get_by_role("group", name="Selected runs")
    await bar.get_by_role("button", name="Retry 2…").click()  # the one that is finished cannot be retried
    box = page.get_by_role("dialog")
    await expect(box).to_contain_text("say third")
    await box.get_by_role("button", name="Cancel").click()
    assert console.get(f"/api/runs/{runs['second']}")["status"] == "failed"
    console.scene("say third", "This is third.")
    await bar.get_by_role("button", name="Retry 2…").click()
    await box.get_by_role("button", name="Retry 2 runs").click()
    await expect(page.get_by_text("2 runs queued again.").first).to_be_visible()
    for name in ("second", "third"):
        assert console.run_is(runs[name], "finished")["text"] == f"This is {name}."
    await expect(rows_of(page).get_by_text("finished")).to_have_count(4)
    await expect(bar).to_be_hidden()


@pytest.mark.slow
async def test_answers_are_marked_filtered_and_taken_away_as_cases(own_console, tabs):
    console = tabs.console = own_console()
    runs = [console.begin(f"say {word}", f"It is {word}.") for word in ("yes", "no")]
    for run in runs:
        console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{runs[1]}", fresh=True)
    await page.get_by_role("button", name="Mark…").click()
    box = page.get_by_role("dialog")
    await box.get_by_label("Bad").check()
    await box.get_by_label("Note (optional)").fill(HOSTILE)
    await box.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Marked as bad…")).to_be_visible()

    await page.goto(f"{console.address}/#/runs")
    await page.get_by_role("checkbox", name="Select say yes").check()
    await page.get_by_role("button", name="Mark 1…").click()
    await box.get_by_role("button", name="Save").click()
    await expect(rows_of(page).filter(has_text="say yes").get_by_text("good", exact=True)).to_be_visible()
    await expect(page.get_by_role("link", name="Cases for forge eval")).to_be_hidden()
    await page.get_by_label("Mark", exact=True).select_option("bad")
    await expect(rows_of(page)).to_have_count(1)
    await expect(rows_of(page)).to_contain_text(HOSTILE)
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Cases for forge eval").click()
    download = await started.value
    file = console.workspace / "cases.yaml"
    file.write_bytes(Path(await download.path()).read_bytes())
    assert [(case.name, case.prompt) for case in read_cases(file)] == [(runs[1], "say no")]
    assert await page.title() != "owned"


@pytest.mark.slow
async def test_trends_are_shown_by_agent_model_tool_and_user_with_a_table_beneath_each_chart(own_console, tabs):
    console = tabs.console = own_console()
    run = console.begin("write it", call("file_write", path="a.txt", content="x"), "Done.")
    question = console.question(run)
    console.post(f"/api/questions/{question['id']}/answer", {"kind": "no"})
    console.run_is(run, "finished")
    ended = time.time()
    store(console, stored("other", ended, user=HOSTILE, model="m:small", worked=7.0, agent="ops"))
    page = await tabs.open("#/trends", fresh=True)
    for name in ("By agent", "By model", "By user", "By tool"):
        await expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    charts = page.locator("figure.chart")
    await expect(charts).to_have_count(10)
    await expect(page.locator(".chart-part > details")).to_have_count(10)
    await page.get_by_label("Questions as a table").click()
    table = page.get_by_role("region", name="Questions by day", exact=True)
    await expect(table.get_by_role("row").nth(1)).to_contain_text("11")  # one asked, one refused
    users = page.get_by_role("region", name="By user", exact=True)
    await expect(users.get_by_role("row").filter(has_text=HOSTILE)).to_contain_text("7.0 s")
    await users.get_by_role("link", name=HOSTILE).click()
    await expect(page).to_have_url(re.compile("user=%3Cimg"))
    await expect(page.get_by_label("User", exact=True)).to_have_value(HOSTILE)
    await expect(page.get_by_role("img", name=re.compile("^Runs, last 14 days. Ended: today 1,"))).to_be_visible()
    await expect(page.get_by_role("img", name=re.compile("^Calls, all models and users, last 14 days"))).to_be_visible()
    await expect(page.get_by_text("are of all models and users: the event log does not have them")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("img", name=re.compile("^Calls, last 14 days"))).to_be_visible()
    await expect(page.get_by_label("User", exact=True)).to_have_value("")
    await expect(page.get_by_role("img", name=re.compile("^Runs, last 14 days. Ended: today 2,"))).to_be_visible()
    await page.get_by_label("Agent", exact=True).select_option("ops")
    await expect(page.get_by_role("img", name=re.compile("^Run duration.* p50: today 7.0 s,"))).to_be_visible()
    assert await page.title() != "owned"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
async def test_axe_finds_nothing_in_a_selection_its_dialogs_and_open_tables(own_console, tabs, width, scheme):
    console = tabs.console = own_console()
    waits = console.begin("write it", call("file_write", path="a.txt", content="x"), "Done.")
    console.question(waits)
    done = console.begin("say", "Hi.")
    console.run_is(done, "finished")
    console.post(f"/api/runs/{done}/mark", {"verdict": "bad", "note": "too short"})
    late = {"reason": "error", "error": {"kind": "timeout", "message": "late"}}
    store(console, stored("late", time.time(), status="failed", failure="timeout", model="m:small", result=late))
    found = {}
    page = await tabs.open("#/runs", fresh=True, width=width, color_scheme=scheme)
    await expect(rows_of(page)).to_have_count(3)
    for name in ("say", "late", "write it"):
        await page.get_by_role("checkbox", name=f"Select {name}").check()
    if width < 861:
        await page.locator(".more-filters > summary").click()
    found["selection"] = await axe_findings(page)
    for words in ("Approve 1…", "Mark 2…", "Delete 2…"):
        await page.get_by_role("button", name=words).click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        found[words] = await axe_findings(page)
        await page.keyboard.press("Escape")
    await page.goto(f"{console.address}/#/trends")
    await page.get_by_label("Cost as a table").click()
    await page.get_by_label("Questions as a table").click()
    found["trends"] = await axe_findings(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert not {place: one for place, one in found.items() if one}
