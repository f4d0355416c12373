"""The page of one run: what is looked for in it, how its texts look, and what comes to a person's eye."""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import expect

from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome
from tests.browser.conftest import call

pytestmark = pytest.mark.browser


def stored_run(console, name: str, events: list[dict[str, Any]], begun: float = 0) -> str:
    """A finished run with these events, as its worker would have stored it."""
    begun = begun or time.time() - 1_000
    ended = {"event": "run_finished", "text": "The end.", "reason": "answer", "turns": 1, "calls": 1, "usage": {},
             "cost": 0.01, "error": None}  # fmt: skip
    all_events = [{"event": "run_started", "prompt": name}, *events, ended]
    with RunStore(f"sqlite:///{console.workspace}/.forge/durable.db") as store:
        store.create(NewRun(id=name, agent="main", session=name, prompt=name, queue="none"))
        store.begin(name, 1, "w")
        wire = {"seq": 0, "session": name, "agent": "main"}
        store.add_events(name, [(None, {**wire, "ts": begun + at / 100, **one}) for at, one in enumerate(all_events)])
        result = {"reason": "answer", "text": "The end.", "turns": 1, "calls": 1, "cost": 0.01}
        store.close_segment(name, 1, Outcome(status="finished", messages=(), spent={}, result=result))
    return name


def one_call(number: int, *, output: str = "done", **given: Any) -> list[dict[str, Any]]:
    made = {"id": f"c{number}", "name": "bash", "arguments": {"command": f"echo {number}", **given}}
    result = {"id": made["id"], "name": "bash", "success": True, "is_error": False, "silent": False, "async": False,
              "for_llm": output, "title": "", "data": {}, "error": "", "attachments": []}  # fmt: skip
    return [
        {"event": "tool_call_start", "call": made},
        {"event": "tool_call_end", "call": made, "success": True, "seconds": 0.01, "result": result},
    ]


async def test_words_are_found_in_a_long_run_that_is_not_all_in_the_page(console, tabs):
    calls = [
        one_call(n, output="the needle is here" if n in (7, 2_000) else "nothing", note="a pin" if n == 1_200 else "")
        for n in range(2_500)
    ]
    run = stored_run(console, f"long-{uuid4().hex[:8]}", [event for one in calls for event in one])
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.locator("main:not([aria-busy])").get_by_role("log")).to_be_visible()
    await page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search this run")
    await expect(field).to_be_focused()
    await page.keyboard.type("NEEDLE")
    place = page.get_by_role("search").get_by_role("status")
    await expect(place).to_have_text("1 of 2 steps")
    await expect(page.locator("[data-call=c7] .card-body")).to_be_in_viewport()
    await expect(page.locator("[data-call=c7]").get_by_text("the needle is here").first).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(place).to_have_text("2 of 2 steps")
    await expect(page.locator("[data-call=c2000]").get_by_text("the needle is here").first).to_be_in_viewport()
    await expect(page.locator(".excerpt")).to_contain_text("Result of bash: the needle is here")
    assert await page.evaluate("CSS.highlights.get('found').size") >= 1
    await page.keyboard.press("Enter")
    await expect(place).to_have_text("1 of 2 steps")
    await page.keyboard.press("Shift+Enter")
    await expect(place).to_have_text("2 of 2 steps")
    await expect(field).to_be_focused()
    assert await page.locator(".card").count() < 400, "most of the run is not in the page"
    await expect(page).to_have_url(re.compile("find=NEEDLE"))

    await field.fill("a pin")
    await expect(place).to_have_text("1 of 1 step")
    await expect(page.locator(".excerpt")).to_contain_text("Argument of bash: note: a pin")
    await field.fill("haystack (no.*regex")
    await expect(place).to_have_text("0 steps")
    await expect(page.get_by_role("button", name="Next match")).to_be_hidden()
    await page.keyboard.press("Escape")
    await expect(place).to_have_text("")
    again = await tabs.open(f"#/runs/{run}?find=a+pin", fresh=True)
    await expect(again.locator("[data-call=c1200] .card-body")).to_be_in_viewport()


async def test_a_word_is_found_in_a_sub_agent_of_a_closed_card(console, tabs):
    console.scene("write a hidden thing", "Here is the word xylophone.")
    wanted = call("task", description="write", prompt="write a hidden thing", agent_type="scribe")
    run = console.begin("delegate it", wanted, "Delegated.")
    console.post(f"/api/questions/{console.question(run)['id']}/answer", {"kind": "once"})
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_text("Delegated.").first).to_be_visible()
    await page.locator(".card-head").first.click()
    await expect(page.locator(".branch")).to_be_hidden()
    await page.get_by_role("searchbox", name="Search this run").fill("xylophone")
    await expect(page.get_by_role("search").get_by_role("status")).to_have_text(re.compile("^1 of [23] steps"))
    await page.keyboard.press("Enter")
    await expect(page.locator(".branch").get_by_text("xylophone").first).to_be_in_viewport()


MARKDOWN = """# Findings

Two things, **both** in *one* file `a|b.py`:

1. First
   - inner `code`
2. Second

| tool | calls | note |
|:-----|------:|------|
| bash | 12 | `x | y` and \\| |
| <img src=x onerror=pwn()> | 3 | [docs](https://docs.example/a?b=1) |

> quoted <b>text</b>

```python
def f(x):  # a comment
    return "text" + str(42)
```

[bad](javascript:alert(1)) [data](data:text/html,x) [user](https://good.example@evil.example/) ![pic](https://evil.example/p.png)
See https://plain.example/path.
"""


async def test_tables_and_code_of_a_model_are_shown_and_nothing_is_markup(console, tabs):
    run = console.begin("write markdown", MARKDOWN)
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    prose = page.locator(".prose").first
    await expect(prose.get_by_role("heading", name="Findings")).to_be_visible()
    await expect(prose.get_by_role("columnheader")).to_have_text(["tool", "calls", "note"])
    rows = prose.get_by_role("row")
    await expect(rows.nth(1).get_by_role("cell")).to_have_text(["bash", "12", "x | y and |"])
    await expect(rows.nth(2).get_by_role("cell").first).to_have_text("<img src=x onerror=pwn()>")
    await expect(prose.locator("ol > li")).to_have_count(2)
    await expect(prose.locator("ol > li > ul > li")).to_have_text("inner code")
    await expect(prose.locator("blockquote")).to_have_text("quoted <b>text</b>")
    code = prose.get_by_role("group", name="Code, python")
    await expect(code.locator(".keyword")).to_have_text(["def", "return"])
    await expect(code.locator(".string")).to_have_text('"text"')
    await expect(code.locator(".comment")).to_have_text("# a comment")
    await expect(code.locator(".number")).to_have_text("42")
    assert await prose.locator("a, img, b, script").count() == 0
    links = prose.get_by_role("button")
    await expect(links).to_have_text(["docs", "https://plain.example/path"])
    await expect(prose).to_contain_text("[bad](javascript:alert(1))")
    await expect(prose).to_contain_text("docs (docs.example)")

    await links.first.click()
    asked = page.get_by_role("dialog", name="Open this link?")
    await expect(asked).to_contain_text("https://docs.example/a?b=1")
    link = asked.get_by_role("link", name="Open in a new tab")
    await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(link).to_have_attribute("href", "https://docs.example/a?b=1")
    await page.keyboard.press("Escape")
    await expect(asked).to_have_count(0)
    await expect(links.first).to_be_focused()


async def test_text_made_to_be_slow_is_shown_at_once(console, tabs):
    """Each line would take minutes with a pattern that goes back again and again."""
    hostile = ["`" * 5_000 + "x", "**" + "a " * 4_000, "#" + " #" * 4_000 + "x", "~" * 5_000 + "`", "[" * 5_000,
               "| a |\n|" + " " * 4_000 + "x", "```" + "a" * 4_000 + "`", "_a" * 4_000, "- " * 4_000 + "x"]  # fmt: skip
    for number, text in enumerate(hostile):
        run = console.begin(f"be slow {number}", text)
        console.run_is(run, "finished")
        page = await tabs.open(f"#/runs/{run}")
        await expect(page.locator(".prose").first).to_be_visible(timeout=10_000)


async def test_a_question_that_appears_is_brought_into_view(console, tabs):
    told = console.scenes / "lines.txt"
    lines = "".join(f"Line {line}\n\n" for line in range(200))
    told.write_text(lines + "END\n")
    path = f"appear-{uuid4().hex}.txt"
    console.scene("ask after much", {"follow": "lines.txt"})
    run = console.begin("ask after much")
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}", height=600)
    await expect(page.get_by_text("Line 199")).to_be_attached()
    console.scene("now ask", call("file_write", path=path, content="x\n" * 30), "Done.")
    await page.evaluate("scrollTo(0, 0)")
    console.post(f"/api/runs/{run}/resume", {"say": "now ask"})
    question = page.get_by_role("article", name="file_write asks")
    await expect(question.get_by_role("heading").first).to_be_in_viewport()
    await expect(question.get_by_role("button", name="Allow once")).to_be_in_viewport()
    assert await page.evaluate("document.activeElement.closest('.question')") is None, "the focus stays where it was"


async def test_whoever_writes_is_not_moved_by_a_question(console, tabs):
    path = f"appear-{uuid4().hex}.txt"
    go = console.scenes / "go.txt"
    lines = "".join(f"Line {line}\n\n" for line in range(200))
    go.write_text(lines)
    console.scene("ask while I write", {"follow": "go.txt"})
    run = console.begin("ask while I write")
    page = await tabs.open(f"#/runs/{run}", height=600)
    await expect(page.get_by_text("Line 199")).to_be_attached()
    field = page.get_by_role("searchbox", name="Search this run")
    await field.scroll_into_view_if_needed()
    await field.focus()
    go.write_text(lines + "END\n")
    console.run_is(run, "finished")
    await page.evaluate("scrollTo(0, 0)")
    console.scene("now ask me", call("file_write", path=path, content="x\n"), "Done.")
    console.post(f"/api/runs/{run}/resume", {"say": "now ask me"})
    offer = page.get_by_role("button", name="A question waits: go to it")
    await expect(offer).to_be_visible()
    await expect(field).to_be_focused()
    assert await page.evaluate("scrollY") == 0
    await page.keyboard.type("xy")
    await expect(field).to_have_value("xy")
    await offer.click()
    await expect(page.get_by_role("article", name="file_write asks")).to_be_in_viewport()
    await expect(offer).to_be_hidden()


async def test_waits_are_shortened_where_they_dominate_and_a_switch_shows_them_whole(console, tabs):
    slow = one_call(1)
    asked = {"event": "permission_asked", "call": slow[0]["call"], "permission": "execute", "target": "x", "rule": "",
             "others": []}  # fmt: skip
    begun = time.time() - 90_000
    events = [{**slow[0], "ts": begun + 2}, {**asked, "ts": begun + 2.1}, {**slow[1], "ts": begun + 7_202}]
    last = {"event": "turn_finished", "turn": 1, "usage": {}, "ts": begun + 7_210}
    run = stored_run(console, f"waits-{uuid4().hex[:8]}", [*events, last], begun)
    page = await tabs.open(f"#/runs/{run}")
    switch = page.get_by_role("checkbox", name="Shorten long waits")
    await expect(switch).to_be_checked()
    await expect(page.get_by_text(re.compile("not to scale"))).to_be_visible()
    width = "(one) => one.getBoundingClientRect().width / one.parentElement.getBoundingClientRect().width"
    wait = page.locator(".bar.person").first
    assert await wait.evaluate(width) < 0.5
    await switch.uncheck()
    await expect(page.get_by_text(re.compile("not to scale"))).to_have_count(0)
    assert await wait.evaluate(width) > 0.9

    quick = stored_run(console, f"quick-{uuid4().hex[:8]}", [event for n in range(5) for event in one_call(n)])
    await page.goto(f"{console.address}/#/runs/{quick}")
    await expect(page.get_by_text("The end.").first).to_be_visible()
    await expect(page.get_by_text(re.compile("not to scale"))).to_have_count(0)


# the controls that can be pressed now
SEEN = """() => {
  window.atPoint = (one) => { const { left, top, width, height } = one.getBoundingClientRect();
    return document.elementFromPoint(left + width / 2, top + height / 2); };
  window.seen = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((one) => one.contains(window.atPoint(one)));
  return window.seen.length;
}"""
UNDER = """() => window.seen.filter((one) => window.atPoint(one)?.closest(".notice"))
  .map((one) => one.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize(("width", "height"), [(1280, 500), (360, 640)])
async def test_a_message_covers_nothing(console, tabs, width, height):
    run = stored_run(console, f"toast-{uuid4().hex[:8]}", [event for n in range(60) for event in one_call(n)])
    page = await tabs.open(f"#/runs/{run}", width=width, height=height)
    await expect(page.locator("main:not([aria-busy])").get_by_role("log")).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    content = "document.querySelector('.content').getBoundingClientRect().top"
    for number in (0, 40):
        card = page.locator(f"[data-call=c{number}]")
        await page.get_by_role("searchbox").fill(f"echo {number}")
        await card.get_by_text("Copy as").click()
        await card.get_by_role("button", name="Link to this step").focus()
        before = await page.evaluate(content)
        assert await page.evaluate(SEEN) > 10
        await page.keyboard.press("Enter")
        await expect(page.locator(".notice")).to_have_text(re.compile("Copied"))
        await expect(page.locator(".notice")).to_be_in_viewport()
        assert await page.evaluate(UNDER) == []
        if width < 860:
            assert await page.evaluate(content) - before > 30, "the page moved down"
        await page.locator(".notice").get_by_role("button", name="Close").click()
        await expect(page.locator(".notice")).to_have_count(0)


async def test_the_palette_leads_to_pages_runs_tools_and_rules_by_keyboard(console, tabs):
    run = console.begin("palette zebra", "Striped.")
    console.run_is(run, "finished")
    page = await tabs.open("#/memory")
    await expect(page.get_by_role("heading", level=1, name="Memory")).to_be_visible()
    field = page.get_by_role("combobox", name="Go to a page, run, tool or rule")
    chosen = page.get_by_role("dialog").get_by_role("option", selected=True)
    for words, name, title in (
        ("work", "Workers", "Workers"),
        ("zebra", "palette zebra", "palette zebra"),
        ("file_ed", "file_edit", "file_edit"),
        ("git tag", "deny execute git tag *", "Policy"),
    ):
        await page.keyboard.press("Control+k")
        await expect(field).to_be_focused()
        await page.keyboard.type(words)
        await expect(chosen.locator(".palette-words")).to_have_text(name)
        active = await field.get_attribute("aria-activedescendant")
        assert await chosen.get_attribute("id") == active
        await page.keyboard.press("Enter")
        await expect(field).to_have_count(0)
        await expect(page.get_by_role("heading", level=1)).to_have_text(title)
        await expect(page).to_have_title(re.compile(re.escape(title)))
    await expect(page.locator("tr[aria-current]")).to_contain_text("git tag")

    await page.keyboard.press("Control+k")
    for kind in ("Pages", "Runs", "Tools", "Rules"):
        await expect(page.get_by_role("group", name=kind).get_by_role("option").first).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await expect(chosen).to_have_text("Approvals")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect(chosen).to_contain_text("allow write notes/**")
    await page.keyboard.type("nothing has this name")
    await expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("Nothing found")
    await page.keyboard.press("Enter")
    await expect(field).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(field).to_have_count(0)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Policy")


async def test_every_page_has_a_title_of_its_own(console, tabs):
    run = console.begin("title of a run", "Done.")
    console.run_is(run, "finished")
    page = await tabs.open()
    project = console.get("/api/me")["project"]
    for place, title in {
        "#/": "Overview",
        "#/runs": "Runs",
        f"#/runs/{run}": "title of a run",
        "#/sessions/demo": "The test of the parser fails",
        "#/tools": "Tools",
        "#/tools/bash": "bash · Tools",
        "#/policy": "Policy",
        "#/trends": "Trends",
    }.items():
        await page.goto(f"{console.address}/{place}")
        await expect(page).to_have_title(
            re.compile(rf"^(\(\d+\) )?{re.escape(title)}.* · {re.escape(project)} · Forge$")
        )


async def test_two_runs_stand_side_by_side_and_their_differences_are_marked(console, tabs):
    same, other = one_call(1), one_call(2, output="another answer")
    first = [*same, *one_call(2, output="an answer"), *one_call(3, path="a.txt"), *one_call(4)]
    runs = [
        stored_run(console, f"left-{uuid4().hex[:6]}", first),
        stored_run(console, f"right-{uuid4().hex[:6]}", [*same, *other, *one_call(3, path="b.txt")]),
    ]
    page = await tabs.open(f"#/runs/{runs[0]}")
    await page.get_by_role("link", name="Compare…").click()
    await page.get_by_role("link", name=runs[1]).click()
    await expect(page).to_have_url(re.compile(f"#/compare/{runs[0]}/{runs[1]}$"))
    await expect(page).to_have_title(re.compile("^Compare: left-.* / right-"))
    steps = page.get_by_role("list", name="Steps of both runs")
    rows = steps.locator(".compare-row")
    await expect(rows.locator(".badge")).to_have_text(["differs", "differs", "differs", "only in A"])
    left, right = (
        rows.nth(1).get_by_role("group", name="A", exact=True),
        rows.nth(1).get_by_role("group", name="B", exact=True),
    )
    await expect(left).to_contain_text("an answer")
    await expect(right).to_contain_text("another answer")
    await expect(rows.nth(1)).to_contain_text("Different result")
    await expect(rows.nth(2)).to_contain_text("Different arguments: path")
    await expect(rows.nth(2).get_by_role("group", name="B", exact=True)).to_contain_text("b.txt")
    await expect(rows.nth(3).get_by_role("group", name="A", exact=True)).to_contain_text("echo 4")
    await expect(steps.get_by_text("step the same: bash")).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("^Cost")).get_by_role("cell")).to_have_count(3)

    await page.goto(f"{console.address}/#/compare/{runs[0]}/{runs[0]}")
    await expect(page.get_by_text("All steps are the same.")).to_be_visible()
    await page.goto(f"{console.address}/#/compare/{runs[0]}/nothing")
    await expect(page.locator(".bad")).to_be_visible()
    tabs.expect("404")
