"""Bytes to text and back, and line endings."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.workspace.text import DecodedText, decode, is_binary, line_ending_of, split_lines, with_endings_of

CODECS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
endings = st.sampled_from(["\n", "\r\n", "\r"])
contents = st.text(st.sampled_from("ab é\x0b\x0c\x85\u2028\t"), max_size=4)
lines = st.tuples(contents, endings)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(
    st.binary(max_size=200)
    | any_text.map(str.encode)
    | st.sampled_from(CODECS).flatmap(lambda codec: any_text.map(lambda text: ("\ufeff" + text).encode(codec)))
)
def test_any_bytes_come_back_the_same_or_are_refused(content):
    with suppress(ToolError):
        text = decode(content)
        assert text.encode_whole(text.text) == content


@pytest.mark.parametrize("codec", CODECS)
def test_a_byte_order_mark_is_taken_off_and_put_back(codec):
    content = "\ufeffgröße 鍵 😀\r\n".encode(codec)
    text = decode(content)
    assert text.text == "größe 鍵 😀\r\n"
    assert text.encoding == codec
    assert text.encode_whole("neu\n") == "\ufeffneu\n".encode(codec)


def test_a_file_without_a_mark_gets_none():
    assert decode(b"a\n") == DecodedText("a\n")
    assert decode(b"") == DecodedText("")
    assert DecodedText("").encode_whole("é") == "é".encode()


def test_a_second_mark_is_text():
    content = "\ufeff\ufeffa".encode()
    assert decode(content).text == "\ufeffa"


@pytest.mark.parametrize(
    "content", [b"caf\xe9\n", b"\xed\xa0\x80", b"\xc0\x80", b"\xff\xfea", b"\xff\xfe\x00\xd8a\x00", b"\xef\xbb\xbf\xff"]
)
def test_what_cannot_be_decoded_is_refused_with_the_place(content):
    with pytest.raises(ToolError, match=r"byte [0-9]+ cannot be decoded"):
        decode(content)


def test_the_place_counts_the_mark():
    with pytest.raises(ToolError, match="UTF-8 text: byte 5 "):
        decode(b"\xef\xbb\xbfab\xff")


def test_half_a_character_cannot_be_written():
    with pytest.raises(ToolError, match="line 2"):
        DecodedText("").encode_whole("a\n\ud800")
    assert DecodedText("").encode_whole("a\n😀") == "a\n😀".encode()


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (b"", False),
        (b"text\n", False),
        (b"a\0b", True),
        (b"x" * 4096 + b"\0", False),
        (b"x" * 4095 + b"\0", True),
        (b"\x01" * 3 + b"x" * 7, False),
        (b"\x01" * 4 + b"x" * 6, True),
        (b"\x1b[31mred\x1b[0m\t\r\n\f\b", False),
        ("日本語".encode(), False),
        ("\ufeffab".encode("utf-16-le"), False),
        ("\ufeffab".encode("utf-32-be"), False),
        ("ab".encode("utf-16-le"), True),
    ],
)
def test_binary_is_told_by_its_first_bytes(head, binary):
    assert is_binary(head) is binary
    if binary:
        with pytest.raises(ToolError, match="binary"):
            decode(head)
    else:
        assert decode(head)


@given(st.text(st.sampled_from("a\r\n\x0b\x85\u2028\ud800"), max_size=30))
def test_lines_join_back_to_the_text(text):
    split = split_lines(text)
    assert "".join(split) == text
    for line in split[:-1]:
        assert line.endswith(("\n", "\r"))
    for line in split:
        bare = line.removesuffix("\n").removesuffix("\r")
        assert "\n" not in bare
        assert "\r" not in bare


def test_only_three_endings_end_a_line():
    assert split_lines("a\nb\r\nc\rd\x0be\x85f\u2028g\r") == ["a\n", "b\r\n", "c\r", "d\x0be\x85f\u2028g\r"]
    assert split_lines("\r\r\n\n") == ["\r", "\r\n", "\n"]
    assert split_lines("") == []


@pytest.mark.parametrize(
    ("text", "ending"),
    [("", "\n"), ("a", "\n"), ("a\nb\r\nc\r\n", "\r\n"), ("a\nb\nc\r\n", "\n"), ("a\rb\r", "\r"), ("a\n\r\n", "\n")],
)
def test_the_most_frequent_ending(text, ending):
    assert line_ending_of(text) == ending


@pytest.mark.parametrize(
    ("old", "new", "written"),
    [
        ("a\r\nb\r\n", "a\nc\n", "a\r\nc\r\n"),
        ("a\rb\r", "a\nc", "a\rc"),
        ("a\nb\n", "a\nc\n", "a\nc\n"),
        ("a\nb\r\nc\rd", "a\nb\nc\nd", "a\nb\r\nc\rd"),
        ("a\nb\r\nc\r", "a\nX\nc\n", "a\nX\r\nc\r"),
        ("a\nb\r\n", "a\nb\nc\n", "a\nb\r\nc\r\n"),
        ("a\r\nb\n", "new\na\nb\n", "new\r\na\r\nb\n"),
        ("a\r\nb\nc", "a\nb\nc\nd\n", "a\r\nb\nc\nd\n"),
        ("a\r\nb\nc", "", ""),
        ("a\r\nb\n", "x\r\ny\nz\r", "x\r\ny\nz\r"),
        ("\r\n\n", "\n", "\r\n"),
    ],
)
def test_new_text_takes_the_endings_of_the_old(old, new, written):
    assert with_endings_of(old, new) == written


@given(
    st.lists(lines, max_size=12), st.booleans(), st.integers(0, 12), st.lists(contents, max_size=3), st.integers(0, 3)
)
def test_every_unchanged_line_keeps_its_own_ending(old, final, at, inserted, removed):
    """Lines are made different from each other, so that there is no doubt about which of them stayed."""
    numbered = [f"{number}{content}" for number, (content, _) in enumerate(old)]
    text = "".join(line + ending for line, (_, ending) in zip(numbered, old, strict=True)) + ("" if final else "last")
    fresh = [f"+{number}{content}" for number, content in enumerate(inserted)]
    kept = [*numbered[:at], *fresh, *numbered[at + removed :]]
    new = "".join(line + "\n" for line in kept) + ("" if final else "last")
    written = split_lines(with_endings_of(text, new))
    assert "".join(line.rstrip("\r\n") + "\n" * line.endswith(("\n", "\r")) for line in written) == new
    own = {line: ending for line, (_, ending) in zip(numbered, old, strict=True)}
    for line in written:
        bare = line.rstrip("\r\n")
        if bare in own:
            assert line == bare + own[bare]
