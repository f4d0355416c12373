"""Observes what agents with tools of their own do with files and programs, on the disk and as the model sees it."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peer_behaviour import REASONS
from benchmarks.peer_systems import Call, RunEndedError, Script, System

KEY = "sk-live-51Hx9pQvT2"
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ROOM = Path(__file__).resolve().parents[1] / ".cache"  # some sandboxes have a /tmp of their own


@dataclass
class Work:
    """A run: what the model saw, and how it ended."""

    seen: list[str] = field(default_factory=list)
    prompt: str = ""  # the last request, as a text
    ended: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.seen)


class Stage:
    """A home with a directory to work in and a file beside it, and the calls of a system by what they do."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._number = 0
        ROOM.mkdir(exist_ok=True)
        self._root = tempfile.TemporaryDirectory(dir=ROOM)
        self.home = Path(self._root.name).resolve() / "home"
        self.directory = self.home / "project"
        self.outside = self.home / "outside.txt"

    def __enter__(self) -> Stage:
        self.directory.mkdir(parents=True)
        self.outside.write_text("theirs\n", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._root.cleanup()

    def path(self, name: str) -> Path:
        return self.directory / name

    def named(self, name: str) -> str:
        """A file of the directory, as the system's tools name it."""
        return self._system.name_file(self.directory, name)

    def call(self, action: str, **arguments: str) -> list[Call]:
        self._number += 1
        text = json.dumps(self._system.write_arguments(action, arguments))
        return [Call(f"call_{self._number}", self._system.actions[action].tool, text)]

    async def run(self, *turns: list[Call], allowed: bool = True) -> Work:
        return await self.run_turns(iter(turns), allowed=allowed)

    async def run_turns(self, turns: Iterator[list[Call]], *, allowed: bool = True) -> Work:
        script, done = Script(turns), Work()
        try:
            await self._system.work(script, self.directory, self.home, allowed=allowed)
        except RunEndedError as error:
            done.ended = str(error)
        done.seen = self._system.results(script.messages)
        done.prompt = f"{script.messages} {script.request}"
        return done


async def observe_work(system: System) -> dict[str, str]:
    """None of the rows for a system without tools of its own."""
    if not system.actions:
        return {}
    return {
        "a file to write, nobody there": await observe_writing(system),
        "a command to run, nobody there": await observe_command(system),
        "a command writes outside the directory": await observe_outside(system),
        "a command prints an API key of the environment": await observe_key(system),
        "a command prints 1 MB": await observe_output(system),
        "an edit with other indentation": await observe_indentation(system),
        "a file is written that somebody changed since it was read": await observe_stale(system),
        "`cd` in one command: where the next one runs": await observe_cd(system),
        "a picture is read": await observe_picture(system),
        "a task for a sub-agent": await observe_delegation(system),
        "`AGENTS.md` in the directory": await observe_instructions(system),
        "the program ends: its conversation": await observe_conversation(system),
    }


def describe_end(done: Work, otherwise: str) -> str:
    return f"run ends: {done.ended}" if done.ended else otherwise


def describe_refusal(done: Work) -> str:
    told = any(reason in done.text for reason in REASONS)
    return describe_end(done, "not run, model gets the reason" if told else "not run")


async def observe_writing(system: System) -> str:
    with Stage(system) as stage:
        done = await stage.run(stage.call("write", path=stage.named("new.txt"), text="hello\n"), allowed=False)
        if stage.path("new.txt").exists():
            return "written"
        said = describe_refusal(done)
        return "kept in the run, not on the disk" if said == "not run" and "rror" not in done.text else said


async def observe_command(system: System) -> str:
    with Stage(system) as stage:
        done = await stage.run(stage.call("run", command="echo a > made.txt; echo ran-$((20+22))"), allowed=False)
        if stage.path("made.txt").exists():
            return "it ran"
        return "tried, its change is discarded" if "ran-42" in done.text else describe_refusal(done)


async def observe_outside(system: System) -> str:
    with Stage(system) as stage:
        done = await stage.run(stage.call("run", command=f"echo ours > {stage.outside}; echo exit $?"))
        changed = stage.outside.read_text(encoding="utf-8") != "theirs\n"
        return "file changed" if changed else describe_end(done, "file not changed")


async def observe_key(system: System) -> str:
    os.environ["STRIPE_API_KEY"] = KEY
    try:
        with Stage(system) as stage:
            done = await stage.run(stage.call("run", command='echo "key=$STRIPE_API_KEY."'))
    finally:
        del os.environ["STRIPE_API_KEY"]
    return "model gets the key" if KEY in done.text else describe_end(done, "model does not get it")


async def observe_output(system: System) -> str:
    with Stage(system) as stage:
        line = "x" * 99
        done = await stage.run(stage.call("run", command=f"yes {line} | head -n 10000"))
        size = len(done.text)
        if done.ended:
            return describe_end(done, "")
        return "whole" if size >= 1_000_000 else f"{size / 1000:,.0f} kB of it"


CODE = "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
WRONG = "for price in prices:\n    result += price\n"
RIGHT = "for price in prices:\n    result += 2 * price\n"


async def observe_indentation(system: System) -> str:
    """The model forgets four blanks at the start of every line."""
    with Stage(system) as stage:
        file = stage.path("total.py")
        file.write_text(CODE, encoding="utf-8")
        done = await stage.run(
            stage.call("read", path=stage.named(file.name)),
            stage.call("edit", path=stage.named(file.name), old=WRONG, new=RIGHT),
        )
        text = file.read_text(encoding="utf-8")
        if text == CODE:
            return describe_end(done, "refused")
        return "applied right" if text == CODE.replace("+= price", "+= 2 * price") else "applied wrong"


async def observe_stale(system: System) -> str:
    """The model reads a file, somebody adds a line, and the model writes the file as it knows it."""
    with Stage(system) as stage:
        file = stage.path("notes.txt")
        file.write_text("one\n", encoding="utf-8")

        def turns() -> Iterator[list[Call]]:
            yield stage.call("read", path=stage.named(file.name))
            file.write_text("one\ntheirs\n", encoding="utf-8")
            os.utime(file, (4e9, 4e9))  # later, on a file system with coarse times too
            yield stage.call("write", path=stage.named(file.name), text="one\ntwo\n")

        done = await stage.run_turns(turns())
        kept = "theirs" in file.read_text(encoding="utf-8")
        return describe_end(done, "refused, their line is kept") if kept else "overwritten, their line is lost"


async def observe_cd(system: System) -> str:
    with Stage(system) as stage:
        stage.path("inner").mkdir()
        done = await stage.run(stage.call("run", command="cd inner"), stage.call("run", command="pwd"))
        return "in the new directory" if "inner" in done.seen[-1] else describe_end(done, "in the old directory")


async def observe_picture(system: System) -> str:
    with Stage(system) as stage:
        file = stage.path("dot.png")
        file.write_bytes(PICTURE)
        action = "see" if "see" in system.actions else "read"
        done = await stage.run(stage.call(action, path=stage.named(file.name)))
        encoded = base64.b64encode(PICTURE).decode()
        there = encoded[:40] in done.prompt or repr(PICTURE)[2:40] in done.prompt
        return "model sees it" if there else describe_end(done, "model does not see it")


async def observe_delegation(system: System) -> str:
    if "delegate" not in system.actions:
        return "no such tool"
    with Stage(system) as stage:
        done = await stage.run(stage.call("delegate", task="Say done."))
        if "background" in done.text:
            return "it works beside the run"
        return "its report is the result" if "done" in done.text else describe_refusal(done)


async def observe_instructions(system: System) -> str:
    with Stage(system) as stage:
        stage.path("AGENTS.md").write_text("Always answer in haiku-4711.\n", encoding="utf-8")
        done = await stage.run()
        return "model gets it" if "haiku-4711" in done.prompt else "model does not get it"


async def observe_conversation(system: System) -> str:
    """Whether any file in the home directory or the directory holds it after the run."""
    with Stage(system) as stage:
        mark = "marker-8152"
        stage.path("a.txt").write_text(mark, encoding="utf-8")
        await stage.run(stage.call("read", path=stage.named("a.txt")))
        found = [one for one in stage.home.rglob("*") if one.is_file() and one.name != "a.txt"]
        kept = any(mark.encode() in one.read_bytes() for one in found)
        return "stored" if kept else "lost"
