"""Files as they are read: whole where they are small, in part where they are large, by kind where they are no text."""

from __future__ import annotations

import os

import pytest

from forge.core.errors import ToolError
from forge.workspace import reading as module
from forge.workspace.history.tracking import SessionState, TrackedCall, track_call
from forge.workspace.paths import PathValidator
from forge.workspace.reading import read_for_model
from forge.workspace.text.page import PageBounds, read_page
from tests.descriptors import open_below


@pytest.fixture
def read(tmp_path):
    def location_of(name: str, first: int = 1, max_image: int = 100):
        return read_for_model(PathValidator(tmp_path).resolve(name), first, PageBounds(10), max_image)

    return location_of


def test_a_small_file_is_read_whole_and_a_large_one_in_part(read, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EXACT", 20)
    (tmp_path / "small").write_bytes(b"12345678\n" * 2)
    (tmp_path / "large").write_bytes(b"12345678\n" * 20)
    assert (read("small").page.total, read("small").page.exact) == (2, True)
    assert read("large").page.last == 10
    assert read("large", 15).page.lines[0].text == "12345678"


def test_a_file_that_grew_past_the_bound_is_read_all_the_same(read, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EXACT", 20)
    path = tmp_path / "log"
    path.write_bytes(b"1\n")
    real = os.fstat

    def grow(file):
        status = real(file)
        if status.st_ino == path.stat().st_ino:
            path.write_bytes(b"1\n" * 50)
        return status

    monkeypatch.setattr(os, "fstat", grow)
    assert len(read("log").page.lines) == 10


def test_a_file_that_changed_while_it_was_read_counts_as_changed(read, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("before\n")
    state = SessionState()

    def reading(*arguments, **options):
        page = read_page(*arguments, **options)
        path.write_text("after it was read\n")
        return page

    monkeypatch.setattr(module, "read_page", reading)
    with track_call(TrackedCall(state, "s", checked=True)):
        assert read("a.txt").page.lines[0].text == "before"
    with pytest.raises(ToolError, match="changed"):
        state.seen.check("s", str(path), path.stat(), "a.txt", path.read_bytes())
    monkeypatch.undo()
    with track_call(TrackedCall(state, "s", checked=True)):
        read("a.txt")
    state.seen.check("s", str(path), path.stat(), "a.txt", path.read_bytes())


def test_what_is_refused_does_not_count_as_read(read, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"\0\1\2")
    state = SessionState()
    with track_call(TrackedCall(state, "s", checked=True)), pytest.raises(ToolError, match="binary"):
        read("a.bin")
    with pytest.raises(ToolError, match="not read"):
        state.seen.check("s", str(path), path.stat(), "a.bin", path.read_bytes())


@pytest.mark.parametrize("cut", range(8))
def test_a_character_cut_at_the_end_of_the_head_makes_no_binary(read, tmp_path, cut):
    (tmp_path / "a.txt").write_text("x" * cut + "😀" * 3_000 + "\n")
    assert read("a.txt").page.total == 1


def test_no_descriptor_is_left_open(read, tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    (tmp_path / "a.bin").write_bytes(b"\0")
    read("a.txt")
    for name in ("a.txt", "a.bin", "missing"):
        try:
            read(name)
        except ToolError:
            continue
    assert open_below(tmp_path) == []
