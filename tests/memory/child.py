"""Another process that works on the same memory, and is killed while it does."""

from __future__ import annotations

import asyncio
import random
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from forge.core.errors import ToolError
from forge.memory.memory import Memory

PROGRAM = __file__


class Lengths:
    """An embedder of a kind."""

    name = "lengths"
    dimensions = 2

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]


def child(what: str, workspace: Path, name: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, PROGRAM, what, str(workspace), name], stdout=subprocess.PIPE)


def killed(process: subprocess.Popen[bytes], lines: int) -> None:
    """After it said so much, and a random moment."""
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    select.select([], [], [], random.random() * 0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()


def main(what: str, workspace: str, name: str = "") -> None:
    memory = Memory(Path(workspace) / ".forge/memory", Lengths() if what == "index" else None)
    if what == "write":
        for number in range(20):
            memory.write(f"{name}-{number}", "memory")
    if what == "limited":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        try:
            memory.write("y" * 5_000, "memory")
        except ToolError as error:
            print(error.message)
    if what == "search":
        for number in range(20):
            memory.write(f"{name}{number} was noted")
            found = asyncio.run(memory.search(f"{name}{number}"))
            assert found.hits, (number, found)
            assert f"{name}{number}" in found.hits[0].text
            assert not found.remarks
    while what == "forever":
        memory.write("x" * 10_000, "memory")
        print("written", flush=True)
    number = 0
    while what == "index":
        number += 1
        for at in range(5):
            text = "".join(f"## {part}\n\nversion{number} of part{part} {name}\n\n" for part in range(40))
            (memory.notes.directory / f"2026-01-{at + 1:02}.md").write_text(text)
        asyncio.run(memory.reindex())
        print("indexed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
