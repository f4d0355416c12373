"""What a program may use is enforced from its start, and no longer than it runs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from forge.core.context import ProgramLimits, Scope
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.process.environment import shell_environment
from forge.process.running.limits import Resources
from forge.process.running.run import Finished, run
from forge.process.sandbox import Confinement, Tier
from forge.tools.bash import Bash
from tests.process.attacks import needs

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


DEFAULT = ProgramLimits()


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandboxed(request, tmp_path):
    needs(Tier(request.param))

    async def run_line(line: str, limits: ProgramLimits = DEFAULT, own: Resources | None = None) -> Finished:
        return await run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            merge=True,
            timeout=120,
            limits=own,
            confinement=Confinement(workspace=tmp_path, limits=limits),
            sandbox=request.param,
        )

    return run_line


HOLD = f"exec {sys.executable} -I -S -c 'print(len(bytearray(%d << 20)))'"
OPEN = f"exec {sys.executable} -I -S -c 'kept = [open(\"/dev/null\") for _ in range(%d)]; print(len(kept))'"
FORK = (
    f"exec {sys.executable} -I -S -c 'import os, signal\nfor _ in range(%d):\n  if not os.fork(): signal.pause()\n"
    'print("done")\''
)

REACHED = [
    ("memory", HOLD % 3_000, HOLD % 1_000, "2,048 MiB for each process"),
    ("open_files", OPEN % 5_000, OPEN % 3_000, "4,096 for each process"),
]


@pytest.mark.parametrize(("name", "too_much", "enough", "words"), REACHED, ids=[one[0] for one in REACHED])
async def test_a_program_in_a_sandbox_has_limits_and_the_result_names_them(sandboxed, name, too_much, enough, words):
    told = await sandboxed(too_much)
    assert told.exit_code == 1, told
    (said,) = told.reached
    assert words in said
    assert f"programs.{name} in forge.yaml" in said
    assert told.limits[name] == words
    fine = await sandboxed(enough)
    assert (fine.exit_code, fine.reached) == (0, ()), fine


async def test_processes_are_limited_except_for_root_which_is_said(sandboxed):
    few = ProgramLimits(processes=40)
    told = await sandboxed(FORK % 100, few)
    if os.geteuid() == 0:
        assert (told.output, told.limits["processes"][:26]) == ("done\n", "not limited: the kernel do")
        return
    assert "done" not in told.output
    assert "programs.processes in forge.yaml" in told.reached[0]
    assert (await sandboxed(FORK % 20, few)).output == "done\n"
    assert (await sandboxed(FORK % 100)).output == "done\n"


@pytest.mark.parametrize("folder", ["$TMPDIR", "$HOME", "/dev/shm"])
async def test_temporary_files_are_limited(sandboxed, folder):
    line = f'head -c %dM /dev/zero >"{folder}/large" && echo all; df --output=size -m "{folder}" | tail -n1'
    small = ProgramLimits(temporary=40)
    told = await sandboxed((line % 60).partition(";")[0], small)
    assert told.exit_code == 1, told
    if folder != "/dev/shm":  # Landlock has none
        assert "(40 MiB for each program); use less, or the person can raise programs.temporary" in told.reached[0]
        assert (await sandboxed(line % 20)).output.split() == ["all", "1024"]


async def test_limits_can_be_changed_or_switched_off(sandboxed):
    assert (await sandboxed(HOLD % 200, ProgramLimits(memory=100))).exit_code == 1
    assert (await sandboxed(HOLD % 3_000, ProgramLimits(memory=0))).output == f"{3_000 << 20}\n"
    assert "MemoryError" in (await sandboxed(HOLD % 200, own=Resources(data=100 << 20))).output
    assert (await sandboxed(HOLD % 2_500, own=Resources(data=4_000 << 20))).output == f"{2_500 << 20}\n"
    line = "ulimit -d; ulimit -n; ulimit -Hn"
    lowered = (await sandboxed(line, ProgramLimits(memory=512, open_files=100))).output
    assert lowered.split() == [str(512 << 10), "100", "100"]


async def test_a_limit_cannot_be_raised_by_the_program(sandboxed):
    told = await sandboxed("ulimit -d unlimited || ulimit -n 9999 || echo refused")
    assert told.output.splitlines()[-1] == "refused"


async def test_words_about_memory_in_the_output_of_a_program_that_succeeds_are_no_limit(sandboxed):
    assert (await sandboxed("echo 'Cannot allocate memory'")).reached == ()


@pytest.mark.parametrize("line", [
    "java -version", "node -e 'console.log(Buffer.alloc(500 << 20).length)'",
    "printf 'int main(void) { return 0; }' >a.c && gcc -O2 a.c -o a && ./a",
], ids=["java", "node", "gcc"])  # fmt: skip
async def test_programs_of_every_day_work_within_the_limits(sandboxed, line):
    name = "gcc" if "gcc" in line else line.split()[0]
    if shutil.which(name) is None:
        pytest.skip(f"NOT TESTED: {name} is not installed")
    told = await sandboxed(line)
    assert (told.exit_code, told.reached) == (0, ()), told


async def test_the_tool_says_which_limit_was_reached(tmp_path):
    needs(Tier.BUBBLEWRAP)
    scope = Scope(workspace=tmp_path, programs=ProgramLimits(memory=100))
    executor = standard_executor([Bash()], policy=rules("allow execute"))
    line = HOLD % 200
    failed = await executor.execute(ToolCall("bash", {"command": line}), scope)
    assert "[it may have reached a limit of the sandbox: memory (100 MiB for each process)" in failed.for_llm
    assert failed.data["sandbox_limits"]["memory"] == "100 MiB for each process"
    fine = await executor.execute(ToolCall("bash", {"command": line}), Scope(workspace=tmp_path))
    assert "limit of the sandbox" not in fine.for_llm
