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

from tests.browser.served import MODEL

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0  # seconds
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
CONFIG = """
limits: {price: {input: 3, output: 15}}
permissions:
  rules:
    - deny execute git push *   # not from here
    - deny execute git tag *
    - allow write notes/**
agents: {scribe: {prompt: You write., tools: [{name: file_write}]}}
memory: {enabled: true}
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
        self.thread.join(5)
        self.loop.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    stage = pyfuncitem.funcargs["stage"]
    assert isinstance(stage, Stage)
    stage.run(asyncio.wait_for(pyfuncitem.obj(**fixtures), 50))
    return True


class Console:
    """A process of `forge console`, its workspace, and what its model will say."""

    def __init__(self, folder: Path, *, model: bool = True, config: str = CONFIG) -> None:
        self.workspace, self.scenes, self._data = folder / "project", folder / "scenes", folder / "data"
        for one in (self.workspace, self.scenes, self._data):
            one.mkdir()
        (self.workspace / "forge.yaml").write_text(config, encoding="utf-8")
        self.model = model
        self.port = 0
        self.client = httpx2.Client(timeout=PATIENCE)
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

    def enter(self) -> None:
        assert self.client.get(self.link).status_code == 303
        self.token = self.get("/api/me")["token"]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            _, errors = self.process.communicate(timeout=15)
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
        found = self.client.post(f"{self.address}{path}", json=body or {}, headers={"x-forge-token": self.token})
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
            time.sleep(0.02)

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
    """Pages, each in a browser of its own unless it is told otherwise, and everything that they complained about."""

    def __init__(self, browser: Any, console: Any) -> None:
        self.browser, self.console = browser, console
        self.complaints: list[str] = []
        self.expected: list[str] = []
        self._contexts: list[Any] = []

    async def open(
        self, path: str = "", *, beside: Any = None, width: int = 1280, height: int = 800, **more: Any
    ) -> Any:
        """`path` is a fragment such as `#/approvals`; `beside`: another tab of the browser that has this page."""
        if beside is None:
            size = {"width": width, "height": height}
            context = await self.browser.new_context(viewport=size, reduced_motion="reduce", **more)
            context.set_default_timeout(10_000)
            await context.add_cookies(self.console.cookies())
            await context.add_init_script(
                "document.addEventListener('securitypolicyviolation', (e) =>"
                " console.error(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`))"
            )
            self._contexts.append(context)
        else:
            context = beside.context
        page = await context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._requested)
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        await page.goto(f"{self.console.address}/{path}")
        return page

    def expect(self, pattern: str) -> None:
        """A complaint that belongs to what is tried."""
        self.expected.append(pattern)

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()

    def check(self) -> None:
        left = [one for one in self.complaints if not any(re.search(pattern, one) for pattern in self.expected)]
        assert not left, left

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _requested(self, request: Any) -> None:
        where = urlsplit(request.url)
        if where.scheme not in ("data", "about") and where.netloc != f"127.0.0.1:{self.console.port}":
            self.complaints.append(f"a request to elsewhere: {request.url}")


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
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        pytest.skip(f"NO BROWSER: none of {', '.join(CHROMIUMS)} is installed (on Debian: apt-get install chromium)")

    async def launched() -> tuple[Any, Any]:
        playwright = await async_api.async_playwright().start()
        return playwright, await playwright.chromium.launch(executable_path=program, args=list(FLAGS))

    async_api.expect.set_options(timeout=10_000)
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


@pytest.fixture
def tabs(stage: Stage, browser: Any, request: pytest.FixtureRequest) -> Iterator[Tabs]:
    """Of the shared console; a test with one of its own sets `tabs.console`."""
    needs = request.fixturenames
    tabs = Tabs(browser, request.getfixturevalue("console") if "own_console" not in needs else None)
    yield tabs
    stage.run(tabs.close())
    tabs.check()
