"""Runs, live and over: text as it comes, cards, sub-agents, stopping, exporting, taking back."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from forge.core.messages import Message
from forge.durable.store import RunStore
from forge.durable.store.rows import NewRun, Outcome
from forge.workspace.state import state_directory
from tests.browser.conftest import call
from tests.console.test_trends import store_runs

pytestmark = pytest.mark.browser


async def test_text_is_shown_as_it_comes(console, tabs):
    told = console.scenes / "told.txt"
    console.scene("tell a story", {"follow": "told.txt"})
    page = await tabs.open("#/runs")
    await page.get_by_label("What should the agent do?").fill("tell a story")
    await page.keyboard.press("Enter")
    log = page.get_by_role("log", name="Steps")
    told.write_text("Once upon ")
    await expect(log.get_by_text("Once upon")).to_be_visible()
    told.write_text("Once upon a time there was a `fox`")
    await expect(log.get_by_text("a time there was a")).to_be_visible()
    run = page.url.rpartition("/")[2]
    assert console.get(f"/api/runs/{run}")["status"] == "running"
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    told.write_text("Once upon a time there was a `fox`.\nEND\n")
    await expect(page.get_by_text("finished").first).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert await log.get_by_text("Once upon").count() == 1

    console.scene("go on", "And then it slept.")
    await page.get_by_label("What to do next").fill("go on")
    await page.get_by_role("button", name="Send").click()
    await expect(log.get_by_text("And then it slept.")).to_be_visible()


@pytest.mark.slow
async def test_a_message_to_the_running_agent_is_heard_before_its_next_turn(console, tabs):
    told = console.scenes / "long.txt"
    console.scene("tell a long story", {"follow": "long.txt"})
    console.scene("make it short", "It ended.")
    page = await tabs.open("#/runs")
    await page.get_by_label("What should the agent do?").fill("tell a long story")
    await page.keyboard.press("Enter")
    log = page.get_by_role("log", name="Steps")
    told.write_text("Once upon")
    await expect(log.get_by_text("Once upon")).to_be_visible()
    await page.get_by_label("Message to the running agent").fill("make it short")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("The agent sees the message before its next turn.").first).to_be_visible()
    told.write_text("Once upon a time.\nEND\n")
    await expect(log.get_by_text("It ended.")).to_be_visible()
    await expect(log.get_by_text("make it short").first).to_be_visible()


async def test_a_call_is_a_card_with_its_three_readings(console, tabs):
    run = console.begin("write a card", call("file_write", path="notes/card.txt", content="one\n"), "It is done.")
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    head = page.get_by_role("button", name=re.compile("file_write.*card.txt"))
    await expect(head).to_have_attribute("aria-expanded", "false")
    await head.click()
    for reading, words in (("For the person", "+one"), ("For the model", "card.txt"), ("JSON", '"is_error": false')):
        await page.get_by_role("tab", name=reading).click()
        await expect(page.get_by_role("group").filter(has_text=words).last).to_be_visible()
    await expect(page.get_by_text("It is done.")).to_be_visible()
    await expect(page.get_by_role("link", name=re.compile("^file_write notes.card.txt.*starts after"))).to_be_visible()
    await expect(page.get_by_text(re.compile("tokens in")).first).to_be_visible()


@pytest.mark.slow
async def test_a_sub_agent_is_shown_inside_the_call_that_began_it(console, tabs):
    console.scene("child writes", call("file_write", path="notes/child.txt", content="c"), "The child is done.")
    wanted = call("task", description="write", prompt="child writes", agent_type="scribe")
    run = console.begin("delegate", wanted, "All is done.")
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("All is done.").first).to_be_visible()
    below = page.get_by_role("region", name="Sub-agent main/scribe")
    await expect(below.get_by_text("The child is done.").first).to_be_visible()
    await expect(below.get_by_role("button", name=re.compile("file_write.*child.txt"))).to_be_visible()


@pytest.mark.slow
async def test_sub_agents_side_by_side_are_each_inside_their_own_call(console, tabs):
    """Their calls have the same id, as at a terminal, where they have no runs of their own."""
    page = await tabs.open("#/runs")
    found = await page.evaluate(
        """async () => {
          const { Fold } = await import("/static/js/fold.js");
          const fold = new Fold("r");
          const add = (agent, task, id, name) =>
              fold.add({ n: 1, run: "r", event: { event: "tool_call_start", ts: 1, agent, task, call: { id, name } } });
          add("main", undefined, "t1", "task");
          add("main", undefined, "t2", "task");
          add("main/general", "t2", "same", "pears");
          add("main/general", "t1", "same", "apples");
          add("main/general/desk", "t1/same", "same", "deep");
          const tree = (items) => items.map((item) => [item.name, ...item.branches.map((one) => tree(one.items))]);
          return tree(fold.trunk.items);
        }"""
    )
    assert found == [["task", [["apples", [["deep"]]]]], ["task", [["pears"]]]]


@pytest.mark.slow
async def test_a_result_that_is_not_sent_again_is_a_row(console, tabs):
    (console.workspace / "long.txt").write_text("a long line of a long file\n" * 60, encoding="utf-8")
    reads = [call("file_read", path="long.txt"), call("file_read", path="long.txt")]
    run = console.begin("read it twice", *reads, "It is long.")
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    await expect(
        page.get_by_text(re.compile(r"^Not sent again: 1 repeated result, about [0-9,.]+ tokens · "))
    ).to_be_visible()


@pytest.mark.slow
async def test_a_run_is_stopped_and_goes_on(console, tabs):
    (console.scenes / "long.txt").write_text("Let me think")
    run = console.begin("think long", {"follow": "long.txt"}, "I have it.")
    page = await tabs.open(f"#/runs/{run}")
    await expect(page.get_by_text("Let me think")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("stopped").first).to_be_visible()
    console.run_is(run, "cancelled")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("I have it.").first).to_be_visible()
    console.run_is(run, "finished")


@pytest.mark.slow
async def test_runs_are_found_again_and_replayed(console, tabs):
    run = console.begin("a needle in the hay", "Found it.")
    console.run_is(run, "finished")
    page = await tabs.open("#/runs")
    await page.get_by_label("Search runs").fill("NEEDLE IN")
    await expect(page.get_by_role("link", name=re.compile("needle"))).to_have_count(1)
    await page.get_by_label("Search runs").fill("nothing is like this")
    await expect(page.get_by_text("No runs match.")).to_be_visible()
    await page.get_by_label("Search runs").fill("needle")
    await page.get_by_role("link", name=re.compile("needle")).click()
    await page.get_by_role("button", name="Replay").click()
    bar = page.get_by_role("group", name="Replay")
    await expect(bar.get_by_text(re.compile("^1 .*run started"))).to_be_visible()
    await expect(page.get_by_text("Found it.")).to_have_count(0)
    await page.keyboard.press(".")
    await expect(page.get_by_text("Found it.")).to_have_count(1)
    await bar.get_by_label("Step", exact=True).press("End")
    await expect(bar.get_by_text("run finished")).to_be_visible()
    await bar.get_by_role("button", name="End replay").click()
    await expect(page.get_by_text("Found it.")).to_have_count(1)


@pytest.mark.slow
async def test_a_run_is_taken_away_as_json_ndjson_and_markdown(console, tabs):
    run = console.begin("export me", call("math_calculate", expression="6*7"), "It is 42.")
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    texts = {}
    for name in ("JSON", "NDJSON", "Markdown"):
        menu = page.locator("summary", has_text="Export")
        if not await menu.evaluate("(one) => one.parentElement.open"):
            await menu.click()
        async with page.expect_download() as started:
            await page.get_by_role("link", name=name, exact=True).click()
        download = await started.value
        texts[name] = Path(await download.path()).read_text()
        assert download.suggested_filename.startswith(run)
    whole = json.loads(texts["JSON"])
    assert (whole["id"], whole["messages"][-1]["text"]) == (run, "It is 42.")
    events = [json.loads(line)["event"] for line in texts["NDJSON"].splitlines()]
    assert (events[0], events[-1]) == ("run_started", "run_finished")
    assert texts["Markdown"].startswith("# export me")
    assert "It is 42." in texts["Markdown"]


async def test_a_button_leads_to_the_answer_of_a_long_run(console, tabs):
    calls = [call("math_calculate", expression=f"{number}*7") for number in range(12)]
    run = console.begin("be long", *calls, "The answer is 42.")
    console.run_is(run, "finished")
    page = await tabs.open(f"#/runs/{run}")
    answer = page.get_by_role("log").get_by_text("The answer is 42.")
    await expect(answer).not_to_be_in_viewport()
    await page.get_by_role("button", name="Answer ↓").click()
    await expect(answer).to_be_in_viewport()
    (console.scenes / "unfinished.txt").write_text("Wait.\n")
    other = console.begin("be unfinished", {"follow": "unfinished.txt"})
    await page.goto(f"{console.address}/#/runs/{other}")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(page.get_by_role("button", name="Answer ↓")).to_have_count(0)


@pytest.mark.slow
async def test_changes_of_files_are_taken_back(console, tabs):
    run = console.begin("write for undo", call("file_write", path="notes/undo.txt", content="x"), "Done.")
    console.run_is(run, "finished")
    assert (console.workspace / "notes" / "undo.txt").exists()
    page = await tabs.open(f"#/runs/{run}")
    await page.get_by_role("button", name="Undo…").click()
    dialog = page.get_by_role("dialog", name="File changes")
    await expect(dialog.get_by_text("notes/undo.txt")).to_be_visible()
    await dialog.get_by_role("button", name="Undo this change").click()
    await expect(page).to_have_url(re.compile("#/runs/(?!" + run + "$)"))
    taking = page.url.rpartition("/")[2]
    if console.run_is(taking, "finished", "waiting")["status"] == "waiting":
        await page.get_by_role("button", name="Allow once").click()
        console.run_is(taking, "finished")
    assert not (console.workspace / "notes" / "undo.txt").exists()


@pytest.mark.slow
async def test_a_call_of_a_lost_worker_says_what_its_tool_found_out(console, tabs):
    events: list[dict[str, Any]] = [{"event": "run_started", "prompt": "pay"}]
    for state, reason in (("done", "the bank has it"), ("not_done", ""), ("unknown", "two look like it")):
        asked = {"id": state, "name": f"pay_{state}", "arguments": {}}
        result = {"for_llm": "paid", "success": state != "unknown", "is_error": state == "unknown"}
        end = {"success": result["success"], "seconds": 1.0, "result": result}
        events += [
            {"event": "tool_reconciled", "call": asked, "state": state, "reason": reason},
            {"event": "tool_call_start", "call": asked},
            {"event": "tool_call_end", "call": asked, **end},
        ]
    wire = {"ts": time.time(), "seq": 0, "session": "paid", "agent": "main"}
    with RunStore(f"sqlite:///{console.workspace}/.forge/durable.db") as store:
        store.prepare()
        said = (Message("user", "pay"),)
        store.create(NewRun(id="run-paid", session="paid", prompt="pay", messages=said, queue="none"))
        store.begin("run-paid", 1, "worker")
        store.add_events("run-paid", [(None, wire | one) for one in events])
        ended = {"reason": "answer", "text": "done", "turns": 1, "calls": 3}
        store.close_segment("run-paid", 1, Outcome(status="finished", messages=said, spent={}, result=ended))
    page = await tabs.open("#/runs/run-paid")
    for state, words in (
        ("done", "Its worker was lost: the call took effect, and its result is used. the bank has it"),
        ("not_done", "Its worker was lost: the call took no effect, so it runs now."),
        ("unknown", "Its worker was lost: the tool cannot find out, so the call does not run again. two look like it"),
    ):
        head = page.get_by_role("button", name=re.compile(f"^pay_{state}"))
        await expect(head).to_have_count(1)
        if await head.get_attribute("aria-expanded") == "false":
            await head.click()
        await expect(page.get_by_text(words)).to_be_visible()


async def test_the_time_of_a_stored_run_is_the_same_in_the_list_and_on_its_page(console, tabs):
    """The time in which it worked: it was stored an hour after it began, which is not its time."""
    with RunStore(f"sqlite:///{state_directory(console.workspace) / 'durable.db'}") as store:
        store_runs(store, "timed", seconds=7.5)
        started = {"event": "run_started", "ts": 1.0, "seq": 1, "session": "timed", "agent": "main", "prompt": "go"}
        ended = {
            **started,
            "event": "run_finished",
            "ts": 3_601.0,
            "seq": 2,
            "text": "",
            "reason": "answer",
            "turns": 1,
        }
        store.add_events("timed", [("1", started), ("2", ended)])
        try:
            page = await tabs.open("#/runs/timed")
            await expect(page.get_by_text(re.compile(r"\b7\.5 s"))).to_be_visible()
            page = await tabs.open("#/runs")
            await expect(page.get_by_text(re.compile(r"\b7\.5 s"))).to_be_visible()
        finally:
            store.delete("timed")
