"""A real `forge console`, and a real Chromium that looks at it; whatever the browser complains about fails the test."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from scripts.chromium import FLAGS, MISSING, find_chromium
from tests.browser.served import MODEL

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds: other tests may have both cores
LONGEST = 200.0  # seconds for one test
CONFIG = """
limits: {price: {input: 3, output: 15}}
permissions:
  rules:
    - deny execute git push *   # not from here
    - deny execute git tag *
    - allow write notes/**
agents: {scribe: {prompt: You write., tools: [{name: file_write}]}}
memory: {enabled: true}
labels: {untrusted: ["path:inbox/**"]}
schedules:
  - {id: nightly, cron: "0 3 * * *", task: "Say hello."}
"""


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"call": tool, "arguments": arguments}


class Stage:
    """A thread with an event loop for the browser and the tests: Playwright's own way would stop other async tests."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="browser", daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    stage, tabs = pyfuncitem.funcargs["stage"], pyfuncitem.funcargs["tabs"]
    assert isinstance(stage, Stage)
    assert isinstance(tabs, Tabs)
    try:
        stage.run(asyncio.wait_for(pyfuncitem.obj(**fixtures), LONGEST))
    except BaseException:
        tabs.is_spoiled = True
        raise
    return True


class Console:
    """A process of `forge console`, its workspace, and what its model will say."""

    def __init__(self, folder: Path, *, model: bool = True, config: str = CONFIG, files: tuple[str, ...] = ()) -> None:
        self.workspace, self.scenes, self._data = folder / "project", folder / "scenes", folder / "data"
        for one in (self.workspace, self.scenes, self._data):
            one.mkdir()
        (self.workspace / "forge.yaml").write_text(config, encoding="utf-8")
        for file in files:
            shutil.copy(file, self.workspace)
        self.model = model
        self.port = 0
        self.client = httpx2.Client(verify=False, timeout=PATIENCE)
        self.token = ""
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """The link that it prints is in `link`; after another start the cookie counts still."""
        command = [sys.executable, "-m", "tests.browser.served", str(self.scenes), "--port", str(self.port)]
        command += ["--config", "forge.yaml", "--workspace", str(self.workspace)]
        command += ["--model", MODEL] if self.model else []
        # no keys, no settings of whoever runs the tests
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        mine = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "XDG_DATA_HOME": str(self._data)}
        self.process = subprocess.Popen(
            command, cwd=self.workspace, env=kept | mine, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        found = re.match(r"http://127\.0\.0\.1:(\d+)/enter\?token=", self.link)
        if found is None:
            self.process.kill()
            raise AssertionError(self.process.communicate()[1])
        self.port = int(found[1])

    def another_link(self) -> str:
        command = [sys.executable, "-m", "forge", "console", "--url", "--workspace", str(self.workspace)]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "XDG_DATA_HOME": str(self._data)}
        asked = subprocess.run(
            command, cwd=self.workspace, env=environment, text=True, capture_output=True, check=True, timeout=PATIENCE
        )
        return asked.stdout.strip()

    def enter(self) -> None:
        entered = self.client.get(self.link)
        assert entered.status_code == 303
        self.token = entered.headers["location"].removeprefix("/#/enter/")
        self.client.headers["x-forge-token"] = self.token

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            _, errors = self.process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError(f"it did not end: {errors}") from None
        assert "Traceback" not in errors, errors

    def close(self) -> None:
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            self.process.kill()
            self.client.close()

    def cookies(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "value": value, "url": self.address, "httpOnly": True, "sameSite": "Strict"}
            for name, value in self.client.cookies.items()
        ]

    def scene(self, prompt: str, *turns: Any) -> str:
        """What the model says when it is told `prompt`, which must do as a file's name."""
        (self.scenes / f"{prompt}.json").write_text(json.dumps(turns), encoding="utf-8")
        return prompt

    def get(self, path: str, **params: Any) -> Any:
        found = self.client.get(f"{self.address}{path}", params=params)
        assert found.status_code == 200, (path, found.status_code, found.text[:2_000])
        return found.json()

    def post(self, path: str, body: Any = None) -> Any:
        found = self.client.post(f"{self.address}{path}", json=body or {})
        assert found.status_code < 300, (path, found.status_code, found.text[:2_000])
        return found.json()

    def begin(self, prompt: str, *turns: Any) -> str:
        """A run's id; what comes after is in the page."""
        if turns:
            self.scene(prompt, *turns)
        run: str = self.post("/api/runs", {"prompt": prompt})["run"]["id"]
        return run

    def until(self, look: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            found = look()
            if found:
                return found
            assert time.monotonic() < end, "it did not come to that in time"
            time.sleep(0.05)

    def run_is(self, run: str, *statuses: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def look() -> bool:
            found.update(self.get(f"/api/runs/{run}"))
            return found["status"] in statuses

        try:
            self.until(look)
        except AssertionError as error:
            error.add_note(f"{run} is {found['status']}: {found['waits']} {found['error']} {found['text']}")
            raise
        return found

    def question(self, run: str) -> dict[str, Any]:
        """The open question of that run, once there is one."""
        found: dict[str, Any] = self.until(
            lambda: next((one for one in self.get("/api/questions")["questions"] if one["root"] == run), None)
        )
        return found

    def settle(self) -> None:
        """Nothing of an earlier test is left open."""
        for one in self.get("/api/runs", status="queued,running,waiting")["runs"]:
            self.post(f"/api/runs/{one['id']}/cancel")
        self.until(lambda: not self.get("/api/questions")["questions"])


class Tabs:
    """Pages for one test, each in a browser of its own unless it is told otherwise, and all that they complained about.

    A page of the shared console is used again by the next test that wants one like it, for loading it takes longer than
    most tests; whoever leaves a page leaves nothing behind, or the next test finds it. `fresh=True`: a new one.
    """

    def __init__(self, browser: Any, console: Any, pool: list[Tab]) -> None:
        self.browser, self.console, self.pool = browser, console, pool
        self.is_spoiled = False
        self.complaints: list[str] = []
        self.expected: list[str] = []
        self._used: list[Tab] = []

    async def open(
        self,
        path: str = "",
        *,
        beside: Any = None,
        fresh: bool = False,
        width: int = 1280,
        height: int = 800,
        **more: Any,
    ) -> Any:
        """`path` is a fragment such as `#/approvals`; `beside`: another tab of the browser that has this page."""
        if beside is not None:
            tab = await self._made(beside.context, None)
        else:
            wanted = {"viewport": {"width": width, "height": height}, "reduced_motion": "reduce", **more}
            known = next((one for one in self.pool if one.settings == wanted), None)
            if fresh or known is None:
                tab = await self._made(await self._context(wanted), None if fresh else wanted)
            else:
                self.pool.remove(known)
                tab = known
        self._used.append(tab)
        tab.heard = self.complaints.append
        await tab.page.goto(f"{self.console.address}/{path or '#/'}")
        return tab.page

    async def _context(self, settings: dict[str, Any]) -> Any:
        context = await self.browser.new_context(**settings)
        context.set_default_timeout(PATIENCE * 1_000)
        await context.add_cookies(self.console.cookies())
        await context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) =>"
            " console.error(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`))"
        )
        kept = f"localStorage.setItem('forge-token', '{self.console.token}')"
        if self.console.token:
            await context.add_init_script(f"location.port === '{self.console.port}' && {kept}")
        return context

    async def _made(self, context: Any, settings: dict[str, Any] | None) -> Tab:
        return Tab(await context.new_page(), self.console, settings)

    def expect(self, pattern: str) -> None:
        """A complaint that belongs to what is tried."""
        self.expected.append(pattern)

    async def close(self, *, is_shared: bool) -> None:
        for tab in self._used:
            if is_shared and tab.settings is not None and not self.is_spoiled and await tab.is_left():
                self.pool.append(tab)
            else:
                await tab.page.close()
                if not tab.page.context.pages:
                    await tab.page.context.close()

    def check(self) -> None:
        left = [one for one in self.complaints if not any(re.search(pattern, one) for pattern in self.expected)]
        assert not left, left


class Tab:
    """A page, who is told of its complaints, and what it looks like (`settings`; None: it is not used again)."""

    def __init__(self, page: Any, console: Console, settings: dict[str, Any] | None) -> None:
        self.page, self.console, self.settings = page, console, settings
        self.heard: Callable[[str], object] = print
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.heard(f"error: {error}"))
        page.on("request", self._requested)
        page.on("dialog", lambda dialog: self.heard(f"dialog: {dialog.message}"))

    async def is_left(self) -> bool:
        """Nothing of this test is left in it, and it is in order still."""
        await self.page.unroute_all(behavior="ignoreErrors")
        await self.page.goto(f"{self.console.address}/#/nothing")
        forget = (
            "document.querySelectorAll('.notices [aria-label=Close]').forEach((one) => one.click());"
            "for (const one of Object.keys(localStorage)) if (one !== 'forge-token') localStorage.removeItem(one);"
            "delete document.documentElement.dataset.theme;"
            "document.querySelectorAll('dialog').length === 0 && document.querySelectorAll('h1').length === 1"
        )
        return bool(await self.page.evaluate(forget))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.heard(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _requested(self, request: Any) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "about") and where.netloc != f"127.0.0.1:{self.console.port}":
            self.heard(f"a request to elsewhere: {request.url}")


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.fixture(scope="session")
def browser(stage: Stage) -> Iterator[Any]:
    async_api = pytest.importorskip(
        "playwright.async_api", reason="playwright is not installed: pip install playwright"
    )
    program = find_chromium()
    if program is None:
        pytest.skip(f"NO BROWSER: {MISSING}")

    async def launched() -> tuple[Any, Any]:
        playwright = await async_api.async_playwright().start()
        return playwright, await playwright.chromium.launch(executable_path=program, args=list(FLAGS))

    async_api.expect.set_options(timeout=PATIENCE * 1_000)
    playwright, browser = stage.run(launched())
    yield browser
    stage.run(browser.close())
    stage.run(playwright.stop())


@pytest.fixture(scope="session")
def shared_console(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    console = Console(tmp_path_factory.mktemp("console"))
    console.enter()
    yield console
    console.close()


@pytest.fixture
def console(shared_console: Console) -> Iterator[Console]:
    """One for all tests, so each has files and prompts of its own."""
    yield shared_console
    shared_console.settle()


@pytest.fixture
def own_console(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Console]]:
    """One that is started for this test, and entered unless `entered=False`."""
    made: list[Console] = []

    def start(*, entered: bool = True, **settings: Any) -> Console:
        made.append(Console(tmp_path, **settings))
        if entered:
            made[-1].enter()
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def pool() -> list[Tab]:
    return []


@pytest.fixture
def tabs(stage: Stage, browser: Any, pool: list[Tab], request: pytest.FixtureRequest) -> Iterator[Tabs]:
    """Of the shared console; a test with one of its own sets `tabs.console`."""
    is_shared = "own_console" not in request.fixturenames
    tabs = Tabs(browser, request.getfixturevalue("console") if is_shared else None, pool if is_shared else [])
    yield tabs
    stage.run(tabs.close(is_shared=is_shared))
    tabs.check()
