"""Pages of files: the right lines, in any encoding, at a price that grows with the offset alone."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.workspace.text import page as module
from forge.workspace.text import split_lines
from forge.workspace.text.page import PageBounds, PageLine, number_lines, read_page

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")

ENCODINGS = {
    "utf-8": b"",
    "utf-8 with its mark": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
}
LONG = 1_000_000
TEXTS = st.text(st.sampled_from("ab\n\r\té日😀\x0b\x0c\x1c\x85\u2028\u2029\ufeff"), max_size=60).filter(
    lambda text: not text.startswith("\ufeff")  # it would be taken for a mark
)


def page_of(content: bytes, first: int = 1, lines: int = 0, size: int = 0, characters: int = LONG, **options):
    return read_page(io.BytesIO(content), first, PageBounds(lines, size, characters), **options)


def texts(page):
    return [line.text + line.ending for line in page.lines]


def file_of(text: str, encoding: str) -> bytes:
    return ENCODINGS[encoding] + text.encode(encoding.split(" ")[0])


@pytest.fixture(params=[1, 3, 7, 256 * 1024])
def block(request, monkeypatch):
    """Files are read in blocks; where these end must not matter."""
    monkeypatch.setattr(module, "BLOCK", request.param)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a\n"]),
        (b"a\nb", ["a\n", "b"]),
        (b"\n\n", ["\n", "\n"]),
        (b"a\r\nb\rc\nd", ["a\r\n", "b\r", "c\n", "d"]),
        (b"\r\r\n\n\r", ["\r", "\r\n", "\n", "\r"]),
        ("a\x0cb\u2028c\x1cd\x85e\n".encode(), ["a\x0cb\u2028c\x1cd\x85e\n"]),
        (b"\xef\xbb\xbfa\n", ["a\n"]),
        (b"\xff\xfea\0\r\0\n\0b\0", ["a\r\n", "b"]),
    ],
)
def test_a_whole_file_is_one_page(content, expected, block):
    page = page_of(content)
    assert texts(page) == expected
    assert (page.total, page.exact, page.ended) == (len(expected), True, True)


@pytest.mark.parametrize(("first", "lines", "expected"), [(1, 2, "ab"), (2, 2, "bc"), (4, 5, "d"), (3, 0, "cd")])
def test_a_page_is_the_lines_asked_for(first, lines, expected, block):
    page = page_of(b"a\nb\nc\nd", first, lines)
    assert [line.text for line in page.lines] == list(expected)
    assert page.last == first + len(expected) - 1
    assert (page.total, page.exact) == (4, True)
    assert page.ended == (page.last == 4)


@pytest.mark.parametrize(
    ("content", "first", "total"), [(b"", 2, 0), (b"a\nb\n", 3, 2), (b"a\nb", 3, 2), (b"a\r", 9, 1), (b"a", 10**400, 1)]
)
def test_past_the_end_there_is_nothing_but_the_number_of_lines(content, first, total, block):
    page = page_of(content, first)
    assert (page.lines, page.total, page.exact, page.ended) == ([], total, True, True)


LINES = st.sampled_from([b"", b"a", b"some words", "é日😀".encode(), b"x" * 30, b"y" * 200, b"\xff", b"tab\there"])
ENDS = st.sampled_from([b"\n"] * 6 + [b"\r\n"] * 3 + [b"\r", b""])


@settings(max_examples=400)
@given(
    st.lists(st.tuples(LINES, ENDS), max_size=30).map(lambda parts: b"".join(text + end for text, end in parts)),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([0, 1, 9, 30, 100, 101, 102, 103, 500, 10_000]),
    st.sampled_from([1, 3, 10, 31, 2_000]),
    st.sampled_from([1, 7, 256 * 1024]),
    st.sampled_from([1, 50, 1_000_000]),
)
def test_lines_taken_together_are_those_taken_one_by_one(content, first, lines, size, characters, block, exact):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        assert_same_one_by_one(content, first, lines, size, characters, exact=exact)


@pytest.mark.parametrize("first", [999_990, 999_999, 1_000_000])
@pytest.mark.parametrize("size", [0, 50, 100])
def test_the_width_of_large_numbers_counts(first, size):
    assert_same_one_by_one(b"\n" * (first - 1) + b"some words\r\n" * 20, first, 0, size, 2_000)


def assert_same_one_by_one(content: bytes, *bounds: int, **options: Any) -> None:
    def read() -> Any:
        try:
            return page_of(content, *bounds, **options)
        except ToolError as error:
            return error.message

    together = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_take_short_lines", lambda block, first, bounds: ([], 0, block))
        assert read() == together


@settings(max_examples=300)
@given(TEXTS, st.sampled_from(sorted(ENCODINGS)), st.integers(1, 9), st.integers(0, 60), st.integers(1, 9))
def test_pages_reassemble_to_the_file(text, encoding, lines, size, block):
    """Whatever its encoding, its endings, where pages end and where blocks do."""
    content = file_of(text, encoding)
    whole: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        while True:
            page = page_of(content, len(whole) + 1, lines, size)
            assert page.total == len(split_lines(text))
            whole += texts(page)
            if page.ended:
                break
            assert page.lines
    assert whole == split_lines(text)


@given(st.binary(max_size=40), st.integers(1, 5), st.integers(0, 5), st.integers(1, 5), st.sampled_from([2, LONG]))
def test_any_bytes_give_a_page_or_a_refusal(content, first, lines, block, characters):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        try:
            page = page_of(content, first, lines, characters=characters, exact=8)
        except ToolError:
            return
    "\n".join(number_lines(first, page.lines)).encode()


@given(TEXTS, st.integers(1, 12), st.integers(1, 9), st.sampled_from(sorted(ENCODINGS)))
def test_a_long_line_is_clipped_and_the_rest_counted(text, characters, block, encoding):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        page = page_of(file_of(text, encoding), characters=characters)
    for line, whole in zip(page.lines, split_lines(text), strict=True):
        body = whole.rstrip("\r\n")
        assert line.text == body[:characters]
        assert line.more == len(body) - len(line.text)
        assert line.ending == whole[len(body) :]


def test_a_line_is_shown_with_its_number_and_what_was_clipped():
    assert number_lines(7, [PageLine("text", "\n"), PageLine("more", "")]) == ["     7\ttext", "     8\tmore"]
    assert number_lines(1_000_000, [PageLine("text", "\n")]) == ["1000000\ttext"]
    assert number_lines(7, [PageLine("text", "\n", 12)]) == ["     7\ttext[… 12 more characters]"]
    assert number_lines(7, [PageLine("text", "", 12, whole=False)]) == ["     7\ttext[… at least 12 more characters]"]


def test_a_line_of_just_the_limit_is_whole():
    page = page_of("é".encode() * 2_000 + b"\n" + b"x" * 2_001, characters=2_000)
    assert [(len(line.text), line.more) for line in page.lines] == [(2_000, 0), (2_000, 1)]


@pytest.mark.parametrize("size", [1, 100, 10 * 1024])
def test_a_page_keeps_to_its_size_and_ends_on_a_whole_line(size, block):
    content = "".join(f"line {number} é\r\n" for number in range(1_500)).encode()
    page = page_of(content, 10, size=size)
    shown = "".join(f"{line}\n" for line in number_lines(10, page.lines)).encode()
    following = page_of(content, page.last + 1, 1)
    more = len(number_lines(page.last + 1, following.lines[:1])[0].encode()) + 1
    assert len(shown) <= size < len(shown) + more or len(page.lines) == 1
    assert (page.total, page.exact, page.ended) == (1_500, True, False)


def test_the_first_line_is_shown_however_small_the_page():
    assert texts(page_of(b"a long line\nanother\n", size=1)) == ["a long line\n"]


def test_beyond_the_bound_lines_are_not_counted_to_the_end(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    page = page_of(b"abcd\n" * 100, 1, 2, exact=50)
    assert (page.total, page.exact, page.ended) == (10, False, False)
    page = page_of(b"abcd\n" * 100, 60, 2, exact=50)
    assert page.total > page.last == 61
    assert (page.exact, page.ended) == (False, False)
    page = page_of(b"abcd\n" * 100, 99, 2, exact=50)
    assert (page.total, page.exact, page.ended) == (100, True, True)


def test_an_endless_line_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    file = io.BytesIO(b"x" * 1_000)
    page = read_page(file, 1, PageBounds(characters=5), exact=50)
    assert page.lines[0].text == "x" * 5
    assert page.lines[0].more > 40
    assert (page.lines[0].whole, page.exact, page.ended) == (False, False, False)
    assert file.tell() < 100


def test_a_page_ends_before_an_endless_line_that_is_not_its_first(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    page = page_of(b"a\n" + b"x" * 1_000, characters=5, exact=50)
    assert texts(page) == ["a\n"]
    assert (page.exact, page.ended) == (False, False)
    assert page_of(b"a\n" + b"x" * 1_000, 2, characters=5, exact=50).lines[0].text == "x" * 5


def test_what_is_not_text_is_refused_where_it_would_be_shown():
    content = b"good\nbad \xff\ngood\n"
    with pytest.raises(ToolError, match="in line 2 cannot be decoded"):
        page_of(content)
    assert texts(page_of(content, 3)) == ["good\n"]
    assert page_of(content, 1, 1).total == 3


@pytest.mark.parametrize("content", [b"\xff\xfea", b"\xff\xfe\x00\xd8a\0", b"\xff\xfe\0\0abc"])
def test_half_a_character_of_utf_16_or_32_is_refused(content):
    with pytest.raises(ToolError, match="cannot be decoded"):
        page_of(content)


def test_a_file_that_shrinks_ends_where_it_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "BLOCK", 100)
    path = tmp_path / "log"
    path.write_bytes(b"0123456789abcdefghi\n" * 50)

    def shrink() -> bool:
        os.truncate(path, 250)
        return False

    with path.open("rb", buffering=0) as file:
        page = read_page(file, 1, PageBounds(), stopped=shrink)
    assert (page.total, page.exact, page.ended) == (13, True, True)
    assert page.lines[-1].text == "0123456789"


def test_a_file_that_grows_is_read_as_far_as_it_goes(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "BLOCK", 100)
    path = tmp_path / "log"
    path.write_bytes(b"0123456789abcdefghi\n" * 10)
    grown: list[int] = []

    def grow() -> bool:
        if not grown:
            grown.append(os.write(descriptor, b"more\n"))
        return False

    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        with path.open("rb", buffering=0) as file:
            page = read_page(file, 1, PageBounds(), stopped=grow)
    finally:
        os.close(descriptor)
    assert page.total == 11
    assert page.lines[-1].text == "more"


def test_a_search_for_a_far_page_can_be_stopped(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    file = io.BytesIO(b"abcd\n" * 100)
    with pytest.raises(ToolError) as refusal:
        read_page(file, 90, PageBounds(), stopped=lambda: file.tell() >= 50)
    assert refusal.value.kind == "cancelled"
    assert file.tell() == 50


def test_a_far_page_needs_no_more_memory_than_a_near_one(tmp_path):
    import tracemalloc

    path = tmp_path / "large"
    with path.open("wb") as file:
        file.writelines(b"%07d some text that makes it a line\n" % number for number in range(500_000))
    with path.open("rb", buffering=0) as file:
        tracemalloc.start()
        page = read_page(file, 499_000, PageBounds(100, 50 * 1024))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert page.lines[0].text.startswith("0498999 ")
    assert peak < 4 * 1024 * 1024
