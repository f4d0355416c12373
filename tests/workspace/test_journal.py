"""What dead processes left is taken back, and nothing else is touched."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ToolError
from forge.workspace.changes.commit import Change, commit
from forge.workspace.changes.journal import JournalNote, Move, recover
from forge.workspace.paths import Location, PathValidator
from forge.workspace.state import state_directory
from forge.workspace.state.sealing import seal

TEMPORARY, KEPT = ".forge-tmp-00000000000000aa", ".forge-tmp-00000000000000bb"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    state_directory(root, "journal")
    return root


def plant(
    workspace: Path, *lines: Any, name: str = "0123456789abcdef.note", text: bytes | None = None, sealed: bool = True
) -> Path:
    path = workspace / ".forge" / "journal" / name
    if sealed:  # as Forge does
        place = workspace / ".forge" / name
        lines = tuple({**line, "seal": seal(place, json.dumps(line).encode())} for line in lines)
    path.write_bytes(text if text is not None else b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return path


def move(workspace: Path, relative: str, *, deletes: bool = False, temporary: str = TEMPORARY, kept: str = KEPT):
    return [str(workspace), relative, deletes, temporary, kept]


def identity(path: Path) -> list[int]:
    status = path.lstat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".forge/" not in str(path.relative_to(root))
    }


def test_without_notes_there_is_nothing_to_do_and_nothing_is_made(tmp_path):
    assert recover(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_temporaries_of_a_dead_owner_are_swept(workspace):
    (workspace / TEMPORARY).write_bytes(b"half")
    (workspace / "a").write_bytes(b"old")
    note = plant(workspace, {"moves": [move(workspace, "a")], "folders": []})
    assert recover(workspace) == ["reverted a change of a by a process that was killed"]
    assert files(workspace) == {"a": b"old"}
    assert not note.exists()
    assert recover(workspace) == []


def test_a_change_of_many_that_was_half_made_is_taken_back(workspace):
    (workspace / "a").write_bytes(b"new")
    (workspace / KEPT).write_bytes(b"old")
    (workspace / "b").write_bytes(b"made")
    other, unused = ".forge-tmp-00000000000000cc", ".forge-tmp-00000000000000dd"
    os.link(workspace / "b", workspace / other)
    plant(
        workspace,
        {"moves": [move(workspace, "a"), move(workspace, "b", temporary=other, kept=unused)], "folders": []},
        {"staged": [identity(workspace / "a"), identity(workspace / "b")]},
    )
    assert recover(workspace) == ["reverted a change of a, b by a process that was killed"]
    assert files(workspace) == {"a": b"old"}


def test_a_change_of_many_that_was_made_is_only_tidied_up(workspace):
    (workspace / "a").write_bytes(b"new")
    (workspace / KEPT).write_bytes(b"old")
    plant(
        workspace,
        {"moves": [move(workspace, "a")], "folders": []},
        {"staged": [identity(workspace / "a")]},
        {"done": True},
    )
    assert recover(workspace) == ["cleaned up after a change of a by a process that was killed"]
    assert files(workspace) == {"a": b"new"}


def test_what_somebody_wrote_since_the_death_is_left(workspace):
    (workspace / "a").write_bytes(b"new")
    was = identity(workspace / "a")
    (workspace / "a").write_bytes(b"edited by hand")
    (workspace / KEPT).write_bytes(b"old")
    plant(workspace, {"moves": [move(workspace, "a")], "folders": []}, {"staged": [was]})
    assert recover(workspace)[1:] == ["a was changed since and is not touched"]
    assert files(workspace) == {"a": b"edited by hand"}


def test_a_deleted_file_comes_back(workspace):
    (workspace / KEPT).write_bytes(b"old")
    plant(workspace, {"moves": [move(workspace, "a", deletes=True)], "folders": []})
    recover(workspace)
    assert files(workspace) == {"a": b"old"}


@pytest.mark.parametrize("how", ["without a seal", "of another note"])
def test_a_note_that_forge_did_not_write_reverts_nothing(workspace, how):
    (workspace / KEPT).write_bytes(b"planted")
    line = {"moves": [move(workspace, "a", deletes=True)], "folders": []}
    note = plant(workspace, line, sealed=how == "of another note")
    if how == "of another note":
        note = note.rename(note.with_name("1123456789abcdef.note"))
    [told] = recover(workspace)
    assert "which is not a note of Forge: it " in told
    assert files(workspace) == {KEPT: b"planted"}
    assert not note.exists()
    plant(workspace, line)
    recover(workspace)
    assert files(workspace) == {"a": b"planted"}


def test_directories_that_were_made_go_if_they_are_empty(workspace):
    (workspace / "x" / "y").mkdir(parents=True)
    (workspace / "z").mkdir()
    (workspace / "z" / "kept").write_bytes(b"")
    folders = [[str(workspace), one] for one in ("x", "x/y", "z")]
    plant(workspace, {"moves": [move(workspace, "x/y/a")], "folders": folders})
    recover(workspace)
    assert sorted(os.listdir(workspace)) == [".forge", "z"]


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_note_that_was_cut_off_means_that_nothing_was_begun(workspace, cut):
    (workspace / "a").write_bytes(b"old")
    whole = json.dumps({"moves": [move(workspace, "a")], "folders": []}).encode() + b"\n"
    note = plant(workspace, text=whole[:cut])
    assert recover(workspace) == []
    assert not note.exists()
    assert files(workspace) == {"a": b"old"}


PLANTED = {
    "a name that is no temporary's": {"temporary": "precious"},
    "a path as the name": {"temporary": "../.forge-tmp-00000000000000aa"},
    "another name to keep": {"kept": "precious"},
    "a longer name": {"kept": KEPT + "x"},
}


@pytest.mark.parametrize("how", PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_note_that_names_other_files_is_refused(workspace, how):
    (workspace / "precious").write_bytes(b"safe")
    note = plant(workspace, {"moves": [move(workspace, "a", **how)], "folders": []})
    assert "not a note of Forge" in recover(workspace)[0]
    assert files(workspace) == {"precious": b"safe"}
    assert not note.exists()


@pytest.mark.parametrize("relative", ["../outside/a", "/etc/passwd", "sub/../../outside/a", "", ".", "a//b", "a\0b"])
def test_a_planted_note_that_leads_elsewhere_is_refused(workspace, tmp_path, relative):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / TEMPORARY).write_bytes(b"safe")
    plant(workspace, {"moves": [move(workspace, relative)], "folders": []})
    assert "not a note of Forge" in recover(workspace)[0]
    assert (tmp_path / "outside" / TEMPORARY).exists()


@pytest.mark.parametrize(
    "text", [b"\n", b"[]\n", b"{}\n", b'{"moves": 5}\n', b"\xff\xfe\n", b"[" * 10_000 + b"\n", b"null\n"]
)
def test_a_planted_note_of_nonsense_is_removed(workspace, text):
    note = plant(workspace, text=text)
    assert "not a note of Forge" in recover(workspace)[0]
    assert not note.exists()


def test_a_note_about_another_root_waits_until_that_root_is_declared(workspace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / TEMPORARY).write_bytes(b"half")
    note = plant(workspace, {"moves": [move(other, "a")], "folders": []})
    assert recover(workspace) == []
    assert (other / TEMPORARY).exists()
    assert note.exists()
    assert len(recover(workspace, [other])) == 1
    assert os.listdir(other) == []
    assert not note.exists()


def test_a_directory_replaced_by_a_link_leads_nowhere(workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / TEMPORARY).write_bytes(b"safe")
    (workspace / "sub").symlink_to(outside)
    plant(workspace, {"moves": [move(workspace, "sub/a")], "folders": [[str(workspace), "sub/b"]]})
    (outside / "b").mkdir()
    recover(workspace)
    assert sorted(os.listdir(outside)) == [TEMPORARY, "b"]


def test_a_made_file_is_not_removed_on_the_word_of_a_note_alone(workspace):
    (workspace / "precious").write_bytes(b"safe")
    plant(
        workspace,
        {"moves": [move(workspace, "precious")], "folders": []},
        {"staged": [identity(workspace / "precious")]},
    )
    recover(workspace)
    assert files(workspace) == {"precious": b"safe"}


@pytest.mark.parametrize("name", ["x.note", "0123456789abcdef.note.bak", "notes"])
def test_other_files_in_the_journal_are_left(workspace, name):
    planted = plant(workspace, {"moves": [move(workspace, "a")], "folders": []}, name=name)
    assert recover(workspace) == []
    assert planted.exists()


def test_a_link_or_a_fifo_in_the_journal_is_left(workspace, tmp_path):
    journal = workspace / ".forge" / "journal"
    (tmp_path / "target").write_bytes(b"")
    (journal / "0123456789abcdef.note").symlink_to(tmp_path / "target")
    os.mkfifo(journal / "1123456789abcdef.note")
    assert recover(workspace) == []
    assert len(os.listdir(journal)) == 2


def test_a_living_owner_is_left_alone(workspace):
    place = Location(workspace, "a", "a")
    own = Move.to(place, deletes=False)
    note = JournalNote(workspace, [own], [])
    (workspace / own.temporary).write_bytes(b"half")
    assert recover(workspace) == []
    assert (workspace / own.temporary).exists()
    note.close(keep=True)
    assert len(recover(workspace)) == 1
    assert not (workspace / own.temporary).exists()


def test_many_recover_at_once_and_each_note_is_settled_once(workspace):
    for number in range(20):
        name = f".forge-tmp-{number:016x}"
        (workspace / name).write_bytes(b"half")
        kept = f".forge-tmp-{number + 100:016x}"
        (workspace / kept).write_bytes(b"old")
        lost = move(workspace, f"f{number}", deletes=True, temporary=name, kept=kept)
        plant(workspace, {"moves": [lost], "folders": []}, name=f"{number:016x}.note")
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.extend(recover(workspace))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said += recover(workspace)
    assert files(workspace) == {f"f{number}": b"old" for number in range(20)}
    assert len([one for one in said if one.startswith("reverted")]) == 20
    assert os.listdir(workspace / ".forge" / "journal") == []


def test_recovering_beside_writers_disturbs_nobody(workspace):
    (workspace / "a").write_bytes(b"0")
    place, problems = PathValidator(workspace).resolve("a"), []
    stop = threading.Event()

    def recovering() -> None:
        while not stop.is_set():
            problems.extend(recover(workspace))

    thread = threading.Thread(target=recovering)
    thread.start()
    try:
        for number in range(100):
            commit([Change(place, str(number).encode(), str(number + 1).encode())], workspace)
    finally:
        stop.set()
        thread.join()
    assert problems == []
    assert files(workspace) == {"a": b"100"}


def test_what_cannot_be_put_back_now_is_put_back_at_the_next_start(workspace, monkeypatch):
    (workspace / "a").write_bytes(b"old")
    (workspace / "c").write_bytes(b"there")
    at = PathValidator(workspace).resolve
    rename, calls = os.rename, []

    def once(*given, **named):
        calls.append(given)
        if len(calls) > 1:
            raise OSError(5, "the disk is gone")
        rename(*given, **named)

    monkeypatch.setattr(os, "rename", once)
    changes = [Change(at("a"), b"old", b"new"), Change(at("b"), None, b"", link="x"), Change(at("c"), b"there", None)]
    with pytest.raises(ToolError, match="could not be restored"):
        commit(changes, workspace)
    monkeypatch.undo()
    assert files(workspace)["a"] == b"new"
    assert len(recover(workspace)) == 1
    assert files(workspace) == {"a": b"old", "c": b"there"}
    assert not os.path.lexists(workspace / "b")
