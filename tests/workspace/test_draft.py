"""Drafts: planned on what is there, made together or not at all, read before they are written."""

from __future__ import annotations

import os
import threading
from hashlib import sha256

import pytest

from forge.core.context import Root, Scope
from forge.core.errors import ToolError
from forge.workspace.draft import LARGEST_FILE, Draft
from forge.workspace.history.tracking import SessionState, TrackedCall, note_read, track_call
from forge.workspace.paths.digest import LARGE


@pytest.fixture
def scope(tmp_path):
    return Scope(workspace=tmp_path)


@pytest.fixture
def tracked():
    now = TrackedCall(SessionState(), session_id="s", turn="t", call_id="c", tool="test", checked=True)
    with track_call(now):
        yield now


def test_nothing_is_written_before_the_commit(scope, tmp_path):
    draft = Draft(scope)
    place = draft.resolve("new/file.txt")
    draft.write(place, b"hello\n")
    assert draft.read(place) == b"hello\n"
    assert not (tmp_path / "new").exists()
    assert draft.diff().endswith("@@ -0,0 +1 @@\n+hello\n")
    draft.commit()
    assert (tmp_path / "new/file.txt").read_bytes() == b"hello\n"


def test_what_is_planned_is_what_is_seen(scope, tmp_path):
    (tmp_path / "a").write_text("a")
    draft = Draft(scope)
    a, b = draft.resolve("a"), draft.resolve("b")
    draft.move(a, b)
    assert (draft.kind(a), draft.kind(b)) == ("", "file")
    assert draft.read(a) is None
    assert draft.read(b) == b"a"
    draft.commit()
    assert set(os.listdir(tmp_path)) == {".forge", "b"}


def test_a_move_keeps_the_mode_and_is_shown_as_one(scope, tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    draft = Draft(scope)
    draft.move(draft.resolve("run.sh"), draft.resolve("bin/run.sh"))
    assert "rename from run.sh" in draft.diff()
    draft.commit()
    assert (tmp_path / "bin/run.sh").stat().st_mode & 0o777 == 0o755


def test_a_file_that_was_not_read_is_not_overwritten_and_one_that_was_is(scope, tmp_path, tracked):
    (tmp_path / "a").write_text("a")
    draft = Draft(scope)
    place = draft.resolve("a")
    with pytest.raises(ToolError, match="was not read in this session"):
        draft.require_read(place)
    note_read(place, os.stat(tmp_path / "a"), b"a")
    draft.require_read(place)
    draft.write(place, b"b")
    draft.commit()
    Draft(scope).require_read(place)  # its own write counts as read


def test_a_file_that_changed_since_is_not_overwritten_even_with_the_same_size_and_time(scope, tmp_path, tracked):
    file = tmp_path / "a"
    file.write_text("a")
    status = os.stat(file)
    place = Draft(scope).resolve("a")
    note_read(place, status, b"a")
    file.write_text("b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ToolError, match="changed on disk since it was read"):
        Draft(scope).require_read(place)


def test_a_file_that_was_only_touched_is_still_the_same(scope, tmp_path, tracked):
    file = tmp_path / "a"
    file.write_text("a")
    place = Draft(scope).resolve("a")
    note_read(place, os.stat(file), b"a")
    os.utime(file, (1, 1))
    Draft(scope).require_read(place)


def test_a_new_file_needs_no_read(scope, tracked):
    draft = Draft(scope)
    draft.require_read(draft.resolve("new"))


def test_only_what_was_approved_is_touched(scope, tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    link = tmp_path / "link"
    link.symlink_to("a")
    approved = Draft(scope).resolve("link")
    link.unlink()
    link.symlink_to("b")
    with pytest.raises(ToolError, match="replaced while it was checked"):
        Draft(scope, within=[approved]).resolve("link")
    assert Draft(scope, within=[approved]).resolve("a") == approved


def test_directories_and_special_files_are_not_written(scope, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for path in ("folder", "fifo"):
        draft = Draft(scope)
        with pytest.raises(ToolError, match="not a file"):
            draft.write(draft.resolve(path), b"x")
    draft = Draft(scope)
    draft.delete(draft.resolve("fifo"))
    draft.commit()
    assert not (tmp_path / "fifo").exists()
    with pytest.raises(ToolError, match="is a directory"):
        Draft(scope).delete(Draft(scope).resolve("folder"))


def test_a_link_is_deleted_and_what_it_leads_to_stays(scope, tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("a")
    draft = Draft(scope)
    draft.delete(draft.resolve("link", follow=False))
    assert "link" in draft.diff()
    draft.commit()
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "a"


def test_a_file_too_large_to_change_is_refused(scope, tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(LARGEST_FILE + 1)
    draft = Draft(scope)
    with pytest.raises(ToolError, match="the limit for changes is"):
        draft.read(draft.resolve("large"))


def test_writing_may_be_switched_off_and_roots_may_be_read_only(tmp_path, monkeypatch):
    library, notes = tmp_path / "library", tmp_path / "notes"
    for folder in (library, notes, tmp_path / "ws"):
        folder.mkdir()
    scope = Scope(workspace=tmp_path / "ws", roots=(Root(library), Root(notes, writable=True)))
    assert Draft(scope).resolve(str(notes / "a")).shown == str(notes / "a")
    with pytest.raises(ToolError, match="read-only") as caught:
        Draft(scope).resolve(str(library / "a"))
    assert caught.value.kind == "permission_error"
    for off in ("0", "false", "FALSE"):
        monkeypatch.setenv("AGENT_FILESYSTEM_WRITES_ENABLED", off)
        with pytest.raises(ToolError, match="switched off") as caught:
            Draft(scope).resolve("a")
        assert caught.value.kind == "permission_error"
    monkeypatch.setenv("AGENT_FILESYSTEM_WRITES_ENABLED", "true")
    Draft(scope).resolve("a")
    with pytest.raises(ToolError, match="switched off"):
        Draft(Scope(workspace=tmp_path / "ws", writes=False)).resolve("a")


def test_the_environment_caps_every_root(tmp_path, monkeypatch):
    (tmp_path / "cap/ws").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    scope = Scope(workspace=tmp_path, roots=(Root(tmp_path / "other", writable=True),))
    Draft(scope).resolve("other/a")
    monkeypatch.setenv("AGENT_WORKSPACE_ROOT", str(tmp_path / "cap"))
    Draft(scope).resolve("cap/ws/a")
    for path in ("other/a", str(tmp_path / "other/a"), "a"):
        with pytest.raises(ToolError, match="outside the workspace"):
            Draft(scope).resolve(path)


def test_a_failed_commit_leaves_nothing_to_undo(scope, tmp_path, tracked):
    draft = Draft(scope)
    draft.write(draft.resolve("a"), b"1")
    (tmp_path / "a").write_text("somebody was faster")
    with pytest.raises(ToolError, match="by another program"):
        draft.commit()
    assert tracked.state.undo.entries("s") == []
    assert (tmp_path / "a").read_text() == "somebody was faster"


def test_a_large_file_that_changed_since_is_refused_before_anything_is_written(scope, tmp_path, tracked):
    file = tmp_path / "a"
    old, new = b"a" * (2 * LARGE), b"b" * (2 * LARGE)
    file.write_bytes(old)
    status = os.stat(file)
    place = Draft(scope).resolve("a")
    note_read(place, status, old)
    file.write_bytes(new)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    for act in (Draft.diff, Draft.commit):
        draft = Draft(scope)
        draft.require_read(place)
        draft.write(place, b"c")
        with pytest.raises(ToolError, match="changed on disk since it was read"):
            act(draft)
    assert file.read_bytes() == new
    assert tracked.state.undo.entries("s") == []
    assert set(os.listdir(tmp_path)) == {".forge", "a"}


@pytest.mark.parametrize("contents", [(b"b",), (b"b", b"c"), (b"b", b"c", b"d")], ids=len)
def test_a_large_file_is_noted_as_it_was_planned_last(scope, tmp_path, tracked, contents):
    (tmp_path / "a").write_bytes(b"a" * LARGE)
    draft = Draft(scope)
    for content in contents:
        draft.write(draft.resolve("a"), content * 2 * LARGE)
        hashing = [one for one in threading.enumerate() if one.name == "forge-digest"]
        assert len(hashing) <= 1  # only the first plan is hashed before the commit
    draft.commit()
    [change] = tracked.state.undo.entries("s")[0].files
    assert change.after == sha256(contents[-1] * 2 * LARGE).hexdigest()


def test_a_move_onto_a_file_shows_what_is_lost_and_can_be_applied_elsewhere(scope, tmp_path):
    (tmp_path / "a").write_text("new\n")
    (tmp_path / "b").write_text("old\n")
    draft = Draft(scope)
    draft.move(draft.resolve("a"), draft.resolve("b"))
    removed = "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-new\n"
    assert draft.diff() == f"{removed}--- a/b\n+++ b/b\n@@ -1 +1 @@\n-old\n+new\n"


def test_nothing_is_changed_once_it_is_stopped(scope, tmp_path, tracked):
    for is_stopped, stopped in ((True, lambda: True), (False, lambda: False)):
        draft = Draft(scope, stopped=stopped)
        draft.write(draft.resolve("a"), b"1")
        if is_stopped:
            with pytest.raises(ToolError, match="stopped before anything was changed"):
                draft.commit()
            assert set(os.listdir(tmp_path)) == {".forge"}
            assert tracked.state.undo.entries("s") == []
        else:
            draft.commit()
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_change_that_was_made_is_no_failure_because_it_could_not_be_noted(scope, tmp_path, tracked, monkeypatch):
    def full(*given, **named):
        raise ToolError("the disk is full")

    monkeypatch.setattr(tracked.state.seen, "note", full)
    draft = Draft(scope)
    draft.write(draft.resolve("a"), b"1")
    draft.commit()
    assert (tmp_path / "a").read_bytes() == b"1"
    assert len(tracked.state.undo.entries("s")) == 1
    with pytest.raises(ToolError, match="not read"):
        Draft(scope).require_read(draft.resolve("a"))


def test_a_change_that_failed_says_why_even_if_it_cannot_be_withdrawn(scope, tmp_path, tracked, monkeypatch):
    def locked(entry):
        raise ToolError("the store is locked")

    monkeypatch.setattr(tracked.state.undo, "withdraw", locked)
    draft = Draft(scope)
    draft.write(draft.resolve("a"), b"1")
    (tmp_path / "a").write_text("somebody was faster")
    with pytest.raises(ToolError, match="by another program"):
        draft.commit()
