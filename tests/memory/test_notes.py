"""Notes as files: read where they are, written whole, nothing outside."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date

import pytest

from forge.core.errors import ErrorKind, ToolError
from forge.memory.memory import Memory
from forge.memory.notes import day_of
from tests.memory.child import PROGRAM, child, killed
from tests.memory.remembering import memory_in, note


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("2026-11-20.md", date(2026, 11, 20)),
        ("2026-11-20-meeting.md", date(2026, 11, 20)),
        ("work/2026-11-20.md", date(2026, 11, 20)),
        ("MEMORY.md", None),
        ("2026-13-40.md", None),
        ("2026-11-201.md", None),
        ("plans.md", None),
    ],
)
def test_the_date_of_a_note_is_in_its_name(name, day):
    assert day_of(name) == day


def test_an_entry_goes_to_the_end_under_the_time(tmp_path):
    memory = memory_in(tmp_path)
    assert memory.write("one") == ("2026-11-20.md", 1, 3)
    assert memory.write("two\nlines") == ("2026-11-20.md", 5, 8)
    assert memory.read("2026-11-20.md") == "## 14:05\n\none\n\n## 14:05\n\ntwo\nlines\n"
    assert memory.write("for good", "memory") == ("MEMORY.md", 1, 1)
    assert memory.read("MEMORY.md") == "for good\n"
    assert (tmp_path / ".forge" / "memory" / "MEMORY.md").stat().st_mode & 0o777 == 0o600


def test_a_note_keeps_its_encoding_and_line_ends(tmp_path):
    memory = memory_in(tmp_path)
    path = note(memory, "MEMORY.md", "")
    path.write_bytes("\ufeffeins\r\nzwei".encode("utf-16-le"))
    assert memory.write("drei\nvier", "memory") == ("MEMORY.md", 4, 5)
    assert path.read_bytes() == "\ufeffeins\r\nzwei\r\n\r\ndrei\r\nvier\r\n".encode("utf-16-le")


@pytest.mark.parametrize("spelled", ["MEMORY.md", "./MEMORY.md", ".forge/memory/MEMORY.md", "sub/../MEMORY.md", None])
def test_a_note_is_found_by_any_of_its_spellings(tmp_path, spelled):
    memory = memory_in(tmp_path)
    path = note(memory, "MEMORY.md", "here")
    assert memory.read(spelled or str(path)) == "here"


@pytest.mark.parametrize(
    "path", ["../state.db", "../../secret.md", "/etc/passwd", "link.md", "folder/secret.md", "~/x.md", "a\0.md", " "]
)
def test_nothing_outside_is_read(tmp_path, path):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", "here")
    (tmp_path / "secret.md").write_text("secret")
    (memory.notes.directory / "link.md").symlink_to(tmp_path / "secret.md")
    (memory.notes.directory / "folder").symlink_to(tmp_path)
    with pytest.raises(ToolError) as refused:
        memory.read(path)
    assert refused.value.kind in (ErrorKind.SECURITY, ErrorKind.VALIDATION)
    assert memory.names() == ["MEMORY.md"]


@pytest.mark.parametrize("path", [".hidden.md", "notes.txt", "."])
def test_what_is_no_note_is_not_read(tmp_path, path):
    memory = memory_in(tmp_path)
    note(memory, ".hidden.md", "x")
    note(memory, "notes.txt", "x")
    with pytest.raises(ToolError, match=r"not a note|is outside"):
        memory.read(path)


def test_a_missing_note_is_told_with_those_that_are_there(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "2026-11-19.md", "x")
    with pytest.raises(ToolError) as refused:
        memory.read("2026-11-18.md")
    assert refused.value.kind is ErrorKind.NOT_FOUND
    assert "2026-11-19.md" in refused.value.suggestion


def test_a_memory_that_became_a_link_is_not_written(tmp_path):
    memory = memory_in(tmp_path)
    memory.write("one")
    elsewhere = tmp_path / "elsewhere"
    memory.notes.directory.rename(elsewhere)
    memory.notes.directory.symlink_to(elsewhere)
    with pytest.raises(ToolError):
        memory.write("two")
    assert [path.read_text() for path in elsewhere.iterdir()] == ["## 14:05\n\none\n"]


def test_writing_can_be_switched_off(tmp_path, monkeypatch):
    with pytest.raises(ToolError, match="switched off"):
        memory_in(tmp_path, writes=False).write("x")
    monkeypatch.setenv("AGENT_FILESYSTEM_WRITES_ENABLED", "false")
    with pytest.raises(ToolError, match="switched off"):
        memory_in(tmp_path).write("x")


def test_two_processes_that_write_lose_nothing(tmp_path):
    children = [child("write", tmp_path, name) for name in ("one", "two")]
    for one in children:
        one.communicate(timeout=150)
    assert [one.returncode for one in children] == [0, 0]
    lines = memory_in(tmp_path).read("MEMORY.md").split()
    assert sorted(lines) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(20))


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_note_is_whole_and_nothing_strays(tmp_path, rounds):
    before = 0
    for round_ in range(rounds):
        killed(child("forever", tmp_path), 1 + round_ % 4)
        paragraphs = (tmp_path / ".forge/memory/MEMORY.md").read_text().split("\n\n")
        assert all(len(one.strip("\n")) == 10_000 for one in paragraphs)
        assert len(paragraphs) > before
        before = len(paragraphs)
    Memory(tmp_path / ".forge/memory").write("x" * 10_000, "memory")
    assert sorted(os.listdir(tmp_path / ".forge/memory")) == ["MEMORY.md"]


def test_on_a_full_disk_the_note_stays_as_it_was(tmp_path):
    memory = memory_in(tmp_path)
    memory.write("kept", "memory")
    said = subprocess.run([sys.executable, PROGRAM, "limited", tmp_path], capture_output=True, text=True)
    assert "exceed the maximum file size" in said.stdout
    assert memory.read("MEMORY.md") == "kept\n"
    assert os.listdir(memory.notes.directory) == ["MEMORY.md"]
    memory.write("more", "memory")
    assert memory.read("MEMORY.md") == "kept\n\nmore\n"
