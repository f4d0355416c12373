"""Programs that run beside the event loop and never outlive their reader."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from forge.core.errors import ToolError
from forge.process.running.pipes import LONGEST_LINE, PAUSE, run_streamed


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def all_lines(program) -> list[bytes]:
    found: list[bytes] = []
    while (lines := await program.lines()) != []:
        found += lines or []
    return found


def is_running(pid: int) -> bool:
    """Zombies are not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_lines_arrive_whole_and_the_end_is_told(tmp_path):
    async with run_streamed(python("print('a\\nb'); print('c', end='')"), tmp_path) as program:
        assert await all_lines(program) == [b"a", b"b", b"c"]
        assert await program.wait_ended() == (0, "")


async def test_nothing_for_a_while_is_told_from_the_end(tmp_path):
    async with run_streamed(python("input(); print('late')"), tmp_path, reads=True) as program:
        assert await program.lines(0.01) is None
        await program.write(b"\n")
        assert await all_lines(program) == [b"late"]


async def test_it_starts_in_the_directory_and_sees_nothing_of_our_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", "/somewhere")
    monkeypatch.setenv("SECRET", "x")
    code = "import os; print(os.getcwd()); print(sorted(set(os.environ) - {'LC_CTYPE', 'LC_ALL', 'LANG'}))"
    async with run_streamed(python(code), tmp_path) as program:
        assert await all_lines(program) == [os.fsencode(tmp_path), b"['PATH']"]


async def test_without_input_it_reads_nothing(tmp_path):
    async with run_streamed(python("import sys; print(repr(sys.stdin.read()))"), tmp_path) as program:
        assert await all_lines(program) == [b"''"]


async def test_much_error_output_blocks_nothing_and_only_its_beginning_is_kept(tmp_path):
    code = "import sys; sys.stderr.write('e' * 1_000_000); print('done'); sys.exit(3)"
    async with run_streamed(python(code), tmp_path) as program:
        assert await all_lines(program) == [b"done"]
        ending, said = await program.wait_ended()
    assert (ending, len(said)) == (3, 16 * 1024)


async def test_a_line_without_end_is_cut(tmp_path):
    code = "import sys; sys.stdout.write('x' * 3_000_000)"
    async with run_streamed(python(code), tmp_path) as program:
        (line,) = await all_lines(program)
    assert len(line) <= LONGEST_LINE


async def test_leaving_the_block_kills_the_program_and_its_children(tmp_path):
    code = "import os, signal; child = os.fork(); print(child if child else '', flush=True); signal.pause()"
    async with run_streamed(python(code), tmp_path) as program:
        child = 0
        while not child:
            child = next((int(line) for line in await program.lines() or () if line), 0)
        assert is_running(program.pid)
    assert not is_running(program.pid)
    for _ in range(1_000):  # the system buries orphans in its own time
        if not is_running(child):
            break
        await asyncio.sleep(0.001)
    assert not is_running(child)


async def test_cancelling_kills_it_at_once(tmp_path):
    started = asyncio.Event()
    pids = []

    async def read() -> None:
        async with run_streamed(python("import signal; print(1, flush=True); signal.pause()"), tmp_path) as program:
            await program.lines()
            pids.append(program.pid)
            started.set()
            await all_lines(program)

    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pids[0])


async def test_a_program_that_does_not_listen_harms_nobody(tmp_path):
    async with run_streamed(python("import os; os.close(0); print('closed')"), tmp_path, reads=True) as program:
        for _ in range(10):
            await program.write(b"x" * 100_000)
        assert await all_lines(program) == [b"closed"]


async def test_one_that_cannot_be_started_is_explained(tmp_path):
    with pytest.raises(ToolError, match="no-such-program cannot be started"):
        async with run_streamed([str(tmp_path / "no-such-program")], tmp_path):
            pass
    async with run_streamed(python("print(1)"), tmp_path) as program:
        assert await all_lines(program) == [b"1"]


async def test_no_descriptor_is_left_open(tmp_path):
    async def once() -> None:
        async with run_streamed(python("print(1)"), tmp_path, reads=True) as program:
            await program.lines()

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await once()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("first", ["", "os.close(2)"])
async def test_a_program_that_writes_often_does_not_wake_us_each_time(tmp_path, first):
    code = f"import os, time\n{first}\nfor _ in range(2000): os.write(1, b'x' * 51); time.sleep(0.0001)"
    reads, size = 0, 0
    began = time.monotonic()
    async with run_streamed(python(code), tmp_path) as program:
        while piece := await program.read():
            reads, size = reads + 1, size + len(piece)
    assert size == 2000 * 51
    assert reads <= (time.monotonic() - began) / PAUSE + 10
