"""Patterns take time that grows with the text, and find what Python's would find."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.safe_regex import Pattern, PatternError, SearchClock, TooLong


def found(source: str, text: str) -> list[str]:
    return [text[start:end] for start, end in Pattern(source).spans(text, SearchClock())]


@pytest.mark.parametrize("source", [r"(a+)+$", r"(a|aa)+$", r"(.*a){20}b", r"(\w+\s?)*!"])
def test_no_pattern_explodes(source):
    started = time.process_time()
    assert not Pattern(source).is_in("a" * 100_000 + "c", SearchClock())
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("(", "unclosed group, at character 1"),
        ("ab[c", "unclosed character class, at character 3"),
        ("*", "repetition operator missing expression, at character 1"),
        ("x(?!y)", "look-around, including look-ahead and look-behind, is not supported, at character 2"),
        (r"(a)\1", "backreferences are not supported, at character 4"),
        ("", "it is empty"),
        ("x" * 3_000, "it has 3,000 characters"),
        ("a{2000}", "repeat a part 2,000 times"),
        ("(?:(a{40}b){40})", "repeat a part 1,600 times"),
        (r"(?:\w{30}){30}", "too large when compiled"),
    ],
)
def test_what_is_no_pattern_says_why_and_where(source, why):
    with pytest.raises(PatternError, match=re.escape(why)):
        Pattern(source)


@pytest.mark.parametrize(
    "source", [r"a{2}b{3}", r"[{100}]{9}", r"\d{4}-\d{4}", r"\{2000\}", "(?x) a b # c", r"(?i)\bx", r"\p{Greek}", "a|b"]
)
def test_ordinary_patterns_are_fine(source):
    Pattern(source)


@pytest.mark.parametrize(
    ("source", "text", "parts"),
    [
        (r"sk-[a-z0-9]{8,}", "x sk-abcdefgh12345 y sk-1234567890", ["sk-abcdefgh12345", "sk-1234567890"]),
        (r"\w+@x\.com", "hi john@x.com and ann@x.com", ["john@x.com", "ann@x.com"]),
        (r"\bfoo\b", "foobar foo xfoo foo", ["foo", "foo"]),
        (r"(\d{4}-?){3,4}", "n 1111-2222-3333-4444 z", ["1111-2222-3333-4444"]),
        (r"^a.*b$", "axxb\nno ab\nab", ["axxb", "ab"]),
        (r"(?s)BEGIN.*?END", "a BEGIN x\ny END b", ["BEGIN x\ny END"]),
        (r"(?i)key: \S+", "KEY: one\r\nkey: two", ["KEY: one", "key: two"]),
        (r"é+", "caféé", ["éé"]),
        (r"password.*END", f"a password{'x' * 500}END b", [f"password{'x' * 500}END"]),
        (r"passwort: \w+", "Passwort passwort: größe9, da", ["passwort: größe9"]),
        (r"[\w-]+@x", "straße-ö@x", ["straße-ö@x"]),
        (r"\D+", "12é٣4", ["é"]),
        (r"\bfoo.*\b", "xx foo passé.", ["foo passé"]),
        (r"[[:alpha:]_]+\s\w", "ab_ ä", ["ab_ ä"]),
    ],
)
def test_it_says_where(source, text, parts):
    assert found(source, text) == parts


@pytest.mark.parametrize(
    "source", [r"(?x) a b  # together", r"caf\u00e9", "[a-z--b]+", "[a[bc]]", "[a-z&&[^b]]", r"[^\W\d]+"]
)
def test_what_only_one_engine_can_read_is_found_without_its_place(source):
    assert not Pattern(source).tells_where
    assert Pattern(source).is_in("ab café", SearchClock())
    assert found(source, "ab café") == []


def test_more_finds_than_can_be_told_apart_are_one():
    spans = list(Pattern("a").spans("a " * 20_000, SearchClock(600)))
    assert spans[-1].end == 40_000
    assert len(spans) < 20_000


@settings(max_examples=200)
@given(
    st.sampled_from([r"a+b?", r"\bab\b", r"[ab]{2,3}c", r"a.c", r"(ab|c)+", r"b[^a]*c", r"^a|c$"]),
    st.text(alphabet="abc \n", max_size=60),
)
def test_all_that_python_finds_is_found(source, text):
    covered = {place for start, end in Pattern(source).spans(text, SearchClock()) for place in range(start, end)}
    for match in re.finditer(source, text, re.MULTILINE):
        assert set(range(*match.span())) <= covered


def test_a_long_text_is_searched_to_its_end():
    text = "x" * 3_000_000
    assert Pattern("needle").is_in(f"{text}needle", SearchClock())
    assert Pattern("needle").is_in(f"{text[: 1024 * 1024 - 3]}needle{text}", SearchClock())
    assert not Pattern("needle").is_in(text, SearchClock())


def test_time_that_is_up_ends_the_search():
    with pytest.raises(TooLong):
        Pattern("a").is_in("b", SearchClock(0.0, iter([0.0, 1.0]).__next__))


@pytest.mark.parametrize(
    "source",
    [
        r"a\sb",
        "a[^b]c",
        r"a\W",
        r"a\D",
        "(?s)a.c",
        "(?is:a.c)",
        "[[:^alpha:]]",
        r"[\t-\r]",
        "[\t-z]",
        r"a\nb",
        r"\x0a",
        r"\pZ",
    ],
)
def test_a_pattern_that_may_cross_lines_is_known(source):
    assert Pattern(source).crosses_lines


@pytest.mark.parametrize("source", [r"sk-\w+", r"key=\S+", r"\bab\b", "a.c", r"\d{4}-\d{4}", r"a\.b\-c", "(?i)secret"])
def test_others_stay_in_their_line(source):
    assert not Pattern(source).crosses_lines
