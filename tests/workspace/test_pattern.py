"""Search patterns: what is understood, what is refused and where."""

from __future__ import annotations

import re

import pytest

from forge.workspace.expression import Expressions
from forge.workspace.pattern import BadPattern, literal_pattern, read_pattern

REFUSED = {
    "(": ("unclosed group", 1),
    "a(b": ("unclosed group", 2),
    ")": ("unopened group", 1),
    "ab)": ("unopened group", 3),
    "[": ("unclosed character class", 1),
    "ab[c": ("unclosed character class", 3),
    "[[]": ("unclosed character class", 2),
    "*": ("repetition operator missing expression", 1),
    "a|+": ("repetition operator missing expression", 3),
    "(?": ("unclosed group", 1),
    "(?z)": ("unrecognized flag", 3),
    "(?#x)": ("unrecognized group", 1),
    "a{3,2}": ("invalid repetition count range, the start must be <= the end", 2),
    "a{99999999999}": ("more than 65,535 repetitions", 2),
    "[z-a]": ("invalid character class range, the start must be <= the end", 2),
    "x\\": ("incomplete escape sequence", 2),
    r"\Z": ("unrecognized escape sequence", 1),
    r"\é": ("unrecognized escape sequence", 1),
    r"a\x4": ("invalid hexadecimal digit", 2),
    r"\x{110000}": ("hexadecimal literal is not a Unicode scalar value", 1),
    r"[\b]": ("invalid escape sequence found in character class", 2),
    "(?P<n>a)(?P<n>b)": ("duplicate capture group name", 13),
    "(?P<1>a)": ("invalid capture group name", 5),
    "(" * 101: ("more than 100 groups inside each other", 101),
    "[" * 1_000: ("more than 100 groups inside each other", 102),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_a_bad_pattern_is_refused_with_its_position(text):
    with pytest.raises(BadPattern) as refusal:
        read_pattern(text)
    problem, position = REFUSED[text]
    assert (refusal.value.problem, refusal.value.position) == (problem, position)


@pytest.mark.parametrize("text", ["a\nb", r"a\nb", r"\x0a", "[\n]"])
def test_a_line_break_cannot_be_matched(text):
    with pytest.raises(BadPattern, match="line by line"):
        read_pattern(text)


def test_a_line_break_in_plain_text_cannot_either():
    with pytest.raises(BadPattern, match=r"line by line.* at position 2"):
        literal_pattern("a\nb")


def test_a_brace_that_counts_nothing_is_a_brace():
    assert read_pattern("func() {").source == r"func() \{"
    assert read_pattern("a{,2}").source == r"a\{,2}"
    assert read_pattern("a{2}").source == "a{2}"


@pytest.mark.parametrize("text", ["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "(?>a)"])
def test_what_only_python_knows_is_marked(text):
    assert read_pattern(text).only_python


@pytest.mark.parametrize("text", [r"\p{Greek}", r"\pL", "[a&&b]", "[a-z--b]", r"\b{start}", "(?-u:a)", "[[^a]b]"])
def test_what_only_ripgrep_knows_is_marked(text):
    assert read_pattern(text).only_ripgrep


@pytest.mark.parametrize("text", ["a+b", r"\w+\.py$", "(?P<name>x)", "(?i)a", "[[:alpha:]]", r"\x{e9}"])
def test_the_common_part_is_for_both(text):
    pattern = read_pattern(text)
    assert not pattern.only_python
    assert not pattern.only_ripgrep


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("needle", (b"needle",)),
        (r"def \w+_total", (b"_total",)),
        ("foo|barbaz", (b"foo", b"barbaz")),
        ("foo|b", ()),
        ("(?i)needle", ()),
        ("(abc)?", ()),
        ("(abc)+d", (b"abc",)),
        ("(?!abc)", ()),
        ("é+longer", (b"longer",)),
    ],
)
def test_texts_that_a_match_must_contain_are_found(text, hints):
    assert Expressions(read_pattern(text)).hints == hints


@pytest.mark.parametrize(
    ("text", "content", "expected"),
    [
        (r"\w", "é", True),
        (r"^\w+$", "e\u0301", True),  # a mark is part of a word
        (r"\w", "½", False),
        (r"\d", "٣", True),
        (r"\s", "\u3000", True),
        (r"\s", "\x1c", False),
        (r"\bé", "aé", False),
        ("(?i)É", "é", True),
        ("(?i)s", "ſ", True),
        ("(?i)k", "\u212a", True),
        ("(?i)i", "ı", False),
        ("(?i)[a-z]", "İ", False),
        ("^.$", "日", True),
        ("^[^a]$", "é", True),
        ("a$", "a\r", True),
        (r"\s$", "a\r", False),
        (r"a\r$", "a\r", True),
        ("a.b", "a\rb", False),
    ],
)
def test_characters_mean_what_they_mean_to_ripgrep(text, content, expected):
    expression, searched = Expressions(read_pattern(text)).matching(f"{content}\n".encode())
    assert bool(expression.search(searched)) is expected


def test_bytes_that_are_no_text_are_no_character():
    expression, searched = Expressions(read_pattern("a.b")).matching(b"a\xffb\n")
    assert expression.search(searched) is None
    expression, searched = Expressions(read_pattern("b")).matching(b"a\xffb\n")
    assert expression.search(searched)


def test_what_only_the_compiler_sees_is_an_error_of_it():
    with pytest.raises(re.error, match="look-behind"):
        Expressions(read_pattern("(?<=a+)b")).check()
    Expressions(read_pattern("(?<=a)b")).check()
