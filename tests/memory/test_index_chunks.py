"""A note in pieces: nothing is lost, nothing is twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forge.memory.index import LONGEST_PIECE, NoteChunk, split_note

LINES = st.lists(
    st.one_of(
        st.sampled_from(["", "  ", "# Heading", "## Another", "```", "- item", "text " * 30, "x" * 2_500]),
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40),
    ),
    max_size=60,
)


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_line_is_in_exactly_one_piece(lines, end):
    chunks = split_note(end.join(lines))
    covered: dict[int, str] = {}
    for (first, last), text in _joined(chunks):
        for number, line in zip(range(first, last + 1), text.split("\n"), strict=True):
            assert number not in covered
            covered[number] = line
    expected = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    assert {number: line for number, line in covered.items() if line.strip()} == expected
    assert all(len(chunk.text) <= LONGEST_PIECE for chunk in chunks)


def _joined(chunks):
    """Pieces of one long line put together again, less the blanks that were left out."""
    found: dict[tuple[int, int], str] = {}
    for chunk in chunks:
        key = (chunk.line_start, chunk.line_end)
        found[key] = found.get(key, "") + chunk.text
    return found.items()


def test_a_heading_begins_a_piece_and_stays_with_what_follows():
    assert split_note("# Day\n\n## 10:00\n\none\n\n## 11:00\n\ntwo\n") == [
        NoteChunk("# Day\n\n## 10:00\n\none", 1, 5),
        NoteChunk("## 11:00\n\ntwo", 7, 9),
    ]


def test_a_heading_inside_code_is_none():
    assert len(split_note("text\n```\n# comment\n```\n")) == 1


def test_what_is_appended_leaves_the_pieces_before_it_as_they_are():
    text = "".join(f"## {hour}\n\nentry {hour}\n\n" for hour in range(20))
    assert split_note(text + "## 99\n\nmore\n")[:20] == split_note(text)


def test_a_blank_note_has_no_pieces():
    assert split_note("") == split_note("\n \n\t\n") == []
