"""Every page, narrow and wide, light and dark, with a keyboard and for a screen reader."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import count, pairwise
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import call
from tests.browser.test_hostile import nasty_run

pytestmark = pytest.mark.browser

PAGES = {
    "#/": "",
    "#/approvals": "Approvals",
    "#/runs": "Runs",
    "#/tools": "Tools",
    "#/tools/file_edit": "file_edit",
    "#/policy": "Policy",
    "#/schedules": "Schedules",
    "#/memory": "Memory",
    "#/workers": "Workers",
    "#/trends": "Trends",
    "#/sessions/demo": "parser",
}
NUMBERS = count(1)
NAMED = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "slider", "tab", "radio", "spinbutton"}

CONTRASTS = Path(__file__).with_name("contrasts.js").read_text(encoding="utf-8")


@pytest.fixture
def busy(console):
    """Something in every list, and something that waits."""
    wide = f"{next(NUMBERS)}{'w' * 300}"  # another file each time: one that is there would have to be read first
    shown = console.begin(
        "a look", call("file_write", path=f"notes/{wide[:100]}.txt", content=f"{wide}\n"), f"See {wide}."
    )
    console.run_is(shown, "finished")
    waiting = console.begin("a question", call("file_write", path=f"{wide[:90]}.txt", content=f"{wide} one\n"), "Done.")
    console.question(waiting)
    denied = console.begin("a push", call("bash", command="git push origin main"), "Refused.")
    console.run_is(denied, "finished")
    return {**PAGES, f"#/runs/{shown}": "a look", f"#/runs/{waiting}": "a question"}


async def opened(page, console, place, name):
    await page.goto(f"{console.address}/{place}")
    await expect(page.get_by_role("heading", level=1).first).to_contain_text(name)
    await expect(page.locator("main:not([aria-busy])")).to_be_visible()


@pytest.mark.slow
async def test_nothing_is_wider_than_a_narrow_screen(console, tabs, busy):
    nasty = nasty_run(console, "run-wide", output="w" * 3_000)
    page = await tabs.open(width=360, height=740)
    too_wide = {}
    for place, name in {**busy, f"#/runs/{nasty}": "<script>"}.items():
        await opened(page, console, place, name)
        await page.evaluate("document.querySelectorAll('[aria-expanded=false]').forEach((one) => one.click())")
        width = await page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        if width > 360:
            too_wide[place] = width
        await page.set_viewport_size({"width": 640, "height": 400})  # a common screen at 200 %
        width = await page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        if width > 640:
            too_wide[place, "at 200 %"] = width
        await page.set_viewport_size({"width": 360, "height": 740})
    assert not too_wide
    await page.get_by_role("link", name=re.compile("Approvals")).first.click()
    await page.get_by_role("article").get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("No open questions.")).to_be_visible()


@pytest.mark.slow
async def test_a_phone_shows_the_names_of_the_pages(console, tabs):
    page = await tabs.open("#/trends", width=390, height=740)
    links = page.get_by_role("navigation").get_by_role("link")
    await expect(links).to_have_count(9)
    for link in await links.all():
        words = link.locator(".nav-words")
        box = await words.bounding_box()
        assert box["width"] > 15
        assert box["height"] > 8
    await expect(links.filter(has_text="Trends")).to_be_in_viewport()
    await links.filter(has_text="Overview").click()
    await expect(links.filter(has_text="Overview")).to_have_attribute("aria-current", "page")
    await expect(links.filter(has_text="Overview")).to_be_in_viewport()


@pytest.mark.slow
async def test_every_text_can_be_read_in_the_light_and_in_the_dark(console, tabs, busy):
    page = await tabs.open()
    pale = {}
    for place, name in busy.items():
        await opened(page, console, place, name)
        await page.evaluate("document.querySelectorAll('[aria-expanded=false]').forEach((one) => one.click())")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            found = await page.evaluate(CONTRASTS)
            if found:
                pale[place, scheme] = found
    await page.emulate_media(color_scheme="light")
    assert not pale


@pytest.mark.slow
async def test_everything_has_a_name_and_a_place(console, tabs, busy):
    page = await tabs.open()
    session = await page.context.new_cdp_session(page)
    nameless, odd = {}, {}
    for place, name in busy.items():
        await opened(page, console, place, name)
        tree = (await session.send("Accessibility.getFullAXTree"))["nodes"]
        roles = [
            (one.get("role", {}).get("value"), one.get("name", {}).get("value", ""))
            for one in tree
            if not one["ignored"]
        ]
        nameless[place] = [role for role, words in roles if role in NAMED and not words.strip()]
        found = [role for role, _ in roles]
        odd[place] = [role for role in ("main", "navigation") if found.count(role) != 1]
        await page.evaluate(
            "document.querySelectorAll('.card-head[aria-expanded=false]').forEach((one) => one.click())"
        )
        levels = await page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3, h4')].filter((one) => one.checkVisibility())"
            ".map((one) => Number(one.tagName[1]))"
        )
        odd[place] += [] if levels.count(1) == 1 and levels[0] == 1 else ["h1"]
        odd[place] += [f"h{one} after h{before}" for before, one in pairwise(levels) if one > before + 1]
        odd[place] += (
            ["ids"]
            if await page.evaluate(
                "(ids => ids.length !== new Set(ids).size)([...document.querySelectorAll('[id]')].map((one) => one.id))"
            )
            else []
        )
    assert not {place: found for place, found in nameless.items() if found}
    assert not {place: found for place, found in odd.items() if found}
    assert await page.locator("html").get_attribute("lang") == "en"
    assert await page.locator("[aria-live=polite]").count() >= 1


@pytest.mark.slow
async def test_a_keyboard_reaches_everything_and_is_never_caught(console, tabs, busy):
    page = await tabs.open("#/policy", fresh=True)
    await expect(page.get_by_role("heading", level=1, name="Policy")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.locator(":focus")).to_contain_text(re.compile("skip", re.IGNORECASE))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    await expect(page.get_by_role("heading", level=1, name="Policy")).to_be_visible()

    await page.evaluate(
        """document.addEventListener("focusin", ({ target }) => {
          const style = getComputedStyle(target);
          (window.stops ??= new Map()).set(target, style.outlineStyle !== "none" || style.boxShadow !== "none");
        })"""
    )
    for place, name in busy.items():
        await opened(page, console, place, name)
        await expect(page.locator("button:disabled")).to_have_count(0)
        reachable = await page.evaluate(
            """() => {
              window.stops = new Map();
              document.querySelector(".skip").focus();
              return [...document.querySelectorAll("a[href], button, input, select, textarea")].filter((one) =>
                one.checkVisibility() && !one.disabled && one.tabIndex >= 0 && one.type !== "file").length;
            }"""
        )
        missed: list[str] = ["not looked yet"]
        for _ in range(5):  # a long list loads more rows while the focus moves down
            for _ in range(reachable + 20 if missed else 0):  # and regions that scroll
                await page.keyboard.press("Tab")
            missed, ringless = await page.evaluate(
                """() => [
                  [...document.querySelectorAll("a[href], button, input, select, textarea")].filter((one) =>
                    one.checkVisibility() && !one.disabled && one.tabIndex >= 0 && one.type !== "file"
                    && !window.stops.has(one)).map((one) => one.outerHTML.slice(0, 80)),
                  [...window.stops].filter(([, ring]) => !ring).map(([one]) => one.outerHTML.slice(0, 80)),
                ]"""
            )
        assert not missed, (place, missed)
        assert not ringless, (place, ringless)


@pytest.mark.slow
async def test_pages_are_reached_and_themes_switched_by_keyboard(console, tabs):
    page = await tabs.open("#/runs", color_scheme="dark")
    await expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(keys).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search runs")).to_be_focused()
    before = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    await page.get_by_role("button", name="Theme").focus()
    await page.keyboard.press("Enter")
    assert await page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before
    await page.reload()
    await expect(page.get_by_role("heading", level=1, name="Runs")).to_be_visible()
    assert await page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before


@pytest.mark.slow
async def test_nothing_jumps_while_text_comes(console, tabs):
    told = console.scenes / "steady.txt"
    told.write_text("Line 0\n")
    run = console.begin("be steady", {"follow": "steady.txt"})
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_text("Line 0")).to_be_visible()
    await page.evaluate(
        """() => {
          window.shifts = [];
          new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((one) => one.value)))
            .observe({ type: "layout-shift" });
          window.top_of = document.querySelector("h1").getBoundingClientRect().top;
        }"""
    )
    for number in range(1, 12):
        told.write_text("".join(f"Line {line}\n" for line in range(number + 1)))
        await expect(page.get_by_text(f"Line {number}").last).to_be_visible()
    told.write_text("".join(f"Line {line}\n" for line in range(12)) + "END\n")
    console.run_is(run, "finished")
    assert sum(await page.evaluate("window.shifts")) < 0.05


async def test_a_page_needs_few_requests_and_a_second_look_fewer_bytes(console, tabs, busy):
    """67 requests were needed when each module was one."""
    page = await tabs.open(fresh=True)
    asked = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(console.address)))
    for place, name in busy.items():
        await page.goto("about:blank")
        asked.clear()
        await opened(page, console, place, name)
        await page.evaluate("new Promise((done) => requestIdleCallback(done))")
        assert len(asked) <= 15, (place, asked)
    sizes = "performance.getEntriesByType('resource').filter((one) => /console-/.test(one.name))"
    again = await page.evaluate(f"{sizes}.map((one) => [one.transferSize, one.decodedBodySize])")
    assert len(again) == 2
    assert all(sent == 0 and size > 10_000 for sent, size in again), "they are kept"

    await page.goto("about:blank")
    asked.clear()
    await page.goto(f"{console.address}/?modules#/policy")
    await expect(page.get_by_role("heading", level=1, name="Policy")).to_be_visible()
    assert len([one for one in asked if one.startswith("/static/js/")]) > 40, "the modules themselves are there, too"


async def axe_findings(page):
    """What axe finds with all of its rules, in short."""
    if not await page.evaluate("Boolean(window.axe)"):
        await page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found["violations"]]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 360])
async def test_axe_finds_nothing_on_any_page_while_a_question_waits(console, tabs, busy, width):
    page = await tabs.open(width=width, height=800)
    shown = [place.removeprefix("#/runs/") for place in busy if place.startswith("#/runs/")]
    found = {}
    for place, name in {**busy, f"#/compare/{'/'.join(shown)}": "Compare", f"#/compare/{shown[0]}": "Compare"}.items():
        await opened(page, console, place, name)
        await expect(page.locator("button:disabled")).to_have_count(0)
        await page.evaluate("document.querySelectorAll('main [aria-expanded=false]').forEach((one) => one.click())")
        await page.evaluate("document.querySelectorAll('main details').forEach((one) => (one.open = true))")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            found[place, scheme] = await axe_findings(page)
    await page.emulate_media(color_scheme="light")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("option").first).to_be_visible()
    found["palette", ""] = await axe_findings(page)
    await page.keyboard.press("Escape")
    assert not {place: what for place, what in found.items() if what}
    await page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [one for one, _ in await axe_findings(page)] == ["image-alt"], "it does look"
    await page.reload()
