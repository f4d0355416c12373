"""A file in place of another: all of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forge.workspace.state import replace_file


def test_a_file_is_replaced_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        replace_file(path, "new ü\n")
        replace_file(tmp_path / "b", b"\xff", 0o640)
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "new ü\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.json", "b"]


def test_what_was_there_stays_where_it_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half a character: \ud800")

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to("victim")
    replace_file(tmp_path / "link", "new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "link").is_symlink()
