"""What is special about Landlock: its filter, its versions, and where it is weaker than bubblewrap."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from forge.process.running.run import FinishedProgram
from forge.process.running.run import run as run_program
from forge.process.running.supervisor import end_left
from forge.process.sandbox import Confinement, Tier, confine_command, landlock, landlock_program
from forge.process.sandbox.landlock_program import INET, INET6, NETLINK, UNIX, syscall_filter
from tests import programs
from tests.process.attacks import needs, run

ALLOW = 0x7FFF0000
REFUSED = 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
SOCKET, SOCKETPAIR, CLONE, CLONE3, PTRACE, TRUNCATE, MOUNT = (
    {"x86_64": x86, "aarch64": other, "riscv64": other}
    for x86, other in ((41, 198), (53, 199), (56, 220), (435, 435), (101, 117), (76, 45), (165, 40))
)


def judged(program: bytes | None, machine: int, number: int, *arguments: int) -> int:
    """What the kernel would make of a system call: the errno, 0 if it is allowed. A filter may not run off its end."""
    assert program is not None
    given = struct.pack("=IIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    code = list(struct.iter_unpack("HBBI", program))
    place, value = 0, 0
    while True:
        what, yes, no, operand = code[place]
        place += 1
        if what == 0x20:
            value = struct.unpack_from("=I", given, operand)[0]
        elif what == 0x54:
            value &= operand
        elif what == 0x06:
            assert operand == ALLOW or operand & 0xFFFF0000 == REFUSED
            return 0 if operand == ALLOW else operand & 0xFFFF
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[what]
            place += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_what_it_should_on_every_machine(machine: str):
    audit = MACHINES[machine]
    closed = syscall_filter((), others=False, by_name=True, machine=machine)
    opened = syscall_filter((UNIX, INET, INET6, NETLINK), others=True, machine=machine)
    for family in range(46):
        assert judged(closed, audit, SOCKET[machine], family) == errno.EPERM
        expected = 0 if family in (UNIX, INET, INET6, NETLINK) else errno.EPERM
        assert judged(opened, audit, SOCKET[machine], family) == expected
    cloexec = 0o2000000
    assert judged(closed, audit, SOCKETPAIR[machine], UNIX, 1 | cloexec) == 0
    assert judged(closed, audit, SOCKETPAIR[machine], UNIX, 2 | cloexec) == errno.EPERM
    assert judged(opened, audit, SOCKETPAIR[machine], UNIX, 2) == 0
    assert judged(closed, audit, CLONE[machine], 0x11) == 0
    assert judged(closed, audit, CLONE[machine], 0x10000011) == errno.EPERM
    assert judged(closed, audit, CLONE3[machine]) == errno.ENOSYS
    assert judged(closed, audit, MOUNT[machine]) == judged(opened, audit, MOUNT[machine]) == errno.EPERM
    assert judged(closed, audit, PTRACE[machine]) == judged(closed, audit, TRUNCATE[machine]) == errno.EPERM
    assert judged(opened, audit, PTRACE[machine]) == judged(opened, audit, TRUNCATE[machine]) == 0
    assert judged(opened, audit, 3) == 0


OWN, FOREIGN = 4_000, 4_001
PRLIMIT, AFFINITY, SETPRIORITY, IOPRIO, SHMGET, MQ_OPEN, KILL, TKILL, FCNTL = (
    {"x86_64": x86, "aarch64": other, "riscv64": other}
    for x86, other in (
        (302, 261), (203, 122), (141, 140), (251, 30), (29, 194), (240, 180), (62, 129), (200, 130), (72, 25),
    )
)  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_without_namespaces_a_program_changes_itself_alone(machine: str):
    audit = MACHINES[machine]
    alone = syscall_filter((), others=False, alone=OWN, machine=machine)
    quiet = syscall_filter((), others=False, alone=OWN, signals=False, machine=machine)
    free = syscall_filter((), others=True, machine=machine)
    for call in (PRLIMIT, AFFINITY):
        assert [judged(alone, audit, call[machine], who) for who in (0, OWN, FOREIGN, 1)] == [0, 0, 1, 1]
        assert judged(free, audit, call[machine], FOREIGN) == 0
    for call, one in ((SETPRIORITY, 0), (IOPRIO, 1)):
        assert [judged(alone, audit, call[machine], one, who) for who in (0, OWN, FOREIGN)] == [0, 0, 1]
        assert judged(alone, audit, call[machine], one + 1, 0) == judged(alone, audit, call[machine], one + 2, 0) == 1
        assert judged(free, audit, call[machine], one + 2, 0) == 0
    for call in (SHMGET, MQ_OPEN):
        assert judged(alone, audit, call[machine]) == errno.EPERM
        assert judged(free, audit, call[machine]) == 0
    assert [judged(quiet, audit, KILL[machine], who, 9) for who in (0, OWN, FOREIGN, 2**32 - 1)] == [0, 0, 1, 1]
    assert judged(quiet, audit, TKILL[machine], OWN, 9) == judged(quiet, audit, 424, 3, 9) == errno.EPERM
    assert judged(quiet, audit, FCNTL[machine], 1, 8) == judged(quiet, audit, FCNTL[machine], 1, 15) == errno.EPERM
    assert judged(quiet, audit, FCNTL[machine], 1, 1) == judged(alone, audit, KILL[machine], FOREIGN, 9) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_that_is_not_on_the_list_does_not_exist(machine: str):
    """Numbers that no kernel had when the list was written, and calls that need a capability."""
    audit = MACHINES[machine]
    program = syscall_filter((UNIX, INET), others=True, machine=machine)
    migrate_pages = 256 if machine == "x86_64" else 238
    for number in (migrate_pages, 335, 420, 447, 450, 457, 470, 511, 1_000, 0x3FFFFFFF):
        assert judged(program, audit, number) == errno.ENOSYS
    everyday = {"x86_64": (0, 1, 9, 12, 59, 202, 231, 257, 262), "other": (63, 64, 222, 214, 221, 98, 94, 56, 79)}
    for number in (*everyday.get(machine, everyday["other"]), 434, 436, 437, 439, 449, 451, 462):
        assert judged(program, audit, number) == 0


@pytest.mark.parametrize("version", [5, 6])
def test_a_line_that_only_reads_sends_no_signals_even_by_an_old_kernel(version: int, tmp_path: Path):
    """Landlock keeps signals inside since version 6; where there are no namespaces, the filter does it before."""
    needs(Tier.LANDLOCK)
    victim = programs.Popen(["sleep", "60"])
    code = (
        f"import os\n_confine.landlock_version = lambda: {version}\n"
        "_confine.confine(['/'], [], [], network=False, attributes=False)\n"
        f"for who in ({victim.pid}, -1, -{os.getpgid(victim.pid)}, os.getpid()):\n"
        "    try: os.kill(who, 0); print('yes')\n"
        "    except OSError: print('no')\n"
    )
    try:
        told = in_launcher(code, tmp_path)
        *others, own = told.stdout.split()
        assert (others, own) == (["no", "no", "no"] if version < 6 else ["no", *others[1:]], "yes"), told
    finally:
        victim.kill()
        victim.wait()


def test_processes_that_a_line_leaves_running_stay_and_are_named(tmp_path: Path):
    """The processes of the sandbox itself are not."""
    needs(Tier.LANDLOCK)

    async def leave() -> tuple[str, ...]:
        line = "sleep 60 </dev/null >/dev/null 2>&1 & echo $$"
        there = Confinement(workspace=tmp_path)
        env = {"PATH": os.defpath}
        done = await run_program(
            ["sh", "-c", line], cwd=tmp_path, env=env, confinement=replace(there, sandbox="landlock"), leave="o"
        )
        assert (done.output, done.exit_code) == (f"{2 if landlock._can_separate() else done.output.strip()}\n", 0)
        return done.left

    (left,) = asyncio.run(leave())
    number, _, words = left.partition(" ")
    assert words == "sleep 60"
    assert Path(f"/proc/{number}").exists()
    end_left("o")
    end = time.monotonic() + 30
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < end


def test_the_end_of_a_program_is_the_end_of_its_launcher(tmp_path: Path):
    needs(Tier.LANDLOCK)

    async def finish(line: str, timeout: float | None = None) -> FinishedProgram:
        there = Confinement(workspace=tmp_path)
        env = {"PATH": os.defpath}
        return await run_program(
            ["bash", "-c", line], cwd=tmp_path, env=env, confinement=replace(there, sandbox="landlock"), timeout=timeout
        )

    assert asyncio.run(finish("exit 7")).exit_code == 7
    assert asyncio.run(finish("kill -SEGV $$")).signal == "SIGSEGV"
    assert asyncio.run(finish("kill -KILL $$")).signal == "SIGKILL"
    told = asyncio.run(finish("trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.1; done", timeout=3.0))
    assert (told.timed_out, told.output, told.exit_code) == (True, "on\nbye\n", 3)


def test_calls_of_another_machine_are_refused():
    """A 64-bit kernel runs 32-bit programs too, whose numbers mean other things."""
    program = syscall_filter((UNIX,), others=True, machine="x86_64")
    assert judged(program, 0x40000003, 3) == errno.ENOSYS
    assert judged(program, MACHINES["x86_64"], 0x40000000 + 41, INET) == errno.ENOSYS
    assert judged(program, MACHINES["x86_64"], 39) == 0


def test_there_is_no_filter_for_a_machine_that_is_not_known():
    assert syscall_filter((), others=True, machine="vax") is None


def test_every_filter_fits_into_the_kernel():
    for machine in MACHINES:
        assert len(syscall_filter((), others=False, by_name=True, machine=machine) or b"") // 8 < 4096


def in_launcher(code: str, workspace: Path) -> subprocess.CompletedProcess[str]:
    """Run the launcher's own functions in a process that is thrown away."""
    words = [sys.executable, "-c", f"from forge.process.sandbox import landlock_program as _confine\n{code}"]
    done: subprocess.CompletedProcess[str] = programs.run(
        words, cwd=workspace, capture_output=True, text=True, timeout=150, check=False
    )
    return done


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_every_version_that_this_kernel_has_confines_files(version: int, tmp_path: Path):
    needs(Tier.LANDLOCK)
    if landlock_program.landlock_version() < version:
        pytest.skip(f"NOT TESTED: this kernel's Landlock is older than version {version}")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_text("text")
    code = (
        f"import os\n_confine.landlock_version = lambda: {version}\n"
        f"_confine.confine(['/usr'], [{str(inside)!r}], ['/dev/null'], network=False)\n"
        f"for folder in ({str(inside)!r}, {str(outside)!r}):\n"
        "    for do in (lambda p: open(p).read(), lambda p: open(p, 'a').close(), os.unlink):\n"
        "        try: do(folder + '/file'); print('yes')\n"
        "        except OSError: print('no')\n"
        f"try: os.truncate({str(outside)!r} + '/file', 0); print('yes')\n"
        "except OSError: print('no')\n"
    )
    told = in_launcher(code, tmp_path)
    assert told.stdout.split() == ["yes"] * 3 + ["no"] * 4, told
    assert (outside / "file").read_text() == "text"


def test_nothing_runs_where_it_cannot_confine(tmp_path: Path):
    code = "_confine.landlock_version = lambda: 0\n_confine.main(['w', '.', '--', 'echo', 'it runs'])"
    told = in_launcher(code, tmp_path)
    assert told.returncode == landlock_program.FAILED
    assert "it runs" not in told.stdout
    assert "the sandbox cannot be made" in told.stderr


def test_nothing_runs_without_a_filter(tmp_path: Path):
    needs(Tier.LANDLOCK)
    told = in_launcher(
        "_confine.syscall_filter = lambda *a, **k: None\n_confine.main(['w', '.', '--', 'echo', 'it runs'])", tmp_path
    )
    assert (told.returncode, told.stdout) == (landlock_program.FAILED, "")


def test_temporary_files_have_a_directory_that_is_nobody_elses(tmp_path: Path, monkeypatch):
    needs(Tier.LANDLOCK)
    shared, workspace = tmp_path / "tmp", tmp_path / "workspace"
    shared.mkdir()
    workspace.mkdir()
    (shared / "of-another").write_text("planted")
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    confinement = Confinement(workspace=workspace)
    told = run(
        ["sh", "-c", f'echo "$TMPDIR"; mktemp; ls {shared}; cat {shared}/of-another'], confinement, Tier.LANDLOCK
    )
    folder = Path(told.stdout.splitlines()[0])
    assert folder.parent == shared
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(told.stdout.splitlines()) == 2
    folder.chmod(0o755)
    assert "private directory" in run(["true"], confinement, Tier.LANDLOCK).stderr


def test_it_is_weaker_than_bubblewrap_and_this_is_where(tmp_path: Path):
    """What SECURITY.md says it does not promise: whoever closes one of these changes that page."""
    needs(Tier.LANDLOCK)
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.write_text("secret")
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True)
    line = f"stat -c %s {outside}; echo x >.git/hooks/post-checkout; cat {outside}"
    told = run(["sh", "-c", line], Confinement(workspace=workspace), Tier.LANDLOCK)
    assert told.stdout == "6\n"
    assert (workspace / ".git/hooks/post-checkout").exists()


ATTRIBUTES = (
    "import os, sys\n"
    "for call in (lambda p: os.chmod(p, 0o600), lambda p: os.utime(p, (1, 1)),\n"
    "             lambda p: os.chown(p, -1, os.getgid()),\n"
    "             lambda p: os.setxattr(p, 'user.x', b'x')):\n"
    "  try: call(sys.argv[1]); print('changed')\n"
    "  except OSError as error: print(error.errno in (1, 30) and 'refused' or error)\n"
)


def _attributes(tmp_path: Path, place: Path, **more: bool) -> list[str]:
    workspace = tmp_path / "workspace"
    confinement = Confinement(workspace=workspace, **more)  # type: ignore[arg-type]
    return run([sys.executable, "-c", ATTRIBUTES, str(place)], confinement, Tier.LANDLOCK).stdout.split()


def test_modes_and_times_outside_change_only_where_no_mounts_can_be_made(tmp_path: Path, monkeypatch):
    """Landlock does not see these calls: everything outside is mounted read-only, where this user may do that."""
    needs(Tier.LANDLOCK)
    (tmp_path / "workspace").mkdir()
    inside, outside = tmp_path / "workspace/inside", tmp_path / "outside"
    for file in (inside, outside):
        file.write_text("x")
        file.chmod(0o644)
    assert _attributes(tmp_path, inside)[:3] == ["changed"] * 3
    if landlock._can_mount():
        assert _attributes(tmp_path, outside) == ["refused"] * 4
        assert outside.stat().st_mode & 0o777 == 0o644
    monkeypatch.setattr(landlock, "_can_mount", lambda: False)  # SECURITY.md says so
    assert _attributes(tmp_path, outside)[:3] == ["changed"] * 3


def test_a_run_that_only_reads_changes_no_modes_and_times_anywhere(tmp_path: Path, monkeypatch):
    needs(Tier.LANDLOCK)
    (tmp_path / "workspace").mkdir()
    inside = tmp_path / "workspace/inside"
    inside.write_text("x")
    for can_mount in {False, landlock._can_mount()}:
        monkeypatch.setattr(landlock, "_can_mount", lambda answer=can_mount: answer)
        assert _attributes(tmp_path, inside, read_only=True) == ["refused"] * 4
    assert _attributes(tmp_path, inside)[:3] == ["changed"] * 3


def test_the_launcher_imports_nothing_of_forge():
    """It is run by its path, isolated and without the site's packages."""
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", landlock_program.__file__, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "forge." not in told.stderr
    assert not {"subprocess", "json", "pathlib", "re"} & {
        line.rsplit("|")[-1].strip() for line in told.stderr.splitlines()
    }


def test_its_command_line_names_the_program_last(tmp_path: Path):
    words = confine_command(
        ["ls", "--", "-l"], Confinement(workspace=tmp_path, network=True), Tier.LANDLOCK, {"PATH": os.defpath}
    )
    assert words[-4:] == ["--", "ls", "--", "-l"]
    assert words[4] == "network"
    assert "network" not in landlock.build_command(["ls"], Confinement(workspace=tmp_path), {}).argv


def test_the_state_of_forge_is_hidden_where_mounts_can_be_made(tmp_path: Path, monkeypatch):
    needs(Tier.LANDLOCK)
    state = tmp_path / "ws" / ".forge"
    for name in ("files/report.md", "spill/long.txt", "memory/notes.md", "state.db", "pins.json", ".gitignore"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name)

    def sh(line: str, **how: bool) -> str:
        confinement = Confinement(workspace=tmp_path / "ws", **how)  # type: ignore[arg-type]
        return run(["sh", "-c", f"{line} && echo REACHED"], confinement, Tier.LANDLOCK).stdout

    if landlock._can_mount():
        assert sh("ls -A .forge").split() == [".gitignore", "files", "spill", "REACHED"]
        attacks = ["cat .forge/pins.json", "echo evil >.forge/pins.json", "echo evil >.forge/new", "rm -rf .forge"]
        attacks += ["mv .forge x", "echo evil >.forge/spill/x", "echo evil >.forge/.gitignore", "umount .forge"]
        for line in attacks:
            assert "REACHED" not in sh(line), line
            assert "REACHED" not in sh(line, read_only=True), line
        assert "REACHED" in sh("cat .forge/spill/long.txt && echo x >.forge/files/new.md")
        assert "REACHED" in sh("cat .forge/files/new.md", read_only=True)
        assert "REACHED" not in sh("echo x >.forge/files/more.md", read_only=True)
        assert (state / "pins.json").read_text() == "pins.json"
        assert (state / "files" / "new.md").exists()
    monkeypatch.setattr(landlock, "_can_mount", lambda: False)  # SECURITY.md says so
    assert "REACHED" in sh("cat .forge/pins.json")
