"""Which directory is the workspace, and who may widen it."""

from __future__ import annotations

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.project.assemble.access import workspace_root


def test_the_flag_then_the_file_then_the_cap_then_the_current_directory(tmp_path, monkeypatch):
    flag, file, here = (tmp_path / name for name in ("flag", "file", "here"))
    for directory in (flag, file, here):
        directory.mkdir()
    monkeypatch.chdir(here)
    cap = {"AGENT_WORKSPACE_ROOT": str(tmp_path)}
    assert workspace_root(str(flag), file, cap) == flag
    assert workspace_root(None, file, cap) == file
    assert workspace_root(None, None, cap) == tmp_path
    assert workspace_root(None, None, {}) == here
    assert workspace_root("../flag", None, {}) == flag


def test_nothing_but_the_environment_widens_the_cap(tmp_path):
    inside = tmp_path / "cap" / "inside"
    inside.mkdir(parents=True)
    beside = tmp_path / "cap-evil"
    beside.mkdir()
    link = tmp_path / "cap" / "link"
    link.symlink_to(beside)
    cap = {"AGENT_WORKSPACE_ROOT": str(tmp_path / "cap")}
    assert workspace_root(str(inside), None, cap) == inside
    for outside in (tmp_path, beside, link, inside / ".." / ".."):
        with pytest.raises(ToolError, match="AGENT_WORKSPACE_ROOT") as caught:
            workspace_root(str(outside), None, cap)
        assert caught.value.kind is ErrorKind.CONFIG
        with pytest.raises(ToolError, match="AGENT_WORKSPACE_ROOT"):
            workspace_root(None, outside, cap)


@pytest.mark.parametrize("path", ["missing", "file", "a\0b", "loop"])
def test_what_is_no_directory_is_refused(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match="--workspace"):
        workspace_root(path, None, {})
    with pytest.raises(ToolError, match="AGENT_WORKSPACE_ROOT"):
        workspace_root(None, None, {"AGENT_WORKSPACE_ROOT": path})
