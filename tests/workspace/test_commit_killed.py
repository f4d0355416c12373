"""Killed at any moment, on a full disk, or beside another writer: a file is always one whole version.

The tests that kill start this file as a program of its own, which forks: in the tests' process there are threads.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes.commit import Change, commit, lock_directories, recover
from forge.workspace.history.undo import UndoLog
from forge.workspace.paths import Location, PathValidator

CALLS = ("open", "write", "fsync", "rename", "link", "symlink", "mkdir", "rmdir", "fchmod", "unlink", "close")
VERSION = 50_000  # lines of a version of a file
ROUNDS = [10, pytest.param(30, marks=pytest.mark.slow)]
"""How often the programs that write are killed."""


def run(what: str, *arguments: object) -> Any:
    command = [sys.executable, __file__, what, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return json.loads(ended.stdout)


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_killed_at_any_step_of_a_change_of_many_files_all_or_nothing_is_left(tmp_path, moment):
    outcomes = run("steps", tmp_path, "many", moment)
    assert set(outcomes) == {"all", "nothing"}
    assert sum(outcomes.values()) > 50


@pytest.mark.parametrize("which", ["make", "replace", "delete"])
def test_killed_at_any_step_of_a_change_of_one_file_the_old_or_the_new_one_is_left(tmp_path, which):
    outcomes = run("steps", tmp_path, which, "before")
    assert set(outcomes) == {"all", "nothing"}


def test_killed_at_any_step_of_a_change_of_folders_and_modes_all_or_nothing_is_left(tmp_path):
    outcomes = run("steps", tmp_path, "folders", "before")
    assert set(outcomes) == {"all", "nothing"}
    assert sum(outcomes.values()) > 50


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.slow
def test_killed_at_random_the_file_is_one_whole_version_and_nothing_strays(tmp_path, rounds):
    found = run("random", tmp_path, rounds)
    assert found["kills"] == rounds
    assert found["versions"] > 1


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.slow
def test_what_was_recorded_for_a_killed_change_can_be_told_from_what_was_made(tmp_path, rounds):
    """The last entry either did not happen, or can be undone."""
    found = run("recorded", tmp_path, rounds)
    assert found["kills"] == rounds


def test_two_processes_that_edit_one_file_lose_nothing(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    code = [sys.executable, __file__, "append", str(tmp_path)]
    others = [subprocess.Popen([*code, name], stdout=subprocess.PIPE) for name in ("one", "two")]
    told = [json.loads(other.communicate(timeout=150)[0]) for other in others]
    lines = (tmp_path / "a.txt").read_text().split()
    assert sorted(lines) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(25))
    assert told == [25, 25]
    assert sorted(os.listdir(tmp_path)) == [".forge", "a.txt"]


def test_a_process_that_stops_in_the_middle_is_not_taken_for_dead(tmp_path):
    """Its note is locked as long as it lives."""
    (tmp_path / "a.txt").write_bytes(b"old")
    with subprocess.Popen([sys.executable, __file__, "stop", str(tmp_path)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"staged\n"
            assert recover(tmp_path) == []
            assert len(strays(tmp_path)) == 2  # the new file, and the note of it
        finally:
            other.kill()
    assert recover(tmp_path) == ["reverted a change of a.txt by a process that was killed"]
    assert recover(tmp_path) == []
    assert strays(tmp_path) == []
    assert (tmp_path / "a.txt").read_bytes() == b"old"


def test_a_file_larger_than_the_system_allows_is_refused_and_the_old_one_stays(tmp_path):
    said = run("limited", tmp_path)
    assert "exceed the maximum file size" in said
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert strays(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if mount is None or os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_on_a_full_disk_the_old_file_stays_whole(small_disk):
    at = PathValidator(small_disk).resolve
    (small_disk / "a.txt").write_bytes(b"old")
    with pytest.raises(ToolError, match="the disk is full") as refused:
        commit([Change(at("a.txt"), b"old", b"x" * 2_000_000)], small_disk)
    assert refused.value.kind is ErrorKind.SYSTEM
    assert "Free some space" in refused.value.suggestion
    assert (small_disk / "a.txt").read_bytes() == b"old"
    assert strays(small_disk) == []
    commit([Change(at("a.txt"), b"old", b"fits")], small_disk)
    assert (small_disk / "a.txt").read_bytes() == b"fits"


def test_with_no_byte_left_a_change_of_many_files_is_refused_as_a_whole(small_disk):
    at = PathValidator(small_disk).resolve
    (small_disk / "a.txt").write_bytes(b"old")
    (small_disk / ".forge").mkdir(mode=0o700)
    fill(small_disk / "filler")
    with pytest.raises(ToolError, match="the disk is full"):
        commit([Change(at("a.txt"), b"old", b"new"), Change(at("new/b.txt"), None, b"b" * 10_000)], small_disk)
    assert (small_disk / "a.txt").read_bytes() == b"old"
    assert sorted(os.listdir(small_disk)) == [".forge", "a.txt", "filler"]
    (small_disk / "filler").unlink()
    commit([Change(at("a.txt"), b"old", b"new"), Change(at("new/b.txt"), None, b"b" * 10_000)], small_disk)
    assert (small_disk / "a.txt").read_bytes() == b"new"


def test_on_a_read_only_file_system_it_is_said(small_disk):
    (small_disk / "a.txt").write_bytes(b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ToolError, match="read-only") as refused:
        commit([Change(PathValidator(small_disk).resolve("a.txt"), b"old", b"new")], small_disk)
    assert refused.value.kind is ErrorKind.PERMISSION
    assert (small_disk / "a.txt").read_bytes() == b"old"


def test_in_a_directory_that_may_not_be_written_it_is_said(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_bytes(b"old")
    (tmp_path / "sub").chmod(0o555)
    place = PathValidator(tmp_path).resolve("sub/a.txt")
    if os.geteuid() == 0:  # whom no mode binds
        monkeypatch.setattr(os, "open", _refused_below(os.open))
    try:
        with pytest.raises(ToolError, match="this user may not write there") as refused:
            commit([Change(place, b"old", b"new")], tmp_path)
        monkeypatch.undo()
    finally:
        (tmp_path / "sub").chmod(0o755)
    assert refused.value.kind is ErrorKind.PERMISSION
    assert (tmp_path / "sub" / "a.txt").read_bytes() == b"old"
    commit([Change(place, b"old", b"new")], tmp_path)
    assert (tmp_path / "sub" / "a.txt").read_bytes() == b"new"


def _refused_below(real: Callable[..., int]) -> Callable[..., int]:
    def refusing(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(".forge-tmp-"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *given, **named)

    return refusing


def fill(path: Path) -> None:
    with suppress(OSError), open(path, "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4_096)


def strays(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*") if path.name.startswith(".forge-tmp-") or path.suffix == ".note"]


def contents(root: Path) -> dict[str, str | bytes | None]:
    found: dict[str, str | bytes | None] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith(".forge/") and name != ".forge":
            is_link = path.is_symlink()
            found[name] = os.readlink(path) if is_link else None if path.is_dir() else path.read_bytes()
    return found


def steps(root: str, which: str, moment: str) -> dict[str, int]:
    """Kill a commit at each of the calls it makes, one after the other."""
    outcomes = {"all": 0, "nothing": 0}
    for call in CALLS:
        for number in range(100):
            workspace = Path(root, f"{call}{number}")
            before, after, changes = prepared(workspace, which)
            was_killed = in_child(partial(killed_at, call, number, moment, changes, workspace))
            said = recover(workspace)
            assert not strays(workspace), (call, number, strays(workspace), said)
            assert recover(workspace) == []
            now = contents(workspace) | (modes(workspace) if which == "folders" else {})
            assert now in (before, after), (call, number, now, said)
            outcomes["all" if now == after else "nothing"] += 1
            shutil.rmtree(workspace)
            if not was_killed:
                assert now == after
                break
    return outcomes


def killed_at(call: str, number: int, moment: str, changes: list[Change], workspace: Path) -> None:
    os.fsync = lambda fd: None  # a kill loses nothing that was written, and the disk is slow
    real, count = getattr(os, call), iter(range(1_000))

    def kills(*given: Any, **named: Any) -> Any:
        is_now = next(count) == number
        if is_now and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*given, **named)
        if is_now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, call, kills)
    commit(changes, workspace)


def prepared(workspace: Path, which: str) -> tuple[dict[str, Any], dict[str, Any], list[Change]]:
    (workspace / "sub").mkdir(parents=True)
    for name in ("a", "sub/b", "c"):
        (workspace / name).write_bytes(b"old")
    (workspace / "link").symlink_to("nowhere")
    before = contents(workspace)
    at = PathValidator(workspace).resolve
    changes = {
        "make": [Change(at("new/d"), None, b"new")],
        "replace": [Change(at("a"), b"old", b"new")],
        "delete": [Change(at("c"), b"old", None)],
    }
    changes["many"] = [
        Change(at("link", follow=False), None, None, link="nowhere"),
        Change(at("sub/b"), b"old", b"new"),
        *(change for one in changes.values() for change in one),
        Change(at("sub/back"), None, b"", link="somewhere"),
    ]
    if which == "folders":
        return prepared_folders(workspace)
    after = dict(before)
    for change in changes[which]:
        name = change.location.relative
        if change.after is None:
            del after[name]
        else:
            after[name] = change.link or change.after
        if name == "new/d":
            after["new"] = None
    return before, after, changes[which]


def prepared_folders(workspace: Path) -> tuple[dict[str, Any], dict[str, Any], list[Change]]:
    """Remove a folder with its file, make a folder, and give a folder and a file a mode."""
    (workspace / "c").unlink()
    for name, mode in (("sub", 0o750), ("a", 0o640)):
        (workspace / name).chmod(mode)
    (workspace / "gone" / "inner").mkdir(parents=True)
    (workspace / "gone" / "inner" / "x").write_bytes(b"old")
    before = contents(workspace) | modes(workspace)
    at, status = PathValidator(workspace).resolve, (workspace / "sub").stat()
    changes = [
        Change(at("gone"), None, None, status=status, folder="remove"),
        Change(at("gone/inner"), None, None, status=status, folder="remove"),
        Change(at("gone/inner/x"), b"old", None),
        Change(at("made"), None, None, 0o711, folder="make"),
        Change(at("made/in it"), None, b"new", 0o600),
        Change(at("sub"), None, None, status=status, folder="mode", new_mode=0o700),
        Change(at("a"), b"old", b"old", status=(workspace / "a").stat(), new_mode=0o444),
    ]
    left = {name: value for name, value in before.items() if not name.startswith("gone")}
    after = left | {"made": None, "made/in it": b"new", "sub mode": "0o700", "a mode": "0o444", "made mode": "0o711"}
    return before, after, changes


def modes(workspace: Path) -> dict[str, str]:
    names = [name for name in ("sub", "a", "made") if (workspace / name).exists()]
    return {f"{name} mode": oct(stat.S_IMODE((workspace / name).stat().st_mode)) for name in names}


def in_child(work: Callable[[], object]) -> bool:
    """Whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def killed_at_random(root: str, rounds: int, check: Callable[[Path], None], record: bool) -> dict[str, int]:
    workspace, pick, versions = Path(root), random.Random(5), set()
    (workspace / "a.txt").write_bytes(version(0))
    for _ in range(rounds):
        child, output = editing(workspace, record)
        for _ in range(pick.randrange(1, 4)):
            assert os.read(output, 1)
        select.select([], [], [], pick.random() * 0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(output)
        whole(workspace / "a.txt")
        recover(workspace)
        versions.add(whole(workspace / "a.txt"))
        assert not strays(workspace)
        check(workspace)
    return {"kills": rounds, "versions": len(versions)}


def editing(workspace: Path, record: bool) -> tuple[int, int]:
    """A child that writes one version after the other, and a dot after each."""
    output, end = os.pipe()
    child = os.fork()
    if child:
        os.close(end)
        return child, output
    os.fsync = lambda fd: None
    place = PathValidator(workspace).resolve("a.txt")
    log = UndoLog(workspace / ".forge" / "state.db") if record else None
    while True:
        with lock_directories([place]):
            old = place.path.read_bytes()
            number = whole(place.path)
            changes = [Change(place, old, version(number + 1))]
            if log is not None:
                log.record("s", "t", f"c{number}", "file_edit", changes)
            commit(changes, workspace)
        os.write(end, b".")


def version(number: int) -> bytes:
    return f"{number}\n".encode() * VERSION


def whole(path: Path) -> int:
    """Which version the file is; all of it."""
    content = path.read_bytes()
    number = int(content.partition(b"\n")[0])
    assert content == version(number)
    return number


def last_is_told(workspace: Path) -> None:
    log = UndoLog(workspace / ".forge" / "state.db")
    entry = log.entries("s")[0]
    now = whole(workspace / "a.txt")
    changes = log.plan_restore("s", [entry])
    if changes:
        assert [one.after for one in changes] == [version(now - 1)]
    else:
        assert entry.call_id == f"c{now}"  # which was to make the next


def append(root: str, name: str) -> int:
    place, done = PathValidator(Path(root)).resolve("a.txt"), 0
    for number in range(25):
        with lock_directories([place], patience=30):
            old = place.path.read_bytes()
            commit([Change(place, old, old + f"{name}-{number}\n".encode(), status=place.path.stat())], Path(root))
        done += 1
    return done


def stop(root: str) -> None:
    rename = os.rename

    def stopped(*given: Any, **named: Any) -> None:
        sys.stdout.write("staged\n")
        sys.stdout.flush()
        signal.pause()
        rename(*given, **named)

    os.rename, os.link = stopped, stopped
    commit([Change(PathValidator(Path(root)).resolve("a.txt"), b"old", b"new")], Path(root))


def limited(root: str) -> str:
    place = Location(Path(root), "a.txt", "a.txt")
    place.path.write_bytes(b"old")
    sys.dont_write_bytecode = True  # half a compiled module would be left for everybody
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        commit([Change(place, b"old", b"x" * 1_000_000)], Path(root))
    except ToolError as error:
        return error.message
    return "it was written"


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    doing: dict[str, Callable[..., Any]] = {
        "steps": steps,
        "random": lambda root, rounds: killed_at_random(root, int(rounds), lambda _: None, record=False),
        "recorded": lambda root, rounds: killed_at_random(root, int(rounds), last_is_told, record=True),
        "append": append,
        "stop": stop,
        "limited": limited,
    }
    print(json.dumps(doing[what](*rest)))
