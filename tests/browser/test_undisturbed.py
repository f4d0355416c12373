"""News comes while somebody is at a page: focus, selection, what is scrolled and half a word stay where they are."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.async_api import expect

from tests.browser.conftest import call

pytestmark = pytest.mark.browser

DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
MARK = "(one) => getSelection().setBaseAndExtent(one, 0, one, one.childNodes.length)"


async def at(tabs, place, **more):
    page = await tabs.open(place, **more)
    await expect(page.locator("main:not([aria-busy])")).to_be_visible()
    return page


async def news(page, console, path, prompt="news"):
    """Something happens, and the page has looked again."""
    async with page.expect_response(lambda told: f"/api/{path}" in told.url):
        run = console.begin(prompt, "It is so.")
    console.run_is(run, "finished")
    await page.evaluate(DRAWN)
    return run


@pytest.mark.parametrize("place", ["#/", "#/runs"])
@pytest.mark.slow
async def test_a_run_in_the_list_keeps_the_focus_when_others_come(console, tabs, place):
    old = console.begin("an old run", "Done.")
    console.run_is(old, "finished")
    page = await at(tabs, place)
    row = page.locator(f"a[href='#/runs/{old}']")  # earlier tests have runs of the same name
    await row.focus()
    await row.locator(".row-main").evaluate(MARK)
    new = await news(page, console, "runs")
    await expect(page.locator(f"a[href='#/runs/{new}']")).to_be_visible()
    await expect(page.locator(f"a[href='#/runs/{old}']")).to_be_focused()
    assert await page.evaluate("getSelection().toString()") == "an old run"


@pytest.mark.slow
async def test_a_long_list_of_runs_stays_where_it_was_scrolled_to(console, tabs):
    runs = [{"id": f"run-{number:04}", "created": 5_000 - number} for number in range(5_000)]
    usual = {"agent": "main", "prompt": "one of many", "status": "finished", "usage": {}, "waits": [], "can": []}

    async def told(route):
        size, before = (int(re.findall(rf"{name}=(\d+)", f"{route.request.url}&before=0")[0]) for name in KEYS)
        some = runs[before : before + size]
        await route.fulfill(
            json={"runs": [usual | one for one in some], "next": str(before + size), "agents": ["main"]}
        )

    page = await tabs.open("#/memory")
    await page.route("**/api/runs?*", told)
    page = await page.goto(f"{console.address}/#/runs") or page
    await expect(page.locator(".run-row").first).to_be_visible()
    await page.get_by_role("button", name="Older").click()
    await expect(page.get_by_role("button", name="Older")).to_be_enabled()
    row = page.locator("a[href='#/runs/run-0150']")
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    await row.scroll_into_view_if_needed()
    before = await row.bounding_box()
    runs.insert(0, {"id": "run-new", "created": 6_000})
    await news(page, console, "runs?")
    after = await row.bounding_box()
    assert abs(after["y"] - before["y"]) < 2
    assert await page.locator("a[href='#/runs/run-new']").count() == 0  # far above, and not made
    await page.evaluate("scrollTo(0, 0)")
    await expect(page.locator("a[href='#/runs/run-new']")).to_be_visible()


KEYS = ("limit", "before")


@pytest.mark.slow
async def test_what_is_marked_among_the_workers_stays_marked(console, tabs):
    page = await at(tabs, "#/workers")
    await page.locator("tbody td").first.evaluate(MARK)
    marked = await page.evaluate("getSelection().toString()")
    assert marked
    await news(page, console, "workers")
    assert await page.evaluate("getSelection().toString()") == marked


@pytest.mark.slow
async def test_a_button_of_a_schedule_keeps_the_focus_also_when_it_is_pressed(console, tabs):
    page = await at(tabs, "#/schedules")
    pause = page.get_by_role("region", name="nightly").get_by_role("button", name="Pause")
    await pause.focus()
    await news(page, console, "schedules")
    await expect(pause).to_be_focused()
    tabs.expect("409|400|403")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("nightly is declared in forge.yaml").first).to_be_visible()
    await expect(pause).to_be_focused()


@pytest.mark.slow
async def test_half_a_call_and_a_refusal_to_look_at_stay_on_the_page_of_the_policy(console, tabs):
    denied = console.begin("push first", call("bash", command="git push first"), "Refused.")
    console.run_is(denied, "finished")
    page = await at(tabs, "#/policy")
    tabs.expect("404.*tools/ba")
    await page.get_by_label("Tool", exact=True).fill("ba")
    allow = (
        page.get_by_role("listitem")
        .filter(has_text="git push first")
        .get_by_role("button", name="Allow exactly this")
        .first
    )
    await allow.focus()
    second = console.begin("push second", call("bash", command="git push second"), "Refused.")
    console.run_is(second, "finished")
    await expect(page.get_by_role("listitem").filter(has_text="git push second")).to_be_visible()
    await expect(allow).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Rule")).to_have_value(re.compile("git push first"))
    await page.keyboard.press("Escape")
    assert await page.get_by_label("Tool", exact=True).input_value() == "ba"


@pytest.mark.slow
async def test_half_a_form_of_a_tool_stays_while_its_calls_come_and_go(console, tabs):
    page = await at(tabs, "#/tools/math_calculate")
    field = page.get_by_label(re.compile("^expression"))
    await field.fill("6*7")
    await page.get_by_role("button", name="Call").click()
    await expect(page.locator(".result-of-call").get_by_text("finished")).to_be_visible()
    await field.fill("6*")
    await field.press("End")
    console.run_is(console.begin("more news", "It is so."), "finished")
    await page.evaluate(DRAWN)
    await expect(field).to_be_focused()
    await page.keyboard.type("8")
    await expect(field).to_have_value("6*8")


@pytest.mark.slow
async def test_other_arguments_are_written_while_more_is_asked(console, tabs):
    first = console.begin("edit undisturbed", call("file_write", path="undisturbed.txt", content="x"), "Done.")
    asked = console.question(first)
    page = await at(tabs, f"#/approvals/{asked['id']}")
    card = page.get_by_role("article").filter(has_text="undisturbed.txt")
    await card.get_by_role("button", name="Edit").click()
    await card.get_by_label(re.compile("^path")).fill("notes/undist")
    second = console.begin("another", call("file_write", path="another.txt", content="x"), "Done.")
    console.question(second)
    await expect(page.get_by_role("list", name="Open questions").get_by_role("button")).to_have_count(2)
    await expect(card.get_by_label(re.compile("^path"))).to_be_focused()
    await page.keyboard.type("urbed.txt")
    await card.get_by_role("button", name="Check").focus()
    await page.keyboard.press("Enter")
    await expect(card.get_by_text("The call would run.")).to_be_visible()
    await expect(card.get_by_role("button", name="Check")).to_be_focused()
    await card.get_by_label(re.compile("^path")).fill("else.txt")
    await expect(card.get_by_text("The call would run.")).to_have_count(0)  # that was said of another path
    await card.get_by_role("button", name="Cancel").click()
    await expect(card.get_by_role("button", name="Edit")).to_be_focused()


@pytest.mark.slow
async def test_words_of_a_refusal_answer_nothing_else_when_somebody_was_faster(console, tabs):
    first = console.begin("taken away", call("file_write", path="taken.txt", content="x"), "Done.")
    asked = console.question(first)
    second = console.begin("must wait", call("file_write", path="must-wait.txt", content="x"), "Done.")
    console.question(second)
    page = await at(tabs, f"#/approvals/{asked['id']}")
    card = page.get_by_role("article").filter(has_text="taken.txt")
    await card.get_by_role("button", name="Deny").click()
    await page.keyboard.type("an")
    console.post(f"/api/questions/{asked['id']}/answer", {"kind": "once"})
    await expect(card.get_by_text("Allowed once")).to_be_visible()
    await page.keyboard.type("y way")
    await expect(page.get_by_role("button", name=re.compile("must-wait"))).to_be_visible()
    await expect(card).to_be_visible()  # until another one is chosen
    assert console.question(second)["status"] == "open"
    await page.get_by_role("button", name=re.compile("must-wait")).click()
    await page.get_by_role("article").filter(has_text="must-wait").get_by_role("button", name="Allow once").click()
    console.run_is(second, "finished")


@pytest.mark.slow
async def test_what_is_marked_in_a_text_and_written_below_it_stays_while_the_text_grows(console, tabs):
    told = console.scenes / "grows.txt"
    told.write_text("First paragraph.\n\n")
    run = console.begin("grow", {"follow": "grows.txt"})
    page = await at(tabs, f"#/runs/{run}")
    stop = page.get_by_role("button", name="Stop")
    await stop.focus()
    text = page.get_by_role("log").get_by_text("First paragraph.")
    await text.evaluate("(one) => getSelection().setBaseAndExtent(one.firstChild, 0, one.firstChild, 15)")
    told.write_text("First paragraph.\n\nSecond `word`.\n")
    await expect(page.get_by_role("log").get_by_text("Second")).to_be_visible()
    assert await page.evaluate("getSelection().toString()") == "First paragraph"
    await expect(stop).to_be_focused()
    told.write_text("First paragraph.\n\nSecond `word`.\nEND\n")
    box = page.get_by_label("What to do next")
    await box.fill("and th")
    console.post(f"/api/runs/{run}/resume", {"say": console.scene("from elsewhere", "Something else.")})
    await expect(page.get_by_text("Something else.").first).to_be_visible()
    await expect(box).to_have_value("and th")
    await expect(box).to_be_focused()


@pytest.mark.slow
async def test_output_can_be_read_further_up_and_whole_while_more_of_it_comes(console, tabs):
    (console.workspace / "speak.sh").write_text("seq 1 300; while [ ! -e go-on ]; do sleep 0.05; done; seq 301 600\n")
    run = console.begin("count", call("bash", command="sh speak.sh"), "Counted.")
    page = await at(tabs, f"#/runs/{run}")
    await page.get_by_role("button", name="Allow once").click()
    output = page.get_by_role("group", name="Output of bash")
    await expect(output).to_contain_text("300")
    await page.get_by_role("button", name=re.compile("Show all")).click()
    await expect(output).to_be_focused()
    (console.workspace / "go-on").write_text("")
    console.run_is(run, "finished")
    await output.evaluate("(box) => { box.scrollTop = 0; }")
    await expect(output.locator(".big-space")).to_have_attribute("style", re.compile(r"height: 108\d\dpx"))
    assert await output.evaluate("(box) => box.scrollTop") == 0


@pytest.mark.slow
async def test_a_page_that_was_left_says_nothing_any_more(console, tabs):
    page = await at(tabs, "#/memory")
    held = []
    await page.route(re.compile("/api/(tools/|runs/run-x)"), lambda route: held.append(route))
    for place in ("#/tools/bash", "#/runs/run-x", "#/workers"):
        await page.evaluate("(place) => { location.hash = place; }", place)
        await page.evaluate(DRAWN)
    await expect(page.locator("main:not([aria-busy])")).to_be_visible()
    assert held
    await expect(page.get_by_role("heading", level=1)).to_have_text("Workers")
    await expect(page.get_by_role("heading", name="Queues")).to_be_visible()


@pytest.mark.slow
async def test_news_without_end_is_shown_all_the_same(console, tabs):
    page = await at(tabs, "#/workers")
    found = await page.evaluate(
        """async () => {
          const { soon } = await import("/static/js/pace.js");
          let worked = 0;
          let isOpen = true;
          const again = soon(() => { worked += 1; }, 30, { isOpen: () => isOpen });
          const news = setInterval(again, 5);
          await new Promise((done) => { const look = setInterval(() => worked > 2 && done(clearInterval(look)), 10); });
          isOpen = false;
          const before = worked;
          await new Promise((done) => setTimeout(done, 80));
          clearInterval(news);
          return worked - before;
        }"""
    )
    assert found == 0


@pytest.mark.slow
async def test_fifty_open_pages_miss_nothing(console, tabs):
    """Five browsers with ten tabs each: five streams, and every tab hears of everything in its order, once."""
    told = console.scenes / "fifty.txt"
    told.write_text("- Line 0\n")
    path = f"fifty-{uuid4().hex}.txt"
    console.scene("tell fifty", {"follow": "fifty.txt"})
    console.scene("ask fifty", call("file_write", path=path, content="x\n"), "All fifty are done.")
    run = console.begin("tell fifty")
    pages = []
    for _ in range(5):
        first = await tabs.open(f"#/runs/{run}", fresh=True)
        pages.append(first)
        pages += [await tabs.open(f"#/runs/{run}", beside=first) for _ in range(9)]
    for page in pages:
        await expect(page.locator(".prose").get_by_text("Line 0", exact=True)).to_be_attached()
    lines = [f"- Line {line}\n" for line in range(60)]
    for upto in range(1, 61):
        told.write_text("".join(lines[:upto]))
    told.write_text("".join(lines) + "END\n")
    console.run_is(run, "finished")
    console.post(f"/api/runs/{run}/resume", {"say": "ask fifty"})
    question = console.question(run)["id"]
    for page in pages:
        await expect(page.get_by_role("article", name="file_write asks")).to_be_attached()
        shown = await page.locator(".prose").first.evaluate(
            "(one) => [...one.querySelectorAll('li')].map((line) => line.textContent)"
        )
        assert shown == [f"Line {line}" for line in range(60)]
    console.post(f"/api/questions/{question}/answer", {"kind": "once"})
    for page in pages:
        await expect(page.get_by_text("All fifty are done.").first).to_be_attached()
        await expect(page.get_by_role("article", name="file_write asks")).to_have_count(0)
        await expect(page).to_have_title(re.compile("^(?!\\()"))
