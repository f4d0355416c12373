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
