"""Where Forge keeps what it must remember, also of workspaces that cannot be written."""

from __future__ import annotations

import tempfile

from forge.workspace.state import NAME, state_directory


def test_the_state_is_in_the_workspace(tmp_path):
    assert state_directory(tmp_path, "spill") == tmp_path / NAME / "spill"
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0


def test_workspaces_that_cannot_be_written_do_not_share_theirs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_text("in the way")
        found.append(state_directory(tmp_path / name, "spill"))
        assert found[-1] == state_directory(tmp_path / name, "spill")
        assert found[-1].parent.stat().st_mode & 0o077 == 0
    assert found[0] != found[1]


def test_a_link_in_the_state_of_a_clone_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "documents").mkdir()
    (tmp_path / "clone").mkdir()
    (state_directory(tmp_path / "clone") / "spill").symlink_to(tmp_path / "documents")
    found = state_directory(tmp_path / "clone", "spill")
    assert found.is_relative_to(tmp_path / "temporary")
    assert state_directory(tmp_path / "clone", "other") == tmp_path / "clone" / NAME / "other"
