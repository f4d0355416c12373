"""What a program may use is enforced from its start, and no longer than it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forge.core.errors import ToolError
from forge.process.environment import shell_environment
from forge.process.running.limits import Resources
from forge.process.running.run import Finished, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux enforces them")


async def limited(line: str, limits: Resources | None = None, **options) -> Finished:
    return await run(["bash", "-c", line], cwd=Path("/"), env=shell_environment(), limits=limits, **options)


@pytest.mark.parametrize(
    ("limits", "option", "shown"),
    [
        (Resources(cpu_seconds=7), "-St", "7"),
        (Resources(memory=1 << 30), "-Sv", str(1 << 20)),
        (Resources(file_size=1 << 20), "-Sf", "1024"),
        (Resources(open_files=99), "-Sn", "99"),
        (Resources(processes=5_000), "-Su", "5000"),
    ],
    ids=["cpu", "memory", "file size", "open files", "processes"],
)
async def test_the_program_has_them_softly_and_hard(limits, option, shown):
    assert (await limited(f"ulimit {option}", limits)).output.split() == [shown]
    hard = await limited(f"ulimit {option.replace('S', 'H')}", limits)
    assert int(hard.output) - int(shown) in (0, 1)


async def test_a_file_that_grows_too_large_ends_the_program(tmp_path):
    finished = await limited(f"exec head -c 100000 /dev/zero > {tmp_path}/large", Resources(file_size=50_000))
    assert finished.signal == "SIGXFSZ"
    assert (tmp_path / "large").stat().st_size == 50_000


async def test_time_on_the_processor_ends_the_program():
    finished = await limited("exec bash -c 'while :; do :; done'", Resources(cpu_seconds=1), timeout=30)
    assert (finished.signal, finished.timed_out) == ("SIGXCPU", False)


async def test_memory_beyond_the_limit_is_refused():
    code = f"exec {sys.executable} -c 'bytearray(400_000_000); print(1)'"
    assert "MemoryError" in (await limited(code, Resources(memory=300_000_000))).errors
    assert (await limited(code)).output == "1\n"


async def test_the_next_program_is_free_of_them():
    free = (await limited("ulimit -n")).output
    assert (await limited("ulimit -n", Resources(open_files=64))).output == "64\n"
    assert (await limited("ulimit -n")).output == free


async def test_a_limited_program_that_cannot_start_is_an_error_and_the_next_one_starts():
    with pytest.raises(ToolError):
        await run(["/no/such/file"], cwd=Path("/"), env={}, limits=Resources(open_files=64))
    assert (await limited("echo fine")).output == "fine\n"


@pytest.mark.parametrize("wrong", [{"memory": 1_000}, {"open_files": 3}, {"cpu_seconds": -1}])
def test_limits_that_nothing_could_run_with_are_refused(wrong):
    with pytest.raises(ToolError):
        Resources(**wrong)
