"""What a program may use is enforced from its start, and no longer than it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forge.core.context import ProgramLimits, Scope
from forge.core.errors import ToolError
from forge.core.messages import ToolCall
from forge.permissions.policy import rules
from forge.pipeline import standard_executor
from forge.process.environment import shell_environment
from forge.process.running import cgroups
from forge.process.running.jobs import start_job
from forge.process.running.limits import Resources
from forge.process.running.output import OutputPlan
from forge.process.running.run import FinishedProgram, confine, run
from forge.process.running.supervisor import find_supervisor
from forge.process.sandbox import Confinement, Tier
from forge.tools.bash import Bash
from tests.process.attacks import needs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux enforces them")


async def limited(line: str, limits: Resources | None = None, **options) -> FinishedProgram:
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

    async def run_line(line: str, limits: ProgramLimits = DEFAULT, own: Resources | None = None) -> FinishedProgram:
        return await run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            output=OutputPlan(merge=True),
            timeout=120,
            limits=own,
            confinement=Confinement(workspace=tmp_path, limits=limits, sandbox=request.param),
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
    assert told.limits[name].startswith(words)
    fine = await sandboxed(enough)
    assert (fine.exit_code, fine.reached) == (0, ()), fine


async def test_processes_are_limited_except_for_root_which_is_said(sandboxed):
    few = ProgramLimits(processes=40)
    told = await sandboxed(FORK % 100, few)
    if os.geteuid() == 0 and "cgroup" not in told.limits["processes"]:
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
    assert "[it may have reached a limit of the sandbox: memory (100 MiB for each process" in failed.for_llm
    assert failed.data["sandbox_limits"]["memory"].startswith("100 MiB for each process")
    fine = await executor.execute(ToolCall("bash", {"command": line}), Scope(workspace=tmp_path))
    assert "limit of the sandbox" not in fine.for_llm


# cgroups


def folder_of_cgroups(controller: str) -> str:
    """The directory of programs' cgroups, or a loud skip where none is delegated."""
    found = cgroups.find_delegated()
    if found is None or controller not in found.controllers:
        pytest.skip(f"NOT TESTED: no cgroup with the controller {controller} is delegated to this process")
    return found.folder


def cgroups_of_programs(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(f"forge-{find_supervisor()}-")]


async def until_no_cgroup_is_left(folder: str) -> None:
    while cgroups_of_programs(folder):  # noqa: ASYNC110 - nothing else tells it; the test's own time limit ends this
        await asyncio.sleep(0.01)


TOGETHER = f"""exec {sys.executable} -I -S -c '
import os, signal
for _ in range(3):
    reader, writer = os.pipe()
    if not os.fork():
        kept = bytearray(%d << 20)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
print("done")'"""
IN_A_FILE = f"""exec {sys.executable} -I -S -c '
import os
file = os.memfd_create("large")
for _ in range(%d):
    os.write(file, bytes(1 << 20))
print("done")'"""


@pytest.mark.parametrize("line", [TOGETHER, IN_A_FILE], ids=["three processes", "a file in memory"])
async def test_a_cgroup_limits_the_memory_of_all_processes(sandboxed, line):
    folder = folder_of_cgroups("memory")
    told = await sandboxed(line % (600 if line is IN_A_FILE else 200), ProgramLimits(memory=400))
    assert (told.output, told.signal) == ("", "SIGKILL"), told
    assert told.reached[0].startswith("it reached a limit of the sandbox: memory (400 MiB for each process, and for")
    assert "programs.memory in forge.yaml" in told.reached[0]
    fine = await sandboxed(line % (300 if line is IN_A_FILE else 90), ProgramLimits(memory=400))
    assert (fine.output, fine.reached) == ("done\n", ()), fine
    await until_no_cgroup_is_left(folder)


async def test_a_cgroup_limits_processes_also_of_root(sandboxed):
    folder = folder_of_cgroups("pids")
    told = await sandboxed(FORK % 100, ProgramLimits(processes=40))
    assert "done" not in told.output
    words = "it reached a limit of the sandbox: processes and threads (40 for each program (cgroup)); use less, or"
    assert told.reached[0].startswith(words)
    fine = await sandboxed(FORK % 20, ProgramLimits(processes=40))
    assert (fine.output, fine.reached) == ("done\n", ()), fine
    assert "it reached a limit of the sandbox: processes" in (await sandboxed(FORK % 1_500)).reached[0]
    await until_no_cgroup_is_left(folder)


async def test_a_program_cannot_leave_its_cgroup(sandboxed):
    other = cgroups.Cgroup(folder_of_cgroups("pids"), os.getpid(), {})
    line = f"echo 0 >{other.path}/cgroup.procs && echo moved"
    try:
        told = await sandboxed(f"{line}; mkdir {other.path}/inside; echo 1 >{other.path}/cgroup.kill")
        assert "moved" not in told.output
        assert told.exit_code == 1
        assert subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout == b"moved\n"
    finally:
        other.remove()
    assert not os.path.exists(other.path)


async def test_the_cgroup_of_a_job_ends_with_it_and_with_its_keeper(tmp_path):
    """Also if the keeper is killed: the supervisor removes it."""
    needs(Tier.LANDLOCK)
    folder = folder_of_cgroups("pids")
    env = {"PATH": os.environ["PATH"]}
    for kills_keeper in (False, True):
        confined = await confine(["sleep", "100"], Confinement(workspace=tmp_path, sandbox="landlock"), env)
        job = start_job(confined.command, cwd=tmp_path, env=env, owner="cgroups", command="sleep", confined=confined)
        while not cgroups_of_programs(folder):
            await job.wait(0.01)
        (name,) = cgroups_of_programs(folder)
        if kills_keeper:
            os.kill(int(name.split("-")[2]), signal.SIGKILL)
            await job.wait(30, for_end=True)
        else:
            await job.kill()
        assert not job.runs
        await until_no_cgroup_is_left(folder)


async def test_a_program_that_cannot_be_started_leaves_no_cgroup(sandboxed, tmp_path):
    folder = folder_of_cgroups("pids")
    with pytest.raises(ToolError):
        await run(["/no/such/file"], cwd=tmp_path, env={}, confinement=Confinement(workspace=tmp_path))
    await until_no_cgroup_is_left(folder)
    assert (await sandboxed("echo fine")).output == "fine\n"


BOTH = "memory pids"
OURS = (101, 102)
# Directories that stand for cgroups: name -> controllers, those of its children, processes. The last one is ours.
CHOICES = {
    "a session of systemd: beside ours": (
        {"app": (f"cpu {BOTH}", BOTH, ""), "app/ours": (BOTH, "", "101 7")},
        ("app", BOTH, "", False),
    ),
    "ours has them, though other processes are in it": ({"ours": (BOTH, BOTH, "101 7")}, ("ours", BOTH, "", False)),
    "a delegated service: we leave it": (
        {"slice": ("", "", ""), "slice/ours": (BOTH, "", "101 102")},
        ("slice/ours", BOTH, BOTH, True),
    ),
    "rather a delegated service than beside it": (
        {"slice": (BOTH, BOTH, ""), "slice/ours": (BOTH, "", "101")},
        ("slice/ours", BOTH, BOTH, True),
    ),
    "others are in it": ({"slice": ("", "", ""), "slice/ours": (BOTH, "", "101 102 7")}, None),
    "others are below it": (
        {"slice": ("", "", ""), "slice/ours/b": ("", "", "7"), "slice/ours": (BOTH, "", "101")},
        None,
    ),
    "a delegated service with a subgroup": (
        {"service": (BOTH, "", ""), "service/ours": ("", "", "101")},
        ("service", BOTH, BOTH, False),
    ),
    "others are in another subgroup": (
        {"service": (BOTH, "", ""), "service/b": ("", "", "7"), "service/ours": ("", "", "101")},
        None,
    ),
    "of ours, some are in the parent": ({"service": (BOTH, "", "102"), "service/ours": ("", "", "101")}, None),
    "only processes": (
        {"slice": ("cpu pids", "cpu pids", ""), "slice/ours": ("", "", "101")},
        ("slice", "pids", "", False),
    ),
    "rather both": (
        {"slice": (BOTH, BOTH, ""), "slice/ours": (BOTH, "pids", "101 7")},
        ("slice", BOTH, "", False),
    ),
    "no controllers": ({"slice": ("cpu", "cpu", ""), "slice/ours": ("", "", "101")}, None),
}  # fmt: skip


@pytest.mark.parametrize(("folders", "expected"), CHOICES.values(), ids=CHOICES)
def test_which_cgroup_would_be_used(folders, expected, tmp_path):
    """Only the decision, on directories that stand for cgroups: the tests above use real ones."""
    make_folders(tmp_path, folders)
    found = cgroups.choose(str(tmp_path / list(folders)[-1]), str(tmp_path), OURS)
    if expected is None:
        assert found is None
        return
    folder, controllers, to_enable, moves = expected
    assert found is not None
    assert (found.folder, found.moves) == (str(tmp_path / folder), moves)
    assert (set(found.controllers), set(found.to_enable)) == (set(controllers.split()), set(to_enable.split()))


@pytest.mark.parametrize("change", ["cgroup.type", "cgroup.procs", "."])
def test_a_cgroup_that_is_not_ours_to_use_is_not_used(change, tmp_path):
    """Only the decision, on a directory that stands for a cgroup."""
    make_folders(tmp_path, {"ours": (BOTH, BOTH, "101")})
    assert cgroups.choose(str(tmp_path / "ours"), str(tmp_path / "ours"), OURS) is not None
    if change == "cgroup.type":
        (tmp_path / "ours" / change).write_text("threaded\n")
    elif os.geteuid() == 0:
        pytest.skip("NOT TESTED: root may write everywhere")
    else:
        (tmp_path / "ours" / change).chmod(0o555)
    assert cgroups.choose(str(tmp_path / "ours"), str(tmp_path / "ours"), OURS) is None


def make_folders(top: Path, folders: dict[str, tuple[str, str, str]]) -> None:
    for name, (controllers, enabled, processes) in {"": ("", "", "7"), **folders}.items():
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name / "cgroup.controllers").write_text(f"{controllers}\n")
        (top / name / "cgroup.subtree_control").write_text(f"{enabled}\n")
        (top / name / "cgroup.procs").write_text("".join(f"{one}\n" for one in processes.split()))
        (top / name / "cgroup.type").write_text("domain\n")


MOUNT = "26 25 0:23 {root} {top} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "27 25 0:24 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"


@pytest.mark.parametrize(
    ("own", "root", "top", "expected"),
    [
        ("0::/a.slice/b.scope", "/", "/sys/fs/cgroup", ("/sys/fs/cgroup/a.slice/b.scope", "/sys/fs/cgroup")),
        ("4:pids:/x\n0::/", "/", "/sys/fs/cgroup/unified", ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")),
        ("0::/box/1/sub", "/box/1", "/sys/fs/cgroup", ("/sys/fs/cgroup/sub", "/sys/fs/cgroup")),
        ("0::/a", "/", r"/mnt/my\040groups", ("/mnt/my groups/a", "/mnt/my groups")),
        ("0::/box/2", "/box/1", "/sys/fs/cgroup", None),  # not in the part that is mounted
        ("0::/../other", "/", "/sys/fs/cgroup", None),  # outside of our namespace
        ("4:pids:/x", "/", "/sys/fs/cgroup", None),
    ],
)
def test_the_directory_of_our_cgroup(own, root, top, expected):
    assert cgroups.locate(f"{own}\n", V1 + MOUNT.format(root=root, top=top)) == expected
    assert cgroups.locate(f"{own}\n", V1) is None
