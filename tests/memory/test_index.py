"""The index follows the notes: what changed is read, the rest is not; killed, damaged or shared, it finds its way."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.memory import search as follow
from forge.memory.index import split_note
from forge.memory.notes import Notes, NotesWatch
from forge.workspace.state import state_directory
from tests.descriptors import open_below
from tests.memory.child import child, killed
from tests.memory.remembering import Topics, memory_in, note, pieces, search, sources

NAMES = ["MEMORY.md", "2026-11-19.md", "2026-11-20.md", "sub/plans.md"]
TEXTS = st.lists(st.sampled_from(["# a", "", "one", "two words", "three", "x" * 600]), max_size=8).map("\n".join)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.none() | TEXTS), max_size=12), st.booleans())
def test_after_any_changes_the_index_is_what_a_new_one_would_be(changes, embeds):
    with tempfile.TemporaryDirectory() as place:
        memory = memory_in(Path(place), embedder=Topics() if embeds else None)
        memory.notes.directory.mkdir(parents=True)
        contents: dict[str, str] = {}
        for name, text in changes:
            if text is None:
                contents.pop(name, None)
                (memory.notes.directory / name).unlink(missing_ok=True)
            else:
                contents[name] = text
                note(memory, name, text)
            search(memory, "one two cat")
            expected = sorted(
                (one, *chunk[1:], chunk.text) for one, said in contents.items() for chunk in split_note(said)
            )
            assert pieces(memory) == expected
        other = memory_in(Path(place), embedder=Topics() if embeds else None)
        assert search(other, "one words") == search(memory, "one words")
        memory._open_follower().index.check()
        memory.close()
        other.close()


@pytest.fixture
def reads(monkeypatch):
    """The names of the notes that are read."""
    names: list[str] = []
    real = Notes.read

    def read(self, name):
        names.append(name)
        return real(self, name)

    monkeypatch.setattr(Notes, "read", read)
    return names


def settled(memory, *names):
    """Notes that were written some time ago."""
    for name in names:
        path = note(memory, name, f"about {name}")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    memory.follow()


def test_only_what_changed_is_read(tmp_path, reads):
    memory = memory_in(tmp_path)
    settled(memory, *NAMES)
    reads.clear()
    memory.follow()
    asyncio.run(memory.reindex())
    assert reads == []
    note(memory, "MEMORY.md", "new")
    assert sources(memory, "new") == ["MEMORY.md"]
    assert set(reads) == {"MEMORY.md"}


def test_another_process_reads_nothing_that_is_indexed_already(tmp_path, reads):
    settled(memory_in(tmp_path), *NAMES)
    reads.clear()
    assert len(sources(memory_in(tmp_path), "about")) == 4
    assert reads == []


def test_only_what_is_new_is_embedded(tmp_path):
    embedder = Topics()
    memory = memory_in(tmp_path, embedder=embedder)
    note(memory, "MEMORY.md", "".join(f"## {number}\n\ncat {number}\n\n" for number in range(50)))
    asyncio.run(memory.reindex())
    embedder.asked.clear()
    note(memory, "MEMORY.md", "".join(f"## {number}\n\ncat {number}\n\n" for number in range(50)) + "## x\n\nnew\n")
    (memory.notes.directory / "MEMORY.md").rename(memory.notes.directory / "moved.md")
    search(memory, "cat")
    assert embedder.asked == ["## x\n\nnew", "cat"]


def test_another_embedder_makes_all_vectors_anew(tmp_path):
    settled(memory_in(tmp_path), "MEMORY.md")
    first = memory_in(tmp_path, embedder=Topics())
    search(first, "cat")
    other = Topics()
    other.name = "other topics"
    assert asyncio.run(memory_in(tmp_path, embedder=other).reindex()).embedded == 1
    assert first.stats()["vectors_of"] == "other topics"


def test_a_change_that_leaves_time_and_size_alone_is_seen(tmp_path):
    memory = memory_in(tmp_path)
    path = note(memory, "MEMORY.md", "old!")
    os.utime(path, ns=(10**18, 10**18))
    assert sources(memory, "old") == ["MEMORY.md"]
    path.write_text("new!")
    os.utime(path, ns=(10**18, 10**18))
    assert sources(memory_in(tmp_path), "new") == sources(memory, "new") == ["MEMORY.md"]


@pytest.mark.parametrize("is_watched", [True, False])
def test_whatever_happens_to_a_note_is_seen(tmp_path, monkeypatch, is_watched):
    if not is_watched:
        monkeypatch.setattr(NotesWatch, "take_changes", lambda self: None)
    memory = memory_in(tmp_path)
    path = note(memory, "one.md", "alpha")
    assert sources(memory, "alpha") == ["one.md"]
    with path.open("a") as file:
        file.write(" beta")
    assert sources(memory, "beta") == ["one.md"]
    path.rename(path.with_name("two.md"))
    assert sources(memory, "beta") == ["two.md"]
    note(memory, "later/deep.md", "gamma")
    assert sources(memory, "gamma") == ["later/deep.md"]
    note(memory, "later/deep.md", "delta")
    assert sources(memory, "delta") == ["later/deep.md"]
    path.with_name("two.md").unlink()
    assert sources(memory, "beta") == []
    memory.notes.directory.rename(tmp_path / "away")
    assert search(memory, "gamma").hits == []
    note(memory, "one.md", "epsilon")
    assert sources(memory, "epsilon") == ["one.md"]
    assert sources(memory, "gamma") == []


def test_what_cannot_be_read_is_left_out_and_said(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", "readable")
    note(memory, "binary.md", "").write_bytes(b"\0\1\2" * 100)
    note(memory, "latin.md", "").write_bytes("grüß".encode("latin-1"))
    found = search(memory, "readable")
    assert [hit.source for hit in found.hits] == ["MEMORY.md"]
    assert sorted(remark.split(":")[1].strip() for remark in found.remarks) == ['"binary.md"', '"latin.md"']
    note(memory, "latin.md", "readable now")
    assert len(search(memory, "readable").hits) == 2


def test_a_note_that_was_left_out_is_forgotten(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "a.md", "text")
    assert sources(memory, "text") == ["a.md"]
    note(memory, "a.md", "").write_bytes(b"\0\1\2" * 100)
    assert sources(memory, "text") == []


@pytest.mark.parametrize("damage", ["nonsense", "torn", "words", "no table", "no facts"])
def test_a_damaged_index_is_set_aside_and_made_anew(tmp_path, damage):
    memory = memory_in(tmp_path, embedder=Topics())
    for number in range(30):
        note(memory, f"{number}.md", f"cat number {number} " * 40)
    assert len(search(memory, "cat", 50).hits) == 30
    memory.close()
    harm(tmp_path / ".forge" / "memory.db", damage)
    memory = memory_in(tmp_path, embedder=Topics())
    note(memory, "0.md", "dog")
    found = search(memory, "cat", 50)
    while "no" not in damage and len(found.hits) < 29:  # the damage may be found only by a later search
        found = search(memory, "cat", 50)
    assert len([hit for hit in found.hits if "cat" in hit.text]) == 29
    aside = [path.name for path in (tmp_path / ".forge").iterdir() if ".corrupt-" in path.name]
    assert aside, found.remarks
    assert any("set aside" in remark and "built from the notes" in remark for remark in found.remarks)
    assert search(memory, "cat").remarks == []


def harm(path: Path, damage: str) -> None:
    if damage == "nonsense":
        path.write_bytes(b"this is no database " * 1_000)
    elif damage == "torn":
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    else:
        database = sqlite3.connect(path)
        if damage == "words":
            database.execute("UPDATE words_data SET block = x'ffffffffffffffff' WHERE id > 10")
        else:
            database.execute("DROP TABLE pieces" if damage == "no table" else "DELETE FROM facts")
        database.commit()
        database.close()


def test_a_database_that_cannot_be_written_is_searched_all_the_same(tmp_path, monkeypatch):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", "old words")
    assert sources(memory, "old") == ["MEMORY.md"]
    note(memory, "more.md", "new words " * 10_000)
    with memory._open_follower().index.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
    found = search(memory, "words")
    assert [hit.source for hit in found.hits] == ["MEMORY.md"]
    assert "is the disk full?" in found.remarks[0]
    with memory._open_follower().index.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert search(memory, "words").remarks == []
    assert set(sources(memory, "words", 200)) == {"MEMORY.md", "more.md"}


def test_where_nothing_can_be_written_the_index_is_in_memory(tmp_path, monkeypatch):
    memory = memory_in(tmp_path)
    note(memory, "MEMORY.md", "words")
    monkeypatch.setattr(follow, "state_directory", lambda workspace: Path("/elsewhere"))
    assert sources(memory, "words") == ["MEMORY.md"]
    assert not (tmp_path / ".forge" / "memory.db").exists()
    assert memory.stats()["index"] == ""


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_any_moment_the_index_is_right_or_becomes_right(tmp_path, rounds):
    state_directory(tmp_path, "memory")
    for round_ in range(rounds):
        killed(child("index", tmp_path, f"r{round_}"), 1 + round_ % 3)
        memory = memory_in(tmp_path)
        said = {name: memory.notes.text(name) for name in memory.names()}
        expected = sorted((name, *chunk[1:], chunk.text) for name, text in said.items() for chunk in split_note(text))
        assert pieces(memory) == expected
        memory._open_follower().index.check()
        counts: dict[str, Any] = memory._open_follower().index.counts()
        assert counts["vectors"] + counts["without_vector"] == counts["chunks"] == len(expected)
        memory.close()
    assert not [path for path in (tmp_path / ".forge").iterdir() if "corrupt" in path.name]


def test_two_processes_write_and_find_side_by_side(tmp_path):
    children = [child("search", tmp_path, name) for name in ("alpha", "beta")]
    for one in children:
        one.communicate(timeout=150)  # which closes its pipe
    assert [one.returncode for one in children] == [0, 0]
    memory = memory_in(tmp_path)
    assert memory.stats()["chunks"] == 40
    memory._open_follower().index.check()


def test_an_index_made_anew_by_another_process_is_noticed(tmp_path):
    one, other = memory_in(tmp_path, embedder=Topics()), memory_in(tmp_path, embedder=Topics())
    note(one, "a.md", "cat")
    note(one, "b.md", "dog")
    search(one, "cat"), search(other, "cat")
    (one.notes.directory / "a.md").unlink()
    asyncio.run(other.reindex(anew=True))
    note(one, "c.md", "kitten")
    assert sources(one, "cat") == sources(other, "cat")
    assert set(sources(one, "cat")) == {"b.md", "c.md"}


def test_an_index_of_a_newer_version_is_left_alone(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "a.md", "cat")
    search(memory, "cat")
    memory.close()
    database = sqlite3.connect(tmp_path / ".forge" / "memory.db")
    database.execute("UPDATE parts SET version = 99")
    database.commit()
    database.close()
    with pytest.raises(ToolError, match="newer Forge"):
        search(memory_in(tmp_path), "cat")


def test_a_closed_memory_holds_nothing_open(tmp_path):
    memory = memory_in(tmp_path)
    note(memory, "a.md", "cat")
    before = len(os.listdir("/proc/self/fd"))
    search(memory, "cat")
    memory.close()
    assert open_below(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # the threads' loops come and go
    assert sources(memory, "cat") == ["a.md"]
    memory.close()
