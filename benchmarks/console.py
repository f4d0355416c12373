"""How soon the page shows things, in a real browser, and what an agent pays for being looked at."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from benchmarks.console_server import BIG, LAST
from benchmarks.timing import Measure
from scripts.chromium import FLAGS, MISSING, find_chromium
from scripts.console_page import asked

EVENTS = 10_000
RATE, SECONDS = 200, 4  # events a second, and for how long
OPENED = 5  # times
TURNS, THINKS = 25, 0.02  # of an agent that is looked at, with a model faster than any
ROUNDS = 11
PATIENCE = 60_000  # milliseconds

# Every moment that appears anywhere in the page is compared with the clock, once the page has been drawn.
WATCH = r"""() => {
  window.delays = new Map();
  const look = (text, now) => {
    for (const [, moment] of text.matchAll(/@(\d+\.\d)@/g)) {
      if (!window.delays.has(moment)) window.delays.set(moment, now - Number(moment));
    }
  };
  new MutationObserver((records) => {
    const texts = records.flatMap(({ target, addedNodes }) =>
      target.nodeType === 3 ? [target.data] : [...addedNodes].map((one) => one.textContent));
    requestAnimationFrame(() => {
      const now = performance.timeOrigin + performance.now();
      for (const text of texts) look(text, now);
    });
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
FRAMES = """() => {
  window.frames_seen = [];
  let last = performance.now();
  const next = (now) => { window.frames_seen.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
  window.waits = [];
  addEventListener("wheel", (event) => window.waits.push(performance.now() - event.timeStamp), { passive: true });
}"""


async def measures() -> list[Measure]:
    program = find_chromium()
    if program is None:
        print(f"the console is left out: {MISSING}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as directory, _server(directory) as link:
        async with _page(program, link) as page:
            return [*await opening(page, link), *await delays(page), *await looked_at(page)]


async def opening(page: Any, link: str) -> list[Measure]:
    """From a click until all of it is there, and its end one key away."""
    opened, ended = [], []
    for _ in range(OPENED):
        await page.goto(f"{_address(link)}/#/policy")
        await page.get_by_role("heading", name="Policy").first.wait_for()
        started = time.perf_counter()
        await page.evaluate(f"location.hash = '#/runs/{BIG}'")
        await page.get_by_text(f"{EVENTS // 5 - 1:,} turns").first.wait_for(timeout=PATIENCE)
        opened.append((time.perf_counter() - started) * 1e3)
        started = time.perf_counter()
        await page.keyboard.press("End")
        await page.get_by_text(LAST).last.wait_for(timeout=PATIENCE)
        ended.append((time.perf_counter() - started) * 1e3)
    await page.evaluate(FRAMES)
    await page.mouse.move(640, 400)
    for number in range(60):
        await page.mouse.wheel(0, -1_500 if number < 30 else 1_500)
        await asyncio.sleep(0.016)
    waits = sorted(await page.evaluate("window.waits"))
    frames = sorted(await page.evaluate("window.frames_seen"))
    assert len(waits) == 60, f"{60 - len(waits)} turns of the wheel were lost"
    return [
        Measure(f"console: a run of {EVENTS:,} events opens", "", 0.0, statistics.median(opened), "ms", 1_000, True),
        Measure(
            "console: … its end is shown after the key for it", "", 0.0, statistics.median(ended), "ms", None, True
        ),
        Measure("console: … a turn of the wheel is heard, 95th percentile", "", 0.0, _high(waits), "ms", 100, True),
        Measure("console: … a frame while it scrolls, 95th percentile", "", 0.0, _high(frames), "ms", None, True),
    ]


async def delays(page: Any) -> list[Measure]:
    """From an event to the frame that shows it."""
    run = await _begin(page, f"tick {RATE} {SECONDS}")
    await page.evaluate(WATCH)
    await page.evaluate(f"location.hash = '#/runs/{run}'")
    await _over(page, run)
    await page.wait_for_function("window.delays.size > 0", timeout=PATIENCE)
    found = sorted(await page.evaluate("[...window.delays.values()]"))
    label = f"console: from an event to the page, at {RATE} events/s"
    assert len(found) > RATE * SECONDS * 0.9, f"only {len(found)} of {RATE * SECONDS} were seen"
    return [
        Measure(f"{label}, median", "", 0.0, statistics.median(found), "ms", None, absolute=True),
        Measure(f"{label}, 95th percentile", "", 0.0, _high(found), "ms", 100, absolute=True),
    ]


async def looked_at(page: Any) -> list[Measure]:
    """The same run with a page that shows it, and with nobody who looks; by turns."""
    alone, seen = [], []
    for _ in range(ROUNDS):
        alone.append(await _timed(page, watch=False))
        seen.append(await _timed(page, watch=True))
    label = f"console: an agent that is looked at, {TURNS} turns of {THINKS * 1e3:.0f} ms"
    return [Measure(label, "nobody looks", statistics.median(alone), statistics.median(seen), "ms", 1.05)]


async def _timed(page: Any, *, watch: bool) -> float:
    """Milliseconds from the first to the last event of a run."""
    # away from the console's page no stream is open, and the server looks at nothing
    await page.goto(page.url.partition("/#")[0] + ("/#/runs" if watch else "/static/js/text.js"))
    run = await _begin(page, f"work {TURNS} {THINKS}")
    if watch:
        await page.evaluate(f"location.hash = '#/runs/{run}'")
    await _over(page, run)
    events = (await asked(page, f"/api/runs/{run}/events?limit=5000"))["events"]
    moments = {one["event"]["event"]: one["event"]["ts"] for one in events}
    return float(moments["run_finished"] - moments["run_started"]) * 1e3


async def _begin(page: Any, prompt: str) -> str:
    run: str = (await asked(page, "/api/runs", {"prompt": prompt}))["run"]["id"]
    return run


async def _over(page: Any, run: str) -> None:
    until = time.monotonic() + 60
    while (await asked(page, f"/api/runs/{run}"))["status"] not in ("finished", "failed"):
        assert time.monotonic() < until, "the run did not come to its end"
        await asyncio.sleep(0.1)


def _high(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.95)]


def _address(link: str) -> str:
    return link.partition("/enter")[0]


@contextmanager
def _server(directory: str) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.console_server", directory, "--big", str(EVENTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@asynccontextmanager
async def _page(program: str, link: str) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright  # only where there is a browser

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(link)
        yield page
        await browser.close()
