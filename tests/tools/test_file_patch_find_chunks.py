"""Chunks find their places, and what they do not touch stays as it is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.tools.file_patch.find_chunks import Misplaced, apply_chunks
from forge.tools.file_patch.parse import PatchChunk, SignedLine, parse_patch
from forge.workspace.text import split_lines
from forge.workspace.text.diff import unified_diff


def apply(text: str, body: str) -> str:
    (operation,) = parse_patch(f"*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch")
    return apply_chunks(text, operation.chunks, "f")


def misplaced(text: str, body: str) -> str:
    with pytest.raises(Misplaced) as error:
        apply(text, body)
    assert error.value.suggestion
    return error.value.message


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("a\nb\nc\n", " a\n-b\n+B\n c", "a\nB\nc\n"),
        ("a\nb\nc\n", "-b", "a\nc\n"),
        ("a\nb\n", "-a\n-b", ""),
        ("a\n", "-a\n+x\n+y", "x\ny\n"),
        ("a\nb\na\nb\nc\n", "-b\n+d\n c", "a\nb\na\nd\nc\n"),
        ("a\nb\na\nb\n", "-b\n+c\n@@\n-b\n+d", "a\nc\na\nd\n"),
        ("x\ny\n", " y\n+z", "x\ny\nz\n"),
        ("a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n"),
    ],
)
def test_lines_are_replaced_where_the_chunk_fits(text, body, expected):
    assert apply(text, body) == expected


CODE = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


@pytest.mark.parametrize("anchor", ["class B:", "class B", "  class B:", "class B: "])
def test_an_anchor_says_where_to_look(anchor):
    changed = apply(CODE, f"@@ {anchor}\n-        return 1\n+        return 2")
    assert changed == CODE[:-2] + "2\n"


def test_anchors_nest():
    text = "f:\n x\nclass A:\n f:\n  x\nclass B:\n f:\n  x\n"
    assert apply(text, "@@ class B:\n@@ f:\n+  y") == text.replace("class B:\n f:\n", "class B:\n f:\n  y\n")


def test_an_anchor_may_be_repeated_as_the_first_line():
    text = "def f():\n    pass\ndef g():\n    pass\n"
    assert apply(text, "@@ def f():\n def f():\n-    pass\n+    return") == text.replace("pass", "return", 1)


def test_the_line_of_an_anchor_itself_is_not_the_place_if_there_is_another_below():
    assert apply("a\nb\na\n", "@@ a\n-a\n+c") == "a\nb\nc\n"
    assert apply("a\nb\n", "@@ a\n-a\n+c") == "c\nb\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("@@ b\n+x", "a\nb\nx\nc\n"),
        ("@@ b\n+x\n\n", "a\nb\nx\nc\n"),
        ("+x", "a\nb\nc\nx\n"),
        ("@@\n+x", "a\nb\nc\nx\n"),
        ("@@ a\n+x\n*** End of File", "a\nb\nc\nx\n"),
        ("@@ a\n+x\n@@ b\n+y", "a\nx\nb\ny\nc\n"),
        ("+x\n@@\n-b", "a\nc\nx\n"),
        ("@@ -0,0 +1 @@\n+x", "x\na\nb\nc\n"),
        ("@@ -2,0 +3 @@\n+x", "a\nb\nx\nc\n"),
    ],
)
def test_a_chunk_that_only_adds_lands_at_its_anchor_or_at_the_end(body, expected):
    assert apply("a\nb\nc\n", body) == expected


@pytest.mark.parametrize(
    ("text", "body", "lines"),
    [
        ("a\nb\na\nb\n", "-b\n+c", "2 and 4"),
        ("a\na\na\n", "-a\n-a", "1 and 2"),
        ("b\na\nb\nb\n", "-b\n+c\n@@\n-b\n+d", "3 and 4"),  # two of three
        ("b\na\nb\n", "-b\n+c\n@@\n+x", "1 and 3"),
        (CODE, "@@     def f(self):\n-        return 1\n+        return 2", "3 and 7"),  # so does the anchor
        (CODE, "@@     def f(self):\n+        pass", "3 and 7"),
        ("k:\nf:\nk:\nx\nf:\nx\n", "@@ k:\n@@ f:\n-x", "4 and 6"),
        ("“a”\n“a”\n", '-"a"\n+b', "1 and 2"),
    ],
)
def test_a_chunk_that_fits_twice_is_refused_with_the_lines(text, body, lines):
    message = misplaced(text, body)
    assert message.startswith("line ")
    assert f"fits more than once in f: at lines {lines}" in message


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("a\nb\na\nb\n", "-b\n+c\n*** End of File", "a\nb\na\nc\n"),
        ("a\nb\na\nb\n", "@@ -4 +4 @@\n-b\n+c", "a\nb\na\nc\n"),
        ("b\na\nb\n", "-b\n+c\n@@\n-b\n+d", "c\na\nd\n"),  # two of two: there is only one way
        ("b\na\nb\nz\n", "-b\n+c\n@@\n-a\n@@\n-z", "c\nb\n"),
        ("b\nk:\nb\nb\n", "@@ k:\n-b\n+c", "b\nk:\nc\nb\n"),  # an anchor that occurs once
        ("k:\nk:\nb\n", "@@ k:\n-b\n+c", "k:\nk:\nc\n"),  # both anchors lead to the same place
        ("b \na\nb\n", "-b\n+c", "b \na\nc\n"),  # exact once
    ],
)
def test_a_chunk_with_one_place_needs_no_more(text, body, expected):
    assert apply(text, body) == expected


def test_blank_lines_before_the_next_chunk_are_no_context_the_file_must_have():
    assert apply("a\nb\n", "-a\n+x\n\n\n@@\n-b\n+y\n\n") == "x\ny\n"
    assert apply("a\nb\na\n\nb\n", "-a\n+x\n\n") == "a\nb\nx\n\nb\n"


def test_the_end_of_the_file_is_a_place():
    text = "a\nb\na\nb\n"
    assert apply(text, " a\n-b\n+c\n*** End of File") == "a\nb\na\nc\n"
    assert "not its end" in misplaced("a\nb\nc\n", "-b\n*** End of File")


def test_the_numbers_of_a_diff_decide_between_equal_places():
    text = "a\nx\na\nx\na\nx\n"
    assert apply(text, "@@ -4 +4 @@\n-x\n+y") == "a\nx\na\ny\na\nx\n"
    assert apply(text, "@@ -40 +40 @@\n-x\n+y") == "a\nx\na\nx\na\ny\n"
    assert apply(text, "@@ -1 +1 @@\n-x\n+y") == "a\ny\na\nx\na\nx\n"


def test_trailing_space_and_typographic_marks_are_looked_past_and_kept():
    text = "say(“hi”)  \nnext – line\nlast\n"
    assert apply(text, ' say("hi")\n next - line\n-last\n+end') == text.replace("last", "end")
    assert apply(text, '-say("hi")\n+say("bye")') == text.replace("say(“hi”)  ", 'say("bye")')


def test_an_exact_place_is_preferred_to_a_looser_one_before_it():
    assert apply("a \na\n", "-a\n+b") == "a \nb\n"


def test_indentation_is_not_looked_past():
    assert 'no line "    x = 1"' in misplaced("x = 1\n", "-    x = 1")
    assert apply("    x = 1\n", "-    x = 1\n+    x = 2") == "    x = 2\n"


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("a\r\nb\nc\rd\r\n", " a\n-b\n+B\n c\n-d\n+D\n+E", "a\r\nB\nc\rD\r\nE\r\n"),
        ("a\r\nb\n", " a\n+x\n b", "a\r\nx\r\nb\n"),
        ("a\r\nb\rc\nd\r\n", " b\n-c\n+C\n d", "a\r\nb\rC\nd\r\n"),
        ("a\r\nb\n", "-a\n-b\n+x\n+y\n+z", "x\r\ny\nz\n"),
        ("a\r\n", "+x", "a\r\nx\r\n"),
        ("a\rb\r", "@@ a\n+x", "a\rx\rb\r"),
        ("", "+x", "x\n"),
    ],
)
def test_lines_keep_their_endings_and_new_ones_take_a_neighbours(text, body, expected):
    assert apply(text, body) == expected


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        ("a\nb", "-a\n+x", "x\nb"),
        ("a\nb", " b\n+c", "a\nb\nc"),
        ("a\r\nb", "+c", "a\r\nb\r\nc"),
        ("a", "+b\n+c", "a\nb\nc"),
        ("a\nb", "-b\n+c", "a\nc\n"),
        ("a\nb", "-b", "a\n"),
    ],
)
def test_a_missing_last_newline_stays_missing_unless_the_last_line_is_replaced(text, body, expected):
    assert apply(text, body) == expected


@pytest.mark.parametrize(
    ("text", "body", "words"),
    [
        ("a\nb\nc\n", " a\n-x", 'line 3 of the patch: the lines of this chunk are not in f: at line 2 it has "b"'),
        ("a\n", " a\n-x", 'at line 2 the file ends where the patch has "x"'),
        (
            "a\nb\n",
            "-b\n@@\n-a",
            "line 4 of the patch: the lines of this chunk are not in f after line 2, but at line 1",
        ),
        ("a\nnew\n", " a\n-old\n+new", "the new lines are there already, at line 1"),
        ("a\n", "@@ zebra\n-a", 'line 3 of the patch: f has no line "zebra"'),
        ("a\nb\n", "@@ b\n@@ a\n-b", 'has no line "a" after line 2'),
        ("", "-a", 'no line "a"'),
        ("a\n", "@@ -9,0 +9 @@\n+x", "it has 1 lines"),
    ],
)
def test_a_chunk_without_a_place_says_why(text, body, words):
    assert words in misplaced(text, body)


def test_a_long_file_of_equal_lines_is_searched_in_one_go():
    text = "x\n" * 100_000
    body = "\n".join([" x"] * 5_000 + ["-y"])
    assert "where the patch has" in misplaced(text, body)


@st.composite
def scripts(draw: st.DrawFn) -> list[SignedLine]:
    """Every line of a file with what becomes of it, and lines that come."""
    words = st.sampled_from(["a", "b", "  c", "", "d  ", "“e”"])
    signs = st.sampled_from("  -+")
    script = [SignedLine(*pair) for pair in draw(st.lists(st.tuples(signs, words), min_size=1, max_size=12))]
    assume(any(line.sign != "+" and line.text for line in script))  # something to find the place by
    return script


def of(script: list[SignedLine], *signs: str) -> list[str]:
    return [line.text for line in script if line.sign in signs]


@given(scripts())
def test_a_chunk_of_the_whole_file_gives_the_edited_file(script):
    before = "".join(f"{text}\n" for text in of(script, " ", "-"))
    after = "".join(f"{text}\n" for text in of(script, " ", "+"))
    assert apply_chunks(before, [PatchChunk(1, tuple(script))], "f") == after


@given(scripts(), st.data())
def test_with_any_endings_what_stays_stays_as_it_is(script, data):
    """Also where the last line has none: it gets one only when others come below it, and then the last has none."""
    endings = st.sampled_from(["\n", "\r\n"])
    old = [(line, line.text + data.draw(endings)) for line in script if line.sign != "+"]
    bare = data.draw(st.booleans()) and bool(old[-1][0].text and script[-1].text)
    if bare:
        old[-1] = (old[-1][0], old[-1][0].text)
    result = split_lines(apply_chunks("".join(text for _, text in old), [PatchChunk(1, tuple(script))], "f"))
    assert [line.rstrip("\r\n") for line in result] == of(script, " ", "+")
    coming = iter(result)
    standing = iter(old)
    for line in script:
        now = next(coming) if line.sign != "-" else ""
        _, was = next(standing) if line.sign != "+" else (line, "")
        if line.sign == " " and not (bare and was == old[-1][1]):
            assert now == was
    if bare and old[-1][0].sign == " ":
        assert result[-1] == result[-1].rstrip("\r\n")


@given(st.integers(1, 40), st.data())
def test_chunks_with_little_context_give_the_edited_file(size, data):
    """Numbered lines are found wherever they are; each chunk changes a stretch of them."""
    lines = [f"line {number}" for number in range(size)]
    stretches = sorted(data.draw(st.lists(st.integers(0, size), max_size=8, unique=True)))
    expected, chunks, here = [], [], 0
    for start, end in zip(stretches[::2], stretches[1::2], strict=False):
        new = data.draw(st.lists(st.text("xyz", max_size=3), max_size=3))
        around = data.draw(st.integers(0, 2))
        head = lines[max(here, start - around) : start]
        expected += lines[here:start] + new
        marked = [*(SignedLine(" ", text) for text in head), *(SignedLine("-", text) for text in lines[start:end])]
        chunks.append(PatchChunk(1, (*marked, *(SignedLine("+", text) for text in new))))
        here = end
    expected += lines[here:]
    assert apply_chunks("".join(f"{text}\n" for text in lines), chunks, "f") == "".join(
        f"{text}\n" for text in expected
    )


texts = st.lists(st.sampled_from(["a", "b", "c", "", " ", "-", "+x", "@@", "*** End Patch"]), max_size=12).map(
    "\n".join
)


@given(texts, texts, st.booleans(), st.integers(0, 3))
def test_a_diff_of_two_texts_makes_one_of_the_other(before, after, ended, context):
    before, after = (before + "\n", after + "\n") if ended else (before, after)
    diff = unified_diff(before, after, "f", context=context)
    if diff:
        (operation,) = parse_patch(diff)
        assert apply_chunks(before, operation.chunks, "f") == after


changed = st.tuples(st.sampled_from(" -+"), st.sampled_from("ab")).map(lambda pair: SignedLine(*pair))
chunk_lines = st.lists(changed | st.just(SignedLine(" ", "")), min_size=1, max_size=8)


@given(
    st.lists(st.sampled_from(["a", "b", " ", "\n", "\r\n"]), max_size=30).map("".join),
    st.lists(
        st.builds(
            PatchChunk,
            st.just(1),
            chunk_lines.map(tuple),
            st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
            st.booleans(),
            st.none() | st.integers(0, 5),
            st.booleans(),
        ),
        max_size=4,
    ),
)
def test_any_chunks_are_placed_or_explained(text, chunks):
    with suppress(ToolError):
        result = apply_chunks(text, chunks, "f")
        added = sum(line.sign == "+" for chunk in chunks for line in chunk.lines)
        removed = sum(line.sign == "-" for chunk in chunks for line in chunk.lines)
        assert len(split_lines(result)) == len(split_lines(text)) + added - removed
