"""Files for the person: written whole, where no link leads them elsewhere."""

from __future__ import annotations

import os
import stat
import tempfile

import pytest

from forge.core.errors import ToolError
from forge.workspace.changes.artefacts import write_artefact
from forge.workspace.state import state_directory


def test_a_file_is_written_for_its_owner_alone(tmp_path):
    path, replaced = write_artefact(tmp_path, "a.txt", b"x")
    assert path == tmp_path / ".forge/files/a.txt"
    assert not replaced
    assert path.read_bytes() == b"x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["a.txt"]


def test_one_that_is_there_is_replaced(tmp_path):
    write_artefact(tmp_path, "a.txt", b"a longer text")
    assert write_artefact(tmp_path, "a.txt", b"x").replaced
    assert (tmp_path / ".forge/files/a.txt").read_bytes() == b"x"


@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_a_link_in_its_place_is_replaced_itself(tmp_path, target):
    (tmp_path / "victim").write_text("mine")
    folder = tmp_path / ".forge/files"
    folder.mkdir(parents=True)
    os.symlink(tmp_path / target, folder / "a.txt")
    path, _ = write_artefact(tmp_path, "a.txt", b"x")
    assert not path.is_symlink()
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".forge").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", tmp_path / ".forge/files")
    with pytest.raises(ToolError, match="is a link"):
        write_artefact(tmp_path, "a.txt", b"x")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_directory_in_its_place_is_refused_and_nothing_is_left_behind(tmp_path):
    folder = state_directory(tmp_path, "files")
    (folder / "a.txt").mkdir()
    with pytest.raises(ToolError, match="is a directory"):
        write_artefact(tmp_path, "a.txt", b"x")
    assert os.listdir(folder) == ["a.txt"]


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    write_artefact(tmp_path, "a.txt", b"old")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="disk is full"):
        write_artefact(tmp_path, "a.txt", b"new")
    assert (tmp_path / ".forge/files/a.txt").read_bytes() == b"old"
    assert os.listdir(tmp_path / ".forge/files") == ["a.txt"]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def test_without_a_workspace_that_can_be_written_it_goes_to_the_temporary_directory(tmp_path, temporary):
    workspace = tmp_path / "workspace"
    workspace.write_text("no directory at all")
    path, _ = write_artefact(workspace, "a.txt", b"x")
    assert path.parent.parent == temporary / "forge-files"
    assert path.read_bytes() == b"x"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert write_artefact(workspace, "a.txt", b"y").replaced


def test_a_temporary_directory_that_somebody_planted_is_not_used(tmp_path, temporary):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", temporary / "forge-files")
    (tmp_path / "workspace").write_text("")
    path, _ = write_artefact(tmp_path / "workspace", "a.txt", b"x")
    assert path.parent.parent.name.startswith("forge-files-")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_files_of_two_projects_never_meet_in_the_temporary_directory(tmp_path, temporary):
    first, second = tmp_path / "first", tmp_path / "second"
    for workspace in (first, second):
        workspace.write_text("no directory at all")
    one, other = write_artefact(first, "a.txt", b"first"), write_artefact(second, "a.txt", b"second")
    assert one.path != other.path
    assert not other.replaced
    assert (one.path.read_bytes(), other.path.read_bytes()) == (b"first", b"second")
    assert write_artefact(first, "a.txt", b"again").path == one.path
    assert stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700
