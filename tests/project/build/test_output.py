"""Where a build goes: nothing of others is overwritten, and there is always a whole one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge.core.errors import ToolError
from forge.project.build import output


def test_an_empty_directory_and_what_a_build_wrote_are_replaced(project: Any) -> None:
    project.output.mkdir()
    project.make()
    (project.output / "agent.json").write_text("spoilt")
    (project.output / "Dockerfile").unlink()
    project.make()
    assert (project.output / "agent.json").read_text() != "spoilt"
    assert (project.output / "Dockerfile").exists()


@pytest.mark.parametrize("kind", ["other files", "a file", "a link", "an added file", "a broken manifest"])
def test_what_no_build_wrote_is_not_overwritten(project: Any, kind: str, tmp_path: Path) -> None:
    there = project.output
    if kind == "other files":
        project.write(".forge-output/thesis.txt", "mine")
    elif kind == "a file":
        there.write_text("mine")
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir()
        there.symlink_to(tmp_path / "elsewhere")
    else:
        project.make()
        if kind == "an added file":
            project.write(".forge-output/tools/thesis.txt", "mine")
        else:
            project.write(".forge-output/build-manifest.json", "{}")
    stage, problems = project.problems()
    assert stage == "load"
    assert "cannot be the output" in problems[0]
    assert os.path.lexists(there)
    assert kind != "a link" or not list((tmp_path / "elsewhere").iterdir())


def test_the_project_itself_is_no_output(project: Any) -> None:
    assert project.problems(output=project.root)[0] == "load"
    assert (project.root / "forge.yaml").exists()


def test_an_output_that_does_not_exist_yet_is_made_with_what_is_above_it(project: Any, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        project.make(output=tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert not (tmp_path / "a").stat().st_mode & 0o022
    assert (tmp_path / "a" / "b" / "agent.json").exists()


def test_a_failure_at_the_last_moment_leaves_what_was_there(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    project.make()
    before = project.bytes()
    project.write("tools/loud.py", "other = 1\n")

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fchmod", fails)
        stage, problems = project.problems()
    assert (stage, "No space left" in problems[0]) == ("validate", True)
    assert project.bytes() == before
    assert not list(project.root.glob(".forge-tmp-*"))


def test_without_an_exchange_the_old_one_is_put_back_where_the_new_one_cannot_be(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.make()
    before = project.bytes()
    monkeypatch.setattr(output, "_exchange", lambda *_: False)
    with pytest.raises(ToolError, match="cannot be the output"):
        output.replace_output(project.root / ".forge-tmp-build-gone", project.output)
    assert project.bytes() == before
    project.write("tools/loud.py", "other = 1\n")
    project.make()
    assert project.bytes() != before
    assert not list(project.root.glob(".forge-tmp-*"))


def test_what_a_killed_build_left_is_swept_away_but_not_what_another_is_writing(project: Any) -> None:
    old, new = project.root / ".forge-tmp-build-old", project.root / ".forge-tmp-build-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))
    project.make()
    assert (old.exists(), new.exists()) == (False, True)
    shutil.rmtree(new)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_told(project: Any, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "Permission denied" in project.problems(output=closed / "x")[1][0]


def test_of_a_directory_that_no_build_wrote_only_the_first_file_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(directory: Path) -> Iterator[str]:
        yield "mine.txt"
        raise AssertionError("a whole home was listed")

    monkeypatch.setattr(output, "files_below", endless)
    with pytest.raises(ToolError, match=r"not a build: it contains mine\.txt"):
        output.check_output(tmp_path)
    monkeypatch.setattr(output, "files_below", lambda directory: iter(()))
    output.check_output(tmp_path)
