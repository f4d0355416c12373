"""All changes are made, or none."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.workspace.changes import commit as module
from forge.workspace.changes.commit import Change, commit, recover
from forge.workspace.paths import Location, PathValidator
from forge.workspace.paths.digest import LARGE
from tests import quick
from tests.descriptors import open_below


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    return root


@pytest.fixture
def place(workspace: Path) -> Callable[[str], Location]:
    return lambda path: PathValidator(workspace).resolve(path, follow=False)


def tree(root: Path) -> dict[str, tuple[str, object, int]]:
    """Everything below, Forge's own state aside."""
    found: dict[str, tuple[str, object, int]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] == ".forge":
            continue
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path), 0)
        elif path.is_dir():
            found[name] = ("directory", None, mode)
        elif path.is_file():
            found[name] = ("file", path.read_bytes(), mode)
        else:
            found[name] = ("special", None, mode)
    return found


def notes(root: Path) -> list[str]:
    folder = root / ".forge" / "journal"
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def test_a_file_is_made_with_its_parents_and_the_mode_of_the_umask(workspace, place):
    before = os.umask(0o027)
    try:
        commit([Change(place("a/b/c.txt"), None, b"new")], workspace)
    finally:
        os.umask(before)
    assert tree(workspace) == {
        "a": ("directory", None, 0o750),
        "a/b": ("directory", None, 0o750),
        "a/b/c.txt": ("file", b"new", 0o640),
    }
    assert notes(workspace) == []


def test_a_new_file_can_be_given_its_mode(workspace, place):
    commit([Change(place("run.sh"), None, b"#!/bin/sh\n", 0o755)], workspace)
    assert tree(workspace) == {"run.sh": ("file", b"#!/bin/sh\n", 0o755)}


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o666, 0o4755])
def test_a_replaced_file_keeps_its_mode(workspace, place, mode):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    path.chmod(mode)
    commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert tree(workspace) == {"a.txt": ("file", b"new", mode)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_replaced_file_keeps_its_owner(workspace, place):
    (workspace / "a.txt").write_bytes(b"old")
    os.chown(workspace / "a.txt", 12345, 54321)
    commit([Change(place("a.txt"), b"old", b"new")], workspace)
    status = (workspace / "a.txt").stat()
    assert (status.st_uid, status.st_gid) == (12345, 54321)


def test_extended_attributes_survive(workspace, place):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    try:
        os.setxattr(path, "user.note", b"kept")
    except (OSError, AttributeError):
        pytest.skip("no extended attributes here")
    commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_file_is_removed(workspace, place):
    (workspace / "a.txt").write_bytes(b"old")
    commit([Change(place("a.txt"), b"old", None)], workspace)
    assert tree(workspace) == {}


def test_a_link_is_removed_itself_and_put_back(workspace, place, tmp_path):
    (tmp_path / "outside").write_text("safe")
    (workspace / "link").symlink_to(tmp_path / "outside")
    target = str(tmp_path / "outside")
    commit([Change(place("link"), None, None, link=target)], workspace)
    assert tree(workspace) == {}
    commit([Change(place("link"), None, b"", link=target)], workspace)
    assert tree(workspace) == {"link": ("link", target, 0)}
    assert (tmp_path / "outside").read_text() == "safe"


def test_a_fifo_is_removed(workspace, place):
    os.mkfifo(workspace / "pipe")
    commit([Change(place("pipe"), None, None, status=os.lstat(workspace / "pipe"))], workspace)
    assert tree(workspace) == {}


def test_several_files_change_together(workspace, place):
    (workspace / "a").write_bytes(b"1")
    (workspace / "b").write_bytes(b"2")
    commit(
        [
            Change(place("a"), b"1", b"one"),
            Change(place("b"), b"2", None),
            Change(place("sub/c"), None, b"three"),
            Change(place("sub/d"), None, b""),
        ],
        workspace,
    )
    assert {name: what[1] for name, what in tree(workspace).items()} == {
        "a": b"one",
        "sub": None,
        "sub/c": b"three",
        "sub/d": b"",
    }
    assert notes(workspace) == []


def test_nothing_to_do_leaves_no_trace(workspace, place):
    commit([], workspace)
    commit([Change(place("a"), None, None)], workspace)
    assert list(workspace.iterdir()) == []


def test_other_names_of_the_file_keep_the_old_content(workspace, place):
    (workspace / "a").write_bytes(b"old")
    os.link(workspace / "a", workspace / "b")
    commit([Change(place("a"), b"old", b"new")], workspace)
    assert (workspace / "a").read_bytes() == b"new"
    assert (workspace / "b").read_bytes() == b"old"


def test_names_that_are_no_unicode_or_look_like_flags_work(workspace):
    for name in ("-rf", "..name", "日本", "a\udcffb", "x" * 255, "new\nline"):
        commit([Change(Location(workspace, f"dir/{name}", name), None, b"1")], workspace)
        commit([Change(Location(workspace, f"dir/{name}", name), b"1", b"2")], workspace)
        assert (workspace / "dir" / name).read_bytes() == b"2"


@pytest.mark.parametrize("after", [b"new", None], ids=["replaced", "deleted"])
def test_what_changed_meanwhile_is_refused(workspace, place, after):
    path = workspace / "a.txt"
    path.write_bytes(b"theirs")
    with pytest.raises(ToolError, match="changed by another program"):
        commit([Change(place("a.txt"), b"old", after)], workspace)
    assert tree(workspace) == {"a.txt": ("file", b"theirs", stat.S_IMODE(path.stat().st_mode))}
    commit([Change(place("a.txt"), b"theirs", after)], workspace)
    assert path.exists() == (after is not None)


def test_a_write_of_the_same_length_is_noticed_even_where_the_clock_did_not_move(workspace, place, monkeypatch):
    monkeypatch.setattr(module, "_FRESH", 60 * 10**9)  # a busy machine takes its time between the two writes
    path = workspace / "a.txt"
    path.write_bytes(b"mine!!")
    status = path.stat()
    path.write_bytes(b"theirs")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ToolError, match="changed by another program"):
        commit([Change(place("a.txt"), b"mine!!", b"new", status=status)], workspace)
    assert path.read_bytes() == b"theirs"


def test_a_touched_file_with_the_same_content_is_the_same(workspace, place):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    status = path.stat()
    os.utime(path, (1, 1))
    commit([Change(place("a.txt"), b"old", b"new", status=status)], workspace)
    assert path.read_bytes() == b"new"


def test_a_known_status_spares_reading_the_file(workspace, place, monkeypatch):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    os.utime(path, (1, 1))
    monkeypatch.setattr(module, "_is_unchanged", lambda *_: pytest.fail("it was read"))
    commit([Change(place("a.txt"), b"old", b"new", status=path.stat())], workspace)
    assert path.read_bytes() == b"new"


def test_a_file_that_appeared_meanwhile_is_not_overwritten(workspace, place):
    (workspace / "a.txt").write_bytes(b"theirs")
    with pytest.raises(ToolError, match="was made by another program"):
        commit([Change(place("a.txt"), None, b"new")], workspace)
    assert (workspace / "a.txt").read_bytes() == b"theirs"


def test_a_file_that_is_gone_is_not_made_again(workspace, place):
    with pytest.raises(ToolError, match="was removed by another program"):
        commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert tree(workspace) == {}


@pytest.mark.parametrize("before", [b"old", None], ids=["replaced", "made"])
def test_a_link_planted_in_its_place_is_refused_and_never_written_through(workspace, place, tmp_path, before):
    outside = tmp_path / "outside"
    outside.write_bytes(b"old")
    target = place("a.txt")
    (workspace / "a.txt").symlink_to(outside)
    with pytest.raises(ToolError):
        commit([Change(target, before, b"evil")], workspace)
    assert outside.read_bytes() == b"old"
    assert (workspace / "a.txt").is_symlink()


def test_a_link_planted_for_its_directory_is_refused(workspace, place, tmp_path):
    (workspace / "sub").mkdir()
    (workspace / "sub" / "a.txt").write_bytes(b"old")
    target = place("sub/a.txt")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_bytes(b"old")
    (workspace / "sub").rename(workspace / "moved")
    (workspace / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(ToolError) as refused:
        commit([Change(target, b"old", b"evil")], workspace)
    assert refused.value.kind in (ErrorKind.SECURITY, ErrorKind.NOT_FOUND, ErrorKind.USER)
    assert (tmp_path / "outside" / "a.txt").read_bytes() == b"old"
    assert os.listdir(tmp_path / "outside") == ["a.txt"]


@pytest.mark.parametrize("planted", ["a link", "a file", "nothing", "other content"])
def test_whatever_is_put_there_while_the_new_one_is_written_survives(workspace, place, tmp_path, monkeypatch, planted):
    path, outside = workspace / "a.txt", tmp_path / "outside"
    path.write_bytes(b"old")
    outside.write_bytes(b"outside")
    write = module._write

    def write_and_plant(*given):
        write(*given)
        if planted == "other content":
            path.write_bytes(b"longer than it was")
            return
        path.unlink()
        if planted == "a link":
            path.symlink_to(outside)
        elif planted == "a file":
            path.write_bytes(b"theirs")

    monkeypatch.setattr(module, "_write", write_and_plant)
    with pytest.raises(ToolError, match="by another program"):
        commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert outside.read_bytes() == b"outside"
    expected = {"a link": b"outside", "a file": b"theirs", "nothing": None, "other content": b"longer than it was"}
    assert (path.read_bytes() if path.exists() else None) == expected[planted]
    assert not [name for name in os.listdir(workspace) if name.startswith(".forge-tmp")]
    assert notes(workspace) == []


@pytest.mark.parametrize("after", [b"new", None], ids=["replaced", "deleted"])
def test_what_is_written_at_the_last_moment_is_put_back(workspace, place, monkeypatch, after):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    rename = os.rename

    def written_and_renamed(*given, **named):
        if path.exists() and path.read_bytes() == b"old":
            path.write_bytes(b"longer than it was")
        rename(*given, **named)

    monkeypatch.setattr(os, "rename", written_and_renamed)
    with pytest.raises(ToolError, match="changed by another program"):
        commit([Change(place("a.txt"), b"old", after)], workspace)
    assert {name: what[1] for name, what in tree(workspace).items()} == {"a.txt": b"longer than it was"}


def test_a_directory_in_its_place_is_refused(workspace, place):
    (workspace / "a").mkdir()
    with pytest.raises(ToolError):
        commit([Change(place("a"), None, b"x")], workspace)
    with pytest.raises(ToolError):
        commit([Change(place("a"), b"x", b"y")], workspace)
    assert tree(workspace).keys() == {"a"}


def test_a_file_in_the_way_of_a_directory_is_named(workspace, place):
    (workspace / "a").write_bytes(b"file")
    with pytest.raises(ToolError, match="a part of its path is not a directory"):
        commit([Change(place("a/b/c.txt"), None, b"x")], workspace)
    assert tree(workspace).keys() == {"a"}
    assert notes(workspace) == []


def test_a_read_only_file_is_refused(workspace, place):
    path = workspace / "a.txt"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(ToolError, match=r"read-only \(mode 0444\)") as refused:
        commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert refused.value.kind is ErrorKind.PERMISSION
    assert path.read_bytes() == b"old"
    path.chmod(0o644)
    commit([Change(place("a.txt"), b"old", b"new")], workspace)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("may_write", [False, True])
def test_a_file_of_somebody_else_is_changed_only_by_who_may_write_it(workspace, place, monkeypatch, may_write):
    path = workspace / "a.txt"
    path.write_bytes(b"old")

    def refuse(*given: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    def of_somebody_else(descriptor: int) -> os.stat_result:
        found = list(fstat(descriptor))
        found[stat.ST_UID] += 1
        return os.stat_result(found)

    fstat = os.fstat
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fstat", of_somebody_else)
    monkeypatch.setattr(os, "access", lambda name, mode, dir_fd: may_write)
    change = Change(place("a.txt"), b"old", b"new")
    if may_write:
        commit([change], workspace)
    else:
        with pytest.raises(ToolError, match="this user may not write there; nothing was changed") as refused:
            commit([change], workspace)
        assert refused.value.kind is ErrorKind.PERMISSION
    assert path.read_bytes() == (b"new" if may_write else b"old")
    assert sorted(os.listdir(workspace)) == [".forge", "a.txt"]


def test_where_files_have_only_one_name_it_works_too(workspace, place, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    (workspace / "a").write_bytes(b"1")
    (workspace / "a").chmod(0o640)
    commit([Change(place("a"), b"1", b"2"), Change(place("b"), None, b"3")], workspace)
    assert tree(workspace)["a"] == ("file", b"2", 0o640)
    with pytest.raises(ToolError, match="was made by another program"):
        commit(
            [Change(place("a"), b"2", b"4"), Change(place("c"), None, b"5"), Change(place("b"), None, b"6")], workspace
        )
    assert {name: what[1] for name, what in tree(workspace).items()} == {"a": b"2", "b": b"3"}


WORDS = {
    errno.ENOSPC: ("the disk is full", ErrorKind.SYSTEM),
    errno.EDQUOT: ("quota", ErrorKind.SYSTEM),
    errno.EFBIG: ("exceed the maximum file size", ErrorKind.SYSTEM),
    errno.EROFS: ("read-only", ErrorKind.PERMISSION),
    errno.EACCES: ("may not write there", ErrorKind.PERMISSION),
    errno.EPERM: ("may not write there", ErrorKind.PERMISSION),
    errno.EMFILE: ("too many files are open", ErrorKind.SYSTEM),
    errno.EIO: ("reported an error", ErrorKind.SYSTEM),
    errno.EBUSY: ("in use", ErrorKind.SYSTEM),
}


@pytest.mark.parametrize("number", WORDS, ids=errno.errorcode.get)
def test_what_the_system_refuses_is_said_in_words(workspace, place, monkeypatch, number):
    (workspace / "a.txt").write_bytes(b"old")
    before = tree(workspace)

    def refused(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(ToolError) as said:
        commit([Change(place("a.txt"), b"old", b"new")], workspace)
    monkeypatch.undo()
    words, kind = WORDS[number]
    assert words in said.value.message
    assert "nothing was changed" in said.value.message
    assert '"a.txt"' in said.value.message
    assert said.value.kind is kind
    assert said.value.suggestion
    assert said.value.passing == (number == errno.EMFILE)
    assert tree(workspace) == before
    assert notes(workspace) == []


CALLS = ("open", "write", "fsync", "rename", "link", "symlink", "mkdir", "fchmod", "stat", "fstat", "unlink")


class Broken(BaseException):
    """Not an error of the system: a bug, or Ctrl-C."""


@pytest.mark.parametrize(
    "problem",
    [OSError(errno.ENOSPC, "full"), pytest.param(OSError(errno.EIO, "broken"), marks=pytest.mark.slow), Broken()],
    ids=repr,
)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.matrix
def test_a_failure_at_any_step_leaves_everything_or_nothing(tmp_path, monkeypatch, call, problem):
    """Each of the system's calls fails once, until none is left to fail; in `make test` every third."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disk is slow, and nobody pulls the plug
    real, outcomes = getattr(os, call), []
    for failing in range(0, 100, 3 if quick.is_quick else 1):
        workspace = tmp_path / f"{call}{failing}"
        before, changes = prepared(workspace)
        count = iter(range(1_000))

        def fails(*given, _failing=failing, _count=count, **named):
            if next(_count) == _failing:
                raise problem
            return real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            try:
                commit(changes, workspace)
                outcomes.append("all")
            except (ToolError, Broken):
                outcomes.append("nothing")
        assert open_below(workspace) == []
        if call == "unlink" or notes(workspace):
            recover(workspace)  # what could not be tidied up at once
        where = f"{call} number {failing}"
        assert notes(workspace) == [], where
        if call == "unlink" and contents(workspace) == AFTERWARDS:
            outcomes[-1] = "all"  # interrupted while it tidied up
        assert tree(workspace) == before if outcomes[-1] == "nothing" else contents(workspace) == AFTERWARDS, where
        if next(count) <= failing:
            break  # it was never reached
    assert outcomes[-1] == "all"
    assert len(outcomes) > 1
    assert call == "unlink" or "nothing" in outcomes


AFTERWARDS = {
    "a": b"aa",
    "sub": None,
    "sub/b": b"bb",
    "made": None,
    "made/deep": None,
    "made/deep/d": b"dd",
    "sub/back": "somewhere",
}


def prepared(workspace: Path) -> tuple[dict[str, tuple[str, object, int]], list[Change]]:
    (workspace / "sub").mkdir(parents=True)
    for name, content, mode in (("a", b"A", 0o640), ("sub/b", b"B", 0o755), ("c", b"C", 0o600)):
        (workspace / name).write_bytes(content)
        (workspace / name).chmod(mode)
    (workspace / "link").symlink_to("nowhere")
    (workspace / ".forge").mkdir(mode=0o700)
    at = PathValidator(workspace).resolve
    return tree(workspace), [
        Change(at("a"), b"A", b"aa"),
        Change(at("sub/b"), b"B", b"bb"),
        Change(at("c"), b"C", None),
        Change(at("link", follow=False), None, None, link="nowhere"),
        Change(at("made/deep/d"), None, b"dd", 0o755),
        Change(at("sub/back"), None, b"", link="somewhere"),
    ]


def contents(workspace: Path) -> dict[str, object]:
    return {name: what[1] for name, what in tree(workspace).items()}


@pytest.mark.parametrize("size", [10, 2 * LARGE])
def test_a_replaced_file_is_gone_at_once_and_its_space_is_free_soon(workspace, place, size):
    old, new = b"o" * size, b"n" * size
    (workspace / "a.txt").write_bytes(old)
    status = os.stat(workspace / "a.txt")
    commit([Change(place("a.txt"), old, new, status=status)], workspace)
    assert [name for name in os.listdir(workspace) if name != ".forge"] == ["a.txt"]
    assert (workspace / "a.txt").read_bytes() == new
    for thread in threading.enumerate():
        if thread.name == "forge-free":
            thread.join()
    assert not open_below(workspace)


def test_a_large_file_is_replaced_where_no_thread_can_be_started(workspace, place, monkeypatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    old = b"o" * LARGE
    (workspace / "a.txt").write_bytes(old)
    change = Change(place("a.txt"), old, b"new", status=os.stat(workspace / "a.txt"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    commit([change], workspace)
    assert (workspace / "a.txt").read_bytes() == b"new"
    assert [name for name in os.listdir(workspace) if name != ".forge"] == ["a.txt"]
    assert not open_below(workspace)
