"""Records the two animations of the documentation (`make pictures`): real runs with a scripted model.

`undo.svg`: in a terminal, an edit is approved and then undone. `approval.svg`: a run stops, and a person approves it on
a phone. Pauses are shortened and the model answers from a file; everything else is as it was seen.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from scripts.ansi_svg import Frame, animate, draw_lines, read_screen, window_height, window_width
from scripts.chromium import FLAGS, MISSING, find_chromium
from scripts.screenshots import move_home, open_console

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS, ROWS = 76, 25
LOOK = 0.04  # seconds between two looks at the screen
LONGEST_PAUSE = 1.0  # seconds that nothing happens in the animation, unless a person reads
PATIENCE = 60.0
FILES = {
    "invoice.py": "def total(prices, discount):\n    return sum(prices) - discount * 100\n",
    "model.yaml": """\
- {call: file_read, arguments: {path: invoice.py}}
- text: The discount is a fraction, but the code treats it as a percentage.
  call: file_edit
  arguments: {path: invoice.py, old_text: sum(prices) - discount * 100, new_text: sum(prices) * (1 - discount)}
- "`total` now takes the discount as a fraction."
""",
}
PHONE = (360, 640)
BEZEL = 14


class Recording:
    """A window of tmux, and what it showed, with the seconds."""

    def __init__(self, folder: Path, command: list[str], columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._folder, self._columns = folder, columns
        self._tmux = ["tmux", "-L", f"forge-{uuid4().hex[:12]}", "-f", "/dev/null"]
        variables = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "TMUX")}
        variables |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "XDG_DATA_HOME": str(folder / "home")}
        size = ("-x", str(columns), "-y", str(rows))
        begin = ["new-session", "-d", *size, "-c", str(folder), shlex.join(command), ";", "set", "-g", "status", "off"]
        subprocess.run([*self._tmux, *begin], env=variables, cwd=folder, check=True)
        self.frames: list[Frame] = []

    def look(self, seconds: float) -> str:
        """Records what is shown for so long. Returns the screen."""
        end = time.monotonic() + seconds
        while True:
            begun = time.monotonic()
            screen, cursor = self.capture()
            lines = draw_lines(read_screen(self._settle(screen), self._columns), cursor)
            time.sleep(max(LOOK - (time.monotonic() - begun), 0))
            if self.frames and self.frames[-1].drawn == lines:
                self.frames[-1].seconds += time.monotonic() - begun
            else:
                self.frames.append(Frame(time.monotonic() - begun, lines))
            if time.monotonic() >= end:
                return re.sub(r"\x1b\[[\d;]*m", "", screen)

    def capture(self) -> tuple[str, tuple[int, int] | None]:
        """Returns the screen with its colours, and the column and row of the cursor if it is visible."""
        shown = self._do("capture-pane", "-p", "-e", ";", "display", "-p", "#{cursor_flag} #{cursor_x} #{cursor_y}")
        screen, _, cursor = shown.rstrip("\n").rpartition("\n")
        visible, column, row = map(int, cursor.split())
        return screen, (column, row) if visible else None

    def wait_for_question(self) -> None:
        """Waits until the last line of the screen offers its keys."""
        end = time.monotonic() + PATIENCE
        while not self.look(LOOK).rstrip().endswith(("[e]dit?", "[d]etails?")):
            if time.monotonic() > end:
                raise SystemExit("the terminal asks nothing")

    def wait(self, text: str, reads: float = 0.0) -> None:
        """Records until this is shown; then a person reads it for so many seconds."""
        end = time.monotonic() + PATIENCE
        while text not in (shown := self.look(LOOK)):
            if time.monotonic() > end:
                raise SystemExit(f"the terminal does not show {text!r}:\n{shown}")
        for frame in self.frames:
            frame.seconds = min(frame.seconds, LONGEST_PAUSE) if not frame.is_read else frame.seconds
        self.look(reads)
        self.frames[-1].is_read = True

    def type(self, text: str) -> None:
        for letter in text:
            self._do("send-keys", "-l", letter)
            self.look(LOOK)

    def press(self, key: str) -> None:
        self._do("send-keys", key)

    def send(self, text: str) -> None:
        """Types a text at once."""
        self._do("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        self._do("set-buffer", text, ";", "paste-buffer", "-p", "-r")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def _settle(self, screen: str) -> str:
        """Replaces times, names of sessions and the folder, which differ from run to run."""
        screen = re.sub(r"(?<![\d.])\d+\.\d+ s\b", "0.1 s", screen.replace(str(self._folder.parent), "/home/ada"))
        return re.sub(r"call_[0-9a-f]{10}", "call_1", screen)

    def _do(self, *command: str) -> str:
        return subprocess.run([*self._tmux, *command], check=True, capture_output=True, text=True).stdout


def record_undo() -> str:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, "shop")
        folder.mkdir()
        for name, content in FILES.items():
            (folder / name).write_text(content, encoding="utf-8")
        command = [sys.executable, "-m", "forge", "run", "--model", "scripted:model.yaml", "--no-audit"]
        recording = Recording(folder, command)
        try:
            recording.wait("Shift-Tab", 0.8)
            recording.frames = recording.frames[-1:]  # the start of the program is the same for all of them
            recording.type("The invoice total is wrong. Fix it.")
            recording.press("Enter")
            recording.wait("[e]dit", 2.5)
            recording.press("y")
            recording.wait("as a fraction", 1.5)
            recording.type("/undo")
            recording.press("Enter")
            recording.wait("restored", 4.0)
        finally:
            recording.close()
        assert (folder / "invoice.py").read_text(encoding="utf-8") == FILES["invoice.py"]
    title = "$ forge run"
    return animate(recording.frames, window_width(COLUMNS), window_height(ROWS), title, is_terminal=True)


async def record_approval(program: str) -> str:
    from playwright.async_api import async_playwright  # only where there is a browser

    with tempfile.TemporaryDirectory() as directory, open_console(Path(directory)) as link:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
            size: Any = {"width": PHONE[0], "height": PHONE[1]}
            context = await browser.new_context(viewport=size, is_mobile=True, has_touch=True, device_scale_factor=1.5)
            await context.route(re.compile("/api/(?!stream)"), partial(move_home, directory))
            page = await context.new_page()
            await page.goto(link)
            task = page.get_by_placeholder("Describe a task for the agent").first
            await task.wait_for()
            film = Film(await context.new_cdp_session(page))
            await film.look(0.6)
            await task.fill("The parser fails for a=b=c. Fix it.")
            await film.look(1.0)
            await film.tap(page.get_by_role("button", name="Run", exact=True).first)
            button = page.get_by_role("button", name="Allow once").first
            await film.until(button.is_visible)
            await button.evaluate("button => button.scrollIntoView({ block: 'center' })")
            await film.look(2.0)
            await film.tap(button)
            await film.until(page.get_by_text("It is split once now").first.is_visible)
            await film.look(3.5)
            await browser.close()
    width, height = PHONE[0] + 2 * BEZEL, PHONE[1] + 2 * BEZEL
    return animate(film.frames, width, height, "A run stops, and a person approves it on a phone")


class Film:
    """What a page of the browser showed."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.frames: list[Frame] = []

    async def look(self, seconds: float, tapped: tuple[float, float] | None = None) -> None:
        end = time.monotonic() + seconds
        while True:
            begun = time.monotonic()
            shown = await self._session.send("Page.captureScreenshot", {"format": "webp", "quality": 60})
            await asyncio.sleep(max(2 * LOOK - (time.monotonic() - begun), 0))
            drawn = (
                f'<image x="{BEZEL}" y="{BEZEL}" width="{PHONE[0]}" height="{PHONE[1]}" '
                f'href="data:image/webp;base64,{shown["data"]}"/>'
            )
            if tapped:
                x, y = tapped
                drawn += f'<circle cx="{x + BEZEL:.0f}" cy="{y + BEZEL:.0f}" r="22" fill="#4051b5" opacity="0.4"/>'
            if self.frames and self.frames[-1].drawn == [drawn]:
                self.frames[-1].seconds += time.monotonic() - begun
            else:
                self.frames.append(Frame(time.monotonic() - begun, [drawn]))
            if time.monotonic() >= end:
                return

    async def until(self, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not await holds():
            await self.look(0)
            if time.monotonic() > end:
                raise SystemExit("the page does not show what it should")
        for frame in self.frames:
            frame.seconds = min(frame.seconds, 2.5)

    async def tap(self, button: Any) -> None:
        box = await button.bounding_box()
        await self.look(0.6, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        await button.tap()


def main() -> int:
    program = find_chromium()
    if program is None:
        print(MISSING, file=sys.stderr)
        return 2
    for name, drawn in (("undo", record_undo()), ("approval", asyncio.run(record_approval(program)))):
        file = IMAGES / f"animation-{name}.svg"
        file.write_text(drawn, encoding="utf-8")
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
