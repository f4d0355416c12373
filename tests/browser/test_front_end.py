"""The page of `examples/front_end` in a real browser: approve, refuse, steer, stop, and go on after the server died."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PATIENCE, ROOT, call

pytestmark = pytest.mark.browser
TOKEN = "a-token-that-is-long-enough"


class Server:
    """A process that serves the page, and what its model says."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.scenes, self._data = folder / "project", folder / "scenes", folder / "data"
        for one in (self.workspace, self.scenes, self._data):
            one.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.browser.front_end", str(self.scenes), str(self.workspace)]
        mine = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "XDG_DATA_HOME": str(self._data)}
        self.process = subprocess.Popen([*command, str(self.port), TOKEN], cwd=self.workspace, env=os.environ | mine)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end
                assert self.process.poll() is None
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def scene(self, prompt: str, *turns: Any) -> str:
        (self.scenes / f"{prompt}.json").write_text(json.dumps(turns), encoding="utf-8")
        return prompt


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.kill()


async def say(page: Any, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_a_person_approves_refuses_steers_and_stops_and_goes_on_after_the_server_died(
    server, browser, tabs, own_console
):
    from playwright.async_api import expect

    context = await browser.new_context()
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"{server.address}#{TOKEN}")
    assert TOKEN not in page.url
    question = page.locator("#question")

    await say(page, server.scene("write a", call("file_write", path="a.txt", content="first"), "Written."))
    await expect(question).to_contain_text("a.txt")
    await expect(question).to_contain_text("first")
    assert not (server.workspace / "a.txt").exists()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("Written.", exact=True)).to_be_visible()
    assert (server.workspace / "a.txt").read_text() == "first"

    await say(page, server.scene("write b", call("file_write", path="b.txt", content="x"), "<b>All right.</b>"))
    await expect(question).to_contain_text("b.txt")
    await page.get_by_label("A word to the model").fill("Not that file.")
    await page.get_by_role("button", name="Refuse").click()
    await expect(page.get_by_text("Not that file.")).to_be_visible()  # the result that the model gets
    await expect(page.get_by_text("<b>All right.</b>")).to_be_visible()  # as text
    assert not (server.workspace / "b.txt").exists()

    await say(page, server.scene("talk", {"follow": "talk.txt"}))
    (server.scenes / "talk.txt").write_text("Once upon a time")
    await expect(page.get_by_text("Once upon a time")).to_be_visible()
    await say(page, server.scene("use tabs", "Tabs it is."))
    await expect(page.get_by_text("use tabs")).to_be_visible()
    (server.scenes / "talk.txt").write_text("Once upon a time.END\n")
    await expect(page.get_by_text("Tabs it is.")).to_be_visible()
    await expect(page.get_by_text("use tabs")).to_have_count(1)

    await say(page, server.scene("talk more", {"follow": "more.txt"}))
    (server.scenes / "more.txt").write_text("It never ends")
    await expect(page.get_by_text("It never ends")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_role("alert")).to_have_text("Stopped.")

    await say(page, server.scene("write c", call("file_write", path="c.txt", content="third"), "Written, too."))
    await expect(question).to_contain_text("c.txt")
    server.kill()
    server.start()
    await page.reload()
    await expect(question).to_contain_text("c.txt")
    for text in ("write a", "Written.", "Tabs it is.", "It never ends", "write c"):
        await expect(page.get_by_text(text, exact=True).first).to_be_visible()
    assert not (server.workspace / "c.txt").exists()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("Written, too.")).to_be_visible()
    assert (server.workspace / "c.txt").read_text() == "third"
    assert not complaints
    await context.close()
