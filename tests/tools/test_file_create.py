"""Files for the person to download."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forge.core.registry import ToolRegistry
from forge.tools import register_all
from forge.tools.file_create import MEDIA_TYPES, FileCreate


def test_a_file_is_written_described_and_attached(bench, tmp_path):
    result = bench.call("file_create", filename="report.md", content="# Größe\n")
    path = tmp_path / ".forge/files/report.md"
    assert path.read_bytes() == "# Größe\n".encode()
    answer = {"filename": "report.md", "mime_type": "text/markdown", "path": str(path), "bytes": 10}
    assert json.loads(result.for_llm) == answer
    assert result.data == {**answer, "content": "# Größe\n"}
    (attachment,) = result.attachments
    assert (attachment.name, attachment.media_type) == ("report.md", "text/markdown")
    assert attachment.data == path.read_bytes()


@pytest.mark.parametrize(("extension", "media_type"), MEDIA_TYPES.items())
def test_every_extension_has_its_type_in_any_case(bench, extension, media_type):
    for name in (f"a{extension}", f"B{extension.upper()}"):
        result = bench.call("file_create", filename=name, content="")
        assert result.success, result.for_llm
        assert result.data["mime_type"] == media_type
        assert Path(result.data["path"]).read_bytes() == b""


@pytest.mark.parametrize("name", ["a b.txt", "日本.md", "v1.2.json", "_x.py", "👍.txt", f"{'x' * 251}.txt", ".x.md"])
def test_names_that_are_odd_but_fine_work(bench, name):
    result = bench.call("file_create", filename=name, content="x")
    assert result.success, result.for_llm
    assert Path(result.data["path"]).name == name


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "report", "a.exe", "a.md.exe", ".md", "a.", ".", "..", "../a.md", "a/b.md", "a\\b.md", "/a.md"),
        *("a..md", "-rf.md", "a\n.md", "a\0.md", "a\x7f.md", "\u202edm.md", " a.md", "a.md ", f"{'x' * 253}.md"),
        *("日本" * 50 + ".md", ".forge-tmp-x.md", "x" * 100_000),
    ],
)
def test_other_names_are_refused_with_what_is_allowed(bench, tmp_path, name):
    failure = bench.call("file_create", filename=name, content="x").failure
    assert failure is not None
    assert failure.kind == "validation_error"
    assert len(failure.message) < 500
    assert all(extension in failure.suggestion for extension in MEDIA_TYPES)
    assert not (tmp_path / ".forge/files").exists()


def test_a_file_of_that_name_is_replaced_and_that_is_said(bench, tmp_path):
    assert "replaced" not in bench.call("file_create", filename="a.txt", content="old").for_llm
    result = bench.call("file_create", filename="a.txt", content="new")
    assert json.loads(result.for_llm)["replaced"] is True
    assert (tmp_path / ".forge/files/a.txt").read_text() == "new"


def test_the_target_is_the_path_in_the_workspace():
    assert FileCreate().targets({"filename": "a.txt", "content": ""}) == [".forge/files/a.txt"]


def test_nothing_is_written_where_writing_is_switched_off(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_FILESYSTEM_WRITES_ENABLED", "false")
    failure = bench.call("file_create", filename="a.txt", content="x").failure
    assert failure is not None
    assert failure.kind == "permission_error"
    assert not (tmp_path / ".forge/files").exists()
    monkeypatch.setenv("AGENT_FILESYSTEM_WRITES_ENABLED", "true")
    assert bench.call("file_create", filename="a.txt", content="x").success


def test_it_is_registered_without_being_asked_for():
    registry = ToolRegistry()
    register_all(registry)
    assert "file_create" in registry
    assert "file_patch" not in registry


def test_a_link_planted_there_is_replaced_and_not_followed(bench, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / ".forge/files"
    folder.mkdir(parents=True)
    os.symlink(victim, folder / "a.txt")
    assert bench.call("file_create", filename="a.txt", content="x").success
    assert victim.read_text() == "mine"
    assert not (folder / "a.txt").is_symlink()
