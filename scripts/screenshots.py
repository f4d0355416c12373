"""Takes pictures of every page of the console: `python -m scripts.screenshots [FOLDER [PAGE …]]`.

The command makes a project with a scripted model in a temporary directory, starts a few runs in it, and photographs
each page (or those that are named), light and dark, wide and 360 pixels narrow. Without a FOLDER, it writes to
docs/images the pictures that the documentation shows, and four sheets with all pages in small.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from forge.durable.store import RunStore, tables
from forge.durable.store.encoding import figures_of
from scripts.chromium import FLAGS, MISSING, find_chromium
from scripts.console_page import asked

ROOT = Path(__file__).parents[1]
START = """
import sys
from forge.cli.commands.console import command
sys.exit(command.main(sys.argv[1:], standalone_mode=False))
"""
SIZES = {"wide": (1280, 800), "narrow": (360, 740)}
SHEETS = {"wide": (640, 400, 3), "narrow": (270, 555, 5)}  # pixels of a picture, and pictures in a row
SHEET_STYLE = """
:root { color-scheme: light dark; background: light-dark(#d8dae0, #000); font: 14px system-ui, sans-serif; }
body { margin: 8px; display: flex; flex-wrap: wrap; }
figure { margin: 8px; }
figcaption { margin-bottom: 4px; }
img { width: WIDTHpx; height: HEIGHTpx; display: block; }
"""
CONFIG = """
agent: {id: parser}
limits: {price: {input: 3, output: 15}}
permissions:
  rules:
    - allow execute grep *
    - deny execute git push *   # releases are made elsewhere
    - allow write notes/**
egress: {mode: allowlist, domains: [api.example.com]}
memory: {enabled: true}
agents: {reviewer: {prompt: You look for mistakes., tools: [{name: file_read}, {name: grep_search}]}}
schedules:
  - {id: nightly, cron: "0 3 * * *", task: "Run the tests and report failures."}
"""
PARSER = 'def parse(line):\n    name, value = line.split("=")\n    return name.strip(), value.strip()\n'
MEMORY = "# Parser\nValues may contain `=`.\n\n# People\nAda is responsible for releases.\n"
TURNS: list[Any] = [
    {"text": "First I read the parser.\n", "call": "file_read", "arguments": {"path": "parser.py"}},
    {
        "text": "A value may contain `=`, so the line is split too often. I check that first.\n",
        "call": "bash",
        "arguments": {"command": "grep -n split parser.py"},
    },
    {"call": "bash", "arguments": {"command": "git push origin main"}},
    {
        "text": "That is the cause. I fix it.\n",
        "call": "file_edit",
        "arguments": {"path": "parser.py", "old_text": 'line.split("=")', "new_text": 'line.split("=", 1)'},
    },
    "Fixed: the line was split at every `=`, and values may contain `=`. It is split **once** now:\n\n"
    '```python\nname, value = line.split("=", 1)  # the value keeps its own\n```\n\n'
    "| line | before | now |\n|---|---|---|\n| `a=b` | `a`, `b` | `a`, `b` |\n| `a=b=c` | an error | `a`, `b=c` |\n",
]


TRIED = "sed -i s/name/key/ parser.py && mkdir -p build && cp parser.py build/ && echo built > build/log"
TRIAL: list[Any] = [{"text": "I tidy up and build.\n", "call": "bash", "arguments": {"command": TRIED}}, "Done."]


async def main(folder: Path, pages: set[str]) -> int:
    if find_chromium() is None:
        print(MISSING, file=sys.stderr)
        return 2
    if not pages or pages - {"trial"}:
        await _photograph_all(folder, pages, TURNS, _begin, _places)
    if not pages or "trial" in pages:  # with a script of its own
        await _photograph_all(folder, {"trial"}, TRIAL, _begin_trial, lambda *_: {"trial": "#/approvals"})
    return 0


async def write_for_docs(images: Path) -> int:
    """Writes the pictures that the documentation shows, and the sheets, to a folder."""
    with tempfile.TemporaryDirectory() as directory:
        if code := await main(Path(directory), set()):
            return code
        for name in sorted(_shown()):
            shutil.copy(Path(directory, name), images / name)
        await _make_sheets(Path(directory), images)
    return 0


async def _make_sheets(pictures: Path, folder: Path) -> None:
    """Writes a sheet with the pictures of all pages, in small, for each size and scheme."""
    from playwright.async_api import async_playwright  # only where there is a browser

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        for size, (width, height, columns) in SHEETS.items():
            for scheme in ("light", "dark"):
                page = await browser.new_page(
                    viewport={"width": columns * (width + 16) + 16, "height": 100}, color_scheme=scheme
                )
                style = SHEET_STYLE.replace("WIDTH", str(width)).replace("HEIGHT", str(height))
                await page.set_content(f"<style>{style}</style>{_show_pictures(pictures, f'{size}-{scheme}')}")
                file = folder / f"console-all-{size}-{scheme}.jpg"
                await page.screenshot(path=file, type="jpeg", quality=80, full_page=True)
                await page.close()
                print(file)
        await browser.close()


def _show_pictures(pictures: Path, look: str) -> str:
    shown = []
    for file in sorted(pictures.glob(f"console-*-{look}.png")):
        source = f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
        shown.append(f"<figure><figcaption>{file.name.split('-')[1]}</figcaption><img src='{source}'></figure>")
    return "".join(shown)


async def _photograph_all(
    folder: Path,
    pages: set[str],
    turns: list[Any],
    begin: Callable[[Any], Awaitable[list[str]]],
    places: Callable[..., dict[str, str]],
) -> None:
    """Opens a console with a scripted model and takes the pictures of its pages."""
    program = find_chromium()
    from playwright.async_api import async_playwright  # only where there is a browser

    with tempfile.TemporaryDirectory() as directory, open_console(Path(directory), turns) as link:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
            entered = await browser.new_context()
            page = await entered.new_page()
            await page.goto(link)
            runs = await begin(page)
            address, state = link.partition("/enter")[0], await entered.storage_state()
            for size, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    looks: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": height}}
                    context = await browser.new_context(storage_state=state, reduced_motion="reduce", **looks)
                    await context.route(re.compile("/api/(?!stream)"), partial(move_home, directory))
                    for name, place in places(*runs).items():
                        file = f"console-{name}-{size}-{scheme}.png"
                        if not pages or name in pages:
                            await _photograph(context, f"{address}/{place}", folder / file)
                    await context.close()
            await browser.close()


async def move_home(directory: str, route: Any) -> None:
    """The answer as if the project lay in somebody's home, and not where this command made it."""
    answer = await route.fetch(max_retries=3)  # the server may have closed an idle connection
    await route.fulfill(response=answer, body=(await answer.text()).replace(directory, "/home/ada"))


def _places(run: str, other: str) -> dict[str, str]:
    return {
        "home": "#/",
        "approvals": "#/approvals",
        "runs": "#/runs",
        "run": f"#/runs/{run}",
        "search": f"#/runs/{run}?find=split",
        "compare": f"#/compare/{run}/{other}",
        "tools": "#/tools",
        "tool": "#/tools/file_edit",
        "policy": "#/policy",
        "schedules": "#/schedules",
        "memory": "#/memory?q=values",
        "workers": "#/workers",
        "trends": "#/trends",
        "demo": "#/sessions/demo",
    }


async def _begin(page: Any) -> list[str]:
    """Starts a run that ends and two that wait. Returns the one that has ended, and one that waits."""
    begun: list[str] = []
    _write_past(Path(str(await _workspace(page))) / ".forge")
    _store_past(Path(str(await _workspace(page))) / ".forge" / "durable.db")
    for prompt in ("The parser fails for a=b=c. Fix it.", "Fix the parser, please.", "Fix the other parser."):
        begun.append((await asked(page, "/api/runs", {"prompt": prompt}))["run"]["id"])
        wanted = max(1, len(begun) - 1)
        questions = await _until(page, "/api/questions", lambda told: len(told["questions"]) == wanted)  # noqa: B023
        if len(begun) == 1:
            await asked(page, f"/api/questions/{questions['questions'][0]['id']}/answer", {"kind": "once"})
            await _until(page, f"/api/runs/{begun[0]}", lambda told: told["status"] == "finished")
            await asked(page, "/api/overview")
            (Path(str(await _workspace(page))) / "parser.py").write_text(PARSER, encoding="utf-8")
    await asked(page, f"/api/runs/{begun[0]}/mark", {"verdict": "good", "note": "The smallest change that fixes it."})
    return begun[:2]


async def _begin_trial(page: Any) -> list[str]:
    """Starts a run that waits with the effects of a trial."""
    await asked(page, "/api/runs", {"prompt": "Tidy up and build."})
    await _until(page, "/api/questions", lambda told: len(told["questions"]) == 1)
    return []


def _write_past(folder: Path) -> None:
    """Writes a note, and events of two weeks to the log, for the memory and the trends."""
    (folder / "memory").mkdir(exist_ok=True)
    (folder / "memory" / "MEMORY.md").write_text(MEMORY, encoding="utf-8")
    dice = Random(7)  # noqa: S311 - the same pictures every time
    events: list[dict[str, Any]] = []
    for ago in range(13, 0, -1):
        at = time.time() - ago * 86_400
        for tool in dice.choices(["bash", "file_read", "file_edit", "grep_search"], k=dice.randint(15, 60)):
            kind = dice.choices(["", "system_error", "permission_error"], [92, 5, 3])[0]
            result = {"is_error": bool(kind), "error_type": kind or None}
            seconds = dice.lognormvariate(-1 if tool == "bash" else -4, 1)
            call = {"call": {"id": "1", "name": tool}, "seconds": seconds, "success": not kind, "result": result}
            events.append({"event": "tool_call_end", "ts": at, **call})
        for _ in range(dice.randint(2, 8)):
            usage = {"input": dice.randint(5_000, 60_000), "output": dice.randint(300, 4_000)}
            price = usage["input"] * 3e-6 + usage["output"] * 15e-6
            ended = {"event": "run_finished", "ts": at, "reason": "answer", "usage": usage, "cost": price}
            events.append({**ended, "error": None})
    common = {"seq": 1, "session": "past", "agent": "main"}
    with (folder / "audit.ndjson").open("a", encoding="utf-8") as log:
        log.writelines(f"{json.dumps({**one, **common})}\n" for one in events)


TASKS = ("Summarise the new issues.", "Update the changelog.", "Why does the nightly build fail?", "Review the parser.")
MODELS = ("anthropic:claude-sonnet-5", "openai:gpt-5-mini")


def _store_past(file: Path) -> None:
    """Stores runs of two weeks, with questions and marks, for the list of runs and the trends."""
    dice = Random(11)  # noqa: S311 - the same pictures every time
    ended: list[dict[str, Any]] = []
    asked_for: list[dict[str, Any]] = []
    marked: list[dict[str, Any]] = []
    texts = dict.fromkeys(("session", "tenant", "parent", "parent_call", "worker", "attempt"), "")
    for number in range(90):
        at = time.time() - 7_000 - number * 13_000 - dice.randint(0, 6_000)
        failure = dice.choices(["", "timeout", "turns", "cancelled"], [80, 8, 6, 6])[0]
        status = {"": "finished", "cancelled": "cancelled"}.get(failure, "failed")
        model, tokens, worked = dice.choice(MODELS), dice.randint(4_000, 60_000), dice.lognormvariate(3, 1)
        waited = dice.choices([0.0, dice.lognormvariate(5, 1)], [70, 30])[0]
        error = {"kind": failure, "message": "the model did not answer in time"} if failure == "timeout" else None
        usage = {"input": tokens, "output": tokens // 12, "cached": int(tokens * dice.random())}
        spent = {"turns": 4, "calls": dice.randint(1, 14), "usage": usage, "seconds": worked}
        scope = {"user": dice.choice(["ada", "grace", ""])}
        result = {"text": "Done.", "reason": failure or "answer", "error": error, "cost": tokens * 4e-6}
        row: dict[str, Any] = {
            "id": f"run-{number:012x}",
            "agent": dice.choice(["parser", "parser", "reviewer"]),
            "queue": "default",
        }
        row |= {
            "version": "0",
            "priority": 0,
            "prompt": dice.choice(TASKS),
            "status": status,
            "segment": 1,
            "waits": [],
        }
        row |= {"spent": spent, "scope": scope, "carrier": {}, "created": at - worked - waited, "updated": at}
        row |= {"cancelling": False, "result": result, "look": None, "waits": [], "waited": waited, **texts}
        ended.append({**row, **figures_of(scope, {**spent, "model": model}, result)})
        if waited:
            question: dict[str, Any] = {
                "run": row["id"],
                "call": "c",
                "tool": dice.choice(["bash", "file_edit"]),
                "digest": "d",
            }
            question |= {"id": f"q{number}", "request": {}, "asked": at - waited, "answered": at, "by": "console"}
            asked_for.append({**question, "answer": {"kind": dice.choice(["once", "once", "no"])}, "always": None})
        if number % 9 == 4:
            verdict = {"verdict": "bad" if failure else "good", "note": "", "by": "console", "at": at}
            marked.append({"run": row["id"], **verdict})
    with RunStore(f"sqlite:///{file}") as store, store.engine.begin() as connection:
        for table, rows in ((tables.runs, ended), (tables.questions, asked_for), (tables.marks, marked)):
            connection.execute(table.insert(), rows)


async def _workspace(page: Any) -> str:
    return str((await asked(page, "/api/me"))["workspace"])


async def _until(page: Any, path: str, is_so: Any) -> Any:
    for _ in range(600):
        told = await asked(page, path)
        if is_so(told):
            return told
        await asyncio.sleep(0.05)
    raise SystemExit(f"{path} did not reach the expected state: {told}")


async def _photograph(context: Any, address: str, file: Path) -> None:
    page = await context.new_page()
    await page.goto(address)
    await page.get_by_role("heading").first.wait_for()
    await page.locator("main:not([aria-busy])").wait_for()
    await page.locator("button:disabled").first.wait_for(state="hidden")
    await page.screenshot(path=file)
    await page.close()
    print(file)


@contextmanager
def open_console(directory: Path, turns: Sequence[Any] = TURNS) -> Iterator[str]:
    """Starts the console of a project with a scripted model. Yields the link that enters it."""
    project = directory / "parser"
    project.mkdir()
    (project / "forge.yaml").write_text(CONFIG, encoding="utf-8")
    (project / "parser.py").write_text(PARSER, encoding="utf-8")
    (directory / "script.json").write_text(json.dumps(list(turns)), encoding="utf-8")
    options = ["--port", "0", "--config", "forge.yaml", "--model", f"scripted:{directory / 'script.json'}"]
    homes = {name: str(directory / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    environment = {**os.environ, **homes, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", START, *options]
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            link = process.stdout.readline().strip()
            if not link:
                raise SystemExit("the console did not start")
            yield link
        finally:
            process.terminate()


def _shown() -> set[str]:
    """The pictures that the documentation shows."""
    pages = (ROOT / "docs").glob("*.md")
    return {name for page in pages for name in re.findall(r"images/(console-[\w-]+\.png)", page.read_text("utf-8"))}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(asyncio.run(write_for_docs(ROOT / "docs" / "images")))
    pictures = Path(sys.argv[1])
    pictures.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(pictures, set(sys.argv[2:]))))
