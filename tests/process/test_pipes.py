"""Programs that are talked to: what they say arrives, they wait for slow readers, and nothing of them is left."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.process.environment import shell_environment
from forge.process.running.pipes import Piped


async def started(*argv: str, cwd: Path = Path("/")) -> Piped:
    return await Piped.start(argv, cwd=cwd, env=shell_environment())


async def test_a_program_hears_and_answers() -> None:
    program = await started("cat")
    await program.write(b"one\n")
    assert await program.output.readline() == b"one\n"
    await program.write(b"two\n")
    assert await program.output.readline() == b"two\n"
    await program.stop(2.0, 1.0)
    assert await program.wait_ended() == "exit code 0"
    with pytest.raises(ConnectionError):
        await program.write(b"three\n")


async def test_both_streams_and_the_end_are_told() -> None:
    program = await started("sh", "-c", "echo out; echo err >&2; exit 7")
    assert await program.output.read() == b"out\n"
    assert await program.errors.read() == b"err\n"
    assert await program.wait_ended() == "exit code 7"
    await program.stop(0.0, 0.0)


async def test_a_signal_is_told_by_its_name() -> None:
    program = await started("sh", "-c", "kill -9 $$")
    assert await program.wait_ended() == "SIGKILL"
    await program.stop(0.0, 0.0)


async def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="was not found"):
        await started("no-such-program-here")
    (tmp_path / "text").write_text("no program")
    for argv, cwd in ((str(tmp_path / "text"), tmp_path), ("cat", tmp_path / "gone")):
        program = await started(argv, cwd=cwd)
        with pytest.raises(ToolError) as failed:
            await program.wait_ended()
        assert failed.value.kind in (ErrorKind.NOT_FOUND, ErrorKind.USER)
        assert await program.output.read() == b""
        await program.stop(0.0, 0.0)


async def test_a_stubborn_one_is_killed_when_its_time_is_up() -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    program = await started(sys.executable, "-S", "-E", "-c", script)
    assert await program.output.readline() == b"up\n"
    began = time.monotonic()
    await program.stop(0.1, 0.1)
    assert time.monotonic() - began < 60
    assert await program.wait_ended() == "SIGKILL"


async def test_a_slow_reader_makes_the_program_wait() -> None:
    program = await started("sh", "-c", "yes | head -c 3000000; echo done >&2")
    errors = asyncio.create_task(program.errors.read())
    done, _ = await asyncio.wait([errors], timeout=0.2)
    assert not done
    size = 0
    while piece := await program.output.read(65_536):
        size += len(piece)
    assert size == 3_000_000
    assert await errors == b"done\n"
    await program.stop(1.0, 0.0)


async def test_what_is_not_read_is_no_reason_to_stay() -> None:
    program = await started("sleep", "600")
    writing = asyncio.create_task(program.write(b"x" * 5_000_000))
    await asyncio.sleep(0)
    await program.stop(0.0, 0.5)
    writing.cancel()
    await asyncio.wait([writing])
    assert await program.wait_ended() in ("SIGTERM", "SIGKILL")
