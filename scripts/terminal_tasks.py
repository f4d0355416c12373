"""Writes docs/terminal-tasks.md: ten tasks of a person at a terminal, with their keys and the screens of real windows.

`make terminal-tasks` runs it. The model is scripted; the windows (80 and 120 columns), the keys and the programs are
real. `tests/cli/test_terminal_tasks.py` checks the same tasks in detail.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from scripts.animations import Recording

PAGE = Path(__file__).parents[1] / "docs" / "terminal-tasks.md"
WIDTHS = (80, 120)
ROWS = 24
PATIENCE = 120.0
AT_ONCE = 8  # windows: they wait more than they work
UNTRIED = ("--trial", "off")  # a program sees at once what the person does in the project
DONE = ("tokens in", "Shift-Tab changes the mode")  # a run has ended, and its usage is shown
READY, BUSY = "Shift-Tab changes the mode", "Esc stops"
TMUX_NAMES = {"Shift-Tab": "BTab", "Ctrl-O": "C-o", "Alt-Enter": "M-Enter", "Esc": "Escape", "↑": "Up"}
INTRODUCTION = """\
# Ten tasks at a terminal

This page shows what a person does and sees in a conversation with `forge run`: the keys, and the screen after them, in
windows of 80 and of 120 columns. `make terminal-tasks` records it in real windows with a scripted model. Durations are
replaced by `0.1 s`. [The command line](command-line.md#conversations) explains every key and command.
"""
BUILD = "echo compiling\nuntil test -e ready; do sleep 0.1; done\necho built\n"
TABLE = "".join(f"line {number}\n" for number in range(133))


class Play:
    """A person at one window. Notes what was done and shown, as Markdown."""

    def __init__(self, folder: Path, columns: int, *flags: str) -> None:
        self.folder = folder
        self.parts: list[str] = []
        command = [sys.executable, "-m", "forge", "run", "--model", "scripted:model.json", "--no-audit", *flags]
        self._recording = Recording(folder, command, columns, ROWS)
        self.wait(READY)

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: object) -> None:
        self._recording.close()

    def type(self, text: str, *keys: str) -> None:
        self._recording.send(text)
        self._press(f"Type `{text}`", keys)

    def paste(self, text: str, *keys: str) -> None:
        self._recording.paste(text)
        self._press(f"Paste {len(text.splitlines())} lines", keys)

    def press(self, *keys: str) -> None:
        self._press("", keys)

    def create(self, name: str) -> None:
        """Lets the program that is waiting go on."""
        (self.folder / name).touch()
        self.parts.append("The build ends.")

    def show(self, *awaited: str, without: str = "") -> None:
        """Waits until the screen shows this, and notes the screen."""
        if self.parts and self.parts[-1].endswith("."):
            self.parts[-1] = f"{self.parts[-1][:-1]}:"
        self.parts.append(f"```text\n{_settle(self.wait(*awaited, without=without), self.folder)}\n```")

    def wait(self, *awaited: str, without: str = "") -> str:
        end = time.monotonic() + PATIENCE
        while True:
            screen = re.sub(r"\x1b\[[\d;]*m", "", self._recording.capture()[0])
            if all(words in screen for words in awaited) and not (without and without in screen):
                return screen
            if time.monotonic() > end:
                raise SystemExit(f"the terminal does not show {awaited}, without {without!r}:\n{screen}")
            time.sleep(0.2)

    def _press(self, done: str, keys: tuple[str, ...]) -> None:
        for key in keys:
            self._recording.press(TMUX_NAMES.get(key, key))
        pressed = ", ".join(f"**{key}**" for key in keys)
        words = f"{done}, then {pressed}" if done and keys else done or f"Press {pressed}"
        self.parts.append(f"{words}.")


def _settle(screen: str, folder: Path) -> str:
    """Removes what differs from run to run, and the empty lines above and below."""
    screen = screen.replace(str(folder.parent), "/home/ada")
    screen = re.sub(r"(?<![\d.])\d+(?:\.\d+)? s\b", "0.1 s", screen)
    screen = re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", screen)
    screen = re.sub(r"session \d{8}-\d{6}-[0-9a-f]{4}", "session 20261118-120000-1a2b", screen)
    screen = re.sub(r"[\d,]+(?= tokens in)", lambda found: f"{round(int(found[0].replace(',', '')), -2):,}", screen)
    return "\n".join(line.rstrip() for line in screen.split("\n")).strip("\n")


class Task(NamedTuple):
    """A task: what the model says, the files of the project, and what the person does."""

    title: str
    turns: list[Any]
    play: Callable[[Play], None]
    flags: tuple[str, ...] = ()
    files: dict[str, str] = {}  # noqa: RUF012 - never changed


def call(tool: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    return {"call": tool, "arguments": arguments, **({"text": text} if text else {})}


def paste(play: Play) -> None:
    play.paste("def add(a, b):\n    return a + b\n\nWhat is wrong here?")
    play.show("return a + b", "wrong here?")
    play.press("Enter")
    play.show("Nothing is wrong", *DONE)


def type_during_a_run(play: Play) -> None:
    play.type("Build it.", "Enter")
    play.wait("compiling", BUSY)
    play.type("Then run the tests.", "Enter")
    play.show("queued: Then run the tests.")
    play.press("↑")
    play.wait("> Then run the tests.", without="queued")
    play.type(" Only the quick ones.", "Enter")
    play.show("queued: Then run the tests. Only the quick ones.")
    play.create("ready")
    play.show("I run the quick tests.", *DONE)


def approve_a_large_diff(play: Play) -> None:
    play.type("Call the lines rows.", "Enter")
    play.show("[e]dit?")
    play.press("d")
    play.show("With these arguments", "[e]dit?")
    play.press("y")
    play.show("Every line is a row now.", *DONE)


def refuse_with_a_reason(play: Play) -> None:
    play.type("Release it.", "Enter")
    play.show("[e]dit?")
    play.press("r")
    play.wait("Reason for the model")
    play.type("Run the tests first.", "Enter")
    play.show("I run the tests first.", *DONE)


def stop(play: Play) -> None:
    play.type("Build it.", "Enter")
    play.wait("compiling", BUSY)
    play.type("and then dep")
    play.show("> and then dep", BUSY)
    play.press("Esc")
    play.show("Stopped: interrupted.", READY)


def steer(play: Play) -> None:
    play.type("Build it and write the notes.", "Enter")
    play.wait("compiling", BUSY)
    play.type("The notes in German, please.", "Enter")
    play.show("queued: The notes in German")
    play.create("ready")
    play.show("Die Notizen", *DONE)


def resume(play: Play) -> None:
    play.type("Build it.", "Enter")
    play.wait("compiling", BUSY)
    play.press("Esc")
    play.show("Stopped: interrupted.", READY)
    play.type("/res")
    play.show("resume the run that was stopped")
    play.type("ume", "Enter")
    play.show("The build was stopped", *DONE)


def change_the_model(play: Play) -> None:
    play.type("/model scripted:other.json", "Enter")
    play.wait("from now on", READY)
    play.type("Hello!", "Enter")
    play.show("I am the other model.", *DONE)


def plan_first(play: Play) -> None:
    play.press("Shift-Tab", "Shift-Tab")
    play.show("plan mode")
    play.type("Split the file.", "Enter")
    play.show("My plan", *DONE)
    play.press("Shift-Tab", "Shift-Tab")
    play.wait("accept edits")
    play.type("Do it.", "Enter")
    play.show("is split.", *DONE)


def expand(play: Play) -> None:
    play.type("Run the tests.", "Enter")
    play.show("All 214 tests pass.", *DONE)
    play.press("Ctrl-O")
    play.show("test 195 passed", READY)


WRITE = call("file_write", path="a.txt", content="one\n")
TASKS = (
    Task("Paste several lines", ["Nothing is wrong: `add` returns the sum."], paste),
    Task(
        "Type while the agent works",
        [call("bash", command="sh build.sh"), "Built. I run the quick tests."],
        type_during_a_run,
        ("--yes", *UNTRIED),
        {"build.sh": BUILD},
    ),
    Task(
        "Approve a large change",
        [
            call("file_read", path="table.txt"),
            call("file_write", path="table.txt", content=TABLE.replace("line", "row")),
            "Every line is a row now.",
        ],
        approve_a_large_diff,
        (),
        {"table.txt": TABLE},
    ),
    Task(
        "Refuse a call with a reason",
        [call("bash", command="git push origin main"), "I run the tests first."],
        refuse_with_a_reason,
        UNTRIED,
    ),
    Task("Stop", [call("bash", command="sh build.sh")], stop, ("--yes", *UNTRIED), {"build.sh": BUILD}),
    Task(
        "Steer the agent",
        [
            call("bash", command="sh build.sh"),
            call("file_write", path="NOTES", content="Neu: …\n"),
            "Die Notizen sind da.",
        ],
        steer,
        ("--yes", *UNTRIED),
        {"build.sh": BUILD},
    ),
    Task(
        "Resume what was stopped",
        [call("bash", command="sh build.sh"), "The build was stopped before it ended. Shall I try again?"],
        resume,
        ("--yes", *UNTRIED),
        {"build.sh": BUILD},
    ),
    Task("Change the model", ["Hello."], change_the_model, (), {"other.json": '["I am the other model."]'}),
    Task(
        "Plan first",
        [WRITE, "My plan: one file for each part.", WRITE, "The file is split."],
        plan_first,
    ),
    Task(
        "Show a shortened output",
        [call("bash", command="for i in $(seq 214); do echo test $i passed; done"), "All 214 tests pass."],
        expand,
        ("--yes", *UNTRIED),
    ),
)


def record(number: int, columns: int) -> list[str]:
    """Returns what the person did and saw in a task, as Markdown."""
    task = TASKS[number]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, "project")
        folder.mkdir()
        for name, text in {**task.files, "model.json": json.dumps(task.turns)}.items():
            (folder / name).write_text(text, encoding="utf-8")
        with Play(folder, columns, *task.flags) as play:
            task.play(play)
            return play.parts


def main() -> None:
    parts = [INTRODUCTION.rstrip()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        windows = [(number, columns) for number in range(len(TASKS)) for columns in WIDTHS]
        recorded = dict(zip(windows, pool.map(lambda window: record(*window), windows), strict=True))
    for number, task in enumerate(TASKS):
        parts.append(f"## {number + 1}. {task.title}")
        for columns in WIDTHS:
            parts += [f"### {task.title}: {columns} columns", *recorded[number, columns]]
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"{PAGE.name}: {len(TASKS)} tasks")


if __name__ == "__main__":
    main()
