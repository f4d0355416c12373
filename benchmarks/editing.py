"""An edit of one line in a large file, from JSON text to result, against the least that must be done on the disk."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from benchmarks.timing import Measure, side_by_side_async, wall
from forge import Scope, ToolCall, rules
from forge.core.executor import ToolExecutor
from forge.core.registry import ToolRegistry
from forge.permissions.gate import PolicyGate
from forge.pipeline import standard_steps
from forge.tools.file_edit import FileEdit
from forge.tools.file_read import FileRead
from forge.workspace.history.tracking import SessionState

SIZE = 10 * 1024 * 1024  # bytes
LINE = "line {number:07d}: the quick brown fox jumps over the lazy dog\n"
EDITED = "edited for the {number}th time\n"


def content(first: str) -> str:
    """So many different lines, one of them to be edited."""
    lines = [LINE.format(number=number) for number in range(SIZE // len(LINE.format(number=0)))]
    lines[len(lines) // 2] = first
    return "".join(lines)


def plain_edit(path: Path, old: bytes, new: bytes) -> None:
    """Read, replace, write to a temporary file that is on the disk before it takes the old one's place."""
    text = path.read_bytes()
    assert old in text
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb") as file:
        file.write(text.replace(old, new, 1))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


async def measures() -> list[Measure]:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:  # a disk, where /tmp may be memory
        floor, ours = await _edits(Path(folder))
    return [Measure("edit of one line in a 10 MB file", "read, replace, atomic write", floor, ours, "ms", 2.0)]


async def _edits(workspace: Path) -> tuple[float, float]:
    for name in ("plain.txt", "ours.txt"):
        (workspace / name).write_text(content(EDITED.format(number=0)))
    steps = standard_steps(PolicyGate(rules("allow read", "allow write")), files=SessionState(workspace))
    executor = ToolExecutor(ToolRegistry([FileRead(), FileEdit()]), steps)
    read = await executor.execute(ToolCall("file_read", {"path": "ours.txt", "limit": 1}), Scope(workspace=workspace))
    assert read.success, read.for_llm
    plain, own = count(), count()

    async def floor() -> None:
        number = next(plain)
        old, new = (EDITED.format(number=one).encode() for one in (number, number + 1))
        plain_edit(workspace / "plain.txt", old, new)

    async def edit() -> None:
        number = next(own)
        arguments = {
            "path": "ours.txt",
            "old_text": EDITED.format(number=number),
            "new_text": EDITED.format(number=number + 1),
        }
        result = await executor.execute(ToolCall("file_edit", arguments), Scope(workspace=workspace))
        assert result.success, result.for_llm

    return await side_by_side_async(lambda: _time_settled(floor), lambda: _time_settled(edit))


async def _time_settled(function: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds, once the disk has ended the work of the turn before: ours frees the space of the old file later."""
    await asyncio.sleep(0.05)
    return await wall(function)
