"""Finding the text to replace, rung by rung."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from forge.core.errors import ToolError
from forge.tools.file_edit.closest_text import describe_closest, find_closest, mark_whitespace
from forge.tools.file_edit.find_text import find

PYTHON = """\
def first(values):
    total = 0
    for value in values:
        total += value
    return total


def second(values):
    return max(values)
"""
TABS = "func f() {\n\tif x {\n\t\ty = 1\n\t}\n}\n"


def edited(text: str, old: str, new: str, *, replace_all: bool = False) -> tuple[str, str]:
    match = find(text, old, new, replace_all=replace_all)
    assert match is not None, "not found"
    return match.rung, match.apply_to(text)


@pytest.mark.parametrize(
    ("rung", "text", "old", "new", "after"),
    [
        ("exact", "a = 1\n", "1", "2", "a = 2\n"),
        ("exact", "a = 1\n", "a = 1\n", "", ""),
        ("exact", "a\nb", "b", "c", "a\nc"),
        ("exact", "a\nb", "b", "c\n", "a\nc\n"),
        ("exact", "a  b", "  ", r"\1 $& \g<0>", r"a\1 $& \g<0>b"),
        ("line numbers", PYTHON, "     4\t        total += value", "     4\t        total -= value", "-="),
        (
            "line numbers",
            PYTHON,
            "     8\tdef second(values):\n     9\t    return max(values)\n",
            "     8\tdef second(values):\n     9\t    # new\n    10\t    return min(values)\n",
            "def second(values):\n    # new\n    return min(values)\n",
        ),
        ("line numbers", PYTHON, "5→    return total\n6→\n7→", "    return total + 1\n\n", "total + 1\n\n\ndef second"),
        ("line numbers", "a\n\nb\n", "1\ta\n2\n3\tb", "x", "x\n"),
        ("line numbers", "a\nb\n", "1\ta\n2\tb", "a\n2\tB\nnew", "a\nB\nnew\n"),
        ("trailing whitespace", "first  \nsecond\t\nthird\n", "first\nsecond\n", "one\ntwo\n", "one\ntwo\nthird\n"),
        ("trailing whitespace", "first\nsecond\n", "first \nsecond  ", "one", "one\n"),
        ("trailing whitespace", "first\nsecond", "second\n", "third\n", "first\nthird\n"),
        ("trailing whitespace", "keep  \nsecond\n", "keep\nsecond \n", "keep\nnew\n", "keep  \nnew\n"),
        (
            "indentation",
            PYTHON,
            "for value in values:\n    total += value",
            "for one in values:\n    total += one",
            "    for one in values:\n        total += one\n",
        ),
        ("indentation", PYTHON, "\t\t    total = 0", "\t\t    total = 1\n\t\t        x", "    total = 1\n        x\n"),
        (
            "indentation",
            "if a:\n  b()\n",
            "    if a:\n      b()\n",
            "    if a:\n      c()\n\n  d()\n",
            "if a:\n  c()\n\nd()\n",
        ),
        (
            "indentation",
            "\t\tif a:\n\t\t\n\t\t\tb()\n",
            "if a:\n\n\tb()\n",
            "if a:\n\n\tc()\n",
            "\t\tif a:\n\t\t\n\t\t\tc()\n",
        ),
        (
            "whitespace",
            TABS,
            "    if x {\n        y = 1\n    }\n",
            "    if x {\n        y = 2\n        if z {\n            w()\n        }\n    }\n",
            "\tif x {\n\t\ty = 2\n\t\tif z {\n\t\t\tw()\n\t\t}\n\t}\n",
        ),
        (
            "whitespace",
            "if x:\n    y = 1\n",
            "if x:\n\ty = 1\n",
            "if x:\n\ty = 2\n\tif z:\n\t\tw()\n",
            "if x:\n    y = 2\n    if z:\n        w()\n",
        ),
        (
            "whitespace",
            "x   =  1  # one\ny = 2\n",
            "x = 1 # one\ny = 2\n",
            "x = 1 # one\ny = 3\n",
            "x   =  1  # one\ny = 3\n",
        ),
        ("punctuation", "say “hello” — it’s me…\n", 'say "hello" - it\'s me...', "bye", "bye\n"),
        ("punctuation", 'say "hello"\n', "say “hello”\n", "bye\n", "bye\n"),
        ("escapes", "first\n\tsecond\n", "first\\n\\tsecond", "one\\n\\ttwo", "one\n\ttwo\n"),
        ("escapes", 'print("x")\n', 'print(\\"x\\")', 'print(\\"y\\")', 'print("y")\n'),
        ("escapes", "first\nsecond\n", "first\\nsecond", 'a = "\\n"\nb', 'a = "\\n"\nb\n'),
        ("blank lines", "first\nsecond\n", "\nfirst\n", "\none\n", "one\nsecond\n"),
        ("blank lines", "first\nsecond\n", "first\n\n", "one\n\n", "one\nsecond\n"),
        ("blank lines", "first\nsecond\n", "\n\nfirst\n  \n", "one", "one\nsecond\n"),
        ("blank lines", "a\nfirst", "first\n\n\n", "one", "a\none"),
    ],
)
def test_each_rung_finds_what_it_is_for(rung, text, old, new, after):
    found, changed = edited(text, old, new)
    assert found == rung
    if text in (PYTHON, TABS):
        assert after in changed
        assert len(changed.split("\n")) - len(text.split("\n")) == new.count("\n") - old.count("\n")
    else:
        assert changed == after


@pytest.mark.parametrize(
    ("text", "old", "lines"),
    [
        ("a\nb\na\n", "a", "2 times: on lines 1, 3"),
        ("aaa", "aa", "2 times: on line 1"),
        ("x = 1  \ny\nx = 1\t\ny\n", "x = 1\ny\n", "on lines 1, 3"),
        ("  total = 1\n    total = 1\n", "\ttotal = 1\n", "apart from whitespace): on lines 1, 2"),
        ("if a:\n    total = 1\n        total = 1\n", "  total = 1", "2 times: on lines 2, 3"),
        ("\ttotal = 1\n\t\ttotal = 1\n", "  total = 1\n", "apart from whitespace): on lines 1, 2"),
    ],
)
def test_several_places_are_an_error_with_the_lines(text, old, lines):
    with pytest.raises(ToolError) as refused:
        find(text, old, "new")
    assert lines in refused.value.message
    assert "replace_all" in refused.value.suggestion
    match = find(text, old, "new", replace_all=True)
    assert match is not None
    assert len(match.spans) == (1 if text == "aaa" else 2)


def test_an_ambiguous_rung_is_not_saved_by_a_looser_one():
    text = "total = 1 \nx\ntotal = 1  \nx\n  total = 1\n  x\n"
    with pytest.raises(ToolError, match="trailing whitespace"):
        find(text, "total = 1\nx\n", "new")


def test_many_places_are_counted_only_so_far():
    with pytest.raises(ToolError, match="at least 100 times") as refused:
        find("a\n" * 1_000_000, "a", "b")
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("if a:\n    b = 1\n  c = 2\n", "if a:\n  b = 1\n\tc = 3\n"),
        ("x = 1\n", "x = 2"),
        ("prefix total = 1\n", "total  =  1"),  # not a whole line
        ("\t}\n", "    }\n"),  # too short
        ("\tx\n", "    x\n"),
        ("\t});\n", "    });\n"),
        ("abc\n", "a bc\n"),  # words are not joined
        ("a\nb\n", "1\ta\n3\tb"),  # no line numbers: they do not count up
        ("a\nb\n", "1\ta\nb "),
        ("first\n\nsecond\n", "first\nsecond\n"),
        ("anything\n", "\n \n"),
        ("", "something"),
    ],
)
def test_what_is_not_there_is_not_found(text, old):
    match = find(text, old, "new")
    assert match is None


def test_lines_with_another_shape_match_only_as_whitespace():
    old = "for value in values:\n  total += value\n"
    rung, changed = edited(PYTHON, old, old.replace("+=", "-=") + "  log(total)\n")
    assert rung == "whitespace"
    assert "    for value in values:\n        total -= value\n        log(total)\n    return" in changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if ready:\nstart()\n", "if ready:\nstart()\nwait()\n"),  # one indentation of old is two in the file
        ("    if ready:\nstart()\n", "    if ready:\nstop()\n"),  # less deep where the file is deeper
        ("if ready:\n\tstart()\n        wait()\n", "if ready:\n    stop()\n"),  # between two, and neither agrees
    ],
)
def test_a_replacement_whose_indentation_has_two_readings_is_refused(old, new):
    text = "def main():\n    if ready:\n        start()\n"
    text += "        wait()\n" if "wait" in old else ""
    assert find(text, old, new) is None
    straight = "if ready:\n  start()\n" + ("  wait()\n" if "wait" in old else "")  # its twin has one reading
    rung, changed = edited(text, straight, straight.replace("start", "stop") + "  log()\n")
    assert rung == "whitespace"
    assert changed == text.replace("start", "stop") + "        log()\n"


BELOW_A_CASE = "        a = 1\n        b = 2\n"


def test_a_text_with_a_line_at_the_margin_is_not_moved_to_the_left():
    """The same lines stand elsewhere, less deep: the text was written for a deeper place that has changed since."""
    text = "if x:\n    a = 1\n    b = 2\n    if y:\n        a = 1\n        b = 3\n"
    assert find(text, BELOW_A_CASE, f"{BELOW_A_CASE}\ndef g():\n    return 1\n") is None
    tabs = text.replace("    ", "\t")
    assert find(tabs, BELOW_A_CASE, f"{BELOW_A_CASE}\ndef g():\n    return 1\n") is None


def test_a_text_without_one_is_moved_to_the_left():
    text = "if x:\n    a = 1\n    b = 2\n"
    found, changed = edited(text, BELOW_A_CASE, f"{BELOW_A_CASE}\n        def g():\n            return 1\n")
    assert found == "indentation"
    assert changed == f"{text}\n    def g():\n        return 1\n"
    found, changed = edited(text.replace("    ", "\t"), BELOW_A_CASE, f"{BELOW_A_CASE}        c = 3\n")
    assert (found, changed) == ("whitespace", "if x:\n\ta = 1\n\tb = 2\n\tc = 3\n")


def test_a_typographic_line_that_stays_is_written_as_in_the_file_also_if_it_moves():
    text = 'say("one")\nx = 1\ny = 2\nend()\n'
    old = "say(“one”)\nx = 1\ny = 2\nend()\n"
    new = "x = 1\ny = 2\nend()\nsay(“one”)\nsay(“new”)\n"
    assert edited(text, old, new) == ("punctuation", 'x = 1\ny = 2\nend()\nsay("one")\nsay(“new”)\n')


def test_an_indentation_between_two_known_ones_is_found_from_both():
    text = "x:\n    y:\n        z\nfirst:\n        second\n"
    changed = edited(text, "first:\n    second \n", "first:\n  third\n    second\n")[1]
    assert changed == text.replace("first:\n", "first:\n    third\n")
    text = "x:\n    first:\n        second\n"  # old_text begins in the middle of a line, and ends with a space
    assert find(text, "first:\n        second \n", "first:\n        second\n    third\n") is None


def test_a_span_is_never_far_longer_than_the_text():
    assert find("x =" + " " * 1_000 + "1\n", "x = 1 \n", "y") is None
    assert find("x =" + " " * 50 + "1\n", "x = 1 \n", "y") is not None


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\n", "x\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb\r\n", "x\r\n", "x\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\r\nb\r\n", "x\n", "x\r\nc\r\n"),
        ("a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n", "x\ny\nc\n"),
        ("a\nb\n", "b\n", "b\r\n", "a\nb\r\n"),
        ("a\rb\rc", "b", "x\ny", "a\rx\ry\rc"),
        ("a\rb\rc", "c", "x\ny", "a\rb\rx\ry"),
        ("a\r\nb\nc\rd", "b\nc", "B\nC", "a\r\nB\nC\rd"),
        ("a\r\nb\nc\rd", "a\nb\nc\nd", "a\nb\nnew\nc\nd", "a\r\nb\nnew\nc\rd"),
        ("a\r\nb\nc\rd", "b", "1\n2", "a\r\n1\n2\nc\rd"),
        ("a\r\nb\nc\rd", "c", "1\n2", "a\r\nb\n1\r2\rd"),
        ("a\r\nb\nc\rd", "d", "1\n2", "a\r\nb\nc\r1\r2"),
        ("one\r\n\ttwo  \r\n", "one\n    two\n", "one\n    2\n    3\n", "one\r\n\t2\r\n\t3\r\n"),
        ("a\r\n\r\nb", "\n\nb", "\nb", "a\r\nb"),
        ("a", "a", "x\ny", "x\ny"),
    ],
)
def test_line_endings_are_those_of_the_lines_replaced(text, old, new, after):
    assert edited(text, old, new)[1] == after


texts = st.text(st.sampled_from("ab \t\n\r"), max_size=30)
pieces = st.text(st.sampled_from("ab \t\n"), min_size=1, max_size=4)


@given(st.text(st.sampled_from("ab \n\\é"), max_size=40), pieces, st.text(max_size=5), st.booleans())
def test_an_exact_text_is_replaced_as_python_does(text, old, new, replace_all):
    places = [i for i in range(len(text)) if text.startswith(old, i)]
    assume(places)
    if len(places) > 1 and not replace_all:
        with pytest.raises(ToolError):
            find(text, old, new)
        return
    assert edited(text, old, new, replace_all=replace_all) == ("exact", text.replace(old, new))


@given(texts, pieces, st.text(st.sampled_from("xy\n"), max_size=5))
def test_what_lies_outside_stays_as_it_is(text, old, new):
    places = [i for i in range(len(text)) if text.startswith(old, i)]
    try:
        match = find(text, old, new)
    except ToolError:
        return
    if match is None:
        assert not places or "\r" in text
        return
    (span,) = match.spans
    changed = match.apply_to(text)
    assert changed.startswith(text[: span.start])
    assert changed.endswith(text[span.end :])
    assert plain(span.replacement) == new


@given(
    st.lists(st.sampled_from(["alpha = 1", "beta  = 2", "gamma", "", "  delta"]), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_loose_rungs_match_whole_lines_only(lines, ending, data):
    text = "".join(data.draw(st.sampled_from(["", " ", "\t"])) + line + ending for line in lines)
    start = data.draw(st.integers(0, max(len(lines) - 1, 0)))
    old = "\n".join(
        line.replace("  ", " ") + data.draw(st.sampled_from(["", " "])) for line in lines[start : start + 2]
    )
    try:
        match = find(text, old, "NEW")
    except ToolError:
        return
    if match is not None and match.rung != "exact":
        (span,) = match.spans
        assert span.start == 0 or text[span.start - 1] in "\r\n"
        assert span.end == len(text) or text[span.end] in "\r\n" or text[span.end - 1] in "\r\n"


@example("total = 1\n", "", "  ", "\n")
@given(st.text(st.sampled_from("ab\n \t"), min_size=5, max_size=40), texts, texts, texts)
def test_any_texts_are_found_or_not(text, before, after, new):
    try:
        match = find(before + text + after, text, new)
    except ToolError:
        return
    assert match is not None or "\r" in before + after


def plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


LARGE = "".join(f"    line_{number} = {number}  # of which there are many\n" for number in range(60_000))  # 3 MB


@pytest.mark.parametrize(
    ("text", "old"),
    [
        (LARGE, "\tline_59999 = 59999  # of which there are many\nnothing"),
        ("x y\n" * 200_000, "x  y\n" * 1_000 + "abc"),
        pytest.param("x y\n " * 100_000, " x y\nx y\n" * 500, marks=pytest.mark.slow),
        ("x" * 5_000_000, "x" * 1_000 + "y"),
        (" " * 5_000_000, "abc"),
        pytest.param("\n" * 500_000, "abc\n\n", marks=pytest.mark.slow),
    ],
    ids=["many lines", "repeated", "repeated shapes", "one line", "spaces", "blank"],
)
def test_no_text_makes_it_slow(text, old):
    start = time.process_time()
    with suppress(ToolError):  # ambiguous
        assert find(text, old, "new") is None
    describe_closest(text, old, "new")
    assert time.process_time() - start < 20  # it takes one; what grows with the square takes minutes


def test_the_closest_lines_are_found():
    region = find_closest(PYTHON, "for value in value:\n    total = total + value\n")
    assert region is not None
    assert region.first == 2
    assert find_closest(PYTHON, "nothing of the kind, 123456") is None
    assert find_closest("", "abc") is None
    assert find_closest(PYTHON, "\n \n") is None


def test_the_hint_shows_lines_and_whitespace():
    said = describe_closest(TABS, "    if x {\n        z = 1\n", "other")
    assert "     3\t→→y = 1" in said
    assert "lines 2-3" in said
    assert "file:     →if x {" in said
    assert "old_text: ····if x {" in said


def test_the_hint_says_that_the_new_text_is_there():
    said = describe_closest("a\r\nvalue = 2\r\n", "value = 1\n", "value = 2\n")
    assert "already there, at line 2" in said
    assert "already" not in describe_closest("value = 2\n", "value = 1\n", "value = 3\n")
    assert "already" not in describe_closest("value = 2\n", "value = 1\n", "")


def test_whitespace_that_is_easily_overlooked_is_shown():
    assert mark_whitespace("\t  a b   c \t ") == "→··a b···c·→·"
    assert mark_whitespace("   ") == "···"
    assert mark_whitespace("x" * 500) == "x" * 120 + "…"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(("old", "new"), [("aa", "b"), ("a", ""), ("\n", "\n\n"), ("a\n", "b\n")])
def test_very_many_places_are_replaced_as_few_are(ending, old, new):
    few, many = (f"aaa{ending}" * times for times in (3, 5_000))
    match = find(few, old, new, replace_all=True)
    assert match is not None
    found = find(many, old, new, replace_all=True)
    assert found is not None
    assert (found.rung, found.count * 3) == (match.rung, match.count * 5_000)
    assert found.apply_to(many) * 3 == match.apply_to(few) * 5_000
